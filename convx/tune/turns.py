"""Contenders in turns, on a machine whose speed drifts: the time of each, and how surely one is slower."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import torch

from convx.tune.replays import no_collector

_TURN_US = 3000.0
_SURE = 1.96  # standard deviations about the middle, of 95 %


@runtime_checkable
class Timed(Protocol):
    """A contender that takes its times itself, in another process, say."""

    def us(self, repeats: int) -> float:
        """Of a call, in so many."""


Contender = Callable[[], object] | Timed


@dataclass(frozen=True)
class Compared:
    """Of contenders that took turns, the first of them the one to compare with."""

    us: dict[str, float]  # of one call
    over_first: dict[str, tuple[float, float]]  # time over the first's: where the median of turns surely lies


def compare(
    calls: Mapping[str, Contender],
    device: torch.device,
    turns: int,
    repeats: int,
    *,
    host_alone: bool = False,
) -> Compared:
    """Every contender makes so many calls in each turn, host and device together.

    host_alone: what enqueuing them takes.
    """
    timers = [partial(_call_us, call, device, repeats, host_alone) for call in calls.values()]
    gc.collect()
    with no_collector():
        samples = in_turns(timers, turns)
    return Compared(
        dict(zip(calls, paired_medians(samples), strict=True)),
        {name: sure_ratio(each, samples[0]) for name, each in zip(calls, samples, strict=True)},
    )


def turn_of(calls: Iterable[Contender], device: torch.device) -> tuple[int, float]:
    """How many calls of each contender make a turn, and the microseconds of the first one's.

    Turns are short, so that the machine is the same for all who take theirs; the fastest decides, for of few
    calls of a CUDA graph most of the time is the host's before the first kernel.
    """
    us = [compare({"": call}, device, 1, 2).us[""] for call in calls]
    repeats = max(1, round(_TURN_US / min(us)))
    return repeats, repeats * us[0]


def in_turns(timers: Sequence[Callable[[], float]], turns: int) -> list[list[float]]:
    """What each timer gives in every turn; every other turn goes through them in the other order."""
    samples: list[list[float]] = [[] for _ in timers]
    for turn in range(turns):
        order = range(len(timers))
        for index in order if turn % 2 == 0 else reversed(order):
            samples[index].append(timers[index]())
    return samples


def paired_medians(samples: Sequence[Sequence[float]]) -> list[float]:
    """A time for each contender from samples of turns: the median of the first's, and for the others that
    times the median of their ratios to it in the same turn.

    What else a machine does changes from turn to turn, which medians apart take for a difference between
    the contenders.
    """
    first = samples[0]
    middle = statistics.median(first)
    return [middle * statistics.median(_ratios(each, first)) for each in samples]


def sure_ratio(times: Sequence[float], first: Sequence[float]) -> tuple[float, float]:
    """Between which the median ratio of paired times lies with 95 % confidence: order statistics, whatever
    the distribution; of few turns, all that was seen."""
    ratios = sorted(_ratios(times, first))
    outside = max(0, math.floor((len(ratios) - _SURE * math.sqrt(len(ratios))) / 2))
    return ratios[outside], ratios[-1 - outside]


def _ratios(times: Sequence[float], first: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(times, first, strict=True)]


def _call_us(call: Contender, device: torch.device, repeats: int, host_alone: bool) -> float:
    if isinstance(call, Timed):
        return call.us(repeats)

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    if not host_alone:
        wait()
    seconds = time.perf_counter() - begin
    wait()
    return seconds * 1e6 / repeats
