"""Zeros that a model puts around images: convx.optimize gives them to the convolution behind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch.nn.functional as F
from optimized import Model, block, distance, fused, fused_is_the_fastest, image, optimized_agrees
from torch import Tensor, nn

import convx

__all__ = ["fused_is_the_fastest"]


def padding_of(optimized: convx.OptimizedModel) -> Any:
    layers = [each for each in optimized.network.modules() if isinstance(each, nn.Conv2d)]
    return layers[0].padding


@pytest.mark.parametrize("groups", [1, 12])
@pytest.mark.parametrize(
    ("pad", "conv", "expected"),
    [
        (lambda x: F.pad(x, (0, 1, 2, 3)), nn.Conv2d(12, 12, 3), ((2, 3), (0, 1))),
        (lambda x: F.pad(x, [1, 2], "constant", 0.0), nn.Conv2d(12, 12, 3, stride=2), ((0, 0), (1, 2))),
        (lambda x: F.pad(x, (0, 1, 0, 1)), nn.Conv2d(12, 12, 3, padding=1), ((1, 2), (1, 2))),
        (lambda x: F.pad(x, (0, 1, 0, 1)), nn.Conv2d(12, 12, 3, padding="same"), ((1, 2), (1, 2))),
        (nn.ZeroPad2d((1, 0, 1, 0)), nn.Conv2d(12, 12, 3), ((1, 0), (1, 0))),
        (nn.ConstantPad2d(1, 0.0), nn.Conv2d(12, 12, 3), ((1, 1), (1, 1))),
        (lambda x: F.pad(x, (0, 0, 0, 0)), nn.Conv2d(12, 12, 1), ((0, 0), (0, 0))),
    ],
)
def test_zeros_are_the_convolutions(
    pad: Callable[[Tensor], Tensor], conv: nn.Conv2d, expected: Any, groups: int, device: str
) -> None:
    conv = nn.Conv2d(12, 12, conv.kernel_size, conv.stride, conv.padding, groups=groups)  # type: ignore[arg-type]
    layers = {"pad": pad} if isinstance(pad, nn.Module) else {}

    def run(own: Any, x: Tensor) -> Tensor:
        return own.norm(own.conv((own.pad if layers else pad)(x))).relu()  # type: ignore[no-any-return]

    model = Model(run, conv=conv, norm=nn.BatchNorm2d(12), **layers)
    optimized = optimized_agrees(model.to(device), image(device))
    assert fused(optimized) == [("batch norm", "relu")] and padding_of(optimized) == expected


@pytest.mark.parametrize(
    "run",
    [
        lambda own, x: own.first(F.pad(x, (1, 1, 1, 1), "reflect")),
        lambda own, x: own.first(F.pad(x, (1, 1, 1, 1), value=1.0)),
        lambda own, x: own.first(F.pad(x, (-1, 1, 1, 1))),
        lambda own, x: own.first(F.pad(x, (0, x.shape[2] % 2, 1, 1)) * 2),
    ],
)
def test_other_pads_are_left(run: Callable[..., Tensor]) -> None:
    optimized = optimized_agrees(Model(run, first=block()), image())
    assert fused(optimized) == [("batch norm", "relu")] and padding_of(optimized) == (1, 1)


def as_tensorflow(own: Any, x: Tensor) -> Tensor:
    """SAME for strides of 2."""
    height, width = x.size()[-2:]
    sides = [max((math.ceil(size / 2) - 1) * 2 + 3 - size, 0) for size in (width, height)]
    places = [place for side in sides for place in (side // 2, side - side // 2)]
    return own.first(F.pad(x, places))  # type: ignore[no-any-return]


def test_computed_pads_are_the_convolutions(device: str) -> None:
    first = block()
    first[0] = nn.Conv2d(12, 12, 3, stride=2, bias=False)
    model = Model(as_tensorflow, first=first).to(device).eval()
    optimized = optimized_agrees(model, image(device))
    assert fused(optimized) == [("batch norm", "relu")] and padding_of(optimized) == ((1, 1), (1, 1))
    assert optimized.conditions is not None
    x = image(device)
    for part in (x[:, :, 2:], x[:, :, 1:], x[..., :9], x[:, :, 1:, 1:]):  # of this padding, or of another one
        assert distance(optimized(part), model(part)) < 1e-4
    assert optimized.conditions.hold([x[:, :, 2:]]) and not optimized.conditions.hold([x[:, :, 1:]])


def test_a_pad_that_others_read_is_left() -> None:
    def run(own: Any, x: Tensor) -> Tensor:
        y = F.pad(x, (1, 1, 1, 1))
        return own.first(y) + y  # type: ignore[no-any-return]

    assert padding_of(optimized_agrees(Model(run, first=block()), image())) == (1, 1)


def test_a_layer_that_is_called_without_its_pad_too() -> None:
    conv = nn.Conv2d(12, 12, 3, padding=1)
    model = Model(
        lambda own, x: own.conv(x)[..., :4] + own.conv(F.pad(x, (0, 1, 0, 1)))[:, :, 1:, :4], conv=conv
    )
    optimized = optimized_agrees(model, image())
    layers = [each for each in optimized.network.modules() if isinstance(each, nn.Conv2d)]
    assert sorted(str(each.padding) for each in layers) == ["((1, 2), (1, 2))", "(1, 1)"]
