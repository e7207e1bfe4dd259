"""What convx's planner says about a benchmark's problem."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.suites import DTYPES, Problem
from convx import _libraries, _planning


class Planner:
    def __init__(self, device: torch.device) -> None:
        self._core = _libraries.core()
        self.device = _planning.device(device)

    def method(self, problem: Problem, algorithm: str) -> str:
        """The method and kernel that a call takes: "depthwise/strip"."""
        return _name(self._core.select(core_problem(problem), self.device, algorithm).plan)

    def plan(self, problem: Problem) -> str:
        """The plan that auto takes, with its tiling, by predictions alone."""
        return str(self._core.select_untuned(core_problem(problem), self.device).plan.name)

    def candidates(self, problem: Problem) -> list[str]:
        """Every kernel that could run the problem, by the names that algorithm takes. On CPUs native too: its
        time has convx's part of the call in it, as torch's has not."""
        core = core_problem(problem)
        names: dict[str, None] = {}
        for method in self._core.methods():
            for plan in self._core.candidates(method["name"], core, self.device):
                if _name(plan) != "native" or self.device.backend == "cpu":
                    names[_name(plan)] = None
        return list(names)


def plan_of(problem: Problem, device: Any) -> str:
    """What auto takes on a device of the planner's."""
    return _name(_libraries.core().select(core_problem(problem), device, "auto").plan)


def unfitted(problem: Any, device: Any) -> list[Any]:
    """All plans of a _core.Problem, as they are predicted without the model of random layers."""
    core = _libraries.core()
    methods = [method["name"] for method in core.methods()]
    return [plan for name in methods for plan in core.candidates(name, problem, device, fitted=False)]


def variant_of(problem: Problem, algorithm: str, device: Any) -> str:
    """Of an algorithm's times, on a device of the planner's."""
    method, _, candidate = algorithm.partition("/")
    plans = _libraries.core().candidates(method, core_problem(problem), device)
    return next((str(plan.variant) for plan in plans if plan.candidate == candidate), "")


def _name(plan: Any) -> str:
    return f"{plan.method}/{plan.candidate}" if plan.candidate else str(plan.method)


def core_problem(problem: Problem) -> Any:
    """As the planner is asked for it."""
    shape = problem.shape
    return _planning.problem(
        problem.operation,
        DTYPES[problem.dtype],
        problem.layout == "channels_last",
        shape.input_size(problem.batch),
        shape.weight_size,
        shape.strides,
        shape.sides,
        shape.dilations,
        shape.groups,
        tf32=problem.tf32_setting,
    )
