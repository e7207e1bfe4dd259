"""The layers of optimized models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import convx.nn
from convx import _libraries, functional
from convx._arguments import Pair, is_channels_last, padding_2d, pair
from convx._errors import InvalidArgument
from convx.operators.checks import plane_size
from convx.optimize.folding import Norm, folded

_front = _libraries.front()


class FusedConv2d(convx.nn.Conv2d):
    """convx.nn.Conv2d that may add a second input, a skip connection, before or after the activation."""

    adds_residual = False
    residual_after_activation = False

    @classmethod
    def of(
        cls,
        layer: nn.Conv2d,
        norm: Norm[Tensor] | None,
        activation: str,
        adds_residual: bool,
        residual_after_activation: bool,
    ) -> FusedConv2d:
        """The layer with all that follows it; the layer's own parameters where no norm goes into them."""
        padding: Any = layer.padding
        with torch.device("meta"):
            made = cls(
                layer.in_channels,
                layer.out_channels,
                layer.kernel_size,
                layer.stride,
                padding,
                layer.dilation,
                layer.groups,
                bias=False,
                activation=activation,
                algorithm=getattr(layer, "algorithm", "auto"),
            )
        weight: Any = layer.weight
        bias: Any = layer.bias
        if norm is not None:
            weight, bias = _parameters(weight, bias, norm)
        made.weight, made.bias = weight, bias
        made.adds_residual, made.residual_after_activation = adds_residual, residual_after_activation
        return made.eval()

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        if residual is None:
            return super().forward(input)
        # What is recorded has the call that fails, too: it is not to be made.
        if torch.compiler.is_compiling() and not self._fits(residual, input):
            return self._then_adds(residual, input)
        try:
            return self._convolve(input, self.activation, residual)
        except InvalidArgument:  # of another shape or dtype than with the example input: torch adds it
            return self._then_adds(residual, input)

    def _convolve(self, input: Tensor, activation: str, residual: Tensor | None = None) -> Tensor:
        return functional.conv2d(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            activation=activation,
            algorithm=self.algorithm,
            packed=self._filters_of_call(),
            residual=residual,
            residual_after_activation=residual is not None and self.residual_after_activation,
        )

    def _fits(self, residual: Tensor, input: Tensor) -> bool:
        """Whether the operator adds it."""
        if residual.dtype != input.dtype or residual.dim() != input.dim():
            return False
        stride, dilation = pair("stride", self.stride), pair("dilation", self.dilation)
        padding = padding_2d(self.padding, self.weight.shape, stride, dilation)
        plane = plane_size(input.shape[-2:], self.kernel_size, stride, padding, dilation)
        return tuple(residual.shape) == (*input.shape[:-3], self.out_channels, *plane)

    def _then_adds(self, residual: Tensor, input: Tensor) -> Tensor:
        after = self.residual_after_activation
        output = self._convolve(input, self.activation if after else "none") + residual
        activates = not after and self.activation != "none"
        return getattr(nn.functional, self.activation)(output) if activates else output

    def extra_repr(self) -> str:
        if not self.adds_residual:
            return super().extra_repr()
        place = "after" if self.residual_after_activation else "before"
        return f"{super().extra_repr()}, residual {place} the activation"


@dataclass(frozen=True)
class Pooling:
    """A pooling of planes: its arguments as torch's functions have them."""

    kind: str  # "max" or "average"
    filter: Pair
    stride: Pair
    padding: Pair
    dilation: Pair = (1, 1)
    ceil_mode: bool = False
    counts_padding: bool = True
    divisor: int | None = None

    def __call__(self, input: Tensor) -> Tensor:
        """By torch."""
        windows = (input, self.filter, self.stride, self.padding)
        if self.kind == "max":
            return F.max_pool2d(*windows, self.dilation, self.ceil_mode)
        return F.avg_pool2d(*windows, self.ceil_mode, self.counts_padding, self.divisor)

    @property
    def asked(self) -> Any:
        """As csrc/front/link.h has it."""
        windows = (self.filter, self.stride, self.padding, self.dilation)
        return _front.Pooling(self.kind, *windows, self.ceil_mode, self.counts_padding, self.divisor or 0)  # type: ignore[union-attr]


class PlaneMeans(nn.Module):
    """Of images (batch, channels, height, width): (batch, channels), or (batch, channels, 1, 1)."""

    def __init__(self, keeps_planes: bool) -> None:
        super().__init__()
        self.keeps_planes = keeps_planes

    def forward(self, input: Tensor) -> Tensor:
        if _asks_front(input, "cpu", "cuda"):
            found: Tensor | None = _front.plane_means(input, self.keeps_planes)  # type: ignore[union-attr]
            if found is not None:
                return found
        means = F.adaptive_avg_pool2d(input, 1)
        return means if self.keeps_planes else means.flatten(1)


class FlatPixels(nn.Module):
    """Of images (batch, channels, height, width): (batch, all that is in one)."""

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(1)


class ChannelNorm(nn.Module):
    """Layer norm of the channels of each pixel of images (batch, channels, height, width)."""

    def __init__(self, weight: nn.Parameter | None, bias: nn.Parameter | None, eps: float) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = weight, bias, eps

    def forward(self, input: Tensor) -> Tensor:
        if _asks_front(input, "cpu"):
            own = (self.weight, self.bias, self.eps)
            found: Tensor | None = _front.channel_norm(input, *own)  # type: ignore[union-attr]
            if found is not None:
                return found
        normed = F.layer_norm(input.permute(0, 2, 3, 1), input.shape[1:2], self.weight, self.bias, self.eps)
        return normed.permute(0, 3, 1, 2)


class PooledPlanes(nn.Module):
    """Of images (batch, channels, height, width): the greatest values of windows, or their averages."""

    def __init__(self, pooling: Pooling) -> None:
        super().__init__()
        self.pooling = pooling

    def forward(self, input: Tensor) -> Tensor:
        if _asks_front(input, "cpu", "cuda"):
            found: Tensor | None = _front.pooled(input, self.pooling.asked)  # type: ignore[union-attr]
            if found is not None:
                return found
        return self.pooling(input)

    def extra_repr(self) -> str:
        return str(self.pooling)


class MovedChannels(nn.Module):
    """Of one or two images (batch, channels, height, width) that differ in their channels alone: channels in
    this order, counted from the first one's on to the second's."""

    def __init__(self, order: Sequence[int]) -> None:
        super().__init__()
        self.order = [*order]

    def forward(self, first: Tensor, second: Tensor | None = None) -> Tensor:
        if _asks_front(first, "cpu"):
            found: Tensor | None = _front.moved_channels(first, second, self.order)  # type: ignore[union-attr]
            if found is not None:
                return found
        both = first if second is None else torch.cat([first, second], 1)
        if self.order == [*range(both.shape[1])]:
            return both if second is not None else first.clone()
        moved = both.index_select(1, torch.tensor(self.order, device=first.device))
        layout = torch.channels_last if is_channels_last(first) else torch.contiguous_format
        return moved.contiguous(memory_format=layout)


def _asks_front(input: Tensor, *devices: str) -> bool:
    """Which then says whether it takes such tensors."""
    return _front is not None and input.device.type in devices and not torch.compiler.is_compiling()


def _parameters(weight: Tensor, bias: Tensor | None, norm: Norm[Tensor]) -> tuple[nn.Parameter, nn.Parameter]:
    """With the norm folded in, in the weight's dtype and layout."""
    scaled, shift = folded(weight, bias, norm)
    made = torch.empty_like(weight).copy_(scaled), shift.to(weight.dtype)
    return nn.Parameter(made[0], requires_grad=False), nn.Parameter(made[1], requires_grad=False)
