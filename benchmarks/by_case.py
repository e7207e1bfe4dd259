"""Runs the suites whose cases are networks and layers by name."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmarks import host
from benchmarks.results import Record, Results

RunCase = Callable[..., Iterable[Record]]  # of a case, a device and, where there are some to choose, kinds


def _chosen_cases(every: Sequence[str], patterns: str | None) -> list[str]:
    if patterns is None:
        return list(every)
    chosen = [name for name in every if any(fnmatchcase(name, part) for part in patterns.split(","))]
    if not chosen:
        raise ValueError(f"--case {patterns}: the cases of this suite are {', '.join(every)}")
    return chosen


def run_cases(
    results: Results,
    device: torch.device,
    every: Sequence[str],
    run: RunCase,
    options: argparse.Namespace,
    path: Path | None,
    kinds: Sequence[str] = (),
) -> None:
    """Of networks and layers by name, written as they come. kinds: those to choose from, of a suite that has
    such; each is known by itself."""
    until = end_of(options.seconds)
    known: dict[str, set[str]] = {}
    for record in results.records.values() if options.resume else ():
        known.setdefault(host.case_of(record), set()).add(record["operation"])
    with tqdm(_chosen_cases(every, options.case), desc=options.suite, disable=None) as bar:
        for name in bar:
            left = [kind for kind in kinds if kind not in known.get(name, ())]
            if name in known and not left:
                continue
            if is_over(until, options.seconds, bar):
                break
            for record in run(name, device, kinds=left) if kinds else run(name, device):
                results.add(record)
                if path:
                    results.write(path)


def end_of(seconds: float | None) -> float:
    """Of so many from now on, or never."""
    return time.monotonic() + seconds if seconds else float("inf")


def is_over(until: float, seconds: float, bar: Any) -> bool:
    over = time.monotonic() > until
    if over:
        bar.write(f"stopped after {seconds:.0f} s; --resume goes on")
    return over
