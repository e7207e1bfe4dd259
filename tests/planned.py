"""What the planner and the operators are asked for, from the cases of reference.py."""

from __future__ import annotations

from typing import Any

import torch
from reference import Case, Tensors
from torch import Tensor

from convx import _planning, ops
from convx._arguments import CONVOLUTIONS, PRODUCTS, is_channels_last


def problem_of(
    case: Case,
    operation: str = "forward",
    dtype: torch.dtype = torch.float32,
    channels_last: bool = False,
    allow_tf32: bool = False,
) -> Any:
    """The planner's description of a case; torch's matrix products are exact where convolutions are."""
    return _planning.problem(
        operation,
        dtype,
        channels_last,
        (case.batch, case.channels, case.height, case.width),
        (case.out_channels, case.channels // case.group_count, *case.filter),
        case.stride,
        case.padding,
        case.dilation,
        case.group_count,
        case.bias,
        case.activation,
        CONVOLUTIONS + PRODUCTS if allow_tf32 else 0,
    )


def plans_of(
    method: str, operation: str, case: Case, tensors: Tensors, allow_tf32: bool = False
) -> list[Any]:
    """Every plan of a method where the tensors are; none where it can't run the case."""
    first = tensors.output_grad if operation == "input_grad" else tensors.input
    problem = problem_of(case, operation, first.dtype, is_channels_last(first), allow_tf32)
    plans: list[Any] = _planning.core().candidates(method, problem, _planning.device(first.device))
    return plans


def result_of(operation: str, case: Case, tensors: Tensors, algorithm: str, tf32: int = 0) -> Tensor:
    """By the operators; forward with filters that are packed in the call and with kept ones, which agree."""
    geometry = (case.stride, case.padding, case.dilation, case.group_count)
    if operation == "forward":
        rest = (tensors.bias, *geometry, case.activation, algorithm, tf32)
        packed = ops.pack_weight(tensors.input, tensors.weight, *rest)
        kept = packed if packed.numel() else None
        once = ops.conv2d(tensors.input, tensors.weight, *rest)
        again = ops.conv2d(tensors.input, tensors.weight, *rest, kept)
        assert torch.equal(once.isnan(), again.isnan())
        assert torch.equal(once.nan_to_num(), again.nan_to_num()), "kept filters give other results"
        return again
    if operation == "input_grad":
        size = list(tensors.input.shape)
        return ops.conv2d_input_grad(tensors.output_grad, tensors.weight, size, *geometry, algorithm, tf32)
    size = list(tensors.weight.shape)
    return ops.conv2d_weight_grad(tensors.input, tensors.output_grad, size, *geometry, algorithm, tf32)


def begin_between_pieces(tensors: Tensors) -> None:
    """Lays input and weight an element behind the begin of their memory: no load of several is aligned."""
    for name in ("input", "weight"):
        tensor = getattr(tensors, name)
        flat = torch.empty(tensor.numel() + 1, device=tensor.device, dtype=tensor.dtype)
        setattr(tensors, name, flat[1:].as_strided(tensor.shape, tensor.stride()).copy_(tensor))
