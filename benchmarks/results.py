"""Results files: written by the benchmark program only, whole at every moment."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.environment import comparable, is_on_gpu

Record = dict[str, Any]
_KEY = ("case", "operation", "dtype", "tf32", "layout", "batch", "chosen_by", "method")
RESULTS = Path(__file__).resolve().parent / "results"
README = Path(__file__).resolve().parent.parent / "README.md"


def key(record: Record) -> tuple[object, ...]:
    """What a record is about. Forced methods are part of it; the one that auto took is not."""
    forced = record.get("chosen_by") == "forced"
    return tuple(record.get(name) for name in (_KEY if forced else _KEY[:-1]))


@dataclass(frozen=True)
class Run:
    command: str
    date: str = "no date"
    commit: str | None = None

    @property
    def when(self) -> str:
        return f"{self.date}, commit {self.commit}" if self.commit else self.date


@dataclass
class Results:
    """A record's "run" is a place in all_runs. Records of before there were places have none: they are of the
    first run, or of earlier ones."""

    suite: str
    environment: dict[str, Any]
    command: str
    ceilings: dict[str, float]
    records: dict[tuple[object, ...], Record] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)  # before this one

    @property
    def on_gpu(self) -> bool:
        return is_on_gpu(self.environment)

    @property
    def all_runs(self) -> list[Run]:
        """The last is this one."""
        known = {name: self.environment[name] for name in ("date", "commit") if name in self.environment}
        return [*self.runs, Run(self.command, **known)]

    def add(self, record: Record) -> None:
        self.records[key(record)] = record | {"run": len(self.runs)}

    def taken(self, record: Record) -> str:
        """When a record was taken, as far as it says."""
        place = record.get("run")
        return f"{self.all_runs[0].when}, or before" if place is None else self.all_runs[place].when

    def origin(self) -> str:
        """The runs that the records are of, as far as they say."""
        counts = Counter(record["run"] for record in self.records.values() if "run" in record)
        untold = len(self.records) - counts.total()
        runs = {place: run for place, run in enumerate(self.all_runs) if counts[place]}
        if not runs:
            return (
                f"last by `{self.command}` ({self.all_runs[-1].when}); records of earlier runs may stand "
                "beside its own, which do not say so"
            )
        if len(runs) == 1 and not untold:
            (run,) = runs.values()
            return f"by `{run.command}` ({run.when})"
        parts = [f"{counts[place]} by `{run.command}` ({run.when})" for place, run in runs.items()]
        if untold:
            first = self.all_runs[0]
            parts.insert(0, f"{untold} by `{first.command}` ({first.when}) or earlier runs")
        return f"{len(self.records)} records: {'; '.join(parts)}"

    def keep(self, path: Path) -> None:
        """Takes over an existing file of the same machine and versions, before any record is added."""
        if not path.is_file():
            return
        older = load(path)
        if not comparable(older.environment, self.environment):
            raise ValueError(f"{path} is of another machine or other versions; choose another --output")
        self.records = older.records
        self.runs = older.all_runs
        # Records that do not say are of the first or of earlier ones; a run that added nothing is forgotten.
        if all(record.get("run", 0) != len(older.runs) for record in older.records.values()):
            self.runs = older.runs

    def write(self, path: Path) -> None:
        """One record a line, so that differences can be read; replaces the file in one step."""
        path.parent.mkdir(parents=True, exist_ok=True)
        head = {
            "suite": self.suite,
            "environment": self.environment,
            "command": self.command,
            **({"runs": [asdict(run) for run in self.runs]} if self.runs else {}),
            "ceilings": self.ceilings,
        }
        lines = ",\n  ".join(json.dumps(record) for record in self.records.values())
        text = json.dumps(head, indent=1)[:-2] + f',\n "records": [\n  {lines}\n ]\n}}\n'
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(text)
        os.replace(temporary, path)


def between(text: str, begin: str, end: str, new: str) -> str:
    """The text with lines of its own between two marks."""
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n{new}\n{end}{after}"


def load(path: Path) -> Results:
    data = json.loads(path.read_text())
    records = {key(record): record for record in data["records"]}
    runs = [Run(**run) for run in data.get("runs", ())]
    return Results(data["suite"], data["environment"], data["command"], data["ceilings"], records, runs)


# Another layout, the same call once more, and what no call of torch's own gives, as cuDNN's algorithms by
# their names ("cudnn_...").
_NO_CALL = ("torch_nchw", "torch_channels_last", "torch_again", "inductor", "onednn")


def is_call(peer: str) -> bool:
    """Whether it is one of cuDNN's algorithms or a call of its own in the record's layout."""
    return peer not in _NO_CALL


def best_peer(record: Record) -> tuple[str, float] | None:
    """torch's fastest way in the record's own layout."""
    peers = {
        name: time
        for name, time in record["peers_us"].items()
        if is_call(name) and not name.startswith("cudnn_")
    }
    return min(peers.items(), key=lambda item: item[1]) if peers else None


def geomean(values: Iterable[float]) -> float:
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


@dataclass
class Summary:
    """Records that are taken together."""

    label: tuple[str, ...]
    count: int
    fraction_of_floor: float  # geomean of floor / convx
    peer_fraction: float  # geomean of floor / best peer
    speedup: float  # geomean of best peer / convx
    slower: int  # records on which the best peer wins


def summarize(records: Iterable[Record]) -> list[Summary]:
    """One for each operation, precision, layout and group of cases."""
    return _grouped(records, lambda r: (r["operation"], precision(r), r["layout"], group_of(r)))


def overall(records: Iterable[Record]) -> list[Summary]:
    """One for each operation and precision."""
    return _grouped(records, lambda r: (r["operation"], precision(r)))


def _grouped(records: Iterable[Record], label: Callable[[Record], tuple[str, ...]]) -> list[Summary]:
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        if record.get("chosen_by") == "auto" and "floor_us" in record:
            groups.setdefault(label(record), []).append(record)
    result = []
    for name, members in groups.items():
        pairs = [(record, peer[1]) for record in members if (peer := best_peer(record))]
        result.append(
            Summary(
                name,
                len(members),
                geomean(record["floor_us"] / record["convx_us"] for record in members),
                geomean(record["floor_us"] / peer for record, peer in pairs),
                geomean(peer / record["convx_us"] for record, peer in pairs),
                sum(is_slower(record) for record in members),
            )
        )
    return result


def over_peers(records: Iterable[Record]) -> dict[tuple[str, ...], dict[str, float]]:
    """Geomean of each peer's time over convx's, by operation, precision and layout; one that could not run a
    case is compared on the others."""
    groups: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for record in records:
        if record.get("chosen_by") == "auto" and "floor_us" in record:
            group = groups.setdefault((record["operation"], precision(record), record["layout"]), {})
            for name, time in record["peers_us"].items():
                group.setdefault(name, []).append(time / record["convx_us"])
    return {
        label: {name: geomean(values) for name, values in group.items()} for label, group in groups.items()
    }


def precision(record: Record) -> str:
    return "tf32" if record.get("tf32") else str(record["dtype"])


def group_of(record: Record) -> str:
    """Cases that are summed up together, apart by batch where they were measured at several: not at one, nor
    at random ones."""
    group = str(record["group"])
    at_one_batch = group.startswith(("CONV", "ResNet")) or "height" in record.get("shape", {})
    return group if at_one_batch else f"{group}, batch {record['batch']}"


def is_slower(record: Record) -> bool:
    """Slower than the best peer by more than two runs of one program differ."""
    peer = best_peer(record)
    return peer is not None and record["convx_us"] > 1.02 * peer[1]
