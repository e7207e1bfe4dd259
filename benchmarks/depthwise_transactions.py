"""Memory transactions of depthwise layers: `python -m benchmarks.depthwise_transactions [--ncu]`.

Counts what the forms with and without reuse ask of global memory, as benchmarks.transactions does for
images: on the host executor for a few channels, where their results are checked too; with --ncu by a GPU's
own counters for whole layers, and for torch's kernels. Into results/depthwise_transactions.json, which the
paper's page reads.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import host_executor, nsight, transactions
from benchmarks.ablations import REUSE_FORMS, plans_of
from benchmarks.operands import operands
from benchmarks.peers import contenders
from benchmarks.planner import Planner
from benchmarks.results import RESULTS
from benchmarks.suites import Case, Problem, Shape, depthwise_cases
from convx import _core

Record = dict[str, Any]
PATH = RESULTS / "depthwise_transactions.json"
PEERS = ("native", "torch")  # torch's own kernel, cuDNN switched off, and its choice
# A layer of every side, filter and stride that the papers have.
LAYERS = (
    *(f"CONV{number}-{side}x{side}" for side in (3, 5) for number in (1, 3, 5, 8, 11)),
    *("D6", "D12", "D15", "D17", "D13", "D19"),
)
IMAGES = 8  # on a GPU; more have as many times more of all
_COUNTED = 1 << 15  # results of a layer on the host executor, about
_PROGRAMS = {"shared_rows": "shared_rows"}  # by candidate; all others are one kernel's


def layers() -> list[Case]:
    every = {case.name: case for case in depthwise_cases()}
    return [every[name] for name in LAYERS]


def problem_of(case: Case, batch: int) -> Problem:
    return Problem(case, "forward", "float32", "nchw", batch)


def few_channels(case: Case) -> Case:
    """The same layer of one image with as many channels as the host executor has time for."""
    shape = case.shape
    channels = min(shape.in_channels, max(1, _COUNTED // shape.out_size**2))
    few = Shape(channels, shape.size, channels, shape.filter, shape.stride, channels)
    return Case(case.name, case.group, few, (1,), ())


def plans(problem: Problem, device: Any) -> dict[str, str]:
    """A plan of each form, by its candidate: of several the one with the most result rows of a lane, for one
    row has none to reuse."""
    found: dict[str, Any] = {}
    for plan in plans_of("depthwise", problem, device):
        best = found.get(plan.candidate)
        if plan.candidate in REUSE_FORMS and (best is None or _rows(plan) > _rows(best)):
            found[plan.candidate] = plan
    return {candidate: str(found[candidate].name) for candidate in REUSE_FORMS if candidate in found}


def _rows(plan: Any) -> int:
    return int(plan.tiling.get("rows", 0))


def counted(cases: list[Case], programs: Callable[[str], Path] = host_executor.built) -> Iterator[Record]:
    """On the host executor."""
    program = functools.cache(programs)
    device = _core.Device.known_device(transactions.DEVICE)
    for case in map(few_channels, cases):
        problem, shape = problem_of(case, 1), case.shape
        for candidate, plan in plans(problem, device).items():
            line = (
                f"device={transactions.DEVICE} dtype=float32 channels={shape.in_channels} "
                f"groups={shape.groups} size={shape.size},{shape.size} filter={shape.filter},{shape.filter} "
                f"stride={shape.stride},{shape.stride} padding={shape.padding} "
                f"only={plan.removeprefix('depthwise/').replace(' ', '+')}"
            )
            ((_, counts),) = host_executor.counted(program(_PROGRAMS.get(candidate, "strip")), [line])
            yield _record(transactions.EXECUTOR, problem, plan, counts._asdict())


def _record(by: str, problem: Problem, contender: str, numbers: dict[str, int]) -> Record:
    shape = problem.shape
    layer = {"case": problem.case.name, "size": shape.size, "filter": shape.filter, "stride": shape.stride}
    results = problem.elements[1]
    return {"by": by, **layer, "results": results, "contender": contender, **numbers}


def _contenders(device: torch.device) -> Iterator[tuple[Problem, str, Callable[[], Any]]]:
    """On the GPU, in the order in which they are profiled."""
    planner = Planner(device)
    for case in layers():
        problem = problem_of(case, IMAGES)
        (pair,) = operands(problem, 1, device)
        names = list(plans(problem, planner.device).values())
        for name, (function, _) in contenders(problem, ["auto", *names], PEERS, device).items():
            yield problem, "auto" if name == "convx" else name, partial(function, *pair)


def measured(by: str, device: torch.device) -> Iterator[Record]:
    """By the GPU's counters, added up over the kernels of a call."""
    metrics = list(transactions.METRICS.values())
    calls = nsight.counted("benchmarks.depthwise_transactions", metrics)
    for (problem, name, _), kernels in zip(_contenders(device), calls, strict=True):
        yield _record(by, problem, name, transactions.added_up(kernels))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.depthwise_transactions", description=__doc__)
    parser.add_argument("--ncu", action="store_true", help="on this machine's GPU, by Nsight Compute")
    parser.add_argument("--output", type=Path, default=PATH)
    parser.add_argument(nsight.UNDER_PROFILER, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    device = torch.device("cuda", 0)
    if options.under_profiler:
        return nsight.run_under_profiler([call for _, _, call in _contenders(device)])
    if options.ncu:
        by = torch.cuda.get_device_name(device)
        return transactions.write(options.output, by, list(measured(by, device)))
    return transactions.write(options.output, transactions.EXECUTOR, list(counted(layers())))


if __name__ == "__main__":
    main()
