"""convx::inverted_residual and pack_inverted_residual: a block, with squeeze-and-excitation or without, in
one kernel, or layer by layer.

For inference: there are no derivatives. Layers do what needs them (convx._blocks).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from convx._arguments import gives_channels_last
from convx._errors import check, shape
from convx.operators.checks import check_image, check_like, check_per_channel
from convx.operators.excite import check_excitation, excitation_flops
from convx.operators.operator import Operator


def _sizes(a: Any) -> tuple[Any, ...]:
    check_image("input", a.input)
    for name in ("expand", "depthwise", "project"):
        weight, bias = getattr(a, f"{name}_weight"), getattr(a, f"{name}_bias")
        check_image(f"{name}_weight", weight)
        check_like(f"{name}_weight", weight, "input", a.input)
        if bias is not None:
            check_like(f"{name}_bias", bias, "input", a.input)
            check_per_channel(f"{name}_bias", bias, weight.size(0))
    for name in ("expand_stride", "stride"):
        check(getattr(a, name) >= 1, f"{name} must be at least 1, got {getattr(a, name)}")
    batch, channels = a.input.shape[:2]
    expanded, filter = a.expand_weight.size(0), a.depthwise_weight.size(2)
    first_filter, out_channels = a.expand_weight.size(2), a.project_weight.size(0)
    for name, wanted in (
        ("expand_weight", (expanded, channels, first_filter, first_filter)),
        ("depthwise_weight", (expanded, 1, filter, filter)),
        ("project_weight", (out_channels, expanded, 1, 1)),
    ):
        given = getattr(a, name).shape
        check(
            tuple(given) == wanted,
            f"{name} must have the shape {shape(wanted)} for these other tensors, got {shape(given)}",
        )
    _check_excitation(a, expanded)
    height, width = (_strided(_strided(size, a.expand_stride), a.stride) for size in a.input.shape[2:])
    return batch, out_channels, height, width


def _check_excitation(a: Any, channels: Any) -> None:
    """Of a block with so many expanded channels; both weights are given, or neither."""
    for name, needed in (
        ("squeeze_weight", "excite_weight"),
        ("excite_weight", "squeeze_weight"),
        ("squeeze_bias", "squeeze_weight"),
        ("excite_bias", "excite_weight"),
    ):
        given = getattr(a, name)
        check(
            given is None or getattr(a, needed) is not None,
            f"{name} needs {needed}, got {'' if given is None else shape(given.shape)} and None; give both "
            "or neither",
        )
    if a.squeeze_weight is not None:
        check_excitation(a, channels)


def _strided(size: Any, stride: int) -> Any:
    """Of an axis, padded by half of an odd filter."""
    return (size - 1) // stride + 1


def _fake(a: Any) -> Tensor:
    sizes = _sizes(a)
    last = gives_channels_last(a.input, a.expand_weight)
    layout = torch.channels_last if last else torch.contiguous_format
    return torch.empty(sizes, dtype=a.input.dtype, device=a.input.device, memory_format=layout)


def _pack_fake(a: Any) -> Tensor:
    """How many bytes there are is the plan's to know."""
    _sizes(a)
    count = torch.library.get_ctx().new_dynamic_size()
    return a.input.new_empty(count, dtype=torch.uint8)  # type: ignore[no-any-return]


def _flops(shapes: Any, output: Sequence[int]) -> int:
    batch, _, *size = shapes.input
    height, width = (_strided(each, shapes.expand_stride) for each in size)
    taps = shapes.depthwise_weight[2] * shapes.depthwise_weight[3]
    expanded, *depth = shapes.expand_weight
    out_pixels = output[0] * output[2] * output[3]
    of_expand = batch * height * width * math.prod(depth)
    convolutions = int(2 * expanded * (of_expand + out_pixels * (taps + output[1])))
    if shapes.squeeze_weight is None:
        return convolutions
    filtered = (batch, expanded, *output[2:])
    return convolutions + excitation_flops(filtered, shapes.squeeze_weight[0])


inverted_residual = Operator("inverted_residual", _fake, flops=_flops)
pack_inverted_residual = Operator("pack_inverted_residual", _pack_fake)
