"""Batch norms of volumes go into the filters of Conv3d."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from optimized import Model, distance
from torch import Tensor, fx, nn

from convx.optimize.graph import trace
from convx.optimize.inputs import Inputs
from convx.optimize.volumes import fold_volumes


def volumes() -> Tensor:
    return torch.randn(2, 6, 4, 5, 7)


def norm(channels: int) -> nn.BatchNorm3d:
    made = nn.BatchNorm3d(channels)
    with torch.no_grad():
        for values in (made.running_mean, made.weight, made.bias):
            values.normal_()  # type: ignore[union-attr]
        made.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    return made


def followed(model: nn.Module, x: Tensor) -> tuple[fx.GraphModule, dict[str, tuple[str, ...]]]:
    module = trace(copy.deepcopy(model).eval(), Inputs(model, (x,), {}), [x])
    return module, fold_volumes(module)


def norms(module: nn.Module) -> int:
    return sum(isinstance(each, nn.BatchNorm3d) for each in module.modules())


CONVOLUTIONS: dict[str, Callable[[], nn.Conv3d]] = {
    "without bias": lambda: nn.Conv3d(6, 8, 3, padding=1, bias=False),
    "strided": lambda: nn.Conv3d(6, 8, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1)),
    "depthwise": lambda: nn.Conv3d(6, 12, 3, padding=2, dilation=2, groups=6),
    "reflected": lambda: nn.Conv3d(6, 8, 3, padding=1, padding_mode="reflect"),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@torch.no_grad()
def test_norms_are_folded(name: str) -> None:
    convolution = CONVOLUTIONS[name]()
    model = nn.Sequential(convolution, norm(convolution.out_channels), nn.ReLU(inplace=True)).eval()
    module, fused = followed(model, x := volumes())
    assert fused == {"0": ("batch norm",)} and norms(module) == 0 and norms(model) == 1
    exact = copy.deepcopy(model).double()(x.double())
    assert distance(module(x), exact) <= 2 * distance(model(x), exact) + 1e-6
    assert module(x).dtype == torch.float32


@torch.no_grad()
def test_a_layer_that_is_called_twice_stays_for_the_other_call() -> None:
    def run(own: Any, x: Tensor) -> Tensor:
        return own.norm(own.convolution(x)) + own.convolution(x).relu()  # type: ignore[no-any-return]

    model = Model(run, convolution=nn.Conv3d(6, 6, 1), norm=norm(6)).eval()
    module, fused = followed(model, x := volumes())
    assert list(fused) == ["convolution_0"] and norms(module) == 0
    assert distance(module(x), model(x)) < 1e-6


def read_twice(own: Any, x: Tensor) -> Tensor:
    y = own.convolution(x)
    return own.norm(y) + y  # type: ignore[no-any-return]


def before(own: Any, x: Tensor) -> Tensor:
    return own.convolution(own.norm(x))  # type: ignore[no-any-return]


def behind_an_activation(own: Any, x: Tensor) -> Tensor:
    return own.norm(own.convolution(x).relu())  # type: ignore[no-any-return]


@pytest.mark.parametrize("run", [read_twice, before, behind_an_activation])
@torch.no_grad()
def test_others_are_left(run: Any) -> None:
    model = Model(run, convolution=nn.Conv3d(6, 6, 1), norm=norm(6)).eval()
    module, fused = followed(model, x := volumes())
    assert not fused and norms(module) == 1
    assert distance(module(x), model(x)) < 1e-6


def test_batches_own_statistics_are_left() -> None:
    model = nn.Sequential(nn.Conv3d(6, 6, 1), nn.BatchNorm3d(6, track_running_stats=False)).eval()
    assert not followed(model, volumes())[1]
