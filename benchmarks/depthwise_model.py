"""The model of depthwise convolutions' times: curves over bytes, and the measured layers around a problem.

csrc/choose/measured.cpp computes the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress

import numpy as np

from benchmarks import measured_layers
from benchmarks.curves import WIDEST, Curve, Point, bucket, fit_all
from benchmarks.measured_layers import Correction
from benchmarks.regression import Array
from benchmarks.suites import Problem


@dataclass(frozen=True)
class Series:
    """What shares curves: all but sizes."""

    algorithm: str
    operation: str
    dtype: str
    layout: str
    filter: int
    stride: int


@dataclass(frozen=True)
class Model:
    """The times of a series, in microseconds."""

    curves: Mapping[int, Curve]  # by bucket of widths
    correction: Correction

    def at(self, problems: Sequence[Problem]) -> Array:
        return _read(self.curves, problems) * self.correction.factors(problems)


def series_of(problem: Problem, algorithm: str) -> Series:
    shape = problem.shape
    return Series(algorithm, problem.operation, problem.dtype, problem.layout, shape.filter, shape.stride)


class Samples(measured_layers.Samples):
    def __init__(self, times: Mapping[Problem, float], smoothing: float) -> None:
        super().__init__(times)
        self.smoothing = smoothing
        self._points = [Point(each.shape.size, each.bytes, us) for each, us in times.items()]
        self._buckets = {bucket(point.width) for point in self._points}

    def base(self, rows: Array) -> Array:
        curves = fit_all(list(compress(self._points, rows)), self._buckets, self.smoothing)
        return _read(curves, self.problems)

    @cached_property
    def curves(self) -> dict[int, Curve]:
        return fit_all(self._points, range(len(WIDEST)), self.smoothing)

    def fit(self, reach: float, noise: float) -> Model:
        correction = self.correction(_read(self.curves, self.problems), reach, noise)
        return Model(self.curves, correction)


def _read(curves: Mapping[int, Curve], problems: Sequence[Problem]) -> Array:
    """NaN where no curve is."""
    found = [(curves.get(bucket(problem.shape.size)), problem.bytes) for problem in problems]
    return np.array([np.nan if curve is None else curve.at(size) for curve, size in found])
