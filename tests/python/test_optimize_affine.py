"""Frozen batch norms as batch norms, and graphs that run node by node."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from optimized import Model, distance, image
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from convx.optimize.affine import take_affine
from convx.optimize.constants import fold_factors
from convx.optimize.fuse import fuse
from convx.optimize.graph import trace
from convx.optimize.inputs import Inputs
from convx.optimize.shapes import Shapes, Steps


class Frozen(nn.Module):
    """As torchvision's."""

    def __init__(self, channels: int = 12) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(channels))
        self.register_buffer("bias", torch.randn(channels))
        self.register_buffer("mean", torch.randn(channels))
        self.register_buffer("variance", torch.rand(channels) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        every = (self.weight, self.bias, self.mean, self.variance)
        weight, bias, mean, variance = (each.reshape(1, -1, 1, 1) for each in every)
        scale = weight * (variance + 1e-5).rsqrt()
        return x * scale + (bias - mean * scale)


def followed(model: nn.Module, x: Tensor) -> fx.GraphModule:
    module = trace(copy.deepcopy(model).eval(), Inputs(model, (x,), {}), [x])
    fold_factors(module)
    Shapes(module).propagate(x)
    take_affine(module)
    return module


def norms(module: fx.GraphModule) -> int:
    return len(module.graph.find_nodes(op="call_function", target=F.batch_norm))


def test_a_frozen_norm_goes_into_the_convolution() -> None:
    model = nn.Sequential(nn.Conv2d(12, 12, 3, padding=1), Frozen(), nn.ReLU())
    module = followed(model, x := image())
    assert norms(module) == 1
    assert list(fuse(module).values()) == [("batch norm", "relu")] and norms(module) == 0
    with torch.no_grad():
        assert distance(module(x), model(x)) < 1e-6


def test_one_that_is_behind_no_convolution_does_what_it_did() -> None:
    model = nn.Sequential(nn.Softplus(), Frozen())
    module = followed(model, image())
    assert norms(module) == 1
    for x in (image(), image()[:1, ..., :5]):
        assert distance(module(x), model(x)) < 1e-6


def of_images(own: Any, x: Tensor) -> Tensor:
    return own.norm(x) * x + own.norm.bias.reshape(1, -1, 1, 1)  # type: ignore[no-any-return]


def broadcast(own: Any, x: Tensor) -> Tensor:
    return own.norm(x[:, :1])  # type: ignore[no-any-return]


def in_place(own: Any, x: Tensor) -> Tensor:
    y = x * own.norm.weight.reshape(1, -1, 1, 1)
    z = y.flatten()
    y.add_(own.norm.bias.reshape(1, -1, 1, 1))
    return z + y.flatten()


def read_twice(own: Any, x: Tensor) -> Tensor:
    y = x * own.norm.weight.reshape(1, -1, 1, 1)
    return (y + own.norm.bias.reshape(1, -1, 1, 1)) * y


def of_another_dtype(own: Any, x: Tensor) -> Tensor:
    return own.norm(x.half())  # type: ignore[no-any-return]


OTHERS: dict[str, tuple[Callable[..., Any], int]] = {
    "by images": (of_images, 1),
    "broadcast": (broadcast, 0),
    "in place": (in_place, 0),
    "read twice": (read_twice, 0),
    "another dtype": (of_another_dtype, 0),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_frozen_norm_is_left(name: str) -> None:
    run, count = OTHERS[name]
    model = Model(run, norm=Frozen())
    module = followed(model, x := image())
    assert norms(module) == count
    assert distance(module(x), model(x)) < 1e-6 and module(x).dtype == model(x).dtype


def shrink(sizes: list[int]) -> list[int]:
    """Writes to what it is given."""
    sizes[0] -= 1
    return sizes


fx.wrap("shrink")


def test_functions_may_write_to_their_lists() -> None:
    def run(_: Any, x: Tensor) -> Tensor:
        width = shrink([x.shape[-1], 2])[0]
        return x[..., :width]

    traced = fx.symbolic_trace(Model(run))
    with pytest.raises(RuntimeError, match="ShapeProp error"):
        ShapeProp(traced).propagate(image())
    Shapes(traced).propagate(image())
    (result,) = traced.graph.find_nodes(op="output")
    assert result.args[0].meta["tensor_meta"].shape == image()[..., :-1].shape
    assert torch.equal(Steps(traced).run(x := image()), x[..., :-1])
    assert torch.equal(traced(x), x[..., :-1])
