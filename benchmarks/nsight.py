"""What Nsight Compute reads of a GPU's counters, kernel by kernel, for calls with separators between them."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from benchmarks.results import RESULTS

UNDER_PROFILER = "--under-profiler"  # how a module is told that it runs in ncu
_SEPARATOR = "spin_kernel"  # torch.cuda._sleep
Kernel = tuple[str, dict[str, float]]  # its name and its metrics


def run_under_profiler(calls: Sequence[Callable[[], Any]]) -> None:
    """Each call once behind a separator, all after a round that nobody counts."""
    with torch.inference_mode():
        for call in calls:
            call()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
        for call in calls:
            torch.cuda._sleep(1)
            call()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()


def counted(module: str, metrics: Sequence[str], *options: str) -> list[list[Kernel]]:
    """The kernels of each call of `python -m module --under-profiler`, which is to run_under_profiler."""
    command = ["ncu", "--csv", "--page", "raw", "--profile-from-start", "off", *options]
    command += ["--metrics", ",".join(metrics), sys.executable, "-m", module, UNDER_PROFILER]
    ran = subprocess.run(command, cwd=RESULTS.parent.parent, capture_output=True, text=True, check=False)
    start = ran.stdout.find('"ID"')
    if ran.returncode or start < 0:
        raise RuntimeError(f"ncu failed: {ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return between_separators(ran.stdout[start:].splitlines(), metrics)


def between_separators(lines: Iterable[str], metrics: Sequence[str]) -> list[list[Kernel]]:
    """Of ncu's comma-separated lines."""
    found: list[list[Kernel]] = []
    for row in csv.DictReader(lines):
        if not row["ID"]:
            continue  # the units
        if _SEPARATOR in row["Kernel Name"]:
            found.append([])
            continue
        numbers = {metric: float(row[metric].replace(",", "")) for metric in metrics}
        found[-1].append((row["Kernel Name"], numbers))
    return found
