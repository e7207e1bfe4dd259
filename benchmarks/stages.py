"""Times of cuConv's two stages, each by itself: `python -m benchmarks.stages`.

Nsight Compute times the kernels of the published plan one by one on a GPU, with what they read still in its
cache: tables 3 to 5 of the paper have such times. Into results/stages.json, which the paper's page reads.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks import nsight
from benchmarks.environment import environment
from benchmarks.operands import operands
from benchmarks.peers import convx_function
from benchmarks.planner import Planner
from benchmarks.results import RESULTS
from benchmarks.suites import Problem, problems, small_batch_cases

PATH = RESULTS / "stages.json"
PLAN = "cuconv/two_stage"
BATCHES = (1, 8)  # those of tables 3 to 5
_METRIC = "gpu__time_duration.sum"  # nanoseconds
# Caches and clocks as they are in a program that runs.
_OPTIONS = ("--cache-control", "none", "--clock-control", "none")
_REPEATS = 5
_PRODUCTS, _SUM = "products_kernel", "sum_kernel"


@dataclass(frozen=True)
class Stages:
    """One layer at one batch; of a filter of one tap there is no sum."""

    case: str
    batch: int
    filter: int
    products_us: float
    sum_us: float | None


def _problems(planner: Planner) -> list[Problem]:
    """Of the suite small_batch, the paper's layers whose planes fit the workspace."""
    cases = [case for case in small_batch_cases() if case.group.startswith("cuConv")]
    every = problems(cases, ("forward",), ("float32",), ("nchw",), BATCHES, on_gpu=True)
    return [each for each in every if PLAN in planner.candidates(each)]


def _run_under_profiler(device: torch.device) -> None:
    torch.manual_seed(0)
    calls = []
    for problem in _problems(Planner(device)):
        (pair,) = operands(problem, 1, device)
        calls.append(partial(_repeated, convx_function(problem, PLAN, on_gpu=True), *pair))
    nsight.run_under_profiler(calls)


def _repeated(function: Any, *pair: torch.Tensor) -> None:
    for _ in range(_REPEATS):
        function(*pair)


def measured(device: torch.device) -> Iterator[Stages]:
    """By this machine's GPU."""
    found = _problems(Planner(device))
    calls = nsight.counted("benchmarks.stages", [_METRIC], *_OPTIONS)
    for problem, kernels in zip(found, calls, strict=True):
        yield stages(problem, kernels)


def stages(problem: Problem, kernels: Iterable[nsight.Kernel]) -> Stages:
    """The medians of a layer's calls."""
    us: dict[str, list[float]] = {_PRODUCTS: [], _SUM: []}
    for name, metrics in kernels:
        (stage,) = (each for each in us if each in name)
        us[stage].append(metrics[_METRIC] / 1e3)
    products, sums = us[_PRODUCTS], us[_SUM]
    added = round(median(sums), 2) if sums else None
    return Stages(problem.case.name, problem.batch, problem.shape.filter, round(median(products), 2), added)


def load(path: Path = PATH) -> dict[str, list[Stages]]:
    """The committed times by GPU; none where there is no such file."""
    machines = json.loads(path.read_text())["machines"] if path.is_file() else {}
    return {name: [Stages(**each) for each in found["layers"]] for name, found in machines.items()}


def write(path: Path, machine: str, environment: dict[str, Any], found: Iterable[Stages]) -> None:
    """In the place of what the file has of the same GPU."""
    machines = json.loads(path.read_text())["machines"] if path.is_file() else {}
    machines[machine] = {"environment": environment, "layers": [asdict(each) for each in found]}
    parts = []
    for name, part in machines.items():
        lines = ",\n    ".join(json.dumps(each) for each in part["layers"])
        head = f'"environment": {json.dumps(part["environment"])},\n   "layers": [\n    {lines}\n   ]'
        parts.append(f"  {json.dumps(name)}: {{\n   {head}\n  }}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{\n "machines": {\n' + ",\n".join(parts) + "\n }\n}\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stages", description=__doc__)
    parser.add_argument("--output", type=Path, default=PATH)
    parser.add_argument(nsight.UNDER_PROFILER, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("a GPU is needed: its Nsight Compute times the kernels")
    device = torch.device("cuda", torch.cuda.current_device())
    if options.under_profiler:
        return _run_under_profiler(device)
    name = torch.cuda.get_device_name(device)
    return write(options.output, name, environment(device), list(measured(device)))


if __name__ == "__main__":
    main()
