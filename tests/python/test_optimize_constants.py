"""Convolutions that are functions of weights that stay: convx.optimize makes layers of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch.nn.functional as F
from optimized import Model, fused, fused_is_the_fastest, image, optimized_agrees
from torch import Tensor, nn

__all__ = ["fused_is_the_fastest"]


class Padded(nn.Conv2d):
    """As TensorFlow pads."""

    def forward(self, x: Tensor) -> Tensor:
        missing = [max((-(-x.shape[place] // 2) - 1) * 2 + 3 - x.shape[place], 0) for place in (3, 2)]
        x = F.pad(x, [missing[0] // 2, missing[0] - missing[0] // 2, missing[1] // 2, (missing[1] + 1) // 2])
        return F.conv2d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class Standardized(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        flat = self.weight.reshape(1, self.out_channels, -1)
        weight = F.batch_norm(flat, None, None, training=True, momentum=0.0).reshape_as(self.weight)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Named(nn.Conv2d):
    """Nothing else than its name."""


@pytest.mark.parametrize(
    "conv",
    [
        lambda: Padded(12, 8, 3, stride=2),
        lambda: Standardized(12, 8, 3, padding=1, bias=False),
        lambda: Named(12, 8, 3, groups=4, padding="same", dilation=2),
        lambda: Named(12, 8, (1, 3), stride=(2, 1)),
    ],
)
def test_subclasses_are_fused(conv: Callable[[], nn.Module], device: str) -> None:
    model = nn.Sequential(conv(), nn.BatchNorm2d(8), nn.ReLU()).to(device)
    optimized = optimized_agrees(model, image(device))
    assert fused(optimized) == [("batch norm", "relu")]
    assert optimized.report is not None and [row.name for row in optimized.report.rows] == ["0"]


class Uncast(nn.Linear):
    """As timm's: by the function."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, bias=self.bias)


@pytest.mark.parametrize("bias", [True, False])
def test_linear_layers_are_layers(bias: bool, device: str) -> None:
    model = Model(lambda own, x: own.linear(x.mean((2, 3))), linear=Uncast(12, 5, bias)).to(device)
    optimized = optimized_agrees(model, image(device))
    (linear,) = (each for each in optimized.network.modules() if isinstance(each, (nn.Linear, nn.Conv2d)))
    assert (linear.bias is not None) is bias
    assert not list(optimized.network.graph.find_nodes(op="get_attr"))  # type: ignore[union-attr, operator]


def test_a_linear_layer_of_weights_that_do_not_stay_is_left() -> None:
    model = Model(lambda own, x: F.linear(x, own.linear.weight * x.mean()), linear=Uncast(13, 5))
    optimized = optimized_agrees(model, image())
    assert not any(type(each) is nn.Linear for each in optimized.network.modules())


def test_a_layer_that_is_called_twice_has_two_names() -> None:
    conv = Named(12, 12, 3, padding=1)
    model = Model(lambda own, x: own.conv(own.conv(x).relu()), conv=conv)
    optimized = optimized_agrees(model, image())
    assert sorted(fused(optimized)) == [(), ("relu",)]
    layers: Any = [optimized.network.get_submodule(row.name) for row in optimized.report.rows]  # type: ignore[union-attr]
    assert layers[0].weight is layers[1].weight


@pytest.mark.parametrize(
    "weight",
    [
        lambda model, x: model.conv.weight * x.mean(),
        lambda model, x: F.dropout(model.conv.weight, 0.0, training=True),
    ],
)
def test_weights_that_do_not_stay_are_left(weight: Callable[..., Tensor]) -> None:
    model = Model(lambda own, x: F.conv2d(x, weight(own, x)).relu(), conv=nn.Conv2d(12, 8, 3)).eval()
    optimized = optimized_agrees(model, image())
    assert fused(optimized) == []
    assert optimized.network.graph.find_nodes(op="call_function", target=F.conv2d)  # type: ignore[union-attr,operator]
