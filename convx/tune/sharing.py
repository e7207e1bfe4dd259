"""Tuning records of many problems as one file, for other machines of the same kind.

>>> import tempfile, pathlib, convx
>>> from convx.tune.sharing import export_records, merge_records
>>> path = pathlib.Path(tempfile.mkdtemp()) / "records.json"
>>> merge_records(path).merged if export_records(path) else 0  # what is exported is here already
0
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from convx._errors import InvalidArgument
from convx.tune import records
from convx.tune.folder import files, read_file
from convx.tune.measuring import GENERATED
from convx.tune.records import TUNE, Record

FORMAT = "convx tuning records 1"
_MOST_BYTES = 1 << 28


@dataclass(frozen=True)
class Merged:
    """What became of a file's records; prints as a sentence."""

    merged: int
    kept: int
    """Of problems that had a record here as good."""
    others: int
    """For other versions, settings or processors."""

    def __str__(self) -> str:
        return (
            f"{self.merged} merged, {self.kept} kept as they were here, {self.others} for other versions, "
            "settings or processors left out"
        )


def export_records(path: str | os.PathLike[str]) -> int:
    """Writes the records of the cache folder that hold here to one file; how many.

    Where a kernel that was generated here is the fastest, which other machines don't have, the next one is
    written. Raises OSError where the file can't be written.
    """
    found = [each for record in _own() if (each := _without_generated(record)) is not None]
    text = json.dumps({"format": FORMAT, "records": [asdict(record) for record in found]}, indent=1)
    Path(path).write_text(text)
    return len(found)


def merge_records(path: str | os.PathLike[str]) -> Merged:
    """Puts a file's records into the cache folder, for this process and later ones. A record that is here
    already stays, unless it is of a first call and the file's is convx.tune's.

    Raises OSError where the file can't be read or a record not be written, convx.InvalidArgument where it is
    no file of records.
    """
    merged = kept = others = 0
    for record in _read(Path(path)):
        if not records.is_of_here(record):
            others += 1
            continue
        known = records.read(record.path)
        if known is not None and (known.by == TUNE or record.by != TUNE):
            kept += 1
        elif records.restore(record):
            if not records.save(record):
                raise OSError(f"can't write {record.path}")
            merged += 1
        else:
            others += 1
    return Merged(merged, kept, others)


def _own() -> Iterator[Record]:
    """The newest last."""
    for *_, path in files(records.folder(), "*.json"):
        record = records.read(path)
        if record is not None and records.is_of_here(record):
            yield record


def _without_generated(record: Record) -> Record | None:
    times = {name: us for name, us in record.candidates.items() if not name.startswith(GENERATED)}
    if record.kernel is None:
        return replace(record, candidates=times)
    if not times:
        return None
    best = min(times, key=times.__getitem__)
    return replace(record, algorithm=best, us=times[best], candidates=times, kernel=None)


def _read(path: Path) -> list[Record]:
    try:
        data = json.loads(read_file(path, _MOST_BYTES))
        found = data.get("records") if isinstance(data, dict) and data.get("format") == FORMAT else None
        if not isinstance(found, list):
            raise ValueError(f"it is not a file of {FORMAT}")
        return [records.parse(each) for each in found]
    except (RecursionError, ValueError) as error:
        raise InvalidArgument(
            f"path: {path} can't be merged: {error}; python -m convx records export writes such files"
        ) from None
