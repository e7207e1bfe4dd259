"""Memory that many calls take no more of than the first ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

CALLS = 200
LEAST_BYTES = 32768  # that a lost tensor shows as


def used(device: str) -> int:
    """Bytes of memory: of the process on a CPU, of torch's allocator on a GPU."""
    if device == "cpu":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    torch.cuda.synchronize()
    return int(torch.cuda.memory_allocated())


def assert_steady(call: Callable[[], Any], device: str, what: str, bytes_a_call: int = LEAST_BYTES) -> None:
    """A process's size moves with its allocator, once or twice, by less than a quarter of what one lost
    tensor a call comes to; what is lost is lost in every series of calls."""
    allowed = CALLS * bytes_a_call // 4 if device == "cpu" else 0
    for _ in range(20):
        call()
    grown = []
    for _ in range(3):
        before = used(device)
        for _ in range(CALLS):
            call()
        grown.append(used(device) - before)
        if grown[-1] <= allowed:
            return
    raise AssertionError(f"{what}: {grown} bytes more in {CALLS} calls each")
