"""What the backend has compiled, for those who call a compiled function and want to know."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from convx.compile.rewriting import Rewritten


@dataclass(frozen=True)
class CompiledGraph:
    """One graph; who holds it holds the memory that a CUDA graph of it reads."""

    run: Callable[..., Any]
    rewritten: Rewritten


class _Watcher(threading.local):
    found: list[CompiledGraph] | None = None


_watcher = _Watcher()


@contextmanager
def watched() -> Iterator[list[CompiledGraph]]:
    """The graphs that this thread has the backend compile within."""
    found: list[CompiledGraph] = []
    before, _watcher.found = _watcher.found, found
    try:
        yield found
    finally:
        _watcher.found = before


def tell(graph: CompiledGraph) -> None:
    if _watcher.found is not None:
        _watcher.found.append(graph)
