"""The measured layers around a problem, and how they correct what a model says about its time.

csrc/choose/measured_layers.cpp computes the same.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from benchmarks.regression import Array, covariance, distances
from benchmarks.suites import Problem

# Settings to choose from: the reach, in octaves, and how much of a residual is its layer's own.
REACHES = (2.0, 4.0, 8.0)
NOISES = (0.005, 0.02, 0.1)


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


def places(problems: Sequence[Problem]) -> Array:
    return np.array([place(problem) for problem in problems])


@dataclass(frozen=True)
class Correction:
    """What the measured problems of a series say about their neighbours."""

    problems: tuple[Problem, ...]
    weights: Array
    reach: float

    @cached_property
    def places(self) -> Array:
        return places(self.problems)

    def factors(self, problems: Sequence[Problem]) -> Array:
        away = distances(places(problems), self.places)
        return np.asarray(np.exp(np.exp(-away / self.reach) @ self.weights))


class Model(Protocol):
    """The times of a series, in microseconds."""

    def at(self, problems: Sequence[Problem]) -> Array: ...


class Samples(ABC):
    """The measured times of one series."""

    farthest = math.inf  # octaves from all of them, past which nothing is predicted

    def __init__(self, times: Mapping[Problem, float]) -> None:
        self.problems = tuple(times)
        self.us = np.array(list(times.values()))
        self.places = places(self.problems)
        shapes = {shape: number for number, shape in enumerate({problem.shape for problem in times})}
        self.layer = np.array([shapes[problem.shape] for problem in times])
        self._without: list[Array] | None = None

    @abstractmethod
    def base(self, rows: Array) -> Array:
        """The times of all problems by a model of those rows, a mask; NaN where it has none."""

    @abstractmethod
    def fit(self, reach: float, noise: float) -> Model:
        """The model of all rows, corrected."""

    def correction(self, base: Array, reach: float, noise: float) -> Correction:
        weights = np.linalg.solve(covariance(self.places, reach, noise), np.log(self.us / base))
        return Correction(self.problems, np.asarray(weights), reach)

    def nearest_others(self) -> dict[Problem, float]:
        """Octaves from every problem to the nearest of another layer."""
        away = distances(self.places, self.places)
        away[self.layer[:, None] == self.layer[None, :]] = math.inf
        return dict(zip(self.problems, away.min(axis=1).tolist(), strict=True))

    def left_out(self, reach: float | None, noise: float) -> dict[Problem, float]:
        """Every problem's time from all layers but its own; without a reach there is no correction."""
        if self._without is None:
            self._without = [self.base(self.layer != layer) for layer in range(self.layer.max() + 1)]
        predicted: dict[Problem, float] = {}
        inverse = None if reach is None else np.linalg.inv(covariance(self.places, reach, noise))
        for layer, base in enumerate(self._without):
            out = np.flatnonzero(self.layer == layer)
            if np.isnan(base[out]).any():
                continue
            logarithms = np.log(base[out])
            if inverse is not None:
                # What the other layers' residuals say about these, without another inverse for each layer.
                residuals = np.log(self.us / base)
                own = np.linalg.solve(inverse[np.ix_(out, out)], inverse[out] @ residuals)
                logarithms = logarithms + residuals[out] - own
            predicted.update({self.problems[i]: us for i, us in zip(out, np.exp(logarithms), strict=True)})
        return predicted
