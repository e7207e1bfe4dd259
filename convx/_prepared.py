"""What a layer's call comes down to, found once for inputs of one size.

That is torch's own function where native is chosen, for the gradients that are needed too: nothing of convx's
is left in its way, and torch's autograd makes both gradients at once. Else it is the operator, with its
arguments in its own form. Rare calls are not prepared: functional serves all, and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as functorch_active
from torch._C import _get_tracing_state as tracing_state
from torch._C import _is_any_autocast_enabled as autocast_active
from torch._C import _len_torch_dispatch_stack as dispatch_modes
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.nn import Parameter

from convx import _eager, _packed, _planning, ops
from convx._arguments import (
    gives_channels_last,
    integer,
    padding_1d,
    padding_2d,
    pair,
    single,
    tf32_setting,
)
from convx._formulas import Choice, Geometry

_PLAIN = (Tensor, Parameter)
_AUTOCAST = (torch.float32, torch.float16, torch.bfloat16)  # dtypes of which autocast makes its own
_INPUT, _WEIGHT, _BIAS = 1, 2, 4  # gradients that a backward pass would be asked for
_TORCHS = (torch.conv1d, torch.conv2d)
is_grad_enabled, get_num_threads = torch.is_grad_enabled, torch.get_num_threads


class Call(NamedTuple):
    """Of a function; None where functional is to make it."""

    function: Callable[..., Tensor] | None
    arguments: tuple[Any, ...] = ()  # after input, weight and bias
    packs: bool = False  # filters that are kept packed come last


class Prepared(NamedTuple):
    """A layer's call, and what it was prepared for."""

    key: tuple[Any, ...]
    call: Call


# As few calls and objects as can be: between the kernels of a network Python's memory has left the caches,
# and each that is touched costs some tenths of a microsecond. The weight is not looked at: whatever becomes
# of it, the call is right; the choice alone is of the weight that was there.
def convolve(layer: Any, input: Tensor) -> Tensor | None:
    """The result of a layer of convx.nn; None where its call is not prepared or goes wrong."""
    packed = layer._packed
    if (
        packed is None
        or is_compiling()
        or input.__class__ not in _PLAIN
        or dispatch_modes() > 0
        or tracing_state() is not None
    ):
        return None
    weight, bias, wanted = layer.weight, layer.bias, 0
    if is_grad_enabled():
        wanted = _INPUT * input.requires_grad + _WEIGHT * weight.requires_grad
        if bias is not None:
            wanted += _BIAS * bias.requires_grad
    generation = _packed.generation()
    prepared: Prepared | None = packed.prepared.get((input.shape, wanted))
    if prepared is not None and prepared.call.function is None and prepared.key[0] == generation:
        return None  # what is missed where the rest has changed since is time alone
    try:
        key = (
            generation,
            layer.training,
            _autocast(input) if autocast_active() else None,
            input.dtype,
            input.device,
            input.stride(),
            get_num_threads(),
            tf32_setting(True, torch.float32) if input.is_cuda else 0,
            layer.stride,
            layer.padding,
            layer.dilation,
            layer.groups,
            layer.padding_mode,
            layer.activation,
            layer.algorithm,
        )
        if prepared is None or prepared.key != key:
            # Lists are copied: who changes one in place has another call then.
            prepared = Prepared(_frozen(key), _prepare(layer, input, wanted))
            _packed.keep(packed.prepared, (input.shape, wanted), prepared)
        function, arguments, packs = prepared.call
        if function in _TORCHS:
            return function(input, weight, bias, *arguments)
        if (
            function is None
            or weight.__class__ not in _PLAIN
            or functorch_active()
            or forward_ad._current_level >= 0
        ):
            return None
        if packs:
            packed.keeps = not layer.training
            return function(packed, input, weight, bias, *arguments)
        return function(input, weight, bias, *arguments)
    except (RuntimeError, TypeError, ValueError):
        return None


def _autocast(input: Tensor) -> torch.dtype | None:
    if input.dtype in _AUTOCAST and ops.autocasts(input.device.type):
        return torch.get_autocast_dtype(input.device.type)
    return None


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _prepare(layer: Any, input: Tensor, wanted: int) -> Call:
    try:
        return _of_layer(layer, input, wanted)
    except (RuntimeError, TypeError, ValueError):
        return Call(None)  # functional says what is wrong


def _geometry(layer: Any, filter_extent: tuple[int, ...]) -> Geometry:
    if len(filter_extent) == 1:
        stride, dilation = (1, single("stride", layer.stride)), (1, single("dilation", layer.dilation))
        padding = padding_1d(layer.padding, filter_extent, stride[1], dilation[1])
    else:
        stride, dilation = pair("stride", layer.stride), pair("dilation", layer.dilation)
        padding = padding_2d(layer.padding, (1, 1, *filter_extent), stride, dilation)
    return Geometry(stride, padding, dilation, integer("groups", layer.groups))


def _of_layer(layer: Any, input: Tensor, wanted: int) -> Call:
    weight, bias, autocast = layer.weight, layer.bias, _autocast(input)
    tensors = [weight] if bias is None else [weight, bias]
    if layer.padding_mode != "zeros" or input.dim() != weight.dim() or not ops.available:
        return Call(None)
    for each in tensors:
        fits = each.dtype == input.dtype if autocast is None else each.dtype in _AUTOCAST
        if not fits or each.__class__ not in _PLAIN or each.device != input.device:
            return Call(None)
    dtype = autocast or input.dtype
    geometry = _geometry(layer, weight.shape[2:])
    forward = Choice(layer.algorithm, tf32_setting(input.is_cuda, dtype))
    # A row is an image of one.
    images, filters = (each if each.dim() == 4 else each.unsqueeze(-2) for each in (input, weight))
    channels_last = gives_channels_last(images, filters)

    def plan(operation: str, choice: Choice) -> Any:
        problem = _planning.problem(
            operation,
            dtype,
            channels_last,
            images.shape,
            filters.shape,
            *geometry,
            bias=bias is not None,
            activation=layer.activation,
            tf32=choice.tf32,
            packs_each_call=layer.training or wanted != 0,
        )
        return _planning.core().select(problem, _planning.device(input.device), choice.algorithm).plan

    own = plan("forward", forward)
    plans = [own]
    plans += [plan("input_grad", forward.of_gradients())] if wanted & _INPUT else []
    plans += [plan("weight_grad", forward.of_gradients())] if wanted & _WEIGHT else []
    top, bottom, left, right = geometry.padding
    layout = torch.channels_last if channels_last else torch.contiguous_format
    if (
        all((each.method, each.candidate) == ("native", "") for each in plans)
        and layer.activation == "none"
        and not (channels_last and input.dim() == 3)
        and (top, left) == (bottom, right)
        and images.is_contiguous(memory_format=layout)
        and filters.is_contiguous(memory_format=layout)
    ):
        axes = slice(4 - input.dim(), 2)
        rest = (geometry.stride[axes], (top, left)[axes], geometry.dilation[axes], geometry.groups)
        return Call(_TORCHS[input.dim() - 3], rest)
    if autocast is not None or input.dim() != 4:
        return Call(None)
    arguments = (*geometry, layer.activation, *forward)
    if wanted:
        return Call(None) if layer.activation in _eager.UNFUSED else Call(_eager.apply_conv2d, arguments)
    if own.packed_weight_bytes > 0:
        return Call(_eager.packed_conv2d, arguments, packs=True)
    return Call(_eager.bare_conv2d, arguments)
