"""Times several ways to do the same thing in the same run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import torch

import convx
from convx.tune.replays import capturing

Call = Callable[[], object]
_FEWEST_ROUNDS = 3


def compare(
    calls: Sequence[Call], device: torch.device, rounds: int, round_us: float = 1000, *, eager: bool = False
) -> list[float]:
    """Microseconds of each call, measured in turns so that drift of the machine hits all alike.

    The first quartile of the rounds: what other programs take of the machine only ever adds. eager: host and
    device together on a GPU too, where the device's time is taken otherwise.
    """
    is_graph = device.type == "cuda" and not eager
    timers = [
        _prepare_graph(call, round_us) if is_graph else _prepare(call, device, round_us) for call in calls
    ]
    times: list[list[float]] = [[] for _ in calls]
    turns = list(zip(timers, times, strict=True))
    until = time.monotonic() + rounds * len(calls) * 3 * round_us / 1e6  # a slow machine takes fewer rounds
    for done in range(rounds):
        if done >= _FEWEST_ROUNDS and time.monotonic() > until:
            break
        for timer, samples in turns:
            samples.append(timer())
        turns.reverse()  # who comes first is who has just been given the processor
    return [sorted(samples)[len(samples) // 4] for samples in times]


def _prepare(call: Call, device: torch.device, round_us: float) -> Callable[[], float]:
    def run(repeats: int) -> float:
        begin = time.perf_counter()
        for _ in range(repeats):
            call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (time.perf_counter() - begin) * 1e6 / repeats

    run(1)
    repeats = max(1, math.ceil(round_us / run(1)))
    return lambda: run(repeats)


def _prepare_graph(call: Call, round_us: float) -> Callable[[], float]:
    """Replays of a CUDA graph: what the device takes, without the host's launches."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    once = _capture(call, 1)
    repeats = max(1, min(200, math.ceil(round_us / _replay_us(once))))
    graph = _capture(call, repeats)
    return lambda: _replay_us(graph) / repeats


def _capture(call: Call, repeats: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with convx.constant_filters(), capturing(graph):
        for _ in range(repeats):
            call()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def _replay_us(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3
