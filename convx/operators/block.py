"""convx::inverted_residual and pack_inverted_residual: a block in one kernel, or convolution by
convolution.

For inference: there are no derivatives. Layers do what needs them (convx._blocks).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from convx._arguments import gives_channels_last
from convx._errors import check, shape
from convx.operators.checks import check_image, check_like, check_per_channel
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
    check(a.stride >= 1, f"stride must be at least 1, got {a.stride}")
    batch, channels, height, width = a.input.shape
    expanded, filter = a.expand_weight.size(0), a.depthwise_weight.size(2)
    out_channels = a.project_weight.size(0)
    for name, wanted in (
        ("expand_weight", (expanded, channels, 1, 1)),
        ("depthwise_weight", (expanded, 1, filter, filter)),
        ("project_weight", (out_channels, expanded, 1, 1)),
    ):
        given = getattr(a, name).shape
        check(
            tuple(given) == wanted,
            f"{name} must have the shape {shape(wanted)} for these other tensors, got {shape(given)}",
        )
    return batch, out_channels, (height - 1) // a.stride + 1, (width - 1) // a.stride + 1


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
    batch, _, height, width = shapes.input
    taps = shapes.depthwise_weight[2] * shapes.depthwise_weight[3]
    expanded, channels = shapes.expand_weight[:2]
    out_pixels = output[0] * output[2] * output[3]
    return int(2 * expanded * (batch * height * width * channels + out_pixels * (taps + output[1])))


inverted_residual = Operator("inverted_residual", _fake, flops=_flops)
pack_inverted_residual = Operator("pack_inverted_residual", _pack_fake)
