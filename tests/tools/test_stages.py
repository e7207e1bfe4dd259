"""Times of cuConv's stages: which kernels are which, what a file keeps, and what the page shows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from benchmarks import stages
from benchmarks.papers.measurements import Machine
from benchmarks.papers.stage_times import stage_times
from benchmarks.planner import Planner
from benchmarks.stages import Stages
from convx import _libraries

GPU = cast(Machine, SimpleNamespace(name="NVIDIA H200"))


def kernel(name: str, us: float) -> tuple[str, dict[str, float]]:
    return f"void convx::cuconv::stages::{name}<float>(...)", {"gpu__time_duration.sum": us * 1e3}


@pytest.fixture
def planner() -> Planner:
    planner = Planner(torch.device("cpu"))
    planner.device = _libraries.core().Device.known_device("h200")
    return planner


def test_layers_are_the_papers_and_sums_are_of_several_taps(planner: Planner) -> None:
    found = stages._problems(planner)
    assert {each.batch for each in found} == {1, 8} and len(found) == 2 * 94
    one, three = (next(each for each in found if each.shape.filter == size) for size in (1, 3))
    assert stages.stages(one, [kernel("products_kernel", us) for us in (9.0, 3.0, 4.0)]) == Stages(
        one.case.name, 1, 1, 4.0, None
    )
    both = [kernel("products_kernel", 7.0), kernel("sum_kernel", 1.5)] * 3
    assert stages.stages(three, both) == Stages(three.case.name, 1, 3, 7.0, 1.5)
    with pytest.raises(ValueError, match="not enough values"):
        stages.stages(three, [kernel("finish_kernel", 1.0)])


def test_a_file_keeps_other_gpus(tmp_path: Path) -> None:
    path = tmp_path / "stages.json"
    assert stages.load(path) == {}
    first, second = Stages("C48-7-5x5-128", 1, 5, 8.0, 2.0), Stages("C832-7-1x1-256", 1, 1, 3.0, None)
    stages.write(path, "one", {"torch": "1"}, [first])
    stages.write(path, "other", {"torch": "2"}, [second])
    stages.write(path, "one", {"torch": "3"}, [first, second])
    assert stages.load(path) == {"one": [first, second], "other": [second]}


def test_stages_stand_beside_the_papers(tmp_path: Path) -> None:
    (left_out,) = stage_times(GPU, {"another": [Stages("C48-7-5x5-128", 1, 5, 8.0, 2.0)]})
    assert "was not taken" in left_out
    times = [Stages("C48-7-5x5-128", 1, 5, 8.0, 2.0), Stages("C192-7-3x3-384", 1, 3, 15.0, 5.0)]
    text, table = stage_times(GPU, {GPU.name: times})
    assert "25% for 3x3 at batch 1, 20% for 5x5 at batch 1" in text and "1% to 25%" in text
    assert "| 7-1-5-128-48 | 16.8 | 5.70 | 8.00 | 2.00 |" in table
    assert "| 7-1-1-256-832 | 58.6 | - | - | - |" in table


def test_a_cpu_has_no_stages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["stages"])
    with pytest.raises(SystemExit):
        stages.main()
    assert "a GPU is needed" in capsys.readouterr().err
