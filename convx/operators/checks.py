"""What fakes check as the operators themselves do (csrc/problem/problem.cpp), symbolic sizes too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from convx._arguments import DTYPES, gives_channels_last
from convx._errors import MOST, check, dtype_name, require_dimensions, require_length, shape
from convx._libraries import core


def check_dtype(name: str, tensor: Tensor) -> None:
    check(
        tensor.dtype in DTYPES,
        f"{name} must be float32, float64, float16 or bfloat16, got {dtype_name(tensor.dtype)}; convert it "
        f"with .to(torch.float32)",
    )


def check_image(name: str, tensor: Tensor) -> None:
    require_dimensions(name, tensor.shape)
    check_dtype(name, tensor)


def check_per_channel(name: str, tensor: Tensor, out_channels: Any) -> None:
    message = (
        f"{name} must have shape ({out_channels},), one value per output channel, got {shape(tensor.shape)}"
    )
    check(tensor.dim() == 1, message)
    check(tensor.size(0) == out_channels, message)


def check_like(name: str, tensor: Tensor, first_name: str, first: Tensor) -> None:
    check(
        tensor.dtype == first.dtype,
        f"{name} must have the dtype of {first_name} ({dtype_name(first.dtype)}), got "
        f"{dtype_name(tensor.dtype)}; convert one of them with .to()",
    )
    check(
        tensor.device == first.device,
        f"{name} must be on the device of {first_name} ({first.device}), got {tensor.device}; move one of "
        f"them with .to()",
    )


def _check_pair(name: str, values: Sequence[Any], way_out: str) -> None:
    for value in values:
        check(value >= 1, f"{name} must be at least 1, got {shape(values)}; {way_out}")


def check_geometry(
    input_size: Sequence[Any],
    weight_size: Sequence[Any],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> list[Any]:
    """The output's size, once everything about the forward convolution is known to make sense."""
    require_length("stride", stride, 2, "height, width")
    require_length("padding", padding, 4, "top, bottom, left, right")
    require_length("dilation", dilation, 2, "height, width")
    batch, channels, height, width = input_size
    filters, channels_per_group, *taps = weight_size
    _check_pair("input: the channels", (channels,), "a convolution without channels has no meaning")
    _check_pair("input: height and width", (height, width), "only the batch may be empty")
    _check_pair(
        "weight: the output channels", (filters,), "a convolution without output channels has no meaning"
    )
    _check_pair("weight: the filter's height and width", taps, "use a 1x1 filter to pass values through")
    _check_pair("stride", stride, "use 1 to compute every position")
    _check_pair("dilation", dilation, "use 1 for a dense filter")
    top, bottom, left, right = padding
    check(
        min(padding) >= 0,
        f"padding must be at least 0, got (top {top}, bottom {bottom}, left {left}, right {right}); slice "
        f"the input to crop it",
    )
    check(groups >= 1, f"groups must be at least 1, got {groups}; use 1 for a dense convolution")
    for count in (channels, filters):
        check(
            count % groups == 0,
            f"groups must divide both channel counts, got groups {groups} with {channels} input channels and "
            f"{filters} output channels",
        )
    check(
        channels_per_group == channels // groups,
        f"weight must have input channels / groups = {channels} / {groups} = {channels // groups} in "
        f"dimension 1, "
        f"got {channels_per_group}: shape {shape(weight_size)}",
    )
    size = [batch, filters]
    for axis, (name, extent) in enumerate((("height", height), ("width", width))):
        before, after = padding[2 * axis : 2 * axis + 2]
        reach = dilation[axis] * (taps[axis] - 1) + 1
        padded = extent + before + after
        check(
            _fits(padded) and _fits(reach),
            f"the {name} of the padded input or of the dilated filter overflows 64 bits; padding or dilation "
            f"is too large",
        )
        check(
            padded >= reach,
            f"weight: the filter spans {reach} in {name} (size {taps[axis]}, dilation {dilation[axis]}) but "
            f"the "
            f"padded input has only {padded} (size {extent}, padding {before} + {after}); use more padding, "
            f"less "
            f"dilation or a smaller filter",
        )
        size.append((padded - reach) // stride[axis] + 1)
    for name, each in (("input", input_size), ("weight", weight_size), ("output", size)):
        check(_fits(8, *each), f"the {name} of size {shape(each)} has more elements than 64 bits can address")
    return size


def _fits(*factors: Any) -> bool:
    """Whether their product fits into 64 bits; symbolic sizes do, and learn nothing by this."""
    return any(isinstance(each, torch.SymInt) for each in factors) or math.prod(factors) <= MOST


def empty(size: Sequence[Any], first: Tensor, second: Tensor) -> Tensor:
    """A result of operands first and second."""
    last = gives_channels_last(first, second)
    memory_format = torch.channels_last if last else torch.contiguous_format
    return torch.empty(size, dtype=first.dtype, device=first.device, memory_format=memory_format)


def check_output_shape(name: str, tensor: Tensor, size: Sequence[Any]) -> None:
    for given, wanted in zip(tensor.shape, size, strict=True):
        check(
            given == wanted,
            f"{name} must have the shape of the output, {shape(size)}, got "
            f"{shape(tensor.shape)}; check "
            f"the sizes, stride, padding and dilation",
        )


def check_algorithm(algorithm: str) -> None:
    """That such a method exists; whether it can run the problem is for the device to say."""
    if algorithm != "auto":
        core().check_algorithm(algorithm)
