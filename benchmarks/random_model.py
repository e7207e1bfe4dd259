"""The times of kernels on layers of any kind, by a model of random ones: a kernel's estimate, and what the
axes of a layer add to its logarithm, curves of the most important ones included.

csrc/choose/fitted.cpp computes the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.planner_source import enumerators
from benchmarks.regression import Array
from benchmarks.suites import Problem

_CURVED = (0, 1, 3, 4, 9)  # batch, channels, pixels, taps and width
# What a coefficient may be is told by this many problems' worth of doubt that it is 0, and the estimate's 1.
_RIDGE, _RIDGE_OF_CONSTANT = 1.0, 0.01
_FEWEST = 12  # problems
_SURE = 2.0  # standard deviations
_LEAST_DEVIATION = 0.03
_AROUND = 0.5  # octaves around what a model was fitted to, which count as seen


@dataclass(frozen=True, order=True)
class Series:
    """What shares coefficients."""

    algorithm: str
    kind: str
    operation: str
    products: str
    layout: str


@dataclass(frozen=True)
class Sample:
    problem: Problem
    estimate_us: float
    us: float


@dataclass(frozen=True)
class Model:
    """The times of a series, in microseconds."""

    coefficients: Array
    deviation: float  # of the logarithm of a time
    least: Array  # of the axes
    most: Array
    least_us: float  # of what it was fitted to: launches and latency, which no layer goes below
    margin: float = 1.0  # for machines that are not quite the one that was measured

    @property
    def doubt(self) -> float:
        """Plan::doubt of csrc/plan/method.h."""
        return self.margin * math.exp(_SURE * self.deviation)

    def has_seen(self, problem: Problem) -> bool:
        place = axes(problem)
        return bool((place >= self.least - _AROUND).all() and (place <= self.most + _AROUND).all())

    def at(self, problem: Problem, estimate_us: float) -> float:
        """What the plan takes that an estimate, or what was extrapolated, expects the fastest."""
        return max(self.least_us, math.exp(float(_terms(problem, estimate_us) @ self.coefficients)))


def series_of(problem: Problem, algorithm: str) -> Series:
    shape = problem.shape
    depthwise = shape.groups == shape.in_channels
    kind = "dense" if shape.groups == 1 else "depthwise" if depthwise else "grouped"
    products = "half" if problem.dtype in ("float16", "bfloat16") else "full"
    if problem.tf32 and not depthwise:
        products = "tf32"
    # A kernel's gradient by input is a convolution as the forward is.
    is_forward = problem.operation == "input_grad" and algorithm != "native"
    return Series(algorithm, kind, "forward" if is_forward else problem.operation, products, problem.layout)


def axes(problem: Problem) -> Array:
    shape = problem.shape
    out_height, out_width = shape.out_maps
    filters = shape.filters
    return np.array(
        [
            math.log2(problem.batch),
            math.log2(shape.in_channels),
            math.log2(shape.out_channels),
            math.log2(out_height * out_width),
            math.log2(filters[0] * filters[1]),
            math.log2(shape.strides[0]),
            float(shape.dilations[0] > 1),
            math.log2(min(filters)),
            math.log2(shape.in_channels // shape.groups),
            math.log2(out_width),
            float(shape.in_channels % 8 > 0 or shape.out_channels % 8 > 0),
        ]
    )


def _terms(problem: Problem, estimate_us: float) -> Array:
    at = axes(problem)
    curved = [at[i] * at[j] / 10 for i in _CURVED for j in _CURVED if i <= j]
    return np.array([1.0, *at, *curved, math.log(estimate_us)])


def fit(samples: Sequence[Sample], margin: float = 1.0) -> Model:
    """By least squares of logarithms; the deviation is of problems that are predicted by all others."""
    terms = np.array([_terms(sample.problem, sample.estimate_us) for sample in samples])
    times = np.log([sample.us for sample in samples])
    expected = np.zeros(terms.shape[1])
    expected[-1] = 1
    ridge = np.full(terms.shape[1], _RIDGE)
    ridge[0] = _RIDGE_OF_CONSTANT
    solve = np.linalg.solve(terms.T @ terms + np.diag(ridge), terms.T)
    coefficients = expected + solve @ (times - terms @ expected)
    own_say = np.clip(np.einsum("ij,ji->i", terms, solve), 0, 0.95)
    errors = (times - terms @ coefficients) / (1 - own_say)
    places = np.array([axes(sample.problem) for sample in samples])
    deviation = max(_LEAST_DEVIATION, float(errors.std()))
    least_us = min(sample.us for sample in samples)
    return Model(coefficients, deviation, places.min(0), places.max(0), least_us, margin)


def fit_all(samples: Mapping[Series, Sequence[Sample]], margin: float = 1.0) -> dict[Series, Model]:
    return {series: fit(members, margin) for series, members in samples.items() if len(members) >= _FEWEST}


def source(models: Mapping[Series, Model], bandwidth_GBps: float, heading: str, name: str) -> str:
    """The C++ that csrc/choose/fitted.cpp includes."""
    rows = []
    for series in sorted(models):
        model = models[series]
        operation, _, layout = enumerators(series.operation, "float32", series.layout)
        which = (
            f'"{series.algorithm}", Kind::{series.kind}, {operation}, Products::{series.products}, {layout}'
        )
        numbers = (_braced(each) for each in (model.least, model.most, model.coefficients))
        rows.append(f"{{{which}, {model.doubt:.4g}, {model.least_us:.4g}, {', '.join(numbers)}}},")
    return "\n".join(
        [
            heading,
            f"constexpr double {name}_GBps = {bandwidth_GBps:g};",
            "// Kernel, kind of layer, operation, products, layout, doubt, least time; least and most of the",
            "// axes; coefficients.",
            f"constexpr FittedTimes {name}[] = {{",
            *rows,
            "};\n",
        ]
    )


def _braced(numbers: Array) -> str:
    return "{" + ", ".join(f"{number:.6g}" for number in numbers) + "}"
