"""Microseconds of several contenders, measured in turns so that drift of the machine hits all alike."""

from __future__ import annotations

import ctypes
import math
import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.spread import Quartiles, quartiles
from convx._errors import reason_of
from convx.tune.replays import LONG_US, Call, InNetwork, Replays, capturing
from convx.tune.turns import in_turns

_LONG_ROUNDS = 3
_other_memory: dict[int, Tensor] = {}  # twice a GPU's cache, by the device's index
# glibc's mallopt: what to set, and to how many bytes.
_MALLOC_OPTIONS = {"trim_threshold": (-1, 2**31 - 1), "top_pad": (-2, 2**29), "mmap_threshold": (-3, 2**25)}


class Timings(NamedTuple):
    """By the names of contenders."""

    us: dict[str, float]  # medians
    failures: dict[str, str]  # reasons
    quartiles: dict[str, Quartiles]  # of the samples; of a single one there are none


def measure(
    calls: dict[str, Call], sets: int, device: torch.device, rounds: int, *, in_network: bool = False
) -> Timings:
    """Microseconds by name, and the reasons of those that failed. Turns go there and back, as often one as
    the other: who comes first is who has just been given the processor.

    in_network: on a GPU, as convx.tune.replays.InNetwork has it, on the first operand set alone.
    """
    prepare: Callable[[Call], Callable[[], float]] = _cpu_timer
    if device.type == "cuda":
        cold = partial(_cold_timer, device=device, sets=sets)
        prepare = InNetwork(device).timer if in_network else cold
    timers: dict[str, Callable[[], float]] = {}
    failures: dict[str, str] = {}
    samples: dict[str, list[float]] = {}
    for name, call in calls.items():
        try:
            timer = prepare(call)
            samples[name] = [timer()]
            timers[name] = timer
        except Exception as error:  # one that fails must not end the suite
            failures[name] = reason_of(error)

    def add_turns(names: Iterable[str], turns: int) -> None:
        chosen = list(names)
        for name, times in zip(chosen, in_turns([timers[name] for name in chosen], turns), strict=True):
            samples[name] += times

    add_turns(timers, min(rounds, _LONG_ROUNDS) - 1)
    add_turns((name for name in timers if samples[name][0] < LONG_US), rounds - _LONG_ROUNDS)
    # What prepared a contender counts where nothing else was measured.
    counted = {name: values[1:] or values for name, values in samples.items()}
    spread = {name: found for name, values in counted.items() if (found := quartiles(values))}
    return Timings({name: statistics.median(values) for name, values in counted.items()}, failures, spread)


def _keep_freed_memory() -> None:
    """Lets large results reuse memory: page faults take longer than a convolution does, and whether the
    allocator maps a result anew depends on what was freed before, not on who computes it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc alone
    if mallopt is not None:
        for option, value in _MALLOC_OPTIONS.values():
            mallopt(option, value)


def _cpu_timer(call: Call) -> Callable[[], float]:
    round_us = 3000
    _keep_freed_memory()

    def run(repeats: int) -> float:
        begin = time.perf_counter()
        for index in range(repeats):
            call(index)
        return (time.perf_counter() - begin) * 1e6 / repeats

    run(1)
    estimate = run(1)
    repeats = max(1, math.ceil(round_us / estimate))
    return lambda: run(repeats)


def _cold_timer(call: Call, device: torch.device, sets: int) -> Callable[[], float]:
    """What a replay left in caches is overwritten before the next; then one launch, on the last set, goes
    before the measured ones: the weights that all share are in the cache for each of them, else a contender
    that has fewer launches in its graph than another seems to be slower."""
    replays = Replays(call, device, sets)
    if sets == 1:
        return replays
    ahead = torch.cuda.CUDAGraph()
    with capturing(ahead):
        call(sets - 1)

    def before() -> None:
        _overwrite_cache()
        ahead.replay()

    return partial(replays, before)


def _overwrite_cache() -> None:
    device = torch.cuda.current_device()
    if device not in _other_memory:
        properties = torch.cuda.get_device_properties(device)
        size = 2 * int(getattr(properties, "L2_cache_size", 60 << 20))
        _other_memory[device] = torch.empty(size, dtype=torch.uint8, device=device)
    _other_memory[device].zero_()
