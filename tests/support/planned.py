"""What the planner and the operators are asked for, from the cases of reference.py."""

from __future__ import annotations

from typing import Any

import torch
from reference import Case, Tensors
from torch import Tensor

from convx import _planning
from convx import operators as ops
from convx._arguments import gives_channels_last


def problem_of(
    case: Case,
    operation: str = "forward",
    dtype: torch.dtype = torch.float32,
    channels_last: bool = False,
    allow_tf32: bool = False,
    **epilogue: bool,
) -> Any:
    """The planner's description of a case; torch's matrix products are exact where convolutions are.
    epilogue: what forward calls have beside bias and activation."""
    forward = operation == "forward"
    return _planning.core().Problem(
        operation=operation,
        dtype=_planning.dtype_name(dtype),
        layout="channels_last" if channels_last else "nchw",
        batch=case.batch,
        in_channels=case.channels,
        in_height=case.height,
        in_width=case.width,
        out_channels=case.out_channels,
        filter_height=case.filter[0],
        filter_width=case.filter[1],
        stride=case.stride,
        padding=case.padding,
        dilation=case.dilation,
        groups=case.group_count,
        bias=case.bias and forward,
        activation=case.activation if forward else "none",
        allow_tf32=allow_tf32,
        exact_products=not allow_tf32,
        **epilogue,
    )


def operands_of(operation: str, tensors: Tensors) -> tuple[Tensor, Tensor]:
    """The two tensors that an operator multiplies, which tell the layout of its result."""
    first = tensors.output_grad if operation == "input_grad" else tensors.input
    return first, tensors.output_grad if operation == "weight_grad" else tensors.weight


def layout_of_result(operation: str, tensors: Tensors) -> torch.memory_format:
    """By torch's rule."""
    last = gives_channels_last(*operands_of(operation, tensors))
    return torch.channels_last if last else torch.contiguous_format


def plans_of(
    method: str, operation: str, case: Case, tensors: Tensors, allow_tf32: bool = False
) -> list[Any]:
    """Every plan of a method where the tensors are; none where it can't run the case."""
    first = operands_of(operation, tensors)[0]
    last = gives_channels_last(*operands_of(operation, tensors))
    problem = problem_of(case, operation, first.dtype, last, allow_tf32)
    plans: list[Any] = _planning.core().candidates(method, problem, _planning.device(first.device))
    return plans


def algorithms_of(operation: str, case: Case, tensors: Tensors) -> list[str]:
    """Every kernel of every method that can run the case where the tensors are, by the names that select
    them."""
    names: dict[str, None] = {}
    for method in (row["name"] for row in _planning.core().methods()):
        for plan in plans_of(method, operation, case, tensors):
            names[f"{method}/{plan.candidate}" if plan.candidate else method] = None
    return list(names)


def _names_of_auto(case: Case, tensors: Tensors, allow_tf32: bool) -> set[str]:
    """What auto takes where a call packs its filters, and where it does not."""
    last = gives_channels_last(*operands_of("forward", tensors))
    device = _planning.device(tensors.input.device)
    problems = (
        problem_of(case, "forward", tensors.input.dtype, last, allow_tf32, packs_each_call=packs)
        for packs in (True, False)
    )
    return {_planning.core().select(problem, device).plan.name for problem in problems}


def result_of(operation: str, case: Case, tensors: Tensors, algorithm: str, tf32: int = 0) -> Tensor:
    """By the operators; forward with filters that are packed in the call and with kept ones, which agree:
    to the bit, unless auto takes another plan where a call does not pack."""
    geometry = (case.stride, case.padding, case.dilation, case.group_count)
    if operation == "forward":
        rest = (tensors.bias, *geometry, case.activation, algorithm, tf32)
        packed = ops.pack_weight(tensors.input, tensors.weight, *rest)
        kept = packed if packed.numel() else None
        once = ops.conv2d(tensors.input, tensors.weight, *rest)
        again = ops.conv2d(tensors.input, tensors.weight, *rest, kept)
        same_plan = algorithm != "auto" or len(_names_of_auto(case, tensors, bool(tf32))) == 1
        close = {"rtol": 1e-2, "atol": 1e-2} if tf32 else {}
        if same_plan:
            close = {"rtol": 0.0, "atol": 0.0}
        torch.testing.assert_close(once, again, equal_nan=True, **close)
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
