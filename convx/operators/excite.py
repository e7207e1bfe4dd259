"""convx::squeeze_excite: squeeze-and-excitation in one kernel, or operator by operator.

For inference: there are no derivatives. Layers do what needs them (convx._blocks).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from convx._arguments import is_channels_last
from convx._errors import check, shape
from convx.operators.checks import check_image, check_like, check_per_channel
from convx.operators.operator import Operator


def check_excitation(a: Any, channels: Any) -> None:
    """An operator's arguments of these names, for so many channels."""
    for name in ("squeeze_weight", "excite_weight"):
        check_image(name, getattr(a, name))
        check_like(name, getattr(a, name), "input", a.input)
    squeezed = a.squeeze_weight.size(0)
    check(squeezed >= 1, f"squeezed_channels must be at least 1, got {squeezed}")
    for name, wanted in (("squeeze", (squeezed, channels, 1, 1)), ("excite", (channels, squeezed, 1, 1))):
        given, bias = getattr(a, f"{name}_weight").shape, getattr(a, f"{name}_bias")
        check(
            tuple(given) == wanted,
            f"{name}_weight must have the shape {shape(wanted)} for these other tensors, got {shape(given)}",
        )
        if bias is not None:
            check_like(f"{name}_bias", bias, "input", a.input)
            check_per_channel(f"{name}_bias", bias, wanted[0])


def _fake(a: Any) -> Tensor:
    check_image("input", a.input)
    check_excitation(a, a.input.size(1))
    layout = torch.channels_last if is_channels_last(a.input) else torch.contiguous_format
    return torch.empty(a.input.shape, dtype=a.input.dtype, device=a.input.device, memory_format=layout)


def excitation_flops(size: Sequence[int], squeezed: int) -> int:
    batch, channels, *_ = size
    return int(2 * math.prod(size) + 4 * batch * channels * squeezed)


def _flops(shapes: Any, output: Sequence[int]) -> int:
    return excitation_flops(output, shapes.squeeze_weight[0])


squeeze_excite = Operator("squeeze_excite", _fake, flops=_flops)
