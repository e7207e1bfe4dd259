"""The eager way to the operators: the bare operator, and torch.autograd.Functions around it.

A call through the derivatives that ops.py registers costs 20 us; the same call by a Function costs 8, and 3.5
where nothing needs a gradient and the dispatcher is told to skip autograd. Whatever those can't serve
(torch.compile, tensor subclasses, dispatch modes, tracing) goes the registered way.
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

from convx import _vmap, ops
from convx._arguments import PRODUCTS, Four, Pair, is_channels_last, tf32_setting
from convx._formulas import (
    Calls,
    Choice,
    Geometry,
    Gradients,
    activation_grad,
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


class _Conv2d(torch.autograd.Function):
    """Inputs: input, weight, bias, stride, padding, dilation, groups, activation, algorithm, tf32."""

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        with BelowAutograd():
            return _conv2d(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        input, weight, _, stride, padding, dilation, groups, activation, *choice = inputs
        needs = ctx.needs_input_grad
        ctx.save_for_backward(
            input if needs[1] else None,
            weight if needs[0] else None,
            None if activation == "none" else output,
        )
        ctx.arguments = (Geometry(stride, padding, dilation, groups), activation, Choice(*choice))
        ctx.sizes = (input.shape, weight.shape, is_channels_last(output))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        input, weight, output = ctx.saved_tensors
        geometry, activation, choice = ctx.arguments
        if output is not None:
            grad = activation_grad(activation, grad, output.detach(), None)
        needs = ctx.needs_input_grad
        calls = _CALLS if is_grad_enabled() or _takes_registered_path(grad, input, weight) else _BARE
        gradients = conv2d_backward(calls, geometry, choice, needs, grad, input, weight, *ctx.sizes)
        return (*gradients, *(None,) * 7)


class _InputGrad(torch.autograd.Function):
    """Inputs: output_grad, weight, input_size, stride, padding, dilation, groups, algorithm, tf32."""

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        with BelowAutograd():
            return _input_grad(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        output_grad, weight, _, stride, padding, dilation, groups, *choice = inputs
        needs = ctx.needs_input_grad
        ctx.save_for_backward(output_grad if needs[1] else None, weight if needs[0] else None)
        ctx.arguments = Geometry(stride, padding, dilation, groups), Choice(*choice)
        ctx.weight_size = weight.shape

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        (geometry, choice), needs = ctx.arguments, ctx.needs_input_grad
        output_grad, weight = ctx.saved_tensors
        gradients = input_grad_backward(
            _CALLS, geometry, choice, needs, grad, output_grad, weight, ctx.weight_size
        )
        return (*gradients, *(None,) * 7)


class _WeightGrad(torch.autograd.Function):
    """Inputs: input, output_grad, weight_size, stride, padding, dilation, groups, algorithm, tf32."""

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        with BelowAutograd():
            return _weight_grad(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        input, output_grad, _, stride, padding, dilation, groups, *choice = inputs
        needs = ctx.needs_input_grad
        ctx.save_for_backward(input if needs[1] else None, output_grad if needs[0] else None)
        ctx.arguments = Geometry(stride, padding, dilation, groups), Choice(*choice)
        ctx.input_size = input.shape

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        (geometry, choice), needs = ctx.arguments, ctx.needs_input_grad
        input, output_grad = ctx.saved_tensors
        gradients = weight_grad_backward(
            _CALLS, geometry, choice, needs, grad, input, output_grad, ctx.input_size
        )
        return (*gradients, *(None,) * 7)


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


# The same for torch.func and forward mode, which keep both tensors and know vmap; a class apart, since the
# eager one keeps no more than its backward needs. Activations are not fused there.
class _TransformedConv2d(_Conv2d):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _Conv2d.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:2])
        geometry, _, choice = ctx.arguments
        ctx.rest = (None, *geometry, "none", *choice.of_gradients())
        ctx.output_size = output.shape

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor | None:
        tangent = _linear_jvp(conv2d, ctx, *tangents[:2])
        if tangents[2] is None:
            return tangent
        by_bias: Tensor = tangents[2].view(1, -1, 1, 1)
        return by_bias.expand(ctx.output_size).clone() if tangent is None else tangent + by_bias

    vmap = staticmethod(partial(_vmap.conv2d, lambda *arguments: conv2d(*arguments)))


class _TransformedInputGrad(_InputGrad):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _InputGrad.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:2])
        ctx.rest = (*inputs[2:7], *ctx.arguments[1].of_gradients())

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor | None:
        return _linear_jvp(conv2d_input_grad, ctx, *tangents[:2])

    vmap = staticmethod(partial(_vmap.conv2d_input_grad, lambda *arguments: conv2d_input_grad(*arguments)))


class _TransformedWeightGrad(_WeightGrad):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _WeightGrad.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:2])
        ctx.rest = (*inputs[2:7], *ctx.arguments[1].of_gradients())

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor | None:
        return _linear_jvp(conv2d_weight_grad, ctx, *tangents[:2])

    vmap = staticmethod(partial(_vmap.conv2d_weight_grad, lambda *arguments: conv2d_weight_grad(*arguments)))


def _bare_apply(function: type[torch.autograd.Function]) -> Any:
    """Function.apply without its Python half, which serves functorch alone and costs 1 us."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


apply_conv2d = _bare_apply(_Conv2d)
_apply_input_grad = _bare_apply(_InputGrad)
_apply_weight_grad = _bare_apply(_WeightGrad)
_transformed_conv2d: Any = _TransformedConv2d.apply
_transformed_input_grad: Any = _TransformedInputGrad.apply
_transformed_weight_grad: Any = _TransformedWeightGrad.apply


def bare_conv2d(*arguments: Any) -> Tensor:
    """The operator, where nothing needs a gradient."""
    with BelowAutograd():
        return _conv2d(*arguments)


def packed_conv2d(packed: PackedFilters, *arguments: Any) -> Tensor:
    """The same with the filters that the layer keeps."""
    with BelowAutograd():
        return _conv2d(*arguments, packed.of(*arguments))


def _bare_input_grad(*arguments: Any) -> Tensor:
    with BelowAutograd():
        return _input_grad(*arguments)


def _bare_weight_grad(*arguments: Any) -> Tensor:
    with BelowAutograd():
        return _weight_grad(*arguments)


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
) -> Tensor:
    """The operator with its arguments already in its own form; the cheapest way that is right here.

    tf32: torch's setting (tf32_setting) where it is not given. Calls that are recorded outlive the setting of
    matrix products: there it is taken as not exact. packed: where the caller keeps its filters in the order
    that kernels read.
    """
    geometry = (stride, padding, dilation, groups)
    if tf32 is None:
        tf32 = tf32_setting(input.is_cuda, input.dtype)
    if _takes_registered_path(input, weight, bias):
        return _conv2d(input, weight, bias, *geometry, activation, algorithm, tf32 | PRODUCTS)
    choice = (algorithm, tf32)
    if ops.autocasts(input.device.type):
        dtype = torch.get_autocast_dtype(input.device.type)
        input, weight = ops.autocast_cast(input, dtype), ops.autocast_cast(weight, dtype)
        bias = None if bias is None else ops.autocast_cast(bias, dtype)
        packed = None  # the weight is a copy of this call's own
    if _is_transformed():
        output: Tensor = _transformed_conv2d(input, weight, bias, *geometry, "none", *choice)
        return output if activation == "none" else getattr(torch.nn.functional, activation)(output)
    if _needs_grad(input, weight, bias):
        separate = UNFUSED.get(activation)
        if separate is None:
            return apply_conv2d(  # type: ignore[no-any-return]
                input, weight, bias, *geometry, activation, *choice
            )
        return separate(apply_conv2d(input, weight, bias, *geometry, "none", *choice))
    arguments = (input, weight, bias, *geometry, activation, *choice)
    return bare_conv2d(*arguments) if packed is None else packed_conv2d(packed, *arguments)


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
        return _apply_input_grad(output_grad, weight, *rest)  # type: ignore[no-any-return]
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
        return _apply_weight_grad(input, output_grad, *rest)  # type: ignore[no-any-return]
    with BelowAutograd():
        return _weight_grad(input, output_grad, *rest)


_CALLS = Calls(conv2d, conv2d_input_grad, conv2d_weight_grad)
_BARE = Calls(bare_conv2d, _bare_input_grad, _bare_weight_grad)
