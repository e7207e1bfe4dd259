"""Every kind of fusion, in every dtype and layout, against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from optimized import LAYOUTS, Model, block, fused, fused_is_the_fastest, image, optimized_agrees
from torch import Tensor, nn

__all__ = ["fused_is_the_fastest"]

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
DONE = ("batch norm", "relu")
Run = Callable[[Any, Tensor], Tensor]


def _standardized(own: Any, x: Tensor) -> Tensor:
    weight = own.conv.weight
    mean, deviation = weight.mean((1, 2, 3), keepdim=True), weight.std((1, 2, 3), keepdim=True)
    return own.norm(F.conv2d(x, (weight - mean) / (deviation + 1e-3), padding=1)).relu()  # type: ignore[no-any-return]


def _excited(own: Any, x: Tensor) -> Tensor:
    y = own.first(x)
    gates = own.grow(F.relu(own.squeeze(y.mean((2, 3), keepdim=True))))
    return own.last(y * torch.sigmoid(gates))  # type: ignore[no-any-return]


def _over_channels(own: Any, x: Tensor) -> Tensor:
    return x + own.linear(own.first(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)  # type: ignore[no-any-return]


def _unpadded() -> nn.Sequential:
    made = block()
    made[0] = nn.Conv2d(12, 12, 3, bias=False)
    return made


# What is done with which layers, and what is fused into each convolution then.
FUSIONS: dict[str, tuple[Run, Callable[[], dict[str, nn.Module]], list[tuple[str, ...]]]] = {
    "norm and activation": (lambda own, x: own.first(x), lambda: {"first": block()}, [DONE]),
    "skip before": (
        lambda own, x: F.relu(x + own.norm(own.conv(x))),
        lambda: {"conv": nn.Conv2d(12, 12, 3, padding=1), "norm": nn.BatchNorm2d(12)},
        [("batch norm", "residual", "relu")],
    ),
    "skip after": (
        lambda own, x: x + own.first(x),
        lambda: {"first": block()},
        [(*DONE, "residual")],
    ),
    "zeros around": (
        lambda own, x: own.first(F.pad(x, (0, 1, 2, 3))),
        lambda: {"first": _unpadded()},
        [DONE],
    ),
    "max pooling": (
        lambda own, x: own.two(F.max_pool2d(own.one(x), 3, 2, 1)),
        lambda: {"one": block(), "two": block()},
        [DONE, DONE],
    ),
    "mean of planes": (
        lambda own, x: own.linear(own.first(x).mean((2, 3))),
        lambda: {"first": block(), "linear": nn.Linear(12, 24)},
        [DONE],
    ),
    "sum of convolutions": (
        lambda own, x: F.relu(own.one(own.wide(x)) + own.two(own.narrow(x))),
        lambda: {
            **{"wide": nn.Conv2d(12, 12, 3, padding=1, bias=False), "narrow": nn.Conv2d(12, 12, 1)},
            **{"one": nn.BatchNorm2d(12), "two": nn.BatchNorm2d(12)},
        },
        [("parallel layers", "relu")],
    ),
    "weights that are standardized": (
        _standardized,
        lambda: {"conv": nn.Conv2d(12, 12, 3, padding=1, bias=False), "norm": nn.BatchNorm2d(12)},
        [DONE],
    ),
    "squeeze and excitation": (
        _excited,
        lambda: {
            **{"first": block(), "last": block()},
            **{"squeeze": nn.Conv2d(12, 4, 1), "grow": nn.Conv2d(4, 12, 1)},
        },
        [],
    ),
    "linear layer over channels": (
        _over_channels,
        lambda: {"first": block(), "linear": nn.Linear(12, 12)},
        [DONE, ("residual",)],
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUSIONS)
def test_every_fusion(name: str, dtype: torch.dtype, layout: str, device: str) -> None:
    run, layers, expected = FUSIONS[name]
    torch.manual_seed(0)
    model = Model(run, **layers()).to(device, dtype)
    optimized = optimized_agrees(model, image(device, dtype, layout))
    assert optimized.report is not None and not optimized.report.reason
    done = [names for names in fused(optimized) if names]  # on GPUs a linear layer may be a convolution, too
    assert expected in ([], done), done
