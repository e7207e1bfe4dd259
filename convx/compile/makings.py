"""What is made of weights beside a compiled graph, which reads it: filters with norms in them, those of
convolutions that are one, packed ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from convx import operators
from convx.optimize import filters as of_filters
from convx.optimize.filters import Filters, Lookup


@dataclass(frozen=True)
class Part:
    """One of the tensors that are made."""

    making: Making
    index: int


Source = int | Part  # a place among the graph's inputs, or what is made of some
_Layout = tuple[Any, Any]  # sizes and strides


@dataclass(frozen=True)
class Folding:
    """A weight, and a bias if there is one, that are computed of others."""

    like: Source  # a weight of the same sizes
    filters: Filters  # of sources
    dtype: torch.dtype  # of the convolution: autocast's, where it is on

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(of_filters.operands(self.filters))

    def room(self, like: Tensor) -> list[Tensor]:
        """In its layout."""
        options: Any = {"dtype": self.dtype, "device": like.device}
        made = [torch.empty_strided(tuple(like.shape), like.stride(), **options)]
        return [*made, torch.empty(like.shape[0], **options)] if self.filters.has_bias else made

    def values(self, of: Lookup) -> Sequence[Tensor]:
        return [each for each in of_filters.computed(self.filters, of) if each is not None]


@dataclass(frozen=True)
class Packing:
    """Filters in the order that the kernel of one plan reads."""

    like: Source  # the weight
    size: int  # in bytes
    has_bias: bool
    images: tuple[_Layout | None, ...]  # the operator's input and residual
    rest: tuple[Any, ...]  # of the operator's arguments, from stride to tf32
    residual_after_activation: bool

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self.like,)

    def room(self, like: Tensor) -> list[Tensor]:
        return [torch.empty(self.size, dtype=torch.uint8, device=like.device)]

    def values(self, of: Lookup) -> Sequence[Tensor]:
        weight = of(self.like)
        filters = weight.unsqueeze(-2) if weight.dim() == 3 else weight
        input, residual = (None if each is None else _empty(each, weight) for each in self.images)
        bias = weight.new_empty(weight.shape[0]) if self.has_bias else None
        behind = (residual, None, self.residual_after_activation)
        return [operators.pack_weight(input, filters, bias, *self.rest, *behind)]


@dataclass(frozen=True)
class BlockPacking:
    """All filters and biases of an inverted residual block, likewise."""

    weights: tuple[Source | None, ...]  # as the operator takes them
    size: int
    input: _Layout
    rest: tuple[Any, ...]  # of the operator's arguments, from the first stride to the algorithm

    @property
    def like(self) -> Source:
        return self.sources[0]

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(each for each in self.weights if each is not None)

    def room(self, like: Tensor) -> list[Tensor]:
        return [torch.empty(self.size, dtype=torch.uint8, device=like.device)]

    def values(self, of: Lookup) -> Sequence[Tensor]:
        weights = [None if each is None else of(each) for each in self.weights]
        input = _empty(self.input, of(self.like))
        return [operators.pack_inverted_residual(input, *weights, *self.rest)]


Making = Folding | Packing | BlockPacking


def places(sources: Iterable[Source]) -> set[int]:
    """Among the graph's inputs, of all that they are made of."""
    found: set[int] = set()
    for each in sources:
        found |= {each} if isinstance(each, int) else places(each.making.sources)
    return found


def _empty(layout: _Layout, like: Tensor) -> Tensor:
    return torch.empty_strided(*layout, dtype=like.dtype, device=like.device)
