"""Tuning records as one file: what is exported, merged and refused."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tuned import depthwise, here, own_folder, plans, record

import convx
from convx import _core
from convx.__main__ import main as command
from convx.tune import records
from convx.tune.measuring import GENERATED
from convx.tune.sharing import FORMAT, Merged, export_records, merge_records

__all__ = ["own_folder"]


def elsewhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """On another machine of the same kind."""
    monkeypatch.setenv("CONVX_CACHE_DIR", str(folder))
    records.forget()


def test_what_one_machine_has_found_serves_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = depthwise(), depthwise(batch=4)
    for problem in (first, second):
        assert records.save(record(problem, plans(problem)[0]))
    path = tmp_path / "records.json"
    assert export_records(path) == 2
    elsewhere(monkeypatch, tmp_path / "other")
    assert _core.select(first, here()).plan.source != "tuned"
    assert merge_records(path) == Merged(2, 0, 0)
    assert [_core.select(problem, here()).plan.source for problem in (first, second)] == ["tuned"] * 2
    records.forget()
    assert records.load() == 2  # as later processes do
    assert merge_records(path) == Merged(0, 2, 0)


def test_what_was_tuned_stays_and_first_calls_give_way(tmp_path: Path) -> None:
    path = tmp_path / "records.json"
    tuned, quick = record(us=2.0), replace(record(us=3.0), by=records.FIRST_CALL)
    for own, given, left in ((tuned, quick, tuned), (quick, tuned, tuned), (quick, quick, quick)):
        path.write_text(json.dumps({"format": FORMAT, "records": [asdict(replace(given, us=9.0))]}))
        assert records.save(own)
        merged = merge_records(path)
        found = records.find(depthwise(), here())
        assert found is not None and found.by == left.by
        assert (found.us == 9.0) == (merged.merged == 1) == (own is quick and given is tuned)


def test_records_of_others_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "records.json"
    of_another: list[Any] = []
    for name, value in (("torch", "0.1"), ("processor", "another"), ("deterministic", True)):
        other = record()
        of_another.append(asdict(replace(other, environment=other.environment | {name: value})))
    path.write_text(json.dumps({"format": FORMAT, "records": of_another}))
    merged = merge_records(path)
    assert merged == Merged(0, 0, 3) and "3 for other versions" in str(merged)
    assert _core.select(depthwise(), here()).plan.source != "tuned"


def test_generated_kernels_stay_where_they_are(tmp_path: Path) -> None:
    path, plan = tmp_path / "records.json", plans(depthwise())[0]
    times = {f"{GENERATED} wave_w=2": 1.0, plan: 2.0, "native": 3.0}
    generated = replace(record(), algorithm=f"{GENERATED} wave_w=2", candidates=times, kernel={"key": "a"})
    assert records.save(generated)
    assert export_records(path) == 1
    (written,) = json.loads(path.read_text())["records"]
    assert (written["algorithm"], written["us"], written["kernel"]) == (plan, 2.0, None)
    assert written["candidates"] == {plan: 2.0, "native": 3.0}
    alone = replace(generated, candidates={f"{GENERATED} wave_w=2": 1.0})
    assert records.save(alone) and export_records(path) == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1]", "it is not a file of convx tuning records"),
        ('{"format": "convx tuning record 1"}', "it is not a file of convx tuning records"),
        ("{", "Expecting property name"),
        (json.dumps({"format": FORMAT, "records": 3}), "it is not a file of convx tuning records"),
        (json.dumps({"format": FORMAT, "records": [{"us": 3}]}), "missing"),
        (json.dumps({"format": FORMAT, "records": [3]}), "argument after"),
    ],
)
def test_other_files_are_refused(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "records.json"
    path.write_text(text)
    with pytest.raises(convx.InvalidArgument, match=reason) as raised:
        merge_records(path)
    assert "convx records export writes such files" in str(raised.value)


def test_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records.save(record())
    path = tmp_path / "records.json"
    assert command(["records", "export", str(path)]) == 0
    assert capsys.readouterr().out == f"1 records in {path}\n"
    elsewhere(monkeypatch, tmp_path / "other")
    assert command(["records", "merge", str(path)]) == 0
    assert capsys.readouterr().out.startswith("1 merged, 0 kept")
    with pytest.raises(SystemExit):
        command(["records", "merge", str(tmp_path / "none.json")])
    assert "No such file" in capsys.readouterr().err
