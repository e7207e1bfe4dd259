"""Every notebook runs from its first cell to its last."""

from __future__ import annotations

from pathlib import Path

import pytest
from models import torchvision_network

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")
pytest.importorskip("skimage")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path) -> None:
    if "net" in path.stem:
        torchvision_network("resnet18")  # skips where there is no torchvision
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code"), (
        "commit it without outputs"
    )
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(EXAMPLES)}})
    client.execute()


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 4
