"""Tilings of generated pointwise kernels: which are the paper's (Liu et al. 2024), which are one kernel."""

from __future__ import annotations

from typing import Any

from convx import _libraries

# What a kernel is made from: Block_N is no part of it.
SIZES = ("wave_w", "wave_c", "wave_n", "repeat_w", "repeat_c", "group_c", "stage_c")
SEARCHED = 1 << 20  # all there are
_BEST = 8


def kernel_of(tiling: Any) -> tuple[int, ...]:
    return tuple(getattr(tiling, size) for size in SIZES)


def kind_of(group_c: int) -> str:
    return "distributed" if group_c > 1 else "direct"


def is_square(tiling: Any) -> bool:
    """Of the waves that the authors' earlier work had: four, in two rows of two."""
    return (tiling.repeat_w, tiling.repeat_c) == (2, 2)


def is_published(tiling: Any) -> bool:
    """Whether its buffers hold Group_C channels."""
    return bool(tiling.stage_c == tiling.group_c)


def published(core: Any, device: Any) -> list[Any]:
    """Of a _core.Problem on a GPU: those that the paper has, by exact divisors and with buffers of Group_C
    channels, eight of the direct form and eight of channel distribution, the most promising. Of those that
    share a kernel the first."""
    generator = _libraries.core().generator
    if not generator.has_source(core, device)[0]:
        return []
    found: dict[str, dict[tuple[int, ...], Any]] = {"direct": {}, "distributed": {}}
    for tiling in filter(is_published, generator.tilings(core, device, exact=True, most=SEARCHED)):
        found[kind_of(tiling.group_c)].setdefault(kernel_of(tiling), tiling)
    return [tiling for each in found.values() for tiling in list(each.values())[:_BEST]]
