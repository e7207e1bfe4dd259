"""Microseconds of several contenders, measured in turns so that drift of the machine hits all alike."""

from __future__ import annotations

import ctypes
import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

Call = Callable[[int], Tensor]  # the argument picks one of the rotated operand sets
_LONG_US = 5000  # a call this long is measured by itself, in few rounds
_LONG_ROUNDS = 3
_other_memory: dict[int, Tensor] = {}  # twice a GPU's cache, by the device's index
_between_us: dict[torch.device, float] = {}  # what the kernel between calls takes
# glibc's mallopt: what to set, and to how many bytes.
_MALLOC_OPTIONS = {"trim_threshold": (-1, 2**31 - 1), "top_pad": (-2, 2**29), "mmap_threshold": (-3, 2**25)}


def measure(
    calls: dict[str, Call], sets: int, device: torch.device, rounds: int, *, in_network: bool = False
) -> tuple[dict[str, float], dict[str, str]]:
    """Median microseconds by name, and the reasons of those that failed. Turns go there and back, as often
    one as the other: who comes first is who has just been given the processor.

    in_network: on a GPU another kernel runs between two calls, as norms and activations do in a network; its
    time is taken off. Calls one after another hide what a kernel does before it has to wait for the one
    before it, which of short kernels is half of their time, if they are of those that begin early.
    """
    on_gpu = partial(_prepare_gpu, device=device, in_network=in_network)
    prepare = on_gpu if device.type == "cuda" else _prepare_cpu
    timers: dict[str, Callable[[], float]] = {}
    failures: dict[str, str] = {}
    samples: dict[str, list[float]] = {}
    for name, call in calls.items():
        try:
            timers[name], first = prepare(call, sets)
        except Exception as error:  # one that fails must not end the suite
            failures[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            continue
        samples[name] = [first]
    turns = list(timers.items())
    for turn in range(1, rounds):
        turns.reverse()
        for name, timer in turns:
            if turn < _LONG_ROUNDS or samples[name][0] < _LONG_US:
                samples[name].append(timer())
    # What prepared a contender counts where nothing else was measured.
    return {name: statistics.median(values[1:] or values) for name, values in samples.items()}, failures


def in_turns(timers: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """What each timer gives in every round; every other round goes through them in the other order."""
    samples: list[list[float]] = [[] for _ in timers]
    for turn in range(rounds):
        order = range(len(timers))
        for index in order if turn % 2 == 0 else reversed(order):
            samples[index].append(timers[index]())
    return samples


def paired_medians(samples: Sequence[Sequence[float]]) -> list[float]:
    """A time for each contender from samples of rounds in which they took turns: the median of the first's,
    and for the others that times the median of their ratios to it in the same round.

    What else a machine does changes from round to round, which medians apart take for a difference between
    the contenders.
    """
    first = samples[0]
    middle = statistics.median(first)
    ratios = ([one / other for one, other in zip(each, first, strict=True)] for each in samples)
    return [middle * statistics.median(each) for each in ratios]


def _keep_freed_memory() -> None:
    """Lets large results reuse memory: page faults take longer than a convolution does, and whether the
    allocator maps a result anew depends on what was freed before, not on who computes it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc alone
    if mallopt is not None:
        for option, value in _MALLOC_OPTIONS.values():
            mallopt(option, value)


def _prepare_cpu(call: Call, sets: int) -> tuple[Callable[[], float], float]:
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
    return (lambda: run(repeats)), run(repeats)


def _prepare_gpu(
    call: Call, sets: int, device: torch.device, in_network: bool
) -> tuple[Callable[[], float], float]:
    if not in_network:
        return _prepare_replays(call, sets)
    other = torch.zeros(32, device=device)
    if device not in _between_us:
        alone, _ = _prepare_replays(lambda _: other.add_(1), 1)
        _between_us[device] = statistics.median(alone() for _ in range(9))
    between_us = _between_us[device]

    def call_and_other(index: int) -> Tensor:
        result = call(index)
        other.add_(1)
        return result

    timer, first = _prepare_replays(call_and_other, sets)
    return (lambda: timer() - between_us), first - between_us


def _prepare_replays(call: Call, sets: int) -> tuple[Callable[[], float], float]:
    """Replays of a CUDA graph of several launches, one after another over the operand sets. Where there are
    several, so that caches are cold, what a replay left in them is overwritten before the next; then one
    launch, on the last set, goes before the measured ones: the weights that all share are in the cache for
    each of them, else a contender that has fewer launches in its graph than another seems to be slower."""
    graph_us = 400
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call(0)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call(0)
        end.record()
        end.synchronize()
        estimate = max(1.0, begin.elapsed_time(end) * 1e3)
    torch.cuda.current_stream().wait_stream(stream)

    launches = math.ceil(graph_us / estimate) if estimate < _LONG_US else 1
    ahead = _captured(lambda _: call(sets - 1), 1, 1) if sets > 1 else None
    graph, alive = _captured(call, sets, launches)

    def replay() -> float:
        if ahead is not None:
            _overwrite_cache()
            ahead[0].replay()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / launches

    first = replay()
    # The call by itself was as long as the host took: what starting a graph takes is to weigh alike for all.
    if (wanted := math.ceil(graph_us / first)) > 1.2 * launches:
        launches = wanted
        graph, alive = _captured(call, sets, launches)
        first = replay()
    replay.alive = (ahead, alive)  # type: ignore[attr-defined]  # the graphs write into them
    return replay, first


def _captured(call: Call, sets: int, launches: int) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
    """A graph of so many launches, and the results that it writes: they rotate too, so as many as there are
    sets stay allocated."""
    graph = torch.cuda.CUDAGraph()
    alive: list[Tensor] = []
    with torch.cuda.graph(graph):
        for index in range(launches):
            result = call(index)
            if len(alive) < sets:
                alive.append(result)
            else:
                alive[index % sets] = result
    graph.replay()
    return graph, alive


def _overwrite_cache() -> None:
    device = torch.cuda.current_device()
    if device not in _other_memory:
        properties = torch.cuda.get_device_properties(device)
        size = 2 * int(getattr(properties, "L2_cache_size", 60 << 20))
        _other_memory[device] = torch.empty(size, dtype=torch.uint8, device=device)
    _other_memory[device].zero_()
