"""The committed results by problem, and the times of one measurement, which alone make a ratio.

A results file may hold records of several runs: of what was measured again since, or with more peers. The
contenders of one measurement took turns, and its records carry the same times of the peers; those of another
are of another moment, another build or another machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.results import RESULTS, Record, Results, best_peer, load, precision
from benchmarks.spread import Quartiles, own_spread, peers_spread

# A plain run comes last: it has more peers and rounds than one over all candidates, and is preferred.
_KINDS = ("_candidates", "_ablations", "_by_name", "")
_AUTO = "auto"


@dataclass(eq=False)
class Measurement:
    """One problem's contenders of one run, in microseconds by name: convx's plans, what auto took, peers."""

    file: str
    floor_us: float
    peers: dict[str, float]
    times: dict[str, float]  # the peers' too; a plan's with so many rows of a thread as "plan 4 rows"
    chosen: str = ""  # the plan that auto took
    taken: str = ""  # when
    spread: dict[str, Quartiles] = field(default_factory=dict)  # of the samples, where records hold it

    def time(self, contender: Contender) -> Time | None:
        """The contender's fastest."""
        found = contender(self)
        name = min(found, key=found.__getitem__, default="")
        return Time(found[name], name, self) if found else None


@dataclass(frozen=True)
class Time:
    us: float
    name: str
    measurement: Measurement = field(repr=False)

    @property
    def quartiles(self) -> Quartiles | None:
        """Of its samples."""
        return self.measurement.spread.get(self.name)

    def __truediv__(self, other: Time) -> float:
        if other.measurement is not self.measurement:
            files = f"{self.measurement.file}.json and {other.measurement.file}.json"
            raise ValueError(
                f"{self.name} and {other.name} were not timed together (records of {files}): take both from "
                "one measurement, as Row.ratio and Row.together do"
            )
        return self.us / other.us


Contender = Callable[[Measurement], Mapping[str, float]]  # the times that count as its, by name


def named(*patterns: str) -> Contender:
    """Plans of convx or peers with such names."""

    def find(measurement: Measurement) -> dict[str, float]:
        return {
            name: us
            for name, us in measurement.times.items()
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        }

    return find


def cudnn_algorithms(measurement: Measurement) -> Mapping[str, float]:
    """torch's and cuDNN's choice and cuDNN's algorithms by name, where those were timed."""
    found = named("torch", "cudnn", "cudnn_*")(measurement)
    return found if any(name.startswith("cudnn_") for name in found) else {}


def torch_best(measurement: Measurement) -> Mapping[str, float]:
    """torch's fastest way in this layout and precision."""
    found = best_peer({"peers_us": measurement.peers})
    return dict([found]) if found else {}


def floor(measurement: Measurement) -> Mapping[str, float]:
    """The least time that the device could take."""
    return {"floor": measurement.floor_us}


AUTO = named(_AUTO)
TORCH = named("torch")  # what torch takes by itself
CHOICE = named("torch", "cudnn")  # the same, or cuDNN asked for: its own choice of an algorithm


@dataclass
class Row:
    """One problem."""

    case: str
    batch: int
    shape: dict[str, Any]
    group: str
    measurements: list[Measurement] = field(default_factory=list)

    def together(self, *contenders: Contender) -> tuple[Time | None, ...]:
        """Their times in one measurement, which has the first if any has and the most of the others; None for
        those that it lacks."""
        found = self._best(contenders)
        return tuple(found.time(contender) if found else None for contender in contenders)

    def ratio(self, first: Contender, second: Contender) -> float | None:
        """First over second, where one measurement has both."""
        one, other = self.together(first, second)
        return one / other if one and other else None

    def auto_beside(self, peer: Contender) -> Measurement | None:
        """The one in which auto was timed together with the peer."""
        return self._best((AUTO, peer))

    def _best(self, contenders: Sequence[Contender]) -> Measurement | None:
        """Of several with as many contenders, the one with more of their plans, then the last."""

        def rank(place: int) -> tuple[bool, int, int, int]:
            counts = [len(contender(self.measurements[place])) for contender in contenders]
            return counts[0] > 0, sum(count > 0 for count in counts), sum(counts), place

        places = range(len(self.measurements))
        return self.measurements[max(places, key=rank)] if places else None


Rows = dict[tuple[str, int], Row]  # by case and batch


class Machine:
    """The results of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slug = folder.name

    @property
    def is_gpu(self) -> bool:
        return not self.slug.startswith("cpu")

    @property
    def choice(self) -> str:
        """What CHOICE is here, in words."""
        return "torch's choice or cuDNN's" if self.is_gpu else "torch's choice (oneDNN's)"

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

    def ages(self, suites: Sequence[str]) -> dict[str, tuple[str, str]]:
        """By file, when its oldest and its newest records were taken, where those say."""
        found = {}
        for suite in suites:
            for stem, results in self.sources(suite):
                taken = {results.taken(record) for record in results.records.values()}
                dated = sorted(each for each in taken if not each.startswith("no date"))
                if dated:
                    found[stem] = (dated[0], dated[-1])
        return found

    def processors(self, suites: Sequence[str]) -> dict[str, list[str]]:
        """The files of each."""
        found: dict[str, list[str]] = {}
        for suite in suites:
            for stem, results in self.sources(suite):
                found.setdefault(str(results.environment.get("processor", "unknown")), []).append(stem)
        return found

    def rows(
        self, suite: str, operation: str = "forward", dtype: str = "float32", layout: str = "nchw"
    ) -> Rows:
        found: Rows = {}
        for stem, results in self.sources(suite):
            wanted = [
                record
                for record in results.records.values()
                if (record["operation"], precision(record), record["layout"]) == (operation, dtype, layout)
            ]
            for records in _measured_together(wanted, not several_runs(results)):
                _take(found, stem, records, results.taken(records[0]))
        return found


def _measured_together(records: Iterable[Record], of_one_run: bool) -> list[list[Record]]:
    """The records of one file by measurement. The time of a single peer may be the same by chance: in a file
    of several runs such a record is by itself."""
    groups: dict[object, list[Record]] = {}
    for index, record in enumerate(records):
        mark: object = tuple(sorted(record["peers_us"].items()))
        if len(record["peers_us"]) < 2 and not of_one_run:
            mark = index
        place = (
            record["case"],
            record["batch"],
            record["warm"],
            record["floor_us"],
            record.get("run"),
            mark,
        )
        groups.setdefault(place, []).append(record)
    return list(groups.values())


def several_runs(results: Results) -> bool:
    """Whether a file is known to hold records of more than one: a problem's peers have several times."""
    problem = ("case", "operation", "dtype", "tf32", "layout", "batch", "warm")
    marks = {
        (*(record.get(name) for name in problem), *sorted(record["peers_us"].items()))
        for record in results.records.values()
    }
    return any(count > 1 for count in Counter(mark[: len(problem)] for mark in marks).values())


def _take(rows: Rows, file: str, records: list[Record], taken: str) -> None:
    first = records[0]
    place = (first["case"], first["batch"])
    row = rows.setdefault(place, Row(*place, first["shape"], str(first["group"])))
    peers = first["peers_us"]
    measurement = Measurement(file, first["floor_us"], peers, dict(peers), taken=taken)
    for record in records:
        is_auto = record["chosen_by"] == "auto"
        name = _AUTO if is_auto else record["method"]
        measurement.times[name] = record["convx_us"]
        if found := own_spread(record):
            measurement.spread[name] = found
        measurement.spread |= peers_spread(record)
        for rows, us in record.get("rows_us", {}).items():
            measurement.times[f"{name} {rows} rows"] = us
        if is_auto:
            measurement.chosen = record["method"]
    row.measurements.append(measurement)


def machines(results: Path = RESULTS) -> Iterator[Machine]:
    """GPUs first."""
    folders = {path.parent for path in results.glob("*/*.json")}
    yield from sorted(map(Machine, folders), key=lambda machine: (not machine.is_gpu, machine.slug))
