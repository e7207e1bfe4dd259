"""Threads that do the same at the same time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier


def at_once(count: int, work: Callable[[int], object]) -> None:
    """work(0), work(1), ..., each in a thread; raises what one of them raises."""
    barrier = Barrier(count)

    def begin(index: int) -> None:
        barrier.wait()
        work(index)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(begin, range(count)))
