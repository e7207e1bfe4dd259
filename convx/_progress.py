"""Progress bars, where tqdm is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress_bar(total: int, unit: str, shown: bool) -> Iterator[Any]:
    """tqdm's bar; None where none is to be shown or tqdm is not installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        shown = False
    if not shown:
        yield None
        return
    with tqdm(total=total, unit=unit) as bar:
        yield bar
