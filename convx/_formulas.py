"""The derivatives of the three operators, each written with the other two.

A convolution is linear in the input and in the weight, so that the three close on themselves: every
derivative of one of them is another of them. That gives gradients of any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from convx._arguments import Four, Pair, is_channels_last, products_setting
from convx._libraries import core

aten = torch.ops.aten


class Geometry(NamedTuple):
    """What the three operators share beside tensors."""

    stride: Pair
    padding: Four
    dilation: Pair
    groups: int


class Choice(NamedTuple):
    """How an operator is asked to compute: its last arguments."""

    algorithm: str
    tf32: int

    def of_gradients(self) -> Choice:
        """What a gradient is asked for. Matrix products may have been let round since."""
        algorithm = core().algorithm_of_gradients(self.algorithm)
        return Choice(algorithm, self.tf32 | products_setting())


class Calls(NamedTuple):
    """How the formulas reach the three operators: by the dispatcher, or by the eager fast path."""

    conv2d: Callable[..., Tensor]
    input_grad: Callable[..., Tensor]
    weight_grad: Callable[..., Tensor]


Gradients = tuple[Tensor | None, ...]


def activation_grad(activation: str, grad: Tensor, output: Tensor | None, before: Tensor | None) -> Tensor:
    """Gradient at the activation's input, from its output (relu, relu6) or from its input (the others)."""
    if activation == "relu":
        return aten.threshold_backward(grad, output, 0)  # type: ignore[no-any-return]
    if activation == "relu6":
        return aten.hardtanh_backward(grad, output, 0, 6)  # type: ignore[no-any-return]
    if activation == "silu":
        if not torch.is_grad_enabled() or before is None:
            return aten.silu_backward(grad, before)  # type: ignore[no-any-return]
        gate = before.sigmoid()  # aten.silu_backward has no derivative of its own
        return grad * gate * (1 + before * (1 - gate))
    if activation == "hardswish":
        return aten.hardswish_backward(grad, before)  # type: ignore[no-any-return]
    if activation == "gelu":
        return aten.gelu_backward(grad, before)  # type: ignore[no-any-return]
    return grad


def conv2d_backward(
    calls: Calls,
    geometry: Geometry,
    choice: Choice,
    needs: Sequence[bool],
    grad: Tensor,
    input: Tensor | None,
    weight: Tensor | None,
    input_size: Sequence[int],
    weight_size: Sequence[int],
    channels_last: bool,
) -> Gradients:
    """Gradients of (input, weight, bias) from the gradient before the activation; None where not needed.
    channels_last: of the result."""
    # In the layout of the result, once for both gradients, which have the layout that their operands suggest.
    if not channels_last:
        grad = grad.contiguous()
    elif not is_channels_last(grad):
        grad = grad.clone(memory_format=torch.channels_last)
    asked = choice.of_gradients()
    input_grad = calls.input_grad(grad, weight, input_size, *geometry, *asked) if needs[0] else None
    weight_grad = calls.weight_grad(input, grad, weight_size, *geometry, *asked) if needs[1] else None
    bias_grad = grad.sum((0, 2, 3)) if needs[2] else None
    return input_grad, weight_grad, bias_grad


def input_grad_backward(
    calls: Calls,
    geometry: Geometry,
    choice: Choice,
    needs: Sequence[bool],
    grad: Tensor,
    output_grad: Tensor | None,
    weight: Tensor | None,
    weight_size: Sequence[int],
) -> Gradients:
    """Gradients of (output_grad, weight)."""
    asked = choice.of_gradients()
    return (
        calls.conv2d(grad, weight, None, *geometry, "none", *asked) if needs[0] else None,
        calls.weight_grad(grad, output_grad, weight_size, *geometry, *asked) if needs[1] else None,
    )


def weight_grad_backward(
    calls: Calls,
    geometry: Geometry,
    choice: Choice,
    needs: Sequence[bool],
    grad: Tensor,
    input: Tensor | None,
    output_grad: Tensor | None,
    input_size: Sequence[int],
) -> Gradients:
    """Gradients of (input, output_grad)."""
    asked = choice.of_gradients()
    return (
        calls.input_grad(output_grad, grad, input_size, *geometry, *asked) if needs[0] else None,
        calls.conv2d(input, grad, None, *geometry, "none", *asked) if needs[1] else None,
    )


def size_of(tensor: Tensor) -> list[Any]:
    """A tensor's shape as the operators take it, symbolic sizes kept."""
    return list(tensor.shape)
