"""What torch.utils.flop_counter counts for the operators: a multiply-add as two, as it does for torch's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

Shape = Sequence[int]


def _count(output: Shape, weight: Shape) -> int:
    return 2 * math.prod(output) * math.prod(weight[1:])


def _forward(input: Shape, weight: Shape, *rest: Any, out_shape: Shape, **named: Any) -> int:
    return _count(out_shape, weight)


def _input_grad(output_grad: Shape, weight: Shape, *rest: Any, **named: Any) -> int:
    return _count(output_grad, weight)


def _weight_grad(input: Shape, output_grad: Shape, weight: Shape, *rest: Any, **named: Any) -> int:
    return _count(output_grad, weight)


def _filter2d(images: Shape, filters: Shape, *rest: Any, out_shape: Shape, **named: Any) -> int:
    return _count(out_shape, filters)


def register() -> None:
    for name, formula in (
        ("conv2d", _forward),
        ("conv2d_input_grad", _input_grad),
        ("conv2d_weight_grad", _weight_grad),
        ("filter2d", _filter2d),
    ):
        register_flop_formula(getattr(torch.ops.convx, name))(formula)
