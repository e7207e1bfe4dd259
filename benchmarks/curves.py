"""Curves of time over bytes, through measured times: what the planner interpolates in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.regression import Array

# A curve serves maps up to this wide; the last one all that are wider.
WIDEST = (8, 16, 32, 64, 1 << 30)
# Points at maps of another width count this much less for every step between them: they decide where a
# width was measured at other batches alone.
_OTHER_WIDTH = 0.005
# Pulls slopes that few points determine towards half a doubling of the time for each one of the bytes.
_PRIOR_SLOPE, _PRIOR_WEIGHT = 0.5, 0.05
_FAINT = 1e-7  # of the weights, so that the nearest points count where all are far


@dataclass(frozen=True)
class Point:
    """One measured time of a kernel."""

    width: int
    bytes: int
    us: float


@dataclass(frozen=True)
class Curve:
    """Times at whole octaves of bytes; between them both logarithms are interpolated linearly."""

    first_octave: int
    us: tuple[float, ...]

    def at(self, size: int) -> float:
        """As csrc/choose/measured.cpp reads it: level below the first octave, proportional past the last."""
        octave = math.log2(size) - self.first_octave
        last = len(self.us) - 1
        if octave <= 0 or last == 0:
            return self.us[0]
        if octave >= last:
            return self.us[-1] * float(2 ** (octave - last))
        index = int(octave)
        low, high = self.us[index], self.us[index + 1]
        return float(low * (high / low) ** (octave - index))


def bucket(width: int) -> int:
    return next(index for index, widest in enumerate(WIDEST) if width <= widest)


def fit(points: Sequence[Point], wanted: int, smoothing: float) -> Curve:
    """The curve of one bucket of widths: local lines, `smoothing` octaves wide, then made monotone."""
    x = np.log2([point.bytes for point in points])
    y = np.log2([point.us for point in points])
    steps = np.array([abs(bucket(point.width) - wanted) for point in points])
    octaves = np.arange(math.floor(x.min()), math.ceil(x.max()) + 1)
    times = _local(x, y, _OTHER_WIDTH**steps, octaves, smoothing)
    # More bytes never take less time: the mean of the least curve above and the greatest below.
    times = (np.maximum.accumulate(times) + np.minimum.accumulate(times[::-1])[::-1]) / 2
    return Curve(int(octaves[0]), tuple(float(f"{2**time:.3g}") for time in times))


def fit_all(points: Sequence[Point], wanted: Iterable[int], smoothing: float) -> dict[int, Curve]:
    """The curves of the wanted buckets, but for maps much wider or narrower than all measured ones."""
    measured = {bucket(point.width) for point in points}
    return {
        index: fit(points, index, smoothing)
        for index in wanted
        if any(abs(index - other) <= 1 for other in measured)
    }


def _local(x: Array, y: Array, weights: Array, octaves: Array, smoothing: float) -> Array:
    """The lines through the points near each octave, read there (level below all of them)."""
    centres = np.clip(octaves, x.min(), x.max())
    offsets = x - centres[:, None]
    near = np.exp(-((offsets / smoothing) ** 2) / 2) + _FAINT / (1 + offsets**2)
    near = near * weights
    totals = near.sum(axis=1)
    near = near / totals[:, None]
    middles, heights = (near * offsets).sum(axis=1), near @ y
    priors = _PRIOR_WEIGHT * np.minimum(1, 1 / totals)
    offsets = offsets - middles[:, None]
    slopes = ((near * offsets * (y - heights[:, None])).sum(axis=1) + priors * _PRIOR_SLOPE) / (
        (near * offsets**2).sum(axis=1) + priors
    )
    slopes = np.clip(slopes, 0, 1.3)
    return np.asarray(heights + slopes * (np.maximum(octaves - centres, 0) - middles))
