"""The way of a call to an operator, the shortest that is right where it is made.

Plain calls are convx._front's: C++, without the dispatcher. torch.func's transforms and forward mode, which
know torch.autograd.Functions alone, get those. Whatever neither can serve (torch.compile, tensor subclasses,
dispatch modes, tracing), and everything where the front does not fit the installed torch, goes by the
operators and what convx.operators registers for them.

conv2d, conv2d_input_grad, conv2d_weight_grad and filter2d take the operators' own arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._C import _AutoDispatchBelowAutograd as BelowAutograd
from torch.compiler import is_compiling

from convx import _libraries, operators
from convx._arguments import PRODUCTS, Four, Pair, tf32_setting
from convx._errors import require_residual
from convx.dispatch.packed import PackedFilters
from convx.dispatch.situation import Situation, situation
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
    residual: Tensor | None = None,
    residual_after_activation: bool = False,
) -> Tensor:
    """A convolution of images, or of rows where neither input nor weight has a height.

    packed: where the caller keeps its filters in the order that kernels read.
    """
    arguments = (input, weight, bias, stride, padding, dilation, groups, activation, algorithm)
    if residual is not None:
        return _with_residual(packed, residual, residual_after_activation, *arguments)
    if _front is not None and not is_compiling():
        result: Tensor | None = _front.conv2d(*arguments, packed)
        if result is not None:
            return result
    if input.dim() == 3 and weight.dim() == 3:
        input, weight = input.unsqueeze(-2), weight.unsqueeze(-2)
        return _images(packed, input, weight, *arguments[2:]).squeeze(-2)
    return _images(packed, *arguments)


def _images(packed: PackedFilters | None, *arguments: Any) -> Tensor:
    input, weight, bias = arguments[:3]
    where = situation(input, weight, bias)
    arguments = (*arguments, tf32_of(where, input))
    if is_compiling():
        return operators.conv2d(*arguments)  # type: ignore[no-any-return]
    if packed is None or where is not Situation.PLAIN or autocast.is_on(input.device.type):
        return _conv2d(where, *arguments)  # autocast casts the weight to a copy of this call's own
    with BelowAutograd():
        return operators.conv2d(*arguments, packed.of(*arguments))  # type: ignore[no-any-return]


def _with_residual(packed: PackedFilters | None, residual: Tensor, after: bool, *arguments: Any) -> Tensor:
    """Fused by the operator; in parts where eager code needs gradients, whose formulas are theirs then."""
    input, weight, bias, *rest, activation, algorithm = arguments
    where = situation(input, weight, bias, residual)
    if where is Situation.PLAIN or where is Situation.RECORDED:
        rows = weight.dim() == 3
        if rows:
            input, weight, residual = (each.unsqueeze(-2) for each in (input, weight, residual))
        fused = (input, weight, bias, *rest, activation, algorithm, tf32_of(where, input))
        kept = None
        if packed is not None and where is Situation.PLAIN and not autocast.is_on(input.device.type):
            kept = packed.of(*fused, residual=residual, residual_after_activation=after)
        output = _go(where, "conv2d", (*fused, kept, residual, None, after))
        return output.squeeze(-2) if rows else output
    parts: Any = (input, weight, bias, *rest, activation if after else "none", algorithm)
    output = convolve(*parts)
    if autocast.is_on(input.device.type):
        residual = autocast.cast(residual, output.dtype)
    require_residual(residual, output)
    output = output + residual
    if after or activation == "none":
        return output
    return getattr(torch.nn.functional, activation)(output)  # type: ignore[no-any-return]


def tf32_of(where: Situation, input: Tensor) -> int:
    """tf32 for the operators. What is recorded outlives torch's setting of matrix products: there they are
    taken as not exact."""
    setting = tf32_setting(input.is_cuda, input.dtype)
    return setting | PRODUCTS if where is Situation.RECORDED else setting


def gradient(name: str, first: Tensor, second: Tensor, *rest: Any) -> Tensor:
    """conv2d_input_grad or conv2d_weight_grad, by its arguments up to the algorithm."""
    if _front is not None and not is_compiling():
        result: Tensor | None = _front.conv2d_gradient(name == "conv2d_input_grad", first, second, *rest)
        if result is not None:
            return result
    where = situation(first, second)
    return _go(where, name, (first, second, *rest, tf32_of(where, first)))


def _conv2d(where: Situation, *arguments: Any) -> Tensor:
    of = DECLARED["conv2d"].arguments(*arguments)
    separate: Any = None
    if where is Situation.TRANSFORMED and of.activation != "none":
        separate = getattr(torch.nn.functional, of.activation)
    elif where is Situation.DIFFERENTIATED:
        separate = UNFUSED.get(of.activation)
    if separate is None:
        return _go(where, "conv2d", of)
    return separate(_go(where, "conv2d", of._replace(activation="none")))  # type: ignore[no-any-return]


def conv2d(*arguments: Any) -> Tensor:
    return _conv2d(situation(*arguments[:3]), *arguments)


def conv2d_input_grad(*arguments: Any) -> Tensor:
    return _go(situation(*arguments[:2]), "conv2d_input_grad", arguments)


def conv2d_weight_grad(*arguments: Any) -> Tensor:
    return _go(situation(*arguments[:2]), "conv2d_weight_grad", arguments)


def filter2d(*arguments: Any) -> Tensor:
    """uint8 images have no gradient, nor have their filters."""
    where = situation(*arguments[:2])
    if where is not Situation.RECORDED and not arguments[0].is_floating_point():
        with nullcontext() if where is Situation.TRANSFORMED else BelowAutograd():
            return operators.filter2d(*arguments)  # type: ignore[no-any-return]
    return _go(where, "filter2d", arguments)


def _go(where: Situation, name: str, arguments: Sequence[Any]) -> Tensor:
    """The one way to an operator, by what is to see the call."""
    call: Any = getattr(operators, name)
    if where is Situation.PLAIN:
        with BelowAutograd():
            return call(*arguments)  # type: ignore[no-any-return]
    operator = DECLARED[name]
    if where is not Situation.TRANSFORMED:
        if where is Situation.RECORDED and not is_compiling() and "tf32" in operator.arguments._fields:
            # Of a gradient whose call was not recorded.
            of = operator.arguments(*arguments)
            arguments = of._replace(tf32=of.tf32 | PRODUCTS)
        return call(*arguments)  # type: ignore[no-any-return]
    device_type = arguments[0].device.type
    if operator.autocast is not None and autocast.is_on(device_type):
        dtype = torch.get_autocast_dtype(device_type)
        arguments = operator.autocast(dtype, operator.arguments(*arguments))
    return _transformed(name)(*arguments)


@cache
def _transformed(name: str) -> Callable[..., Tensor]:
    return DECLARED[name].transformed(lambda: sys.modules[__name__])
