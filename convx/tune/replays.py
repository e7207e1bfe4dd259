"""Times of calls on a GPU, by replays of CUDA graphs or of a queue: what the host does for a call is not in
them."""

from __future__ import annotations

import contextlib
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from convx.dispatch.packed import filters_of_graph

Call = Callable[[int], Any]
"""Runs once on one of the rotated sets of operands, and returns its result."""

LONG_US = 5000.0  # a call this long is a graph by itself
_GRAPH_US = 400.0


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    """Without Python's garbage collector: its pauses are in no time, as in timeit, and what it frees on a GPU
    while a graph is captured, as an older graph, ends the capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def capturing(
    graph: torch.cuda.CUDAGraph, pool: Any = None, stream: torch.cuda.Stream | None = None, **options: Any
) -> Iterator[None]:
    """What is enqueued within becomes the graph, which has memory of its own for all that it needs.

    Workspaces of cuBLAS are torch's, one to a stream for good: a graph that used one would keep 32 MB after
    its end, and would write to memory of others once torch.compile has them all freed, as it does for graphs
    of its own.
    """
    torch._C._cuda_clearCublasWorkspaces()
    try:
        with no_collector(), torch.cuda.graph(graph, pool, stream, **options):
            yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()


_WARM_UP = 2  # calls before a capture: cuDNN's choices, packed filters


def captured(call: Callable[[], Any], pool: Any = None) -> Callable[[], Any]:
    """A call as the replay of a CUDA graph, with constant filters, which it holds; its result is there until
    the next. Other threads may go on meanwhile."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), filters_of_graph() as filters:
        for _ in range(_WARM_UP):
            call()
        graph = torch.cuda.CUDAGraph()
        with capturing(graph, pool, side, capture_error_mode="thread_local"):
            result = call()
    torch.cuda.current_stream().wait_stream(side)

    def replay(_: list[torch.Tensor] = filters) -> Any:
        graph.replay()
        return result

    return replay


class Replays:
    """Microseconds of a call, by a graph of several launches one after another over its operand sets. Other
    threads may go on meanwhile.

    Results rotate as operands do, so that what is written is as cold as what is read. Timers of one pool
    share the memory of their results: nobody reads those.
    """

    def __init__(self, call: Call, device: torch.device, sets: int = 1, pool: Any = None) -> None:
        self._call, self._sets, self._pool = call, sets, pool
        self._device = device
        with torch.cuda.device(device):
            self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                call(0)
                alone = max(1.0, self._elapsed_us(lambda: call(0)))
            torch.cuda.current_stream().wait_stream(stream)
            self._capture(math.ceil(_GRAPH_US / alone) if alone < LONG_US else 1)
            # The call by itself took as long as the host did: what starting a graph takes is to weigh alike
            # in all of them.
            launches = math.ceil(_GRAPH_US / self())
            if launches > 1.2 * self._launches:
                self._capture(launches)

    def __call__(self, before: Callable[[], None] | None = None) -> float:
        """before: what the GPU does first; by default a replay that is not timed. It is still at it when the
        replay that counts is enqueued, so that how long the host takes for that is not in the time."""
        with torch.cuda.device(self._device):
            (before or self._graph.replay)()
            return self._elapsed_us(self._graph.replay) / self._launches

    def _elapsed_us(self, run: Callable[[], Any]) -> float:
        self._begin.record()
        run()
        self._end.record()
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end)) * 1e3

    def _capture(self, launches: int) -> None:
        graph = torch.cuda.CUDAGraph()
        results: list[Any] = [None] * self._sets
        with capturing(graph, self._pool, capture_error_mode="thread_local"):
            for index in range(launches):
                results[index % self._sets] = self._call(index % self._sets)
        results.clear()
        graph.replay()
        self._graph, self._launches = graph, launches


class Queued:
    """Microseconds of a call, by several that are enqueued while the GPU waits: what the host takes for them
    is not in the time. Nothing has to be captured, which takes longer than a few samples."""

    _US = 150.0  # of the calls of a sample, which the resolution of events is small beside
    _MOST_CALLS = 48  # with the kernels between them they fit a stream's queue
    _CYCLES_PER_US = 2000  # as fast as GPUs are; a slower one waits longer
    _MOST_WAIT_US = 20000.0
    _TRIES = 4

    def __init__(self, call: Call, device: torch.device) -> None:
        self._call, self._device = call, device
        self._calls, self._wait_us = 2, 100.0
        with torch.cuda.device(device):
            self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            call(0)
        self._calls = max(1, min(math.ceil(self._US / max(self(), 1.0)), self._MOST_CALLS))

    def __call__(self) -> float:
        with torch.cuda.device(self._device), no_collector():
            for _ in range(self._TRIES):
                torch.cuda._sleep(int(self._wait_us * self._CYCLES_PER_US))
                self._begin.record()
                host_us = self._enqueue()
                self._end.record()
                waited = not self._begin.query()
                self._end.synchronize()
                if waited:
                    break
                self._wait_us = min(1.5 * max(self._wait_us, host_us), self._MOST_WAIT_US)
            return float(self._begin.elapsed_time(self._end)) * 1e3 / self._calls

    def _enqueue(self) -> float:
        begin = time.perf_counter()
        for _ in range(self._calls):
            self._call(0)
        return (time.perf_counter() - begin) * 1e6


class InNetwork:
    """Makes timers of calls as a network has them: another kernel runs between two of them, as norms and
    activations do, and what it takes is taken off; operands are in the cache as far as they fit there, since
    the layers before have just written them.

    Calls one after another hide what a kernel does before it has to wait for the one before it, half of the
    time of short kernels that begin early.
    """

    def __init__(
        self, device: torch.device, timer_of: Callable[[Call], Callable[[], float]] | None = None
    ) -> None:
        """timer_of: makes timers of calls one after another; Replays if there is none."""
        self._other = torch.zeros(32, device=device)
        self._timer_of = timer_of or self._replays(device)
        # Kept: a pool without a graph can't be captured into again.
        self._alone = self._timer_of(lambda _: self._other.add_(1))
        self._other_us = statistics.median(self._alone() for _ in range(9))

    @staticmethod
    def _replays(device: torch.device) -> Callable[[Call], Callable[[], float]]:
        pool = torch.cuda.graph_pool_handle()
        return lambda call: Replays(call, device, pool=pool)

    def timer(self, call: Call) -> Callable[[], float]:
        def call_and_other(index: int) -> Any:
            result = call(index)
            self._other.add_(1)
            return result

        both = self._timer_of(call_and_other)
        return lambda: both() - self._other_us
