"""The plans of a layer that Liu et al. have published, ready to run: rows through shared memory, and kernels
of the pipeline with tilings by exact divisors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.ablations import PUBLISHED, REUSE_FORMS, plans_of
from benchmarks.environment import device_slug
from benchmarks.planner import core_problem
from benchmarks.results import RESULTS, load
from benchmarks.suites import Problem
from convx import _planning
from convx.tune import first_call, generated, measuring, records

_ROWS = "shared_rows"
_FORMS = {"depthwise": REUSE_FORMS[_ROWS], "pointwise": PUBLISHED}  # by suite, as records call them
_ROUNDS = 5


def fastest(problem: Problem, where: torch.device) -> str:
    """The plan that the ablations found the fastest on this device, of what they did not time the one that is
    found here; "" where there is none, as on CPUs."""
    known = _found_by_ablations(RESULTS / device_slug(where)).get((problem.case.name, problem.batch), "")
    names = plans(problem, _planning.device(where), known)
    if len(names) < 2:
        return "".join(names)
    sampler = first_call.sampler_of(where)
    core = core_problem(problem)
    return measuring.measured(core, where, names, _ROUNDS, {}, sampler=sampler).algorithm


def plans(problem: Problem, device: Any, known: str = "") -> list[str]:
    """Of a _core.Device, by names; kernels of the pipeline are compiled. known: the one that will do where it
    is among them."""
    if device.backend == "cpu":
        return []
    if problem.shape.groups > 1:
        every = plans_of("depthwise", problem, device)
        names = [str(plan.name) for plan in every if plan.candidate == _ROWS]
        return [known] if known in names else names
    core = core_problem(problem)
    papers = generated.tilings(core, device, published=True)
    text = records.fields_text(records.problem_fields(core))
    return list(generated.offer(core, device, text, _of_plan(known, papers) or papers))


def _of_plan(name: str, papers: Sequence[Any]) -> list[Any]:
    """The tiling of that plan's kernel, where it is among them."""
    sizes = {key: int(size) for key, _, size in (part.partition("=") for part in name.split()[1:])}
    kernel = tuple(sizes.get(size, 0) for size in generated.SIZES)
    return [each for each in papers if generated.kernel_of(each) == kernel]


@functools.cache
def _found_by_ablations(folder: Path) -> dict[tuple[str, int], str]:
    """By layer and batch."""
    found = {}
    for suite, form in _FORMS.items():
        path = folder / f"{suite}_ablations.json"
        for record in load(path).records.values() if path.is_file() else ():
            if record["method"] == form and record["dtype"] == "float32" and not record["tf32"]:
                found[str(record["case"]), int(record["batch"])] = str(record["plan"])
    return found
