"""What the three convolutions share: each one's derivatives are the other two, so that gradients of any order
close on themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from convx._arguments import products_setting
from convx._libraries import core


def geometry(arguments: Any) -> tuple[Any, ...]:
    """What they share beside tensors, with tuples in place of lists: a graph may have made those."""
    a = arguments
    return tuple(a.stride), tuple(a.padding), tuple(a.dilation), a.groups


def choice_of_gradients(arguments: Any) -> tuple[str, int]:
    """Algorithm and tf32 that gradients are asked for. Matrix products may have been let round since."""
    algorithm = core().algorithm_of_gradients(arguments.algorithm)
    return algorithm, arguments.tf32 | products_setting()


def flops(output: Sequence[int], weight: Sequence[int]) -> int:
    """A multiply-add as two, as torch.utils.flop_counter has it for torch's convolutions."""
    return 2 * math.prod(output) * math.prod(weight[1:])


def into_batch(tensor: Tensor, dimension: int) -> Tensor:
    """(copies, batch, ...) as (copies * batch, ...)."""
    return tensor.movedim(dimension, 0).flatten(0, 1)


def into_channels(tensor: Tensor, dimension: int | None, copies: int) -> Tensor:
    """(batch, channels, ...) per copy as (batch, copies * channels, ...), the copies outermost."""
    stacked = (
        tensor.unsqueeze(1).expand(-1, copies, *tensor.shape[1:])
        if dimension is None
        else tensor.movedim(dimension, 1)
    )
    return stacked.flatten(1, 2)


def into_filters(tensor: Tensor, dimension: int | None, copies: int) -> Tensor:
    """(out_channels, ...) per copy as (copies * out_channels, ...)."""
    stacked = tensor.expand(copies, *tensor.shape) if dimension is None else tensor.movedim(dimension, 0)
    return stacked.flatten(0, 1)
