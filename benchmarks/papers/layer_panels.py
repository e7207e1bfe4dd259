"""Panels of single times, layer by layer, with the spread of their samples where the records hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.papers.measurements import Time
from benchmarks.papers.pictures import Panel
from benchmarks.papers.text import over
from benchmarks.spread import Quartiles

SAMPLES = (
    "Whiskers of this picture are from the lower to the upper quartile of the samples that a time is the "
    "median of, where the records have them; what a time is compared with enters by its median."
)


@dataclass(frozen=True)
class Value:
    """What a layer's bar or point shows of one contender."""

    middle: float
    spread: Quartiles | None = None


Values = Sequence[Value | None]


def microseconds(time: Time | None) -> Value | None:
    return Value(time.us, time.quartiles) if time else None


def speedup(base: Time | None, time: Time | None) -> Value | None:
    """The base's time over the other's; ValueError where they were not timed together."""
    ratio = over(base, time)
    if ratio is None or base is None or time is None:
        return None
    if time.quartiles is None:
        return Value(ratio)
    lower, upper = time.quartiles
    return Value(ratio, (base.us / upper, base.us / lower))


def by_layer(
    title: str, labels: Sequence[str], values: Mapping[str, Values], y_label: str, **more: Any
) -> Panel:
    """Of contenders by name, without those that have nothing; more: further fields of the panel."""
    shown = {name: each for name, each in values.items() if any(each)}
    series = {name: [value.middle if value else None for value in each] for name, each in shown.items()}
    spread = {name: [value.spread if value else None for value in each] for name, each in shown.items()}
    spread = {name: each for name, each in spread.items() if any(each)}
    return Panel(title, labels, series, y_label, spread=spread, **more)
