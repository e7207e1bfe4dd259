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
from convx._arguments import gives_channels_last, integer, padding_2d, pair, tf32_setting
from convx._formulas import Choice, Geometry

_PLAIN = (Tensor, Parameter)
_AUTOCAST = (torch.float32, torch.float16, torch.bfloat16)  # dtypes of which autocast makes its own
_INPUT, _WEIGHT, _BIAS = 1, 2, 4  # gradients that a backward pass would be asked for
is_grad_enabled, get_num_threads, convolution = torch.is_grad_enabled, torch.get_num_threads, torch.conv2d


class Prepared(NamedTuple):
    """A layer's call; None where functional is to make it."""

    key: tuple[Any, ...]  # what it was prepared for
    call: Callable[..., Tensor] | None
    arguments: tuple[Any, ...]  # after input, weight and bias


# As few calls and objects as can be: between the kernels of a network Python's memory has left the caches,
# and each that is touched costs some tenths of a microsecond. The weight is not looked at: whatever becomes
# of it, the call is right; the choice alone is of the weight that was there.
def conv2d(layer: Any, input: Tensor) -> Tensor | None:
    """The result of a convx.nn.Conv2d; None where its call is not prepared or goes wrong."""
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
    if prepared is not None and prepared.call is None and prepared.key[0] == generation:
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
            prepared = _prepare(key, layer, input, wanted)
            _packed.keep(packed.prepared, (input.shape, wanted), prepared)
        call = prepared.call
        if call is convolution:
            return convolution(input, weight, bias, *prepared.arguments)
        if (
            call is None
            or weight.__class__ not in _PLAIN
            or functorch_active()
            or forward_ad._current_level >= 0
        ):
            return None
        return call(input, weight, bias, *prepared.arguments)
    except (RuntimeError, TypeError, ValueError):
        return None


def _autocast(input: Tensor) -> torch.dtype | None:
    if input.dtype in _AUTOCAST and ops.autocasts(input.device.type):
        return torch.get_autocast_dtype(input.device.type)
    return None


def _prepare(key: tuple[Any, ...], layer: Any, input: Tensor, wanted: int) -> Prepared:
    try:
        call, arguments = _call(layer, input, wanted)
    except (RuntimeError, TypeError, ValueError):
        call, arguments = None, ()
    # Lists are copied: who changes one in place has another call then.
    return Prepared(_frozen(key), call, arguments)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _call(layer: Any, input: Tensor, wanted: int) -> tuple[Callable[..., Tensor] | None, tuple[Any, ...]]:
    weight, bias, autocast = layer.weight, layer.bias, _autocast(input)
    tensors = [weight] if bias is None else [weight, bias]
    if layer.padding_mode != "zeros" or input.dim() != 4 or not ops.available:
        return None, ()
    for each in tensors:
        fits = each.dtype == input.dtype if autocast is None else each.dtype in _AUTOCAST
        if not fits or each.__class__ not in _PLAIN or each.device != input.device:
            return None, ()
    dtype = autocast or input.dtype
    forward = Choice(layer.algorithm, tf32_setting(input.is_cuda, dtype))
    strides, dilations = pair("stride", layer.stride), pair("dilation", layer.dilation)
    paddings = padding_2d(layer.padding, weight.shape, strides, dilations)
    geometry = Geometry(strides, paddings, dilations, integer("groups", layer.groups))
    channels_last = gives_channels_last(input, weight)

    def plan(operation: str, choice: Choice) -> Any:
        problem = _planning.problem(
            operation,
            dtype,
            channels_last,
            input.shape,
            weight.shape,
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
    top, bottom, left, right = paddings
    layout = torch.channels_last if channels_last else torch.contiguous_format
    is_torchs = (
        all((each.method, each.candidate) == ("native", "") for each in plans)
        and layer.activation == "none"
        and (top, left) == (bottom, right)
        and input.is_contiguous(memory_format=layout)
        and weight.is_contiguous(memory_format=layout)
    )
    if is_torchs:
        return convolution, (strides, (top, left), dilations, geometry.groups)
    if autocast is not None:
        return None, ()
    arguments = (*geometry, layer.activation, *forward)
    if wanted:
        return (None, ()) if layer.activation in _eager.UNFUSED else (_eager.apply_conv2d, arguments)
    return (None, ()) if own.packed_weight_bytes > 0 else (_eager.bare_conv2d, arguments)
