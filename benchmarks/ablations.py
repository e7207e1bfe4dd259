"""The papers' ideas on and off, where the candidates of a suite don't tell: forms by name.

depthwise: row reuse and column reuse (Lu, Zhang, Wang 2020; Liu et al. 2024).

pointwise: channel distribution and dynamic tiling (Liu et al. 2024). Fixed tiling: one for all layers, the
one that the planner's model ranks best over the suite; on GPUs of those of four waves in two rows of two, as
the authors' earlier work had it. Dynamic tiling: the fastest measured of the best-ranked for a layer, as
convx.tune finds it. On GPUs kernels are generated, with input channels spread over lanes and without; on CPUs
they are there already, and no channels are spread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from benchmarks.convolution import Report, Settings, measure_problem
from benchmarks.planner import core_problem
from benchmarks.results import Record
from benchmarks.suites import Problem
from convx import _libraries
from convx.tune import generated, records

# What records call pointwise's forms. The reference is a kernel that needs no measuring to be found: the one
# without tensor cores, or the model's choice.
FORMS = {
    ("direct", "fixed"): "pointwise/generated, direct, fixed tiling",
    ("direct", "dynamic"): "pointwise/generated, direct, dynamic tiling",
    ("distributed", "fixed"): "pointwise/generated, distributed, fixed tiling",
    ("distributed", "dynamic"): "pointwise/generated, distributed, dynamic tiling",
}
# The pipeline with the tilings that the paper has, of either form; the four have ragged ones and longer
# stages beside.
PUBLISHED = "pointwise/generated, as published"
REFERENCE = "pointwise/fma"
CPU_FORMS = {"fixed": "pointwise, fixed tiling", "dynamic": "pointwise, dynamic tiling"}
CPU_REFERENCE = "pointwise, predicted tiling"
REUSE_FORMS = {  # by candidate
    "no_reuse": "depthwise, neither reuse",
    "column_reuse": "depthwise, column reuse",
    "row_reuse": "depthwise, row reuse",
    "strip": "depthwise, row and column reuse",
    "shared_rows": "depthwise, row reuse through shared memory",
}
REUSE_REFERENCE = "depthwise, as chosen"
_RANKED = 64  # tilings of a layer that have a say in the choice of the fixed one
_SEARCHED = 1 << 20


def favourite(rankings: Iterable[Iterable[str]]) -> str:
    """The one with the best places over all rankings."""
    places: Counter[str] = Counter()
    for ranking in rankings:
        for place, name in enumerate(dict.fromkeys(ranking)):
            places[name] += max(0, _RANKED - place)
    return places.most_common(1)[0][0] if places else ""


class Ablations(ABC):
    """The forms as contenders of one run's problems on a _core.Device."""

    reference: tuple[str, str]  # its algorithm, and what records call it

    def __init__(self, device: Any, problems: Sequence[Problem]) -> None:
        self._device = device
        self._problems = problems

    @abstractmethod
    def contenders(self, problem: Problem) -> dict[str, list[str]]:
        """Plans to measure, ready to run, by the form that they belong to."""


class GeneratedAblations(Ablations):
    """On a GPU. Raises ValueError for a problem that the generator has no kernel for."""

    reference = (REFERENCE, REFERENCE)

    def __init__(self, device: Any, problems: Sequence[Problem]) -> None:
        super().__init__(device, problems)
        self._generator = _libraries.core().generator
        for problem in problems:
            ok, reason = self._generator.supports(core_problem(problem), device)
            if not ok:
                raise ValueError(f"--ablations: no kernel is generated for {problem.case.name}: {reason}")

    @cached_property
    def fixed(self) -> dict[str, Any]:
        """The one tiling of the direct and of the distributed form."""
        ranked: dict[str, list[list[str]]] = {"direct": [], "distributed": []}
        found: dict[str, Any] = {}
        for problem in self._problems:
            tilings = self._generator.tilings(core_problem(problem), self._device, most=_SEARCHED)
            square = {t.describe(): t for t in tilings if (t.repeat_w, t.repeat_c) == (2, 2)}
            found |= square
            for kind, rankings in ranked.items():
                names = [name for name, tiling in square.items() if _kind(tiling.group_c) == kind]
                rankings.append(names[:_RANKED])
        return {kind: found[name] for kind, rankings in ranked.items() if (name := favourite(rankings))}

    def contenders(self, problem: Problem) -> dict[str, list[str]]:
        core = core_problem(problem)
        best = generated.tilings(core, self._device)
        fixed = [each for each in self.fixed.values() if self._generator.is_allowed(core, self._device, each)]
        published = generated.tilings(core, self._device, published=True)
        wanted = list(best)
        wanted += [each for each in (*fixed, *published) if each not in wanted]
        text = records.fields_text(records.problem_fields(core))
        found: dict[str, list[str]] = {}
        for name, kernel in generated.offer(core, self._device, text, wanted).items():
            for choice, tilings in (("dynamic", best), ("fixed", fixed)):
                if any(_is(each, kernel) for each in tilings):
                    found.setdefault(FORMS[_kind(kernel["group_c"]), choice], []).append(name)
            if any(_is(each, kernel) for each in published):
                found.setdefault(PUBLISHED, []).append(name)
        return found


class CpuAblations(Ablations):
    """On a CPU. Raises ValueError for a problem that pointwise can't run."""

    reference = ("pointwise", CPU_REFERENCE)

    def __init__(self, device: Any, problems: Sequence[Problem]) -> None:
        super().__init__(device, problems)
        for problem in problems:
            if not plans_of("pointwise", problem, device):
                raise ValueError(
                    f"--ablations: pointwise has no kernel for {problem.case.name} on this device"
                )

    @cached_property
    def fixed(self) -> str:
        """The one register tile."""
        return favourite(map(_tile, plans_of("pointwise", each, self._device)) for each in self._problems)

    def contenders(self, problem: Problem) -> dict[str, list[str]]:
        plans = plans_of("pointwise", problem, self._device)
        fixed = [plan.name for plan in plans if _tile(plan) == self.fixed][:1]
        found = {CPU_FORMS["fixed"]: fixed, CPU_FORMS["dynamic"]: [plan.name for plan in plans]}
        return {form: names for form, names in found.items() if names}


class ReuseAblations(Ablations):
    """Of depthwise kernels on a GPU: strips of rows with either reuse, with both and with none.

    Raises ValueError for problems none of which has such kernels.
    """

    reference = ("auto", REUSE_REFERENCE)

    def __init__(self, device: Any, problems: Sequence[Problem]) -> None:
        super().__init__(device, problems)
        if not any(self.contenders(problem) for problem in problems):
            raise ValueError("--ablations: depthwise has no forms with and without reuse on this device")

    def contenders(self, problem: Problem) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for plan in plans_of("depthwise", problem, self._device):
            if form := REUSE_FORMS.get(plan.candidate):
                found.setdefault(form, []).append(plan.name)
        return found


def plans_of(method: str, problem: Problem, device: Any) -> list[Any]:
    """A method's plans, the fastest expected first."""
    plans: list[Any] = _libraries.core().candidates(method, core_problem(problem), device)
    return plans


def ablations_of(suite: str, device: Any, problems: Sequence[Problem]) -> Ablations:
    """Of the suite depthwise or pointwise."""
    if suite == "depthwise":
        return ReuseAblations(device, problems)
    return (CpuAblations if device.backend == "cpu" else GeneratedAblations)(device, problems)


def _kind(group_c: int) -> str:
    return "distributed" if group_c > 1 else "direct"


def _is(tiling: Any, kernel: dict[str, Any]) -> bool:
    return all(getattr(tiling, name, value) == value for name, value in kernel.items())


def _tile(plan: Any) -> str:
    """Of a thread's registers: what is fixed where a tiling is, while blocks follow the layer."""
    return f"{plan.candidate} {plan.tiling['wave_w']} {plan.tiling['wave_c']}"


def run_ablations(
    problem: Problem, settings: Settings, ablations: Ablations, report: Report
) -> Iterator[Record]:
    """A record for each form, of its fastest tiling, and one for the reference."""
    forms = ablations.contenders(problem)
    names = list(dict.fromkeys(name for members in forms.values() for name in members))
    algorithm, method = ablations.reference
    measured = measure_problem(problem, [algorithm, *names], settings, report)
    if "convx" in measured.times:
        yield measured.record("convx", method, "forced")
    for method, members in forms.items():
        timed = [name for name in members if name in measured.times]
        if timed:
            fastest = min(timed, key=measured.times.__getitem__)
            yield measured.record(fastest, method, "forced") | {"plan": fastest}
