"""Runs notebooks from the first cell to the last, and stores them with what they printed and drew:
python -m build_tools.notebooks examples/optimize_mobilenet_v2.ipynb
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

_TIMEOUT = 600  # seconds, of a cell


def executed(path: Path) -> Any:
    """The notebook with its outputs; of what differs from run to run it has those alone.

    Raises:
        nbclient.exceptions.CellExecutionError: of a cell that raises.
    """
    notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    metadata = notebook.metadata.copy()
    client = NotebookClient(
        notebook,
        timeout=_TIMEOUT,
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    notebook.metadata = metadata  # without the version of the Python that ran it
    return notebook


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m build_tools.notebooks", description=__doc__)
    parser.add_argument("notebook", nargs="+", type=Path)
    for path in parser.parse_args().notebook:
        nbformat.write(executed(path), path)  # type: ignore[no-untyped-call]
        print(path)


if __name__ == "__main__":
    main()
