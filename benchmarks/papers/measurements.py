"""The committed results by problem: everything that was timed on it, whichever run timed it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.results import RESULTS, Record, Results, best_peer, load, precision

# A plain run has more peers and rounds than one over all candidates, whose peers and choice it replaces.
_KINDS = ("_candidates", "_ablations", "")


CUDNN = ("torch", "cudnn", "cudnn_*")


@dataclass
class Row:
    """One problem. Times are microseconds."""

    case: str
    batch: int
    shape: dict[str, Any]
    group: str
    floor_us: float
    auto: float | None = None  # what auto took
    chosen: str = ""
    forms: dict[str, float] = field(default_factory=dict)  # convx's kernels by name
    peers: dict[str, float] = field(default_factory=dict)

    def form(self, *patterns: str) -> float | None:
        """The fastest of convx's kernels with such names."""
        return min((us for name, us in self.forms.items() if _matches(name, patterns)), default=None)

    def form_name(self, *patterns: str) -> str:
        found = {name: us for name, us in self.forms.items() if _matches(name, patterns)}
        return min(found, key=found.__getitem__) if found else ""

    def peer(self, *patterns: str) -> float | None:
        return min((us for name, us in self.peers.items() if _matches(name, patterns)), default=None)

    def peer_name(self, *patterns: str) -> str:
        found = {name: us for name, us in self.peers.items() if _matches(name, patterns)}
        return min(found, key=found.__getitem__) if found else ""

    @property
    def cudnn(self) -> float | None:
        """The fastest of cuDNN's algorithms that were timed, torch's choice too; on a CPU torch's own."""
        return self.peer(*CUDNN)

    @property
    def torch_best(self) -> float | None:
        """torch's fastest way in this layout and precision."""
        found = best_peer({"peers_us": self.peers})
        return found[1] if found else None


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


Rows = dict[tuple[str, int], Row]  # by case and batch


class Machine:
    """The results of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slug = folder.name

    @property
    def is_gpu(self) -> bool:
        return not self.slug.startswith("cpu")

    @cached_property
    def name(self) -> str:
        return str(next(iter(self._files.values())).environment["device"])

    @cached_property
    def _files(self) -> dict[str, Results]:
        return {path.stem: load(path) for path in sorted(self.folder.glob("*.json"))}

    def sources(self, suite: str) -> list[tuple[str, Results]]:
        """The suite's files by their stems."""
        return [
            (f"{suite}{kind}", self._files[f"{suite}{kind}"])
            for kind in _KINDS
            if f"{suite}{kind}" in self._files
        ]

    def rows(
        self, suite: str, operation: str = "forward", dtype: str = "float32", layout: str = "nchw"
    ) -> Rows:
        found: Rows = {}
        for _, results in self.sources(suite):
            for record in results.records.values():
                if (record["operation"], precision(record), record["layout"]) == (operation, dtype, layout):
                    _take(found, record)
        return found


def _take(rows: Rows, record: Record) -> None:
    place = (record["case"], record["batch"])
    row = rows.setdefault(place, Row(*place, record["shape"], str(record["group"]), record["floor_us"]))
    row.peers |= record["peers_us"]
    if record["chosen_by"] == "auto":
        row.auto, row.chosen = record["convx_us"], record["method"]
    else:
        row.forms[record["method"]] = record["convx_us"]


def machines(results: Path = RESULTS) -> Iterator[Machine]:
    """GPUs first."""
    folders = {path.parent for path in results.glob("*/*.json")}
    yield from sorted(map(Machine, folders), key=lambda machine: (not machine.is_gpu, machine.slug))
