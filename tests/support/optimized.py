"""Small models for convx.optimize, and what is to be said of an optimized one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import convx
from convx.optimize import optimizing

LAYOUTS = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.ReLU(inplace=True),
    "relu6": lambda: nn.ReLU6(inplace=True),
    "silu": lambda: nn.SiLU(),
    "hardswish": lambda: nn.Hardswish(inplace=True),
    "gelu": lambda: nn.GELU(),
}

WEIGHT_CHANGES: dict[str, Callable[[Any], object]] = {
    "written to": lambda layer: layer.weight.mul_(2),
    "other memory": lambda layer: setattr(layer.weight, "data", layer.weight * 2),
    "another tensor": lambda layer: setattr(layer, "weight", nn.Parameter(layer.weight * 2)),
    "of inference mode": lambda layer: setattr(layer, "weight", _doubled(layer.weight)),
    "to have a gradient": lambda layer: layer.weight.mul_(2).requires_grad_(True),
    "no bias": lambda layer: setattr(layer, "bias", None),
}


def _doubled(weight: Tensor) -> nn.Parameter:
    with torch.inference_mode():
        return nn.Parameter(weight * 2, requires_grad=False)


@pytest.fixture(autouse=True)
def fused_is_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of small layers take as long as chance has it, and float32 is exact."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(optimizing, "_times", times_by_order)
    monkeypatch.setattr(optimizing, "choose", lambda *_: ())
    monkeypatch.setattr(optimizing, "gc", SimpleNamespace(collect=lambda: 0))  # half of a small model's time


def times_by_order(calls: dict[str, Any], *_: Any) -> dict[str, float]:
    own, first, *others = calls
    for call in calls.values():
        call()
    return {own: 2.0, first: 1.0, **dict.fromkeys(others, 3.0)}


def block(channels: int = 12, groups: int = 1, activation: str = "relu", bias: bool = False) -> nn.Sequential:
    """Convolution, batch norm with statistics of its own, activation."""
    norm = nn.BatchNorm2d(channels)
    with torch.no_grad():
        for values in (norm.running_mean, norm.bias):
            assert values is not None
            values.normal_()
        assert norm.running_var is not None
        norm.running_var.uniform_(0.5, 2)
        norm.weight.uniform_(-1, 2)
    conv = nn.Conv2d(channels, channels, 3, padding=1, groups=groups, bias=bias)
    return nn.Sequential(conv, norm, ACTIVATIONS[activation]())


class Model(nn.Module):
    """Layers by name, and what is done with them."""

    def __init__(self, run: Callable[[Any, Tensor], Any], **layers: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


def image(
    device: str = "cpu", dtype: torch.dtype = torch.float32, layout: str = "nchw", batch: int = 2
) -> Tensor:
    x = torch.randn(batch, 12, 11, 13)
    return x.to(device, dtype).contiguous(memory_format=LAYOUTS[layout])


def distance(result: Tensor, exact: Tensor) -> float:
    return float((result.detach().double() - exact.detach().double()).norm() / exact.detach().double().norm())


def optimized_agrees(model: nn.Module, x: Tensor, **options: Any) -> convx.OptimizedModel:
    """The optimized model, whose results are as near to float64 as the model's, and the model as before."""
    model.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimized = convx.optimize(model, x, **options)
    for given in (x, x[:1], torch.cat([x, x + 1])):
        # Of float64 on the CPU: on GPUs torch's own hardswish is exact to float32 there.
        where = "cpu" if given.dtype == torch.float64 else given.device
        exact = copy.deepcopy(model).to(where, torch.float64)(given.to(where, torch.float64)).to(given.device)
        own, reached = model(given.clone()), optimized(given.clone())
        assert reached.shape == own.shape and reached.dtype == own.dtype
        allowed = 2 * distance(own, exact) + 4 * torch.finfo(x.dtype).eps
        assert distance(reached, exact) <= allowed
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    return optimized


def fused(optimized: convx.OptimizedModel) -> list[tuple[str, ...]]:
    assert optimized.report is not None
    return [row.fused for row in optimized.report.rows]
