"""What fakes check of tensors, as operators do (csrc/torch); sizes are judged by the planner's own check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from convx._arguments import DTYPES, gives_channels_last
from convx._errors import check, dtype_name, require_dimensions, require_length, shape
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


_LARGE = 1 << 20


def output_size(
    input_size: Sequence[Any],
    weight_size: Sequence[Any],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> list[Any]:
    """The output's size; InvalidArgument where the forward convolution makes no sense.

    Of symbolic sizes, those are judged that they stand for while a program is recorded: nothing is learned
    from them that would hold the program to them. Where that is unknown too, only the rest is judged here.
    """
    require_length("stride", stride, 2, "height, width")
    require_length("padding", padding, 4, "top, bottom, left, right")
    require_length("dilation", dilation, 2, "height, width")
    batch, *sizes = (_known(each) for each in (*input_size, *weight_size))
    if None in sizes:  # filters of one tap that fit into whatever there is
        sizes = [max(groups, 1), _LARGE, _LARGE, max(groups, 1), 1, 1, 1]
    core().output_size((batch or 0, *sizes[:3]), sizes[3:], stride, padding, dilation, groups)
    return [
        input_size[0],
        weight_size[0],
        *plane_size(input_size[2:], weight_size[2:], stride, padding, dilation),
    ]


def plane_size(
    size: Sequence[Any],
    taps: Sequence[Any],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[Any]:
    """Height and width of the output, of those of the input and the filter."""
    found = []
    for axis in range(2):
        padded = size[axis] + padding[2 * axis] + padding[2 * axis + 1]
        reach = dilation[axis] * (taps[axis] - 1) + 1
        found.append((padded - reach) // stride[axis] + 1)
    return found


def _known(size: Any) -> int | None:
    """The number, or what a symbolic one stands for while a program is recorded."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    return size.node.hint if size.node.has_hint() else None


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
