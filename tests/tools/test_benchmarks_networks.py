"""The suites of whole networks, of memory and of random layers, and who comes first when times are taken."""

from __future__ import annotations

import json
import mmap
from collections import Counter
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import held_out, memory, networks, timing
from benchmarks.__main__ import main
from benchmarks.environment import device_slug
from benchmarks.results import best_peer, geomean
from benchmarks.suites import OPERATIONS
from convx.optimize import optimizing

CPU = torch.device("cpu")


def records_of(folder: Path, suite: str, *arguments: str) -> list[dict[str, Any]]:
    line = ["--suite", suite, *arguments, "--device", "cpu", "--quick", "--output", str(folder)]
    assert main(line) == 0
    path = folder / device_slug(CPU) / f"{suite}.json"
    records: list[dict[str, Any]] = json.loads(path.read_text())["records"]
    return records


def test_a_seed_draws_the_same_layers_of_every_kind() -> None:
    drawn, again = (list(held_out.problems(5, 54)) for _ in range(2))
    assert [problem.fields() for problem in drawn] == [problem.fields() for problem in again]
    assert [problem.fields() for problem in held_out.problems(6, 54)] != [one.fields() for one in drawn]
    assert Counter(problem.case.group for problem in drawn) == dict.fromkeys(held_out.KINDS, 3)
    for problem in islice(held_out.problems(7, 400), 0, None, 3):
        assert problem.bytes <= held_out.MOST_BYTES and problem.flops <= held_out.MOST_FLOPS
        assert (
            1 <= problem.batch <= 64 and problem.operation in OPERATIONS and min(problem.shape.out_maps) > 0
        )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [((), "needs a --seed"), (("--seed", "1", "--layout", "nchw"), "--layout has no say")],
)
def test_held_out_takes_a_seed_and_no_choice(
    arguments: tuple[str, ...], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        records_of(tmp_path, "held_out", *arguments)
    assert reason in capsys.readouterr().err


def test_random_layers_are_measured_beside_torch_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_out, "MOST_BYTES", 1 << 19)
    drawn = list(held_out.problems(3, 2))
    records = records_of(tmp_path, "held_out", "--seed", "3", "--count", "2")
    assert [record["case"] for record in records] == [problem.case.name for problem in drawn]
    for record in records:
        assert set(record["peers_us"]) == {"torch", "torch_again"} and record["convx_us"] > 0
        assert best_peer(record | {"peers_us": {"torch": 2.0, "torch_again": 1.0}}) == ("torch", 2.0)


def test_held_out_table_tells_choices_from_chance() -> None:
    def record(kind: str, method: str, us: float, again: float) -> dict[str, Any]:
        peers = {"torch": 1.0, "torch_again": again}
        return {"group": kind, "method": method, "convx_us": us, "peers_us": peers}

    rows = held_out.table(
        [
            record("a", "depthwise/strip", 0.5, 1.0),
            record("a", "depthwise/strip", 1.05, 1.2),
            record("a", "native", 1.01, 1.03),
            record("b", "native", 1.2, 1.0),
        ]
    ).splitlines()
    faster = f"{1 / geomean([0.5, 1.05]):.2f}"
    assert rows[-3:] == [
        f"| a | 3 | 2 | {faster} | 1, 0 | 1 | 0, 0 | 2, 1 |",
        "| b | 1 | 0 |  | 0, 0 | 1 | 1, 1 | 0, 0 |",
        f"| all | 4 | 2 | {faster} | 1, 0 | 2 | 1, 1 | 2, 1 |",
    ]


def test_memory_is_watched_step_after_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CPU_STEPS", 4)
    monkeypatch.setattr(memory, "EVERY", 2)
    used = iter([100, 300, 400, 450])
    monkeypatch.setattr(memory, "_used", lambda device: next(used))
    (record,) = records_of(tmp_path, "memory", "--case", "efficientnet_b0 nchw")
    assert record["bytes"] == {"2": 300, "4": 450} and record["grown_bytes"] == 150
    assert "| efficientnet_b0 nchw | 2 | 4 | 0.0 | 150 B |" in memory.table([record])


def test_memory_that_is_used_is_seen() -> None:
    before = memory._used(CPU)
    with mmap.mmap(-1, 1 << 26) as fresh:  # an allocator may have some left
        fresh.write(b"1" * len(fresh))
        assert memory._used(CPU) - before > len(fresh) // 2


def test_networks_run_converted_and_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "SIZE", 64)
    records = records_of(tmp_path, "networks", "--case", "resnet18*nchw")
    assert [record["operation"] for record in records] == ["inference", "train_step", "optimized"]
    for record in records:
        assert record["case"] == "resnet18 b1 float32 nchw" and set(record["peers_us"]) == {"torch"}
        assert record["convx_us"] > 0
    assert "| resnet18 b1 float32 nchw | train step |" in networks.table(records)
    assert "| optimized | 1 | float32 | nchw |" in networks.short_table(records)
    records[2]["peers_us"]["torch_graph"] = 321.0  # as on a GPU
    assert "| 321 |" in networks.table(records)
    assert "| optimized beside torch's graph | 1 | float32 | nchw |" in networks.short_table(records)


def test_networks_go_on_where_they_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def get_model(name: str, weights: None) -> nn.Module:
        """Whole networks take their time, and stop and go on like this one."""
        return nn.Sequential(nn.Conv2d(3, networks.CLASSES, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    torchvision = SimpleNamespace(models=SimpleNamespace(get_model=get_model))
    monkeypatch.setattr(networks, "import_torchvision", lambda: torchvision)
    monkeypatch.setattr(networks, "SIZE", 8)
    monkeypatch.setattr(optimizing, "choose", lambda *_: ())  # measuring layers is most of the time
    cases = ("networks", "--case", "resnet18*", "--resume")
    clock = count()  # asked at the beginning and before each case
    monkeypatch.setattr("benchmarks.__main__.time", SimpleNamespace(monotonic=lambda: next(clock)))
    stopped = records_of(tmp_path, *cases, "--seconds", "1.5")
    assert {record["case"] for record in stopped} == {"resnet18 b1 float32 nchw"}
    after = records_of(tmp_path, *cases)
    assert after[:3] == stopped and len(after) == 6


def test_each_contender_comes_first_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured while a contender was prepared does not count, unless there is nothing else."""
    order: list[str] = []

    def timer_of(call: Callable[[int], Any]) -> Callable[[], float]:
        name = str(call(0))
        prepared = False

        def timer() -> float:
            nonlocal prepared
            if not prepared:
                prepared = True
                return 100.0
            order.append(name)
            return 1.0 + len(order) % 2  # the first of a turn takes longer

        return timer

    monkeypatch.setattr(timing, "_cpu_timer", timer_of)
    calls: Any = {"a": lambda index: "a", "b": lambda index: "b"}
    times, failures = timing.measure(calls, 1, CPU, 7)
    assert Counter(order[::2]) == {"a": 3, "b": 3} and not failures
    assert times == {"a": 1.5, "b": 1.5}
    assert timing.measure(calls, 1, CPU, 1)[0] == {"a": 100.0, "b": 100.0}
