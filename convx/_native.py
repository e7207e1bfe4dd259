"""Calls of a layer that are native's, made by torch's own function: nothing of convx's is left in their way.

The operator would call the same convolution; what it takes to get there counts where that takes microseconds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from convx import _eager, _packed, _planning, ops
from convx._arguments import gives_channels_last, integer, padding_2d, pair, tf32_setting


class Kept(NamedTuple):
    """What was chosen for a layer's inputs of one size: None where that is another method, or where torch's
    function would give another layout."""

    generation: int
    key: tuple[Any, ...]
    arguments: tuple[Any, ...] | None  # of torch.conv2d, after the tensors


def conv2d(
    packed: _packed.PackedFilters, input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any
) -> Tensor | None:
    """The result where native is chosen and nothing but the result is asked for, else None: the operator
    serves all. rest: stride, padding, dilation, groups, activation, algorithm, as users write them."""
    if input.__class__ is not Tensor and input.__class__ is not Parameter:
        return None
    if torch.compiler.is_compiling():
        return None
    generation = _packed.generation()
    kept = packed.choices.get(input.shape)
    if kept is not None and kept.arguments is None and kept.generation == generation:
        return None  # a choice that has changed since costs time, nothing else
    if not _eager.is_plain(input, weight, bias):
        return None
    key = (
        input.stride(),
        input.dtype,
        input.device,
        weight.shape,
        weight.stride(),
        weight.dtype,
        weight.device,
        bias is None,
        torch.get_num_threads(),
        tf32_setting(input.is_cuda, input.dtype),
        *rest,
    )
    if kept is None or kept.generation != generation or kept.key != key:
        # Lists are copied: who changes one in place has another call then.
        kept = Kept(generation, _frozen(key), _arguments(input, weight, bias, *rest))
        _packed.keep(packed.choices, input.shape, kept)
    return None if kept.arguments is None else torch.conv2d(input, weight, bias, *kept.arguments)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _arguments(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    activation: str,
    algorithm: str,
) -> tuple[Any, ...] | None:
    if activation != "none" or input.dim() != 4 or not ops.available:
        return None
    layout = torch.channels_last if gives_channels_last(input, weight) else torch.contiguous_format
    if not (input.is_contiguous(memory_format=layout) and weight.is_contiguous(memory_format=layout)):
        return None
    tensors = (weight,) if bias is None else (weight, bias)
    if any(each.dtype != input.dtype or each.device != input.device for each in tensors):
        return None
    try:
        strides, dilations = pair("stride", stride), pair("dilation", dilation)
        paddings = padding_2d(padding, weight.shape, strides, dilations)
        groups = integer("groups", groups)
        where = _planning.device(input.device)
        problem = _planning.problem_of(
            "forward", where, input, weight, bias, strides, paddings, dilations, groups, activation
        )
        plan = _planning.core().select(problem, where, algorithm).plan
    except (IndexError, RuntimeError, TypeError, ValueError):
        return None  # the operator says what is wrong
    top, bottom, left, right = paddings
    is_native = (plan.method, plan.candidate) == ("native", "") and (top, left) == (bottom, right)
    return (strides, (top, left), dilations, groups) if is_native else None
