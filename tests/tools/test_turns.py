"""Times of contenders that take turns, and what is said about their ratio."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable

import pytest
import torch

from benchmarks.turns import between, slower_rows
from convx.tune import turns

CPU = torch.device("cpu")


def test_drift_of_the_machine_does_not_change_ratios() -> None:
    drift = [1.0, 1.1, 3.0, 0.9, 1.6]
    first, second = [10 * each for each in drift], [9 * each for each in drift]
    second[1] *= 4  # a single disturbance
    assert turns.paired_medians([first, second]) == pytest.approx([11, 9.9])


def test_contenders_come_first_in_turn_without_the_collector() -> None:
    order: list[str] = []

    def call(name: str) -> None:
        assert not gc.isenabled()
        order.append(name)

    compared = turns.compare({"torch": lambda: call("torch"), "convx": lambda: call("convx")}, CPU, 3, 2)
    once = ["torch", "torch", "convx", "convx"]
    assert order == [*once, *reversed(once), *once] and gc.isenabled()
    assert compared.over_first["torch"] == (1, 1) and set(compared.us) == {"torch", "convx"}


def test_the_fastest_decides_how_many_calls_are_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(calls: dict[str, Callable[[], float]], *_: object) -> turns.Compared:
        return turns.Compared({name: call() for name, call in calls.items()}, {})

    monkeypatch.setattr(turns, "compare", compare)
    assert turns.turn_of([lambda: 2000.0, lambda: 100.0], CPU) == (30, 60000)
    assert turns.turn_of([lambda: 50000.0], CPU) == (1, 50000)


def test_the_sure_ratio_holds_the_true_one_nearly_always() -> None:
    draw = random.Random(0)
    held = 0
    for _ in range(400):
        drift = [draw.uniform(1, 3) for _ in range(40)]
        times = [1.03 * each * draw.lognormvariate(0, 0.1) for each in drift]
        low, high = turns.sure_ratio(times, drift)
        held += low <= 1.03 <= high
        assert high - low < 0.15
    assert 0.93 < held / 400 < 0.99


def test_of_few_turns_nothing_is_surer_than_what_was_seen() -> None:
    assert turns.sure_ratio([1.0, 2.0, 3.0], [1.0, 1.0, 1.0]) == (1, 3)


def test_rows_that_are_slower_are_told_from_chance() -> None:
    def record(convx_us: float, low: float) -> dict[str, object]:
        return {"convx_us": convx_us, "peers_us": {"torch": 100.0}, "over_torch": [low, 1.2]}

    rows = [record(110, 1.05), record(110, 0.99), record(101, 1.0)]
    told = "More than 2 % slower than torch: 2 of 3 rows"
    assert slower_rows(rows) == f"{told}; with 95 % confidence 1."
    assert between(rows[0]) == "1.05 and 1.20"
    for row in rows:
        del row["over_torch"]
    assert slower_rows(rows) == f"{told}." and between(rows[0]) == ""
