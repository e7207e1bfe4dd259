"""Layers whose filters are kept packed, and what they give."""

from __future__ import annotations

import torch
from torch import Tensor

import convx

CHANNELS, FILTERS = 24, 40


def packed_layer(device: str = "cpu") -> convx.nn.Conv2d:
    torch.manual_seed(0)
    return convx.nn.Conv2d(CHANNELS, FILTERS, 3, padding=1, algorithm="hntmp", device=device).eval()


def in_another_order() -> convx.nn.Conv2d:
    """Of a method that reads torch's own order, with a weight that lies in memory as other frameworks' do."""
    torch.manual_seed(0)
    layer = convx.nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, algorithm="depthwise").eval()
    layer.weight = torch.nn.Parameter(torch.randn(3, 3, 1, CHANNELS).permute(3, 2, 0, 1))
    return layer


def packed_input() -> Tensor:
    return torch.randn(2, CHANNELS, 9, 11)


def expected_of(layer: torch.nn.Conv2d, x: Tensor) -> Tensor:
    return torch.nn.functional.conv2d(x, layer.weight, layer.bias, padding=1, groups=layer.groups)


def assert_right(layer: convx.nn.Conv2d, x: Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(layer(x), expected_of(layer, x), rtol=1e-4, atol=1e-4)


def add_in_place(layer: convx.nn.Conv2d) -> None:
    with torch.no_grad():
        layer.weight.add_(1)
