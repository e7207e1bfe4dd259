"""What the tests of convx.tune share: a folder of their own, problems, and records of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from convx import _core, _planning
from convx.tune import folder, records

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder for each test; what others have tuned is forgotten before, and its own afterwards."""
    records.forget()
    monkeypatch.setenv("CONVX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(folder, "_warned", set())
    yield tmp_path / "cache"
    records.forget()


def depthwise(**changes: Any) -> _core.Problem:
    fields = {"batch": 1, "in_channels": 8, "in_height": 10, "in_width": 12, "out_channels": 8, "groups": 8}
    return _core.Problem(**{**fields, "filter_height": 3, "filter_width": 3, **changes})


def here() -> Any:
    return _planning.device(CPU)


def record(
    problem: _core.Problem | None = None, algorithm: str = "native", us: float = 3.5
) -> records.Record:
    problem = depthwise() if problem is None else problem
    fields = records.problem_fields(problem)
    return records.Record(records.environment_of(here()), fields, algorithm, us, {algorithm: us})


def plans(problem: _core.Problem) -> list[str]:
    return [plan.name for row in _core.explain(problem, here()) for plan in row.plans]


def damage(path: Path, kind: str) -> None:
    data = json.loads(path.read_text())
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "cut":
        path.write_text(path.read_text()[:100])
    elif kind == "binary":
        path.write_bytes(bytes(range(256)))
    elif kind == "huge":
        path.write_bytes(b" " * (2 << 20))
    elif kind == "a list":
        path.write_text("[1, 2]")
    elif kind == "another format":
        path.write_text(json.dumps({**data, "format": "other"}))
    elif kind == "a field too many":
        path.write_text(json.dumps({**data, "extra": 1}))
    elif kind == "no time":
        path.write_text(json.dumps({**data, "us": None}))
    elif kind == "a negative time":
        path.write_text(json.dumps({**data, "us": -3}))
    elif kind == "no channels":
        del data["problem"]["in_channels"]
        path.write_text(json.dumps(data))
    elif kind == "no kernel":
        path.write_text(json.dumps({**data, "kernel": 3}))
    elif kind == "another name":
        path.rename(path.with_name("0" * 32 + ".json"))
    elif kind == "deep":
        path.write_text("[" * 200_000)
    elif kind == "a deep environment":
        path.write_text(path.read_text().replace('"deterministic": false', '"a": ' + "[" * 900 + "]" * 900))
    elif kind == "an endless time":
        path.write_text(json.dumps({**data, "us": 10**400}))
    elif kind == "half a character":
        path.write_text(json.dumps({**data, "algorithm": "\ud800"}))
    elif kind == "two lines":
        path.write_text(json.dumps({**data, "algorithm": "native\nus = 3"}))
    elif kind == "times in words":
        path.write_text(json.dumps({**data, "candidates": {"native": "fast"}}))
    elif kind == "an endless candidate":
        path.write_text(json.dumps({**data, "candidates": {"native": float("inf")}}))
    elif kind == "a pipe":
        path.unlink()
        os.mkfifo(path)
    elif kind == "a folder":
        path.unlink()
        path.mkdir()
