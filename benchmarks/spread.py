"""The middle half of a time's samples: what records keep of it, and what pictures draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import quantiles
from typing import Any

from benchmarks.results import Record, is_call

Quartiles = tuple[float, float]  # the lower and the upper


def quartiles(values: Sequence[float]) -> Quartiles | None:
    """Of two values or more."""
    if len(values) < 2:
        return None
    lower, _, upper = quantiles(values, n=4, method="inclusive")
    return lower, upper


def kept(found: Mapping[str, Quartiles], own: str, peers: Sequence[str]) -> dict[str, Any]:
    """The fields of a record for them. Of the peers those that are calls of their own in the record's layout:
    pictures draw no others. Records of one measurement repeat their peers' times, but one alone is to be
    given peers here, lest the files grow."""
    fields: dict[str, Any] = {}
    if own in found:
        fields["spread_us"] = _rounded(found[own])
    if theirs := {peer: _rounded(found[peer]) for peer in peers if peer in found and is_call(peer)}:
        fields["peers_spread_us"] = theirs
    return fields


def own_spread(record: Record) -> Quartiles | None:
    """Of the record's own time; older records have none."""
    return _pair(record.get("spread_us"))


def peers_spread(record: Record) -> dict[str, Quartiles]:
    """By peer; none in older records, and in all but one of a measurement."""
    found = {peer: _pair(each) for peer, each in record.get("peers_spread_us", {}).items()}
    return {peer: each for peer, each in found.items() if each}


def _pair(found: Sequence[float] | None) -> Quartiles | None:
    return (found[0], found[1]) if found else None


def _rounded(found: Quartiles) -> list[float]:
    return [float(f"{each:.4g}") for each in found]
