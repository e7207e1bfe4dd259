"""What records keep of contenders that took turns, and what tables say of it."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results import Record
from convx.tune.turns import Compared


def over_torch(compared: Compared) -> list[float]:
    """What a record keeps of it."""
    return [float(f"{bound:.4g}") for bound in compared.over_first["convx"]]


def between(record: Record) -> str:
    """Of convx over torch. Older records have none."""
    bounds = record.get("over_torch")
    return f"{bounds[0]:.2f} and {bounds[1]:.2f}" if bounds else ""


def slower_rows(records: Sequence[Record]) -> str:
    """How many are slower than torch, and how many of those with bounds surely are."""
    slower = sum(record["convx_us"] > 1.02 * record["peers_us"]["torch"] for record in records)
    text = f"More than 2 % slower than torch: {slower} of {len(records)} rows"
    bounds = [record["over_torch"] for record in records if "over_torch" in record]
    surely = sum(low > 1.02 for low, _ in bounds)
    return f"{text}; with 95 % confidence {surely}." if bounds else f"{text}."
