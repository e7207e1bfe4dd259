"""Runs the suites of convolution layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from benchmarks.ceilings import floor_us
from benchmarks.operands import Pair, in_layout, operands, sets_for
from benchmarks.peers import Function, contenders, rotated, torch_function, use_tf32
from benchmarks.planner import Planner
from benchmarks.refcheck import Reference, error_ratio
from benchmarks.results import Record
from benchmarks.suites import DTYPES, Problem
from benchmarks.timing import measure

Report = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    device: torch.device
    ceiling: dict[str, float]
    peers: tuple[str, ...]
    algorithm: str  # what convx is asked for
    all_candidates: bool  # time every kernel that the registry lists, beside what algorithm takes
    rounds: int
    cache_bytes: int  # rotate operands past this much; 0 keeps them warm


def run_problem(problem: Problem, settings: Settings, planner: Planner, report: Report) -> Iterator[Record]:
    """Measures one problem: one record for the chosen method, one for each candidate that was asked for."""
    algorithms = [settings.algorithm]
    if settings.all_candidates:
        algorithms += planner.candidates(problem)
    sets = sets_for(problem, settings.cache_bytes)
    use_tf32(problem.tf32)
    functions = contenders(problem, algorithms, settings.peers, settings.device)
    pairs = {problem.layout: operands(problem, sets, settings.device)}
    for _, layout in functions.values():
        if layout not in pairs:
            pairs[layout] = in_layout(pairs[problem.layout], layout)
    calls = {name: rotated(function, pairs[layout]) for name, (function, layout) in functions.items()}
    with torch.inference_mode():
        times, failures = measure(calls, sets, settings.device, settings.rounds)
        for name, reason in failures.items():
            what = f"{problem.case.name} {problem.operation} {problem.dtype} {problem.layout}"
            report(f"{what}: {name} failed: {reason}")
        checked = {name: functions[name][0] for name in times if name in ("convx", *algorithms)}
        checked["torch"] = torch_function(problem, problem.layout, settings.device)
        errors = _errors(problem, checked, pairs[problem.layout][0])
    peers = {
        name: _rounded(time) for name, time in times.items() if name != "convx" and name not in algorithms
    }
    for index, algorithm in enumerate(algorithms):
        name = algorithm if index else "convx"
        if name not in times:
            continue
        ratio = error_ratio(errors[name], errors["torch"], DTYPES[problem.dtype])
        yield problem.fields() | {
            "group": problem.case.group,
            "warm": settings.cache_bytes == 0,
            "floor_us": _rounded(floor_us(problem, settings.ceiling)),
            "convx_us": _rounded(times[name]),
            "method": planner.method(problem, algorithm),
            "chosen_by": "auto" if algorithm == "auto" else "forced",
            "peers_us": peers,
            "error": float(f"{errors[name]:.2e}"),
            "error_ratio": _rounded(ratio),
        }


def _errors(problem: Problem, functions: dict[str, Function], pair: Pair) -> dict[str, float]:
    """Every convx contender's and torch's error on the first operand set."""
    reference = Reference(problem, pair)
    return {name: reference.error(function(*pair)) for name, function in functions.items()}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
