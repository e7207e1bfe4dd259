"""Borders of images as slices: padding by them, and its adjoint.

A padded axis is a chain of runs, each a slice of the axis, in order, reversed, or one element repeated.
Padding joins the runs; its adjoint adds them back, in a fixed order, so that gradients are the same at every
call. Both are differentiable any number of times.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from convx._errors import InvalidArgument

BORDERS = ("zero", "replicate", "reflect", "wrap")


def require_border(border: str) -> str:
    if border not in BORDERS:
        raise InvalidArgument(f"border must be one of {', '.join(BORDERS)}; got {border!r}")
    return border


class Run(NamedTuple):
    """Elements of an axis that lie side by side in the padded axis."""

    start: int
    length: int
    step: int
    """1: in order, -1: from start downwards, 0: the element at start, length times."""


def border_index(index: int, size: int, border: str) -> int:
    """The element of an axis that a border other than zero has at index, which may lie outside."""
    if 0 <= index < size:
        return index
    if border == "replicate":
        return 0 if index < 0 else size - 1
    if border == "wrap":
        return index % size
    if size == 1:
        return 0
    index %= 2 * (size - 1)
    return index if index < size else 2 * (size - 1) - index


def _joined(indices: list[int]) -> list[Run]:
    runs: list[Run] = []
    for index in indices:
        if runs:
            start, length, step = runs[-1]
            towards = index - (start + (length - 1) * step)
            if (length == 1 and abs(towards) <= 1) or (length > 1 and towards == step):
                runs[-1] = Run(start, length + 1, towards)
                continue
        runs.append(Run(index, 1, 1))
    return runs


def runs_of(size: int, before: int, after: int, border: str) -> list[Run]:
    """The runs of an axis with so many elements added before and after it."""
    first = _joined([border_index(index, size, border) for index in range(-before, 0)])
    # Not over range(size, ...), which would make torch.compile take the size for a constant.
    last = _joined([border_index(size + index, size, border) for index in range(after)])
    return [*first, Run(0, size, 1), *last]


def _pad_axis(images: Tensor, axis: int, runs: list[Run]) -> Tensor:
    parts = []
    for start, length, step in runs:
        if step == 0:
            sizes = [-1] * images.dim()
            sizes[axis] = length
            parts.append(images.narrow(axis, start, 1).expand(sizes))
        elif step == 1:
            parts.append(images.narrow(axis, start, length))
        else:
            parts.append(images.narrow(axis, start - length + 1, length).flip(axis))
    return torch.cat(parts, axis)


def _fold_axis(padded: Tensor, axis: int, runs: list[Run], size: int) -> Tensor:
    total: Tensor | None = None
    offset = 0
    for start, length, step in runs:
        part = padded.narrow(axis, offset, length)
        offset += length
        if step == 0:
            part, length = part.sum(axis, keepdim=True), 1
        elif step == -1:
            part, start = part.flip(axis), start - length + 1
        zeros = (start, size - start - length)
        if length != size:  # pad takes the innermost axis first
            part = torch.nn.functional.pad(part, zeros if axis == -1 else (0, 0, *zeros))
        total = part if total is None else total + part
    assert total is not None
    return total


def sides(filter_extent: int) -> tuple[int, int]:
    """Elements that a filter reaches before and after an image; an even filter's extra one is after."""
    before = (filter_extent - 1) // 2
    return before, filter_extent - 1 - before


def pad(images: Tensor, filter_size: tuple[int, int], border: str) -> Tensor:
    """(..., height, width) with the border that a filter of this (height, width) reaches."""
    for axis, extent in ((-2, filter_size[0]), (-1, filter_size[1])):
        if extent > 1:
            images = _pad_axis(images, axis, runs_of(images.size(axis), *sides(extent), border))
    return images


def fold(padded: Tensor, filter_size: tuple[int, int], border: str, size: tuple[int, int]) -> Tensor:
    """The adjoint of pad for images of this (height, width)."""
    for axis, extent, length in ((-2, filter_size[0], size[0]), (-1, filter_size[1], size[1])):
        if extent > 1:
            padded = _fold_axis(padded, axis, runs_of(length, *sides(extent), border), length)
    return padded
