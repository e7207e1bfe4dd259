"""Runs the suites of convolution layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from benchmarks.ceilings import floor_us
from benchmarks.operands import Pair, in_layout, operands, sets_for
from benchmarks.peers import Function, contenders, rotated, torch_function, use_tf32
from benchmarks.planner import Planner
from benchmarks.refcheck import Reference, error_ratio
from benchmarks.results import Record, is_slower
from benchmarks.spread import Quartiles, kept
from benchmarks.suites import DTYPES, Problem
from benchmarks.timing import measure

Report = Callable[[str], None]
SURE_ROUNDS = 21
_FIRST = "convx"  # the first of the algorithms of a measurement


@dataclass(frozen=True)
class Settings:
    device: torch.device
    ceiling: dict[str, float]
    peers: tuple[str, ...]
    algorithm: str  # what convx is asked for
    all_candidates: bool  # time every kernel that the registry lists, beside what algorithm takes
    rounds: int
    cache_bytes: int  # rotate operands past this much; 0 keeps them warm
    in_network: bool  # as timing.measure has it


@dataclass(frozen=True)
class Measured:
    """What one problem's contenders took, and how far they are from float64; by their names."""

    problem: Problem
    settings: Settings
    times: dict[str, float]
    errors: dict[str, float]
    peers: dict[str, float]
    quartiles: dict[str, Quartiles] = field(default_factory=dict)  # of the samples of a time

    @property
    def _is_drawn(self) -> bool:
        """Not candidates in a network, which are many and for fits alone."""
        return not (self.settings.all_candidates and self.settings.in_network)

    def record(self, name: str, method: str, chosen_by: str) -> Record:
        problem, settings = self.problem, self.settings
        ratio = error_ratio(self.errors[name], self.errors["torch"], DTYPES[problem.dtype])
        peers = tuple(self.peers) if name == _FIRST else ()
        spread = kept(self.quartiles, name, peers) if self._is_drawn else {}
        return problem.fields() | {
            "group": problem.case.group,
            "warm": settings.cache_bytes == 0,
            "floor_us": _rounded(floor_us(problem, settings.ceiling)),
            "convx_us": _rounded(self.times[name]),
            "method": method,
            "chosen_by": chosen_by,
            "peers_us": self.peers,
            "error": float(f"{self.errors[name]:.2e}"),
            "error_ratio": _rounded(ratio),
            **spread,
        }


def run_problem(problem: Problem, settings: Settings, planner: Planner, report: Report) -> Iterator[Record]:
    """Measures one problem: one record for the chosen method, one for each candidate that was asked for."""
    algorithms = [settings.algorithm]
    if settings.all_candidates:
        algorithms += planner.candidates(problem)
        measured = measure_problem(problem, algorithms, settings, report)
    else:
        measured = measure_surely(problem, settings, report)
    for index, algorithm in enumerate(algorithms):
        name = algorithm if index else _FIRST
        if name in measured.times:
            chosen_by = "auto" if algorithm == "auto" else "forced"
            yield measured.record(name, planner.method(problem, algorithm), chosen_by)


def measure_surely(
    problem: Problem, settings: Settings, report: Report, algorithms: Sequence[str] = ()
) -> Measured:
    """What convx takes, or these algorithms instead, beside the peers. Where one seems slower than the best
    of them all are measured again, longer, and that counts: short runs differ by 2 % now and then where the
    kernels are the same."""
    asked = list(algorithms) or [settings.algorithm]
    measured = measure_problem(problem, asked, settings, report)
    own = [us for name, us in measured.times.items() if name in (_FIRST, *asked)]
    if any(is_slower({"convx_us": us, "peers_us": measured.peers}) for us in own):
        again = replace(settings, rounds=max(SURE_ROUNDS, settings.rounds))
        measured = measure_problem(problem, asked, again, report)
    return measured


def measure_problem(problem: Problem, algorithms: list[str], settings: Settings, report: Report) -> Measured:
    """Times convx by every algorithm, the first of them as "convx", and the peers."""
    sets = sets_for(problem, settings.cache_bytes)
    use_tf32(problem.tf32)
    functions = contenders(problem, algorithms, settings.peers, settings.device)
    pairs = {problem.layout: operands(problem, sets, settings.device)}
    for _, layout in functions.values():
        if layout not in pairs:
            pairs[layout] = in_layout(pairs[problem.layout], layout)
    calls = {name: rotated(function, pairs[layout]) for name, (function, layout) in functions.items()}
    with torch.inference_mode():
        timings = measure(calls, sets, settings.device, settings.rounds, in_network=settings.in_network)
        times = timings.us
        for name, reason in timings.failures.items():
            what = f"{problem.case.name} {problem.operation} {problem.dtype} {problem.layout}"
            report(f"{what}: {name} failed: {reason}")
        checked = {name: functions[name][0] for name in times if name in (_FIRST, *algorithms)}
        checked["torch"] = torch_function(problem, problem.layout, settings.device)
        errors = _errors(problem, checked, pairs[problem.layout][0])
    own = (_FIRST, *algorithms)
    peers = {name: _rounded(time) for name, time in times.items() if name not in own}
    return Measured(problem, settings, times, errors, peers, timings.quartiles)


def _errors(problem: Problem, functions: dict[str, Function], pair: Pair) -> dict[str, float]:
    """Every convx contender's and torch's error on the first operand set."""
    reference = Reference(problem, pair)
    return {name: reference.error(function(*pair)) for name, function in functions.items()}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
