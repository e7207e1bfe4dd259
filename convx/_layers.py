"""The convolution layers of a model and the problems that they are given."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import Module
from torch.nn.modules.conv import _ConvNd

from convx import _planning
from convx._arguments import (
    gives_channels_last,
    integer,
    is_channels_last,
    padding_1d,
    padding_2d,
    pair,
    single,
    tf32_setting,
)
from convx._blocks import Block
from convx._errors import InvalidArgument, require_dimensions, require_weight_1d
from convx.images.layers import FilterLayer
from convx.operators import autocast


@dataclass(frozen=True)
class Call:
    """One input that a layer was called with; channels_last where the result is so. Images of filters have
    the size (images, height, width)."""

    size: tuple[int, ...]
    channels_last: bool
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, input: torch.Tensor, weight: torch.Tensor) -> Call:
        """A call with a 4D input and weight, in the dtype that autocast casts it to."""
        last = gives_channels_last(input, weight)
        return cls(tuple(input.shape), last, _dtype_of_call(input), input.device)

    @classmethod
    def of_images(cls, images: torch.Tensor) -> Call:
        size = (math.prod(images.shape[:-2]), *images.shape[-2:])
        return cls(size, False, _dtype_of_call(images), images.device)


def _dtype_of_call(input: torch.Tensor) -> torch.dtype:
    where = input.device.type
    if not autocast.is_on(where):
        return input.dtype
    return autocast.cast(input.new_empty(0), torch.get_autocast_dtype(where)).dtype


def require_module(name: str, value: object) -> None:
    if not isinstance(value, Module):
        raise TypeError(f"{name} must be a torch.nn.Module, got {type(value).__name__}")


def convolutions(model: Module) -> dict[Module, list[str]]:
    """Every convolution layer and the names it goes by: more than one where it is shared."""
    found: dict[Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        quantized = type(module).__module__.startswith("torch.ao.nn") and "Conv" in type(module).__name__
        if isinstance(module, _ConvNd) or quantized:
            found.setdefault(module, []).append(name or "(model)")
    return found


def filters(model: Module) -> dict[Module, list[str]]:
    """Every filter layer of convx.nn and the names it goes by."""
    found: dict[Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, FilterLayer):
            found.setdefault(module, []).append(name or "(model)")
    return found


@contextmanager
def _evaluating(model: Module) -> Iterator[None]:
    flags = [(module, module.training) for module in model.modules()]
    if any(training for _, training in flags):  # eval() lets layers forget the filters that they have packed
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in flags:
            module.training = training


def arguments_of(example_input: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a model is called with: a tensor, a tuple of positional or a dict of keyword arguments."""
    if isinstance(example_input, dict):
        return (), example_input
    return (tuple(example_input) if isinstance(example_input, (tuple, list)) else (example_input,)), {}


def record_calls(
    model: Module, layers: Sequence[Module], args: Sequence[Any], kwargs: dict[str, Any]
) -> dict[Module, list[Call]]:
    """The distinct inputs of each layer in one forward of the model."""
    calls: dict[Module, list[Call]] = {layer: [] for layer in layers}

    def record(layer: Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        of_images = isinstance(layer, FilterLayer)
        input = arguments[0] if arguments else named.get("images" if of_images else "input")
        if not isinstance(input, torch.Tensor):
            return
        if of_images:
            if input.dim() >= 2 and (call := Call.of_images(input)) not in calls[layer]:
                calls[layer].append(call)
            return
        rank = 3 if isinstance(layer, torch.nn.Conv1d) else 4
        if input.dim() == rank - 1:
            input = input.unsqueeze(0)
        weight: Any = layer.weight
        if rank == 3 and input.dim() == 3:
            input, weight = input.unsqueeze(2), weight.unsqueeze(2)
        if input.dim() in (4, 5):  # images, and volumes, which are left with a reason
            call = Call.of(input, weight)
            if call not in calls[layer]:
                calls[layer].append(call)

    _run_watched(model, layers, record, args, kwargs)
    return calls


def _run_watched(
    model: Module,
    layers: Iterable[Module],
    record: Callable[[Any, tuple[Any, ...], dict[str, Any]], None],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> None:
    """One forward in evaluation mode; record is told of each call of these layers, with what arguments."""
    handles = [layer.register_forward_pre_hook(record, with_kwargs=True) for layer in layers]
    try:
        with _evaluating(model):
            model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()


def record_block_calls(model: Module, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[Block, list[Call]]:
    """The distinct inputs that one kernel may run, of each block, in one forward."""
    blocks = (module for module in model.modules() if isinstance(module, Block))
    calls: dict[Block, list[Call]] = {block: [] for block in blocks}

    def record(block: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        input = arguments[0]
        if block.can_be_one_kernel(input):
            call = Call(tuple(input.shape), is_channels_last(input), input.dtype, input.device)
            if call not in calls[block]:
                calls[block].append(call)

    if calls:
        _run_watched(model, calls, record, args, kwargs)
    return calls


def filter_problems(layer: FilterLayer, call: Call) -> list[Any]:
    """The planner's problems for a call of a filter layer, one for each pass."""
    if 0 in call.size:
        raise InvalidArgument(f"there is nothing to filter in images of size {call.size}")
    return [
        _planning.filter_problem(dtype, call.size, filter_size, layer.border)
        for dtype, filter_size in layer.passes(call.dtype)
    ]


def problem(layer: Any, call: Call | None, operation: str = "forward") -> Any:
    """The planner's problem for a call, or for a middling size where none is known."""
    weight_size = list(layer.weight.shape)
    if isinstance(layer, torch.nn.Conv1d):
        require_weight_1d(weight_size)
        weight_size.insert(2, 1)
        strides, dilations = (1, single("stride", layer.stride)), (1, single("dilation", layer.dilation))
        paddings = padding_1d(layer.padding, weight_size[3:], strides[1], dilations[1])
    else:
        require_dimensions("weight", weight_size)
        strides, dilations = pair("stride", layer.stride), pair("dilation", layer.dilation)
        paddings = padding_2d(layer.padding, weight_size, strides, dilations)
    if call is None:
        middling = [
            max(56, step * (taps - 1) + 1) for step, taps in zip(dilations, weight_size[2:], strict=True)
        ]
        if isinstance(layer, torch.nn.Conv1d):
            middling[0] = 1
        size = (1, layer.in_channels, *middling)
        call = Call(size, False, layer.weight.dtype, layer.weight.device)
    size = call.size
    if layer.padding_mode != "zeros":  # torch pads first with values
        height, width = size[2] + paddings[0] + paddings[1], size[3] + paddings[2] + paddings[3]
        size, paddings = (*size[:2], height, width), (0, 0, 0, 0)
    return _planning.problem(
        operation,
        call.dtype,
        call.channels_last,
        size,
        weight_size,
        strides,
        paddings,
        dilations,
        integer("groups", layer.groups),
        layer.bias is not None,
        getattr(layer, "activation", "none"),
        tf32_setting(call.device.type == "cuda", call.dtype),
        residual=getattr(layer, "adds_residual", False),
        residual_after_activation=getattr(layer, "residual_after_activation", False),
    )
