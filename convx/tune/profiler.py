"""Times of several contenders, in turns, with those that can't win stopped early."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch

from convx.tune.replays import Call, InNetwork

Sampler = Callable[[Call], Callable[[], float]]
"""Makes a contender's timer."""

_ESTIMATES = 3  # calls that are timed to know how many make a sample
_LONG_US = 20000.0  # of a first call on a CPU: a sample is one


@dataclass
class Timing:
    """One contender's samples, in microseconds."""

    samples: list[float] = field(default_factory=list)
    stopped: bool = False
    """It was so far behind that it was measured no further."""
    failure: str = ""

    @property
    def us(self) -> float:
        return statistics.median(self.samples) if self.samples else math.inf


def allowance(round: int) -> float:
    """How far behind the leader's median a contender's best sample may be after so many rounds.

    A first sample may be off by much (clocks, caches, other processes), the best of several hardly: 16, 2.9,
    1.6, 1.2, 1.1, ...
    """
    return 1 + 15 / round**3


def profile(
    contenders: dict[str, Call],
    device: torch.device,
    sets: int,
    rounds: int = 7,
    advance: Callable[[], None] = lambda: None,
    sampler: Sampler | None = None,
) -> dict[str, Timing]:
    """Median times: every contender is warmed up, then all are sampled in turns.

    Args:
        sets: how many operand sets the calls rotate over on a CPU.
        rounds: samples of each contender that is not stopped.
        advance: called each time a contender is done with.
        sampler: makes a contender's timer; by default one of calls in a network, or of loops on the CPU.

    A contender that raises is left out with what it said.
    """
    timings = {name: Timing() for name in contenders}
    timers: dict[str, Callable[[], float]] = {}
    if sampler is None:
        on_gpu = device.type == "cuda"
        sampler = InNetwork(device).timer if on_gpu else partial(_cpu_timer, sets=sets)
    for name, call in contenders.items():
        try:
            timer = sampler(call)
            timings[name].samples.append(timer())
            timers[name] = timer
        except Exception as error:  # one that can't run must not keep the others from being measured
            timings[name].failure = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
            advance()
    for turn in range(1, rounds):
        _stop_losers(timings, timers, turn, advance)
        # Who comes first is who has just been given the processor.
        for name in list(timers)[:: 1 if turn % 2 else -1]:
            timings[name].samples.append(timers[name]())
    for _ in timers:
        advance()
    return timings


def _stop_losers(
    timings: dict[str, Timing], timers: dict[str, Callable[[], float]], turn: int, advance: Callable[[], None]
) -> None:
    if not timers:
        return
    best = min(timings[name].us for name in timers)
    # In a network they may be below zero, where another process disturbed them: the best goes on then, too.
    limit = best + abs(best) * (allowance(turn) - 1)
    for name in [name for name in timers if min(timings[name].samples) > limit]:
        del timers[name]
        timings[name].stopped = True
        advance()


def fastest(timings: dict[str, Timing], native_is: float = 1.0) -> str | None:
    """The winner among those that were measured to the end: "native" within what measurements differ by. None
    where every contender failed.

    native_is: how many times as long native takes in a network as alone, beside what the others do.
    """
    finished = {name: timing.us for name, timing in timings.items() if not (timing.failure or timing.stopped)}
    if not finished:
        return None

    def handicapped(name: str) -> float:
        return finished[name] * (native_is if name == "native" else 1.02)

    return min(finished, key=handicapped)


def _cpu_timer(call: Call, sets: int) -> Callable[[], float]:
    round_us = 2000
    indices = itertools.cycle(range(sets))  # over all rounds: slow calls are one a round

    def run(repeats: int) -> float:
        begin = time.perf_counter()
        for index in itertools.islice(indices, repeats):
            call(index)
        return (time.perf_counter() - begin) * 1e6 / repeats

    if run(1) > _LONG_US:
        return lambda: run(1)
    repeats = max(1, math.ceil(round_us / max(_estimate(lambda: run(1)), 1e-3)))
    return lambda: run(repeats)


def _estimate(measure: Callable[[], float]) -> float:
    """The least of a few times of a call: one alone may be another process's."""
    return min(measure() for _ in range(_ESTIMATES))
