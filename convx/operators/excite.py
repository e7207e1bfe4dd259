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


def _fake(a: Any) -> Tensor:
    check_image("input", a.input)
    for name in ("squeeze", "excite"):
        weight, bias = getattr(a, f"{name}_weight"), getattr(a, f"{name}_bias")
        check_image(f"{name}_weight", weight)
        check_like(f"{name}_weight", weight, "input", a.input)
        if bias is not None:
            check_like(f"{name}_bias", bias, "input", a.input)
            check_per_channel(f"{name}_bias", bias, weight.size(0))
    channels, squeezed = a.input.size(1), a.squeeze_weight.size(0)
    for name, wanted in (("squeeze", (squeezed, channels, 1, 1)), ("excite", (channels, squeezed, 1, 1))):
        given = getattr(a, f"{name}_weight").shape
        check(
            tuple(given) == wanted,
            f"{name}_weight must have the shape {shape(wanted)} for these other tensors, got {shape(given)}",
        )
    layout = torch.channels_last if is_channels_last(a.input) else torch.contiguous_format
    return torch.empty(a.input.shape, dtype=a.input.dtype, device=a.input.device, memory_format=layout)


def _flops(shapes: Any, output: Sequence[int]) -> int:
    batch, channels, *_ = output
    return 2 * math.prod(output) + 4 * batch * channels * int(shapes.squeeze_weight[0])


squeeze_excite = Operator("squeeze_excite", _fake, flops=_flops)
