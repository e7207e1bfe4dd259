"""The model of dense convolutions' times: parts of the work, and the measured layers around it.

csrc/choose/measured_dense.cpp computes the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks import measured_layers
from benchmarks.measured_layers import Correction
from benchmarks.regression import Array, nonnegative_least_squares
from benchmarks.suites import Problem

_TILES = (32, 64, 128)
_LANE = 8  # sums that a unit adds to at once, however few there are


@dataclass(frozen=True)
class Rates:
    """Of a device, as the planner has them; units are multiprocessors, or a CPU's threads."""

    bandwidth_GBps: float
    fp32_TFLOPs: float
    units: int


@dataclass(frozen=True)
class Series:
    """What shares coefficients."""

    algorithm: str
    variant: str  # of the algorithm, "" where all problems are alike to it
    operation: str
    dtype: str
    tf32: bool
    layout: str

    @property
    def name(self) -> str:
        """Of the algorithm, as the planner looks for it."""
        return f"{self.algorithm}, {self.variant}" if self.variant else self.algorithm


@dataclass(frozen=True)
class Model:
    """The times of a series, in microseconds."""

    coefficients: Array
    correction: Correction
    rates: Rates

    def at(self, problems: Sequence[Problem]) -> Array:
        times = np.array([parts(problem, self.rates) for problem in problems]) @ self.coefficients
        return np.asarray(times * self.correction.factors(problems))


def parts(problem: Problem, rates: Rates) -> list[float]:
    """Microseconds, but for the first: a launch; the bytes of input, output and filters; the products; the
    sums of one lane, which are serial; waves of tiles, which take as long as one tile each."""
    shape, taps = problem.shape, problem.shape.filter**2
    in_pixels = problem.batch * shape.size**2
    out_pixels = problem.batch * shape.out_size**2
    rows, columns, depth = {
        "forward": (shape.out_channels, out_pixels, shape.in_channels * taps),
        "input_grad": (shape.in_channels, in_pixels, shape.out_channels * taps),
        "weight_grad": (shape.out_channels, shape.in_channels * taps, out_pixels),
    }[problem.operation]
    rate = rates.fp32_TFLOPs * 1e6

    def wave(side: int) -> float:
        return 2 * side**2 * depth * rates.units / rate

    def waves(side: int) -> int:
        return math.ceil(math.ceil(rows / side) * math.ceil(columns / side) / rates.units)

    memory = [elements * problem.element_size / (rates.bandwidth_GBps * 1e3) for elements in problem.elements]
    tiles = [waves(side) * wave(side) for side in _TILES]
    return [1.0, *memory, problem.flops / rate, wave(_LANE), *tiles]


def series_of(problem: Problem, algorithm: str, variant: str) -> Series:
    return Series(algorithm, variant, problem.operation, problem.dtype, problem.tf32, problem.layout)


class Samples(measured_layers.Samples):
    farthest = 1.0

    def __init__(self, times: Mapping[Problem, float], rates: Rates) -> None:
        super().__init__(times)
        self.rates = rates
        self.parts = np.array([parts(problem, rates) for problem in times])

    def coefficients(self, rows: Array | slice = slice(None)) -> Array:
        """Of least relative errors."""
        us = self.us[rows]
        return nonnegative_least_squares(self.parts[rows] / us[:, None], np.ones(len(us)))

    def base(self, rows: Array) -> Array:
        return np.asarray(self.parts @ self.coefficients(rows))

    def fit(self, reach: float, noise: float) -> Model:
        coefficients = self.coefficients()
        correction = self.correction(self.parts @ coefficients, reach, noise)
        return Model(coefficients, correction, self.rates)
