"""Batch norms with statistics that are known, and what convolutions with them in their filters read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Operand = TypeVar("Operand")


@dataclass(frozen=True)
class Norm(Generic[Operand]):
    """F.batch_norm in evaluation; its operands as tensors, or as whatever stands for them."""

    input: Any
    mean: Operand
    variance: Operand
    weight: Operand | None
    bias: Operand | None
    eps: float
    name: str = "batch norm"


def folded(weight: Tensor, bias: Tensor | None, norm: Norm[Tensor]) -> tuple[Tensor, Tensor]:
    """Weight and bias of the convolution that does the norm too, in float64: to be rounded once."""
    with torch.no_grad():
        scale = (norm.variance.double() + norm.eps).rsqrt()
        if norm.weight is not None:
            scale = scale * norm.weight.double()
        shift = -norm.mean.double() * scale
        if norm.bias is not None:
            shift = shift + norm.bias.double()
        if bias is not None:
            shift = shift + bias.double() * scale
        return weight.double() * scale.view(-1, *(1,) * (weight.dim() - 1)), shift
