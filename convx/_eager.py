"""The eager way to the operators.

Plain calls are convx._front's: C++, without the dispatcher. torch.func's transforms and forward mode, which
know torch.autograd.Functions alone, have theirs here. Whatever neither can serve (torch.compile, tensor
subclasses, dispatch modes, tracing) goes by the operators and the derivatives that ops.py registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as functorch_active
from torch._C import _AutoDispatchBelowAutograd as BelowAutograd
from torch._C import _get_tracing_state as tracing_state
from torch._C import _len_torch_dispatch_stack as dispatch_modes
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.nn import Parameter

from convx import _libraries, _vmap, ops
from convx._arguments import PRODUCTS, Four, Pair, is_channels_last, tf32_setting
from convx._errors import require_residual
from convx._formulas import (
    Calls,
    Choice,
    Geometry,
    Gradients,
    conv2d_backward,
    input_grad_backward,
    weight_grad_backward,
)
from convx._packed import PackedFilters

_PLAIN = frozenset((Tensor, Parameter, type(None)))
# Activations with a gradient of their own: their input is not kept when they are fused.
UNFUSED: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": torch.nn.functional.silu,
    "hardswish": torch.nn.functional.hardswish,
    "gelu": torch.nn.functional.gelu,
}
_conv2d, _input_grad, _weight_grad = ops.conv2d, ops.conv2d_input_grad, ops.conv2d_weight_grad
_front = _libraries.front()
is_grad_enabled = torch.is_grad_enabled


def _takes_registered_path(first: Tensor, second: Tensor | None, third: Tensor | None) -> bool:
    return (
        is_compiling()
        or first.__class__ not in _PLAIN
        or second.__class__ not in _PLAIN
        or third.__class__ not in _PLAIN
        or dispatch_modes() > 0
        or tracing_state() is not None
    )


def _is_transformed() -> bool:
    """Inside torch.func's transforms (grad, vmap, jvp, ...) or forward-mode differentiation."""
    return functorch_active() or forward_ad._current_level >= 0


def _needs_grad(first: Tensor, second: Tensor, third: Tensor | None = None) -> bool:
    return is_grad_enabled() and (
        first.requires_grad or second.requires_grad or (third is not None and third.requires_grad)
    )


def _linear_jvp(
    call: Any, ctx: Any, first_tangent: Tensor | None, second_tangent: Tensor | None
) -> Tensor | None:
    """The tangent of an operator that is linear in each of its two tensors."""
    first, second = ctx.saved_tensors
    tangent = None if first_tangent is None else call(first_tangent, second, *ctx.rest)
    if second_tangent is not None:
        other = call(first, second_tangent, *ctx.rest)
        tangent = other if tangent is None else tangent + other
    return tangent


class _Conv2d(torch.autograd.Function):
    """Inputs: input, weight, bias, stride, padding, dilation, groups, algorithm, tf32. Activations are not
    fused."""

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        *tensors_and_geometry, algorithm, tf32 = arguments
        with BelowAutograd():
            return _conv2d(*tensors_and_geometry, "none", algorithm, tf32)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        input, weight, _, stride, padding, dilation, groups, *choice = inputs
        ctx.save_for_backward(input, weight)
        ctx.save_for_forward(input, weight)
        ctx.arguments = Geometry(stride, padding, dilation, groups), Choice(*choice)
        ctx.rest = (None, *ctx.arguments[0], "none", *ctx.arguments[1].of_gradients())
        ctx.channels_last, ctx.output_size = is_channels_last(output), output.shape

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        (geometry, choice), needs = ctx.arguments, ctx.needs_input_grad
        input, weight = ctx.saved_tensors
        sizes = (input.shape, weight.shape, ctx.channels_last)
        gradients = conv2d_backward(_CALLS, geometry, choice, needs, grad, input, weight, *sizes)
        return (*gradients, *(None,) * 6)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor | None:
        tangent = _linear_jvp(conv2d, ctx, *tangents[:2])
        if tangents[2] is None:
            return tangent
        by_bias: Tensor = tangents[2].view(1, -1, 1, 1)
        return by_bias.expand(ctx.output_size).clone() if tangent is None else tangent + by_bias

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        *tensors_and_geometry, algorithm, tf32 = arguments
        every: list[Any] = [*tensors_and_geometry, "none", algorithm, tf32]
        return _vmap.conv2d(lambda *each: conv2d(*each), info, in_dims, *every)


class _InputGrad(torch.autograd.Function):
    """Inputs: output_grad, weight, input_size, stride, padding, dilation, groups, algorithm, tf32."""

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        with BelowAutograd():
            return _input_grad(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        output_grad, weight, _, stride, padding, dilation, groups, *choice = inputs
        ctx.save_for_backward(output_grad, weight)
        ctx.save_for_forward(output_grad, weight)
        ctx.arguments = Geometry(stride, padding, dilation, groups), Choice(*choice)
        ctx.rest = (*inputs[2:7], *ctx.arguments[1].of_gradients())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        (geometry, choice), needs = ctx.arguments, ctx.needs_input_grad
        output_grad, weight = ctx.saved_tensors
        gradients = input_grad_backward(
            _CALLS, geometry, choice, needs, grad, output_grad, weight, weight.shape
        )
        return (*gradients, *(None,) * 7)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor | None:
        return _linear_jvp(conv2d_input_grad, ctx, *tangents[:2])

    vmap = staticmethod(partial(_vmap.conv2d_input_grad, lambda *arguments: conv2d_input_grad(*arguments)))


class _WeightGrad(torch.autograd.Function):
    """Inputs: input, output_grad, weight_size, stride, padding, dilation, groups, algorithm, tf32."""

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        with BelowAutograd():
            return _weight_grad(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        input, output_grad, _, stride, padding, dilation, groups, *choice = inputs
        ctx.save_for_backward(input, output_grad)
        ctx.save_for_forward(input, output_grad)
        ctx.arguments = Geometry(stride, padding, dilation, groups), Choice(*choice)
        ctx.rest = (*inputs[2:7], *ctx.arguments[1].of_gradients())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        (geometry, choice), needs = ctx.arguments, ctx.needs_input_grad
        input, output_grad = ctx.saved_tensors
        gradients = weight_grad_backward(
            _CALLS, geometry, choice, needs, grad, input, output_grad, input.shape
        )
        return (*gradients, *(None,) * 7)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor | None:
        return _linear_jvp(conv2d_weight_grad, ctx, *tangents[:2])

    vmap = staticmethod(partial(_vmap.conv2d_weight_grad, lambda *arguments: conv2d_weight_grad(*arguments)))


_transformed_conv2d: Any = _Conv2d.apply
_transformed_input_grad: Any = _InputGrad.apply
_transformed_weight_grad: Any = _WeightGrad.apply


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Pair,
    padding: Four,
    dilation: Pair,
    groups: int,
    activation: str,
    algorithm: str,
    tf32: int | None = None,
    packed: PackedFilters | None = None,
    residual: Tensor | None = None,
    residual_after_activation: bool = False,
) -> Tensor:
    """The operator with its arguments already in its own form; the cheapest way that is right here.

    tf32: torch's setting (tf32_setting) where it is not given. Calls that are recorded outlive the setting of
    matrix products: there it is taken as not exact. packed: where the caller keeps its filters in the order
    that kernels read.
    """
    geometry = (stride, padding, dilation, groups)
    if residual is not None:
        rest = (activation, algorithm, tf32)
        return _with_residual(input, weight, bias, geometry, *rest, residual, residual_after_activation)
    if _front is not None and packed is None and tf32 is None and not is_compiling():
        result: Tensor | None = _front.conv2d(input, weight, bias, *geometry, activation, algorithm)
        if result is not None:
            return result
    if tf32 is None:
        tf32 = tf32_setting(input.is_cuda, input.dtype)
    if _takes_registered_path(input, weight, bias):
        return _conv2d(input, weight, bias, *geometry, activation, algorithm, tf32 | PRODUCTS)
    autocast = ops.autocasts(input.device.type)
    if _is_transformed():
        if autocast:
            dtype = torch.get_autocast_dtype(input.device.type)
            input, weight = ops.autocast_cast(input, dtype), ops.autocast_cast(weight, dtype)
            bias = None if bias is None else ops.autocast_cast(bias, dtype)
        output: Tensor = _transformed_conv2d(input, weight, bias, *geometry, algorithm, tf32)
        return output if activation == "none" else getattr(torch.nn.functional, activation)(output)
    if _needs_grad(input, weight, bias):
        separate = UNFUSED.get(activation)
        fused = activation if separate is None else "none"
        output = _conv2d(input, weight, bias, *geometry, fused, algorithm, tf32)
        return output if separate is None else separate(output)
    arguments = (input, weight, bias, *geometry, activation, algorithm, tf32)
    with BelowAutograd():
        if packed is None or autocast:  # which casts the weight to a copy of this call's own
            return _conv2d(*arguments)
        return _conv2d(*arguments, packed.of(*arguments))


def _with_residual(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: tuple[Pair, Four, Pair, int],
    activation: str,
    algorithm: str,
    tf32: int | None,
    residual: Tensor,
    after: bool,
) -> Tensor:
    """conv2d with a residual: fused by the operator, but where eager code needs gradients, whose formulas are
    then those of the parts."""
    if tf32 is None:
        tf32 = tf32_setting(input.is_cuda, input.dtype)
    if _takes_registered_path(input, weight, bias) or residual.__class__ not in _PLAIN:
        rest = (activation, algorithm, tf32 | PRODUCTS, None, residual, None, after)
        return _conv2d(input, weight, bias, *geometry, *rest)
    needs_grad = _needs_grad(input, weight, bias) or (is_grad_enabled() and residual.requires_grad)
    if not needs_grad and not _is_transformed():
        with BelowAutograd():
            return _conv2d(
                input, weight, bias, *geometry, activation, algorithm, tf32, None, residual, None, after
            )
    output = conv2d(input, weight, bias, *geometry, activation if after else "none", algorithm, tf32)
    if ops.autocasts(input.device.type):
        residual = ops.autocast_cast(residual, output.dtype)
    require_residual(residual, output)
    output = output + residual
    if after or activation == "none":
        return output
    return getattr(torch.nn.functional, activation)(output)  # type: ignore[no-any-return]


def conv2d_input_grad(
    output_grad: Tensor,
    weight: Tensor,
    input_size: Sequence[int],
    stride: Pair,
    padding: Four,
    dilation: Pair,
    groups: int,
    algorithm: str,
    tf32: int | None = None,
) -> Tensor:
    """tf32: torch's setting where it is not given."""
    if tf32 is None:
        tf32 = tf32_setting(output_grad.is_cuda, output_grad.dtype)
    geometry = (stride, padding, dilation, groups)
    if _takes_registered_path(output_grad, weight, None):
        return _input_grad(output_grad, weight, input_size, *geometry, algorithm, tf32 | PRODUCTS)
    rest = (input_size, *geometry, algorithm, tf32)
    if _is_transformed():
        return _transformed_input_grad(output_grad, weight, *rest)  # type: ignore[no-any-return]
    if _needs_grad(output_grad, weight):
        return _input_grad(output_grad, weight, *rest)
    with BelowAutograd():
        return _input_grad(output_grad, weight, *rest)


def conv2d_weight_grad(
    input: Tensor,
    output_grad: Tensor,
    weight_size: Sequence[int],
    stride: Pair,
    padding: Four,
    dilation: Pair,
    groups: int,
    algorithm: str,
    tf32: int | None = None,
) -> Tensor:
    """tf32: torch's setting where it is not given."""
    if tf32 is None:
        tf32 = tf32_setting(input.is_cuda, input.dtype)
    geometry = (stride, padding, dilation, groups)
    if _takes_registered_path(input, output_grad, None):
        return _weight_grad(input, output_grad, weight_size, *geometry, algorithm, tf32 | PRODUCTS)
    rest = (weight_size, *geometry, algorithm, tf32)
    if _is_transformed():
        return _transformed_weight_grad(input, output_grad, *rest)  # type: ignore[no-any-return]
    if _needs_grad(input, output_grad):
        return _weight_grad(input, output_grad, *rest)
    with BelowAutograd():
        return _weight_grad(input, output_grad, *rest)


_CALLS = Calls(conv2d, conv2d_input_grad, conv2d_weight_grad)
