"""Reads what benchmarks/fit.py wrote for the planner, and asks the planner about it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from benchmarks.measured_layers import Correction
from benchmarks.planner import core_problem
from benchmarks.suites import Case, Problem, Shape
from convx import _core


class MeasuredFile:
    def __init__(self, path: Path) -> None:
        head, points_and_series = path.read_text().split("_points[] = {")
        points, self.series = points_and_series.split("};", 1)
        row = r"\{" + ", ".join([r"(\d+)"] * 6) + r"\}"
        self._layers = [tuple(map(int, layer)) for layer in re.findall(row, head)]
        self._points = re.findall(r"\{(\d+), ([-.e\d]+)\}", points)
        found = re.search(r"_reach = ([.\d]+);", head)
        assert found
        self._reach = float(found[1])

    def correction(
        self, first: str, count: str, depthwise: bool, operation: str, dtype: str, layout: str, tf32: bool
    ) -> Correction:
        """Of the points that a series has."""
        own = self._points[int(first) : int(first) + int(count)]
        problems = []
        for index, _ in own:
            batch, *shape = self._layers[int(index)]
            case = Case("", "", Shape(*shape, shape[0] if depthwise else 1), (), ())
            problems.append(Problem(case, operation, dtype, layout, batch, tf32))
        weights = np.array([float(weight) for _, weight in own])
        return Correction(tuple(problems), weights, self._reach)


def plan_of(algorithm: str, problem: Problem, device: _core.Device) -> _core.Plan | None:
    """The best plan of an algorithm, by the name that measured times have, as those and estimates predict it;
    None where it has none."""
    plans = _core.candidates(algorithm.split("/")[0], core_problem(problem), device, fitted=False)
    return next((plan for plan in plans if measured_name(plan) == algorithm), None)


def measured_name(plan: _core.Plan) -> str:
    name = algorithm_of(plan)
    return f"{name}, {plan.variant}" if plan.variant else name


def algorithm_of(plan: _core.Plan) -> str:
    return f"{plan.method}/{plan.candidate}" if plan.candidate else plan.method
