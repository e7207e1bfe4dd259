"""The way of a call to an operator, the shortest that is right where it is made.

Plain calls are convx._front's: C++, without the dispatcher. torch.func's transforms and forward mode, which
know torch.autograd.Functions alone, get those. Whatever neither can serve (torch.compile, tensor subclasses,
dispatch modes, tracing), and everything where the front does not fit the installed torch, goes by the
operators and what convx.operators registers for them.

conv2d, conv2d_input_grad, conv2d_weight_grad and filter2d take the operators' own arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._C import _AutoDispatchBelowAutograd as BelowAutograd
from torch.compiler import is_compiling

from convx import _libraries, operators
from convx._arguments import PRODUCTS, Four, Pair, tf32_setting
from convx.dispatch.packed import PackedFilters
from convx.dispatch.situation import is_recorded, is_transformed, needs_grad
from convx.operators import DECLARED, autocast

_front = _libraries.front()
# Activations with a gradient of their own: their input is not kept when they are fused.
UNFUSED: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": torch.nn.functional.silu,
    "hardswish": torch.nn.functional.hardswish,
    "gelu": torch.nn.functional.gelu,
}


def convolve(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Pair,
    padding: Four,
    dilation: Pair,
    groups: int,
    activation: str,
    algorithm: str,
    packed: PackedFilters | None = None,
) -> Tensor:
    """A convolution of images, or of rows where neither weight nor input has a height.

    packed: where the caller keeps its filters in the order that kernels read.
    """
    arguments = (input, weight, bias, stride, padding, dilation, groups, activation, algorithm)
    if _front is not None and packed is None and not is_compiling():
        result: Tensor | None = _front.conv2d(*arguments)
        if result is not None:
            return result
    tf32 = setting(input, weight, bias)
    if weight.dim() != 3:
        return _kept(packed, *arguments, tf32)
    rows = (input.unsqueeze(-2), weight.unsqueeze(-2), *arguments[2:])
    return _kept(packed, *rows, tf32).squeeze(-2)


def setting(*tensors: Tensor | None) -> int:
    """tf32 for the operators. What is recorded outlives torch's setting of matrix products: there they are
    taken as not exact."""
    first: Any = tensors[0]
    found = tf32_setting(first.is_cuda, first.dtype)
    return found | PRODUCTS if is_recorded(*tensors) else found


def _kept(packed: PackedFilters | None, *arguments: Any) -> Tensor:
    """conv2d, with the filters that somebody keeps packed where no gradient is needed."""
    tensors = arguments[:3]
    if packed is None or is_recorded(*tensors) or is_transformed() or needs_grad(*tensors):
        return conv2d(*arguments)
    if autocast.is_on(arguments[0].device.type):  # casts the weight to a copy of this call's own
        return conv2d(*arguments)
    with BelowAutograd():
        return operators.conv2d(*arguments, packed.of(*arguments))  # type: ignore[no-any-return]


def conv2d(*arguments: Any) -> Tensor:
    if is_compiling():
        return operators.conv2d(*arguments)  # type: ignore[no-any-return]
    of = DECLARED["conv2d"].arguments(*arguments)
    tensors = (of.input, of.weight, of.bias)
    separate: Any = None
    if not is_recorded(*tensors):
        if is_transformed() and of.activation != "none":
            separate = getattr(torch.nn.functional, of.activation)
        elif needs_grad(*tensors):
            separate = UNFUSED.get(of.activation)
    if separate is None:
        return _go("conv2d", of, *tensors)
    return separate(_go("conv2d", of._replace(activation="none"), *tensors))  # type: ignore[no-any-return]


def conv2d_input_grad(*arguments: Any) -> Tensor:
    if is_compiling():
        return operators.conv2d_input_grad(*arguments)  # type: ignore[no-any-return]
    of = DECLARED["conv2d_input_grad"].arguments(*arguments)
    return _go("conv2d_input_grad", of, of.output_grad, of.weight)


def conv2d_weight_grad(*arguments: Any) -> Tensor:
    if is_compiling():
        return operators.conv2d_weight_grad(*arguments)  # type: ignore[no-any-return]
    of = DECLARED["conv2d_weight_grad"].arguments(*arguments)
    return _go("conv2d_weight_grad", of, of.input, of.output_grad)


def filter2d(*arguments: Any) -> Tensor:
    """uint8 images have no gradient, nor have their filters."""
    if is_compiling():
        return operators.filter2d(*arguments)  # type: ignore[no-any-return]
    of = DECLARED["filter2d"].arguments(*arguments)
    if of.images.is_floating_point() or is_recorded(of.images, of.filters):
        return _go("filter2d", of, of.images, of.filters)
    if is_transformed():
        return operators.filter2d(*of)  # type: ignore[no-any-return]
    with BelowAutograd():
        return operators.filter2d(*of)  # type: ignore[no-any-return]


def _go(name: str, arguments: Any, *tensors: Any) -> Tensor:
    """The one way to an operator, by what is to see the call."""
    operator = DECLARED[name]
    recorded = is_recorded(*tensors)
    if is_transformed() and not recorded:
        device_type = tensors[0].device.type
        if operator.autocast is not None and autocast.is_on(device_type):
            arguments = operator.autocast(torch.get_autocast_dtype(device_type), arguments)
        return _transformed(name)(*arguments)
    call: Any = getattr(operators, name)
    if recorded or needs_grad(*tensors):
        return call(*arguments)  # type: ignore[no-any-return]
    with BelowAutograd():
        return call(*arguments)  # type: ignore[no-any-return]


@cache
def _transformed(name: str) -> Callable[..., Tensor]:
    return DECLARED[name].transformed(lambda: sys.modules[__name__])
