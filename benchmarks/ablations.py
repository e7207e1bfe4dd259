"""The papers' ideas on and off, where the candidates of a suite don't tell: forms by name.

depthwise: row reuse and column reuse (Lu, Zhang, Wang 2020; Liu et al. 2024).

pointwise: channel distribution and dynamic tiling (Liu et al. 2024). Fixed tiling: one for all layers at a
batch, the one that the planner's model ranks best over them; on GPUs of those of four waves in two rows of
two, as the authors' earlier work had it. Dynamic tiling: the fastest measured of the best-ranked for a layer,
as convx.tune finds it. On GPUs kernels are generated, with input channels spread over lanes and without; on
CPUs they are there already, and no channels are spread.

The same on GPUs with the tilings that the paper has, by exact divisors. No single one of these divides all
layers: fixed there is the one that ranks best over a batch's layers of those that divide the layer.
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
from benchmarks.tilings import is_square, kind_of
from convx import _libraries
from convx.tune import generated, records
from convx.tune.generated import ALL, SIZES, is_published, kernel_of

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
EXACT_FORMS = {  # the same with those tilings alone
    ("direct", "fixed"): f"{PUBLISHED}, direct, fixed tiling",
    ("direct", "dynamic"): f"{PUBLISHED}, direct, dynamic tiling",
    ("distributed", "fixed"): f"{PUBLISHED}, distributed, fixed tiling",
    ("distributed", "dynamic"): f"{PUBLISHED}, distributed, dynamic tiling",
}
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


def by_places(rankings: Iterable[Iterable[str]]) -> list[str]:
    """The ones with the best places over all rankings first."""
    places: Counter[str] = Counter()
    for ranking in rankings:
        for place, name in enumerate(dict.fromkeys(ranking)):
            places[name] += max(0, _RANKED - place)
    return [name for name, _ in places.most_common()]


def favourite(rankings: Iterable[Iterable[str]]) -> str:
    """The one with the best places over all rankings."""
    return next(iter(by_places(rankings)), "")


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

    def fixed(self, problem: Problem, exact: bool = False) -> dict[str, Any]:
        """The one tiling of the direct and of the distributed form; none where it can't run the problem. Of
        exact divisors the best of those that divide it."""
        core, found = core_problem(problem), {}
        for kind, tilings in self._ranked[problem.batch, exact].items():
            some = tilings if exact else tilings[:1]
            allowed = (t for t in some if self._generator.is_allowed(core, self._device, t, exact=exact))
            if first := next(allowed, None):
                found[kind] = first
        return found

    @cached_property
    def _ranked(self) -> dict[tuple[int, bool], dict[str, list[Any]]]:
        """Tilings of two by two waves of the direct and of the distributed form, by batch and whether they
        are of exact divisors, the best over all problems of the batch first."""
        return {
            (batch, exact): self._ranked_over([p for p in self._problems if p.batch == batch], exact)
            for batch in {problem.batch for problem in self._problems}
            for exact in (False, True)
        }

    def _ranked_over(self, problems: Sequence[Problem], exact: bool) -> dict[str, list[Any]]:
        ranked: dict[str, list[list[str]]] = {"direct": [], "distributed": []}
        found: dict[str, Any] = {}
        for problem in problems:
            core = core_problem(problem)
            tilings = self._generator.tilings(core, self._device, exact=exact, most=ALL)
            square = {t.describe(): t for t in tilings if is_square(t) and (is_published(t) or not exact)}
            found |= square
            for kind, rankings in ranked.items():
                names = [name for name, tiling in square.items() if kind_of(tiling.group_c) == kind]
                rankings.append(names[:_RANKED])
        return {kind: [found[name] for name in by_places(rankings)] for kind, rankings in ranked.items()}

    def contenders(self, problem: Problem) -> dict[str, list[str]]:
        core = core_problem(problem)
        papers = generated.tilings(core, self._device, published=True)
        parts = [
            (FORMS, "dynamic", generated.tilings(core, self._device)),
            (FORMS, "fixed", list(self.fixed(problem).values())),
            (EXACT_FORMS, "dynamic", papers),
            (EXACT_FORMS, "fixed", list(self.fixed(problem, exact=True).values())),
        ]
        wanted: dict[tuple[int, ...], Any] = {}
        for tiling in (each for *_, tilings in parts for each in tilings):
            wanted.setdefault(kernel_of(tiling), tiling)
        text = records.fields_text(records.problem_fields(core))
        found: dict[str, list[str]] = {}
        for name, facts in generated.offer(core, self._device, text, list(wanted.values())).items():
            kernel = tuple(facts[size] for size in SIZES)
            for forms, choice, tilings in parts:
                if kernel in map(kernel_of, tilings):
                    found.setdefault(forms[kind_of(facts["group_c"]), choice], []).append(name)
            if kernel in map(kernel_of, papers):
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
