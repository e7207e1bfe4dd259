"""The operators convx::conv2d, conv2d_input_grad and conv2d_weight_grad: what Python registers for them.

The libraries bring the kernels; here come the fakes, the derivatives that torch.compile and torch.export see,
autocast and vmap. Eager code has a cheaper way to gradients: see convx.functional.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C import _AutoDispatchBelowAutograd as BelowAutograd
from torch._C import _is_any_autocast_enabled as autocast_active
from torch.autograd import forward_ad

from convx import _fakes, _flops, _libraries, _vmap
from convx._arguments import gives_channels_last
from convx._formulas import (
    Calls,
    Choice,
    Geometry,
    Gradients,
    activation_grad,
    conv2d_backward,
    input_grad_backward,
    size_of,
    weight_grad_backward,
)

_libraries_loaded = _libraries.load()
available: bool = _libraries_loaded["cpu"].loaded
"""Whether the operators exist: the CPU library brings their schemas. `python -m convx info` says why not."""


def _not_loaded(device_type: str) -> Callable[..., Tensor]:
    def call(*_: Any, **__: Any) -> Tensor:
        _libraries.require(device_type)
        raise AssertionError("unreachable: the library is not loaded")

    return call


def _operator(name: str) -> Callable[..., Tensor]:
    return getattr(torch.ops.convx, name).default if available else _not_loaded("cpu")


conv2d = _operator("conv2d")
conv2d_input_grad = _operator("conv2d_input_grad")
conv2d_weight_grad = _operator("conv2d_weight_grad")
pack_weight = _operator("pack_weight")
_calls = Calls(conv2d, conv2d_input_grad, conv2d_weight_grad)


def _save_conv2d(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    input, weight, bias, stride, padding, dilation, groups, activation, algorithm, tf32, *rest = inputs
    _, residual, scale, after = rest
    ctx.after = residual is not None and after
    kept = output if activation in ("relu", "relu6") and not ctx.after else None
    added = residual if activation != "none" and kept is None and not after else None
    ctx.save_for_backward(input, weight, bias, kept, added, scale)
    ctx.geometry = Geometry(tuple(stride), tuple(padding), tuple(dilation), groups)
    ctx.activation, ctx.choice = activation, Choice(algorithm, tf32)


def _conv2d_backward(ctx: Any, grad: Tensor) -> Gradients:
    input, weight, bias, output, residual, scale = ctx.saved_tensors
    residual_grad = grad
    asked = ("none", *ctx.choice.of_gradients())
    if ctx.activation != "none":
        before = None
        if output is None:
            before = conv2d(input, weight, bias, *ctx.geometry, *asked, None, residual, scale)
            output = before  # relu and relu6 tell the same by either
        grad = activation_grad(ctx.activation, grad, output, before)
    needs_residual, needs_scale = ctx.needs_input_grad[11:13]
    if not ctx.after:
        residual_grad = grad
    scale_grad = None
    bias_grad = grad.sum((0, 2, 3)) if scale is not None and ctx.needs_input_grad[2] else None
    if needs_scale:
        scale_grad = (grad * conv2d(input, weight, None, *ctx.geometry, *asked)).sum((0, 2, 3))
    if scale is not None:
        grad = grad * scale[:, None, None]
    gradients = conv2d_backward(
        _calls,
        ctx.geometry,
        ctx.choice,
        ctx.needs_input_grad,
        grad,
        input,
        weight,
        size_of(input),
        size_of(weight),
        gives_channels_last(input, weight),
    )
    if bias_grad is not None:  # which comes behind the scale
        gradients = (*gradients[:2], bias_grad)
    return (*gradients, *(None,) * 8, residual_grad if needs_residual else None, scale_grad, None)


def _save_input_grad(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    output_grad, weight, _, stride, padding, dilation, groups, *choice = inputs
    ctx.save_for_backward(output_grad, weight)
    ctx.geometry = Geometry(tuple(stride), tuple(padding), tuple(dilation), groups)
    ctx.choice = Choice(*choice)


def _input_grad_backward(ctx: Any, grad: Tensor) -> Gradients:
    output_grad, weight = ctx.saved_tensors
    gradients = input_grad_backward(
        _calls,
        ctx.geometry,
        ctx.choice,
        ctx.needs_input_grad,
        grad,
        output_grad,
        weight,
        size_of(weight),
    )
    return (*gradients, *(None,) * 7)


def _save_weight_grad(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    input, output_grad, _, stride, padding, dilation, groups, *choice = inputs
    ctx.save_for_backward(input, output_grad)
    ctx.geometry = Geometry(tuple(stride), tuple(padding), tuple(dilation), groups)
    ctx.choice = Choice(*choice)


def _weight_grad_backward(ctx: Any, grad: Tensor) -> Gradients:
    input, output_grad = ctx.saved_tensors
    gradients = weight_grad_backward(
        _calls,
        ctx.geometry,
        ctx.choice,
        ctx.needs_input_grad,
        grad,
        input,
        output_grad,
        size_of(input),
    )
    return (*gradients, *(None,) * 7)


def derivative(call: Any, save: Any, backward_of: Any) -> Callable[..., Tensor]:
    """The Autograd kernel of an operator: as torch.library.register_autograd makes one, but such that
    torch.func's transforms can be recorded, and that forward mode, for which nothing is registered, is an
    error and no tangent of zeros."""
    defaults = [argument.default_value for argument in call._schema.arguments]

    class Derivative(torch.autograd.Function):
        @staticmethod
        def forward(*inputs_and_keys: Any) -> Tensor:
            *inputs, keys = inputs_and_keys
            with BelowAutograd():
                return call.redispatch(keys, *inputs)  # type: ignore[no-any-return]

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            save(ctx, inputs[:-1], output)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Gradients:
            return (*backward_of(ctx, grad), None)

    def kernel(keyset: Any, *inputs: Any) -> Tensor:
        keys = keyset & torch._C._after_autograd_keyset
        if forward_ad._current_level >= 0 and any(map(_has_tangent, inputs)):
            raise NotImplementedError(
                f"{call.name()} has no forward-mode derivative by itself, nor in what torch.compile records; "
                "convx.functional has one"
            )
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*inputs):
            left_out = defaults[len(inputs) :]  # by the dispatcher
            return Derivative.apply(*inputs, *left_out, keys)  # type: ignore[no-untyped-call, no-any-return]
        with BelowAutograd():
            return call.redispatch(keys, *inputs)  # type: ignore[no-any-return]

    return kernel


def _has_tangent(value: Any) -> bool:
    return isinstance(value, Tensor) and forward_ad.unpack_dual(value).tangent is not None


def autocasts(device_type: str) -> bool:
    """Whether torch.autocast is on for a device; torch raises for one that has none, as meta."""
    if not autocast_active():
        return False
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def autocast_cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """As autocast casts the arguments of a convolution: floating point to dtype, float64 left alone."""
    if tensor.dtype == dtype or tensor.dtype == torch.float64 or not tensor.is_floating_point():
        return tensor
    return tensor.to(dtype)


def _autocast(device_type: str) -> Callable[..., Tensor]:
    excluded = torch._C.DispatchKeySet(
        torch._C.DispatchKey.AutocastCPU if device_type == "cpu" else torch._C.DispatchKey.AutocastCUDA
    )

    def call(input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
        with torch._C._ExcludeDispatchKeyGuard(excluded):
            dtype = torch.get_autocast_dtype(device_type)
            return conv2d(
                autocast_cast(input, dtype),
                autocast_cast(weight, dtype),
                None if bias is None else autocast_cast(bias, dtype),
                *(autocast_cast(each, dtype) if isinstance(each, Tensor) else each for each in rest),
            )

    return call


def _register() -> torch.library.Library:
    names = ("conv2d", "conv2d_input_grad", "conv2d_weight_grad")
    torch.library.register_fake("convx::pack_weight", _fakes.pack_weight)
    _flops.register()
    library = torch.library.Library("convx", "IMPL")
    derivatives = (
        (_save_conv2d, _conv2d_backward),
        (_save_input_grad, _input_grad_backward),
        (_save_weight_grad, _weight_grad_backward),
    )
    for name, call, (save, backward) in zip(names, _calls, derivatives, strict=True):
        torch.library.register_fake(f"convx::{name}", getattr(_fakes, name))
        torch.library.register_vmap(f"convx::{name}", partial(getattr(_vmap, name), call))
        library.impl(name, derivative(call, save, backward), "Autograd", with_keyset=True)
    # Not register_autocast, which fixes one dtype: this follows the context's.
    library.impl("conv2d", _autocast("cpu"), "AutocastCPU")
    library.impl("conv2d", _autocast("cuda"), "AutocastCUDA")
    if not _libraries_loaded["gpu"].loaded:
        for name in (*names, "pack_weight"):
            library.impl(name, _not_loaded("cuda"), "CUDA")
    return library  # kept: its registrations end with it


_registrations = _register() if available else None
