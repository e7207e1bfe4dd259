"""The model of dense convolutions' times: parts of the work, and the measured layers around it.

csrc/select/measured_dense.cpp computes the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.regression import Array, covariance, distances, nonnegative_least_squares
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
    operation: str
    dtype: str
    tf32: bool
    layout: str


@dataclass(frozen=True)
class Model:
    """The times of a series, in microseconds."""

    coefficients: Array
    problems: tuple[Problem, ...]
    weights: Array  # of the problems in the correction
    reach: float

    def at(self, problems: Sequence[Problem], rates: Rates) -> Array:
        places = np.array([place(problem) for problem in problems])
        away = distances(places, np.array([place(problem) for problem in self.problems]))
        times = np.array([parts(problem, rates) for problem in problems]) @ self.coefficients
        return np.asarray(times * np.exp(np.exp(-away / self.reach) @ self.weights))


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


def place(problem: Problem) -> list[float]:
    """Coordinates: in octaves, or several for what decides on the kernel: filters, strides, and planes that
    don't begin at multiples of 16 bytes."""
    shape = problem.shape
    planes = (shape.size**2, shape.out_size**2)
    aligned = all(plane * problem.element_size % 16 == 0 for plane in planes)
    return [
        math.log2(problem.batch),
        math.log2(shape.in_channels),
        math.log2(shape.out_channels),
        math.log2(planes[1]),
        4 * math.log2(shape.filter),
        4 * math.log2(shape.stride),
        0.0 if aligned else 2.0,
    ]


def series_of(problem: Problem, algorithm: str) -> Series:
    return Series(algorithm, problem.operation, problem.dtype, problem.tf32, problem.layout)


class Samples:
    """The measured times of one series."""

    def __init__(self, times: Mapping[Problem, float], rates: Rates) -> None:
        self.problems = tuple(times)
        self.us = np.array(list(times.values()))
        self.parts = np.array([parts(problem, rates) for problem in times])
        self.places = np.array([place(problem) for problem in times])
        shapes = {shape: number for number, shape in enumerate({problem.shape for problem in times})}
        self.layer = np.array([shapes[problem.shape] for problem in times])
        self._residuals: list[tuple[Array, Array]] | None = None

    def coefficients(self, rows: Array | slice = slice(None)) -> Array:
        """Of least relative errors."""
        us = self.us[rows]
        return nonnegative_least_squares(self.parts[rows] / us[:, None], np.ones(len(us)))

    def fit(self, reach: float, noise: float) -> Model:
        coefficients = self.coefficients()
        residuals = np.log(self.us / (self.parts @ coefficients))
        weights = np.linalg.solve(covariance(self.places, reach, noise), residuals)
        return Model(coefficients, self.problems, np.asarray(weights), reach)

    def left_out(self, reach: float | None, noise: float) -> dict[Problem, float]:
        """Every problem's time from all layers but its own; without a reach there is no correction."""
        if self._residuals is None:
            self._residuals = [self._without(layer) for layer in range(self.layer.max() + 1)]
        predicted: dict[Problem, float] = {}
        inverse = None if reach is None else np.linalg.inv(covariance(self.places, reach, noise))
        for layer, (base, residuals) in enumerate(self._residuals):
            out = np.flatnonzero(self.layer == layer)
            logarithms = np.log(base[out])
            if inverse is not None:
                # What the other layers' residuals say about these, without another inverse for each layer.
                own = np.linalg.solve(inverse[np.ix_(out, out)], inverse[out] @ residuals)
                logarithms = logarithms + residuals[out] - own
            predicted.update({self.problems[i]: us for i, us in zip(out, np.exp(logarithms), strict=True)})
        return predicted

    def _without(self, layer: int) -> tuple[Array, Array]:
        kept = self.layer != layer
        base = self.parts @ self.coefficients(kept if kept.any() else slice(None))
        return base, np.log(self.us / base)
