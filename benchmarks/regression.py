"""Least squares with coefficients that are not negative, and what neighbours say about the rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def nonnegative_least_squares(matrix: Array, target: Array) -> Array:
    """The x >= 0 with the least |matrix x - target|, by active sets (Lawson and Hanson 1974, chapter 23).

    Columns are scaled to one length first: they may be of any magnitude, or zero.
    """
    lengths = np.linalg.norm(matrix, axis=0)
    scaled = matrix / np.where(lengths > 0, lengths, 1)
    x = np.zeros(matrix.shape[1])
    free = np.zeros(matrix.shape[1], dtype=bool)
    enough = 1e-10 * float(np.linalg.norm(target))
    for _ in range(10 * len(x)):
        descent = np.where(free, -np.inf, scaled.T @ (target - scaled @ x))
        if descent.max() <= enough:
            break
        free[descent.argmax()] = True
        while True:
            best = np.zeros_like(x)
            best[free] = np.linalg.lstsq(scaled[:, free], target, rcond=None)[0]
            negative = free & (best <= 0)
            if not negative.any():
                x = best
                break
            # As far towards the best as no coefficient turns negative; those that reach 0 stay there.
            step = (x[negative] / (x[negative] - best[negative])).min()
            x = x + step * (best - x)
            free &= x > 1e-12
            x[~free] = 0
    return x / np.where(lengths > 0, lengths, 1)


def distances(first: Array, second: Array) -> Array:
    """Between all rows of two matrices."""
    squares = ((first[:, None, :] - second[None, :, :]) ** 2).sum(axis=-1)
    return np.asarray(np.sqrt(squares))


def covariance(places: Array, reach: float, noise: float) -> Array:
    """Of residuals at these places: they agree less and less over the distance `reach`, and `noise` of each
    is its own."""
    near = np.exp(-distances(places, places) / reach)
    return np.asarray(near + noise * np.eye(len(places)))
