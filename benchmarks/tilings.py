"""Kinds of tilings of generated pointwise kernels (Liu et al. 2024)."""

from __future__ import annotations

from typing import Any


def kind_of(group_c: int) -> str:
    return "distributed" if group_c > 1 else "direct"


def is_square(tiling: Any) -> bool:
    """Of the waves that the authors' earlier work had: four, in two rows of two."""
    return (tiling.repeat_w, tiling.repeat_c) == (2, 2)
