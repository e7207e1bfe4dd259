"""Filters that are computed of others: with norms in them, or those of convolutions whose results are added.

An expression of operands, which are tensors or what stands for them; `computed` has the values, in float64:
to be rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from convx._arguments import Pair
from convx.optimize.folding import Norm, folded

Values = tuple[Tensor, Tensor | None]  # (out_channels, in_channels / groups, height, width), and a bias
Lookup = Callable[[Any], Tensor]
"""The tensor that an operand stands for."""


@dataclass(frozen=True)
class Own:
    """Of a convolution."""

    weight: Any
    bias: Any  # None without one

    @property
    def has_bias(self) -> bool:
        return self.bias is not None


@dataclass(frozen=True)
class Ones:
    """Of images as they are: each channel a group."""

    channels: int
    like: Any  # where they are to be
    has_bias = False


@dataclass(frozen=True)
class Normed:
    """With a norm behind them."""

    filters: Filters
    norm: Norm[Any]
    has_bias = True


@dataclass(frozen=True)
class Added:
    """Of two convolutions whose results are added, or whose difference it is."""

    first: Filters
    second: Filters
    sign: int
    size: Pair  # that both are grown to

    @property
    def has_bias(self) -> bool:
        return self.first.has_bias or self.second.has_bias


Filters = Own | Ones | Normed | Added


def computed(filters: Filters, of: Lookup) -> Values:
    if isinstance(filters, Own):
        return of(filters.weight).double(), None if filters.bias is None else of(filters.bias).double()
    if isinstance(filters, Ones):
        device = of(filters.like).device
        return torch.ones(filters.channels, 1, 1, 1, dtype=torch.float64, device=device), None
    if isinstance(filters, Normed):
        return folded(*computed(filters.filters, of), _norm(filters.norm, of))
    (first, one), (second, other) = computed(filters.first, of), computed(filters.second, of)
    inside = max(first.shape[1], second.shape[1])  # of a group
    first, second = (_grown(each, filters.size, inside) for each in (first, second))
    bias = None
    if one is not None or other is not None:
        one, other = (first.new_zeros(len(first)) if each is None else each for each in (one, other))
        bias = one + filters.sign * other
    return first + filters.sign * second, bias


def operands(filters: Filters) -> Iterator[Any]:
    if isinstance(filters, Own):
        every: tuple[Any, ...] = (filters.weight, filters.bias)
    elif isinstance(filters, Ones):
        every = (filters.like,)
    elif isinstance(filters, Normed):
        yield from operands(filters.filters)
        norm = filters.norm
        every = (norm.mean, norm.variance, norm.weight, norm.bias)
    else:
        yield from operands(filters.first)
        every = tuple(operands(filters.second))
    yield from (each for each in every if each is not None)


def mapped(filters: Filters, to: Callable[[Any], Any]) -> Filters:
    """Of other operands."""
    if isinstance(filters, Own):
        return Own(to(filters.weight), None if filters.bias is None else to(filters.bias))
    if isinstance(filters, Ones):
        return replace(filters, like=to(filters.like))
    if isinstance(filters, Normed):
        return Normed(mapped(filters.filters, to), replace(_norm(filters.norm, to), input=None))
    return replace(filters, first=mapped(filters.first, to), second=mapped(filters.second, to))


def _norm(norm: Norm[Any], to: Callable[[Any], Any]) -> Norm[Any]:
    weight, bias = (None if each is None else to(each) for each in (norm.weight, norm.bias))
    return replace(norm, mean=to(norm.mean), variance=to(norm.variance), weight=weight, bias=bias)


def _grown(weight: Tensor, size: Pair, inside: int) -> Tensor:
    """With zeros around, and in groups of so many channels, where each is its own."""
    if weight.shape[1] != inside:
        own = torch.arange(len(weight), device=weight.device)
        groups = weight.new_zeros(len(weight), inside, 1, 1)
        weight = groups.index_put((own, own % inside), weight[:, 0])
    above, before = ((size[place] - weight.shape[2 + place]) // 2 for place in (0, 1))
    return F.pad(weight, (before, before, above, above))
