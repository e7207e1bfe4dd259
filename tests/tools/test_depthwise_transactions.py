"""Memory transactions of depthwise forms: what is counted, and what the page says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import depthwise_transactions, host_executor, transactions
from benchmarks.ablations import REUSE_FORMS
from benchmarks.papers import depthwise_transactions as page
from benchmarks.papers.text import NOT_MEASURED
from convx import _core

H200 = _core.Device.known_device("h200")


def test_layers_have_every_side_filter_and_stride() -> None:
    cases = depthwise_transactions.layers()
    shapes = {(case.shape.size, case.shape.filter, case.shape.stride) for case in cases}
    assert {(side, filter, 1) for side in (112, 56, 28, 14, 7) for filter in (3, 5)} <= shapes
    assert {(14, 3, 2), (14, 5, 2)} <= shapes and len(cases) == len(shapes) == 16
    for case in cases:
        shape = depthwise_transactions.few_channels(case).shape
        assert shape.groups == shape.in_channels == shape.out_channels <= case.shape.in_channels
        assert (shape.size, shape.filter, shape.stride) == (
            case.shape.size,
            case.shape.filter,
            case.shape.stride,
        )
        assert shape.out_channels * shape.out_size**2 <= 1 << 15


def test_forms_have_rows_to_reuse() -> None:
    """And are the same few channels or all."""
    for case in depthwise_transactions.layers():
        few = depthwise_transactions.problem_of(depthwise_transactions.few_channels(case), 1)
        whole = depthwise_transactions.problem_of(case, depthwise_transactions.IMAGES)
        found = depthwise_transactions.plans(few, H200)
        assert found == depthwise_transactions.plans(whole, H200) and set(found) == set(REUSE_FORMS)
        rows = {
            name: int(plan.split("rows=")[1].split()[0]) for name, plan in found.items() if "rows=" in plan
        }
        assert rows["no_reuse"] == rows["column_reuse"] == 1 < min(rows["row_reuse"], rows["strip"])


def test_counts_are_of_the_programs_that_have_the_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, str]] = []

    def counted(program: Path, lines: list[str]) -> list[tuple[str, host_executor.Counts]]:
        ran.append((program.name, lines[0]))
        return [("", host_executor.Counts(1, 2, 3, 4))]

    monkeypatch.setattr(host_executor, "counted", counted)
    built: list[str] = []

    def build(name: str) -> Path:
        built.append(name)
        return Path(name)

    records = list(depthwise_transactions.counted(depthwise_transactions.layers()[:2], build))
    assert built == ["strip", "shared_rows"]
    assert [program for program, _ in ran] == [*["strip"] * 4, "shared_rows"] * 2
    assert ran[0][1].startswith(
        "device=h200 dtype=float32 channels=2 groups=2 size=112,112 filter=3,3 stride=1,1"
    )
    assert " only=no_reuse+lanes=32+threads=" in ran[0][1]
    first = records[0]
    assert (first["by"], first["case"], first["results"]) == (transactions.EXECUTOR, "CONV1-3x3", 2 * 112**2)
    assert [first[name] for name in ("loads", "load_sectors", "stores", "store_sectors")] == [1, 2, 3, 4]


def test_committed_counts_are_of_plans_that_there_are() -> None:
    """And each form of fewer reuses asks for more."""
    records = [
        each for each in transactions.load(depthwise_transactions.PATH) if each["by"] == transactions.EXECUTOR
    ]
    for case in depthwise_transactions.layers():
        few = depthwise_transactions.few_channels(case)
        own = {each["contender"]: each for each in records if each["case"] == case.name}
        plans = depthwise_transactions.plans(depthwise_transactions.problem_of(few, 1), H200)
        assert list(own) == list(plans.values())
        for what in ("loads", "load_sectors"):
            asked = {candidate: own[plan][what] for candidate, plan in plans.items()}
            assert asked["strip"] < asked["column_reuse"] < asked["no_reuse"]
            assert asked["strip"] < asked["row_reuse"] < asked["no_reuse"]


def record(contender: str, loads: int, by: str = "some GPU", **layer: int) -> dict[str, Any]:
    counts = {"loads": loads, "load_sectors": 4 * loads, "stores": 32, "store_sectors": 128}
    shape = {"filter": 3, "stride": 1, "size": 14} | layer
    return {"by": by, "results": 1024, "contender": contender, **shape, **counts}


def test_the_page_has_loads_for_a_warps_results() -> None:
    records = [record("depthwise/no_reuse rows=1", 320), record("depthwise/strip rows=4", 80)]
    records += [record("native", 288), record("depthwise/no_reuse rows=1", 640, stride=2)]
    records.append(record("depthwise/strip rows=7", 160, by=transactions.EXECUTOR))
    text = "\n".join(page.depthwise_transactions(records))
    assert "| 3x3 | 1 | 14x14 | 3.1 | 10.0 (1.25) | 2.5 (0.31) | 9.0 (1.12) |" in text
    assert "| 3x3 | 2 | 14x14 | - | 20.0 (2.50) | - | - |" in text
    assert "| 3x3 | 1 | 14x14 | 1.0 (0.12) | 1.0 (0.12) | 1.0 (0.12) |" in text  # stores
    assert "geomean over these layers: `strip` 4.00 times fewer loads and 4.00 times fewer sectors." in text
    assert "Counted by an some GPU" in text and "Counted on the host executor" in text
    assert NOT_MEASURED in "\n".join(page.depthwise_transactions([]))


@pytest.mark.gpu
def test_contenders_on_a_gpu_are_the_forms_and_torch() -> None:
    names = [name for _, name, _ in depthwise_transactions._contenders(torch.device("cuda", 0))]
    assert set(depthwise_transactions.PEERS) | {"auto"} <= set(names)
    assert sum(name.startswith("depthwise/") for name in names) == 16 * len(REUSE_FORMS)
