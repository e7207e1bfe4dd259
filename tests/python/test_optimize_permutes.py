"""Linear layers and norms of images with their channels last, as ConvNeXt has them: 1x1 convolutions and
links of chains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from optimized import LAYOUTS, Model, distance, fused, fused_is_the_fastest, image, optimized_agrees
from torch import Tensor, nn

import convx
from convx import _libraries
from convx._libraries import front_problem
from convx.optimize.layers import ChannelNorm

__all__ = ["fused_is_the_fastest"]
_front: Any = _libraries.front()
without_front = pytest.mark.skipif(bool(front_problem()), reason=f"no convx._front: {front_problem()}")


def convnext(model: Any, x: Tensor) -> Tensor:
    y = torch.permute(model.filter(x), [0, 2, 3, 1])
    y = model.narrow(F.gelu(model.wide(model.norm(y)))).permute(0, 3, 1, 2)
    return model.scale * y + x  # type: ignore[no-any-return]


def between(model: Any, x: Tensor) -> Tensor:
    """Something else reads what has its channels last."""
    y = model.wide(model.norm(model.filter(x).permute(0, -2, -1, 1)))
    return model.narrow(y).permute((0, 3, 1, 2)) + y.mean((1, 2)).sum(1)[:, None, None, None]  # type: ignore[no-any-return]


def twice(model: Any, x: Tensor) -> Tensor:
    y = model.square(model.square(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
    return model.filter(y)  # type: ignore[no-any-return]


def stem(model: Any, x: Tensor) -> Tensor:
    """As torchvision's LayerNorm2d."""
    y = model.filter(x).permute(0, 2, 3, 1)
    y = F.layer_norm(y, model.norm.normalized_shape, weight=model.weight, bias=model.bias, eps=1e-6)
    return model.filter(y.permute(0, 3, 1, 2))  # type: ignore[no-any-return]


# What is done, what is fused into each convolution, and how many norms there are.
TAKEN: dict[str, tuple[Callable[[Any, Tensor], Tensor], list[tuple[str, ...]], int]] = {
    "block": (convnext, [(), ("gelu",), ("scale", "residual")], 1),
    "something between": (between, [(), (), ()], 1),
    "layer called twice": (twice, [(), (), ()], 0),
    "norm": (stem, [()], 1),  # two calls of one layer
    "norm without parameters": (
        lambda model, x: model.filter(F.layer_norm(x.permute(0, 2, 3, 1), [12]).permute(0, 3, 1, 2)),
        [()],
        1,
    ),
    "dropout and activation": (
        lambda model, x: model.drop(F.relu(model.square(x.permute(0, 2, 3, 1)))).permute(0, 3, 1, 2),
        [("relu",)],
        0,
    ),
    "scale": (lambda model, x: model.filter(x) * model.scale[None], [("scale",)], 0),
    "scale that is computed": (
        lambda model, x: model.filter(x).mul(model.weight.reshape(1, -1, 1, 1)),
        [("scale",)],
        0,
    ),
    "scale that two read": (
        lambda model, x: (scale := model.weight.reshape(1, -1, 1, 1)) * model.filter(scale * x),
        [("scale",)],
        0,
    ),
    "product of two that are computed": (
        lambda model, x: model.filter(x) * (model.scale.exp() * model.scale.sin()),
        [("scale",)],
        0,
    ),
    "scale of channels last": (
        lambda model, x: (model.weight * model.square(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2) + x,
        [("scale", "residual")],
        0,
    ),
    "scale first": (lambda model, x: F.relu(model.scale * model.filter(x)), [("scale", "relu")], 0),
}
LEFT: dict[str, tuple[Callable[[Any, Tensor], Tensor], int]] = {  # and the convolutions there are
    "other order": (lambda model, x: model.square(x.permute(0, 3, 2, 1)[..., :12]), 0),
    "norm of a plane": (
        lambda model, x: model.filter(
            F.layer_norm(x.permute(0, 2, 3, 1), (*x.shape[2:], 12)).permute(0, 3, 1, 2)
        ),
        1,
    ),
    "norm alone": (lambda model, x: model.norm(model.filter(x).permute(0, 2, 3, 1)), 1),
    "written to": (lambda model, x: model.square(x.permute(0, 2, 3, 1).relu_()).permute(0, 3, 1, 2), 0),
    "factor of each pixel": (lambda model, x: model.filter(x) * model.pixels, 1),
    "factor of all": (lambda model, x: model.filter(x) * model.one, 1),
    "product of parameters": (
        lambda model, x: model.filter(x) * (model.scale[None] * model.wide_scale).sum(),
        1,
    ),
    "matrix": (lambda model, x: model.filter(x) + model.square(x.mean((2, 3)))[..., None, None], 1),
}


def _model(run: Callable[[Any, Tensor], Tensor]) -> Model:
    torch.manual_seed(0)
    layers: dict[str, nn.Module] = {
        "filter": nn.Conv2d(12, 12, 3, padding=1, groups=12),
        "norm": nn.LayerNorm(12, eps=1e-6),
        "wide": nn.Linear(12, 40),
        "narrow": nn.Linear(40, 12, bias=False),
        "square": nn.Linear(12, 12),
        "drop": nn.Dropout(),
    }
    model = Model(run, **layers)
    sizes = {
        "scale": (12, 1, 1),
        "wide_scale": (1, 1, 1, 1),
        "weight": (12,),
        "bias": (12,),
        "pixels": (11, 13),
        "one": (1,),
    }
    for name, size in sizes.items():
        model.register_parameter(name, nn.Parameter(torch.randn(size)))
    return model.eval()


def _norms(optimized: convx.OptimizedModel) -> int:
    return sum(isinstance(each, ChannelNorm) for each in optimized.network.modules())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", TAKEN)
def test_what_is_of_images(name: str, layout: str, device: str) -> None:
    run, expected, norms = TAKEN[name]
    model, x = _model(run).to(device), image(device, layout=layout)
    optimized = optimized_agrees(model, x)
    assert sorted(fused(optimized)) == sorted(expected) and _norms(optimized) == norms
    kinds = {type(each) for each in optimized.network.modules()}
    assert kinds.isdisjoint({nn.Linear, nn.LayerNorm})
    exported = torch.export.export(optimized, (x,)).module()
    torch.testing.assert_close(exported(x), optimized(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left(name: str) -> None:
    run, convolutions = LEFT[name]
    optimized = optimized_agrees(_model(run), image())
    assert fused(optimized) == [()] * convolutions and _norms(optimized) == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes(dtype: torch.dtype, device: str) -> None:
    run, expected, _ = TAKEN["block"]
    optimized = optimized_agrees(_model(run).to(device, dtype), image(device, dtype))
    assert fused(optimized) == expected


@without_front
def test_the_whole_block_is_one_chain() -> None:
    x = image(layout="channels_last")
    optimized = optimized_agrees(_model(convnext), x, layout="as given")
    for layer in optimized.network.modules():
        if isinstance(layer, convx.nn.Conv2d):
            layer.algorithm = "depthwise" if layer.groups > 1 else "hntmp"
    optimized.programs.forget()
    with torch.no_grad():
        before = optimized(x)
        (step,) = next(reversed(optimized.programs._programs.values())).steps
        assert len(step.layers) == 4
        assert torch.equal(optimized(x), before)
        (norm,) = (each for each in optimized.network.modules() if isinstance(each, ChannelNorm))
        norm.weight.mul_(2)  # type: ignore[union-attr]
        assert not torch.allclose(optimized(x), before)


def test_hooks_see_their_module() -> None:
    model, seen = _model(convnext), []
    model.wide.register_forward_hook(lambda *_: seen.append(1))  # type: ignore[union-attr, operator]
    optimized = convx.optimize(model, image())
    seen.clear()
    optimized(image())
    assert seen == [1]


def test_gradients() -> None:
    x = image()
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    for model, each in zip((convx.optimize(_model(convnext), x), _model(convnext)), inputs, strict=True):
        model(each).square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-3, atol=1e-3)


@without_front
@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 3), st.integers(2, 200), st.integers(1, 9), st.integers(1, 9)),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 3.0, 1e4]),
)
def test_norms_by_the_chain(size: tuple[int, ...], weighs: bool, adds: bool, center: float) -> None:
    x = (torch.randn(size) + center).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(size[1]) if weighs else None
    bias = torch.randn(size[1]) if adds else None
    chain = _front.Chain([_front.norm_link(x, weight, bias, 1e-5)], [(0, -1)], 1, [1], False)
    (result,) = chain.run([x], torch.empty(chain.bytes, dtype=torch.uint8))
    assert torch.equal(result, _front.channel_norm(x, weight, bias, 1e-5))
    parameters = [None if each is None else each.double() for each in (weight, bias)]
    rows = x.permute(0, 2, 3, 1)
    exact = F.layer_norm(rows.double(), size[1:2], *parameters, 1e-5).permute(0, 3, 1, 2)
    own = distance(F.layer_norm(rows, size[1:2], weight, bias, 1e-5).permute(0, 3, 1, 2), exact)
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert distance(result, exact) <= 2 * own + 8 * torch.finfo(torch.float32).eps


@without_front
def test_norms_of_special_values() -> None:
    x = image(layout="channels_last")
    x[0, 3, 1, 2], x[1, 0, 0, 0] = float("nan"), float("inf")
    result = _front.channel_norm(x, None, None, 1e-5)
    bad = result.isnan().any(1).nonzero().tolist()
    assert bad == [[0, 1, 2], [1, 0, 0]]


@without_front
def test_norms_that_torch_has_to_do() -> None:
    x = image(layout="channels_last")
    weight = torch.ones(12)
    for given_ in (x.double(), x[0], x[:, :, :, 1:], x[:0], x.contiguous()):
        assert _front.channel_norm(given_, None, None, 1e-5) is None
    for other in (weight.double(), weight[:6], torch.ones(24)[::2], weight.clone().requires_grad_()):
        assert _front.channel_norm(x, other, None, 1e-5) is None
        assert _front.channel_norm(x, None, other, 1e-5) is None
