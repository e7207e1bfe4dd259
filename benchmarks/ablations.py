"""Pointwise's generated kernels with channel distribution and dynamic tiling on and off (Liu et al. 2024).

Fixed tiling: one for all layers, of four waves in two rows of two, as the authors' earlier work had it, and
of those the one that the generator's model ranks best over the suite. Dynamic tiling: the fastest measured of
the tilings that convx.tune tries for a layer. Each with input channels spread over lanes, and without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from benchmarks.convolution import Report, Settings, measure_problem
from benchmarks.planner import core_problem
from benchmarks.results import Record
from benchmarks.suites import Problem
from convx import _libraries
from convx.tune import generated, records

REFERENCE = "pointwise/fma"  # the precompiled kernel without tensor cores
FORMS = {
    ("direct", "fixed"): "pointwise/generated, direct, fixed tiling",
    ("direct", "dynamic"): "pointwise/generated, direct, dynamic tiling",
    ("distributed", "fixed"): "pointwise/generated, distributed, fixed tiling",
    ("distributed", "dynamic"): "pointwise/generated, distributed, dynamic tiling",
}
_RANKED = 64  # tilings of a layer that have a say in the choice of the fixed one
_SEARCHED = 1 << 20


def distribution(tiling: Any) -> str:
    return "distributed" if tiling.group_c > 1 else "direct"


class Ablations:
    """The forms as contenders of one run's problems, on a _core.Device.

    Raises ValueError for a problem that the generator has no kernel for.
    """

    def __init__(self, device: Any, problems: Sequence[Problem]) -> None:
        self._device = device
        self._problems = problems
        self._generator = _libraries.core().generator
        for problem in problems:
            ok, reason = self._generator.supports(core_problem(problem), device)
            if not ok:
                raise ValueError(
                    f"--ablations times generated kernels, and {problem.case.name} can have none: {reason}. "
                    "What --all-candidates times has the other papers' ablations"
                )

    @cached_property
    def fixed(self) -> dict[str, Any]:
        """The one tiling of each distribution, by the sum of its places in the layers' rankings."""
        places: dict[str, Counter[str]] = {"direct": Counter(), "distributed": Counter()}
        tilings: dict[str, Any] = {}
        for problem in self._problems:
            listed: Counter[str] = Counter()
            for tiling in self._generator.tilings(core_problem(problem), self._device, most=_SEARCHED):
                kind = distribution(tiling)
                if (tiling.repeat_w, tiling.repeat_c) == (2, 2) and listed[kind] < _RANKED:
                    places[kind][tiling.describe()] += _RANKED - listed[kind]
                    listed[kind] += 1
                    tilings[tiling.describe()] = tiling
        return {kind: tilings[votes.most_common(1)[0][0]] for kind, votes in places.items() if votes}

    def contenders(self, problem: Problem) -> dict[str, list[str]]:
        """Names of plans, compiled and ready, by the method that a record names."""
        core = core_problem(problem)
        best = generated.tilings(core, self._device)
        fixed = [each for each in self.fixed.values() if self._generator.is_allowed(core, self._device, each)]
        wanted = [*best, *(each for each in fixed if each not in best)]
        text = records.fields_text(records.problem_fields(core))
        found: dict[str, list[str]] = {}
        for name, kernel in generated.offer(core, self._device, text, wanted).items():
            kind = "distributed" if kernel["group_c"] > 1 else "direct"
            if any(_is(each, kernel) for each in best):
                found.setdefault(FORMS[kind, "dynamic"], []).append(name)
            if any(_is(each, kernel) for each in fixed):
                found.setdefault(FORMS[kind, "fixed"], []).append(name)
        return found


def _is(tiling: Any, kernel: dict[str, Any]) -> bool:
    return all(getattr(tiling, name, value) == value for name, value in kernel.items())


def run_ablations(
    problem: Problem, settings: Settings, ablations: Ablations, report: Report
) -> Iterator[Record]:
    """A record for each form, of its fastest tiling, and one for the precompiled kernel."""
    forms = ablations.contenders(problem)
    names = list(dict.fromkeys(name for members in forms.values() for name in members))
    measured = measure_problem(problem, [REFERENCE, *names], settings, report)
    if "convx" in measured.times:
        yield measured.record("convx", REFERENCE, "forced")
    for method, members in forms.items():
        timed = [name for name in members if name in measured.times]
        if timed:
            fastest = min(timed, key=measured.times.__getitem__)
            yield measured.record(fastest, method, "forced") | {"plan": fastest}
