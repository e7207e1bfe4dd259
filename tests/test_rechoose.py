"""What auto takes since a fit, in results of a run before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import rechoose
from benchmarks.planner import plan_of
from benchmarks.results import Record, Results, key, load
from benchmarks.suites import Case, Problem, Shape
from convx import _core

H200 = _core.Device.known_device("h200")
LAYER = Problem(Case("P1", "P1-45", Shape(32, 28, 192, 1, 1, 1), (), ()), "forward", "float32", "nchw", 8)
TAKEN = plan_of(LAYER, H200)


def record(method: str, chosen_by: str, us: float, **others: Any) -> Record:
    facts: Record = {"warm": False, "floor_us": 1.0, "error": 4e-7, "error_ratio": 2.0}
    peers = {"peers_us": {"torch": 9.0, "matmul": 8.0}}
    own = {"method": method, "chosen_by": chosen_by, "convx_us": us}
    return LAYER.fields() | facts | peers | own | others


def results(*records: Record) -> Results:
    found = Results("pointwise", {"device": H200.name}, "python -m benchmarks", {})
    for each in records:
        found.add(each)
    return found


def auto(found: Results) -> Record:
    (row,) = [each for each in found.records.values() if each["chosen_by"] == "auto"]
    return row


def test_the_layer_is_not_native() -> None:
    assert TAKEN.startswith("pointwise/")


def test_takes_the_time_of_the_kernel_in_the_same_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = results(
        record("cuconv/split", "auto", 7.0),
        record("cuconv/split", "forced", 7.1),
        record(TAKEN, "forced", 5.0, error=1e-7, error_ratio=0.5),
    )
    path = tmp_path / "pointwise_candidates.json"
    before.write(path)
    assert rechoose.main([str(path)]) == 0
    assert "another kernel in 1 records; 0 have no time" in capsys.readouterr().out
    after = load(path)
    row = auto(after)
    assert (row["method"], row["convx_us"], row["error_ratio"]) == (TAKEN, 5.0, 0.5)
    assert row["chosen_later"] and row["peers_us"] == {"torch": 9.0, "matmul": 8.0}
    assert [each for each in after.records.values() if each["chosen_by"] == "forced"] == [
        each for each in before.records.values() if each["chosen_by"] == "forced"
    ]


@pytest.mark.parametrize(("method", "us"), [("native", 9.0), ("native/matmul", 8.0)])
def test_native_has_torchs_own_time_and_error(
    method: str, us: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rechoose, "plan_of", lambda problem, device: method)
    found = results(record(TAKEN, "auto", 7.0))
    assert rechoose.rechoose(found) == (1, 0)
    row = auto(found)
    assert (row["method"], row["convx_us"], row["error"], row["error_ratio"]) == (method, us, 2e-7, 1.0)
    gradient = results(record(TAKEN, "auto", 7.0, peers_us={}))
    assert rechoose.rechoose(gradient) == (0, 1)


def test_what_was_not_timed_or_is_the_same_stays() -> None:
    same, unknown = record(TAKEN, "auto", 7.0), record("cuconv/split", "auto", 7.0)
    found = results(same)
    assert rechoose.rechoose(found) == (0, 0) and auto(found) is same
    found = results(unknown)
    assert rechoose.rechoose(found) == (0, 1) and auto(found) is unknown
    assert key(unknown) in found.records
