"""Every notebook runs from its first cell to its last."""

from __future__ import annotations

from pathlib import Path

import pytest
from models import torchvision_network

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")
pytest.importorskip("skimage")

from build_tools import notebooks  # noqa: E402  which imports what may be missing

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path) -> None:
    if "net" in path.stem:
        torchvision_network("resnet18")  # skips where there is no torchvision
    notebooks.executed(path)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_of_one_whole_run(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    counts = range(1, len(cells) + 1) if outputs else [None] * len(cells)
    assert [cell.execution_count for cell in cells] == list(counts)
    assert not any(output.output_type == "error" for output in outputs)
    if outputs:  # of which machine the first one says
        assert "H200" in cells[0].outputs[-1].data["text/plain"]


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 4
