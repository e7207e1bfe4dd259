"""Pooling, means of planes and the classifier behind them, as optimized models have them: in the chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from optimized import LAYOUTS, Model, block, distance, fused_is_the_fastest, image, optimized_agrees
from torch import Tensor, nn

import convx
from convx import _libraries
from convx._libraries import front_problem
from convx.optimize.layers import PlaneMeans, PooledPlanes, Pooling

__all__ = ["fused_is_the_fastest"]
_front: Any = _libraries.front()
without_front = pytest.mark.skipif(bool(front_problem()), reason=f"no convx._front: {front_problem()}")

FLAT: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "pooled": lambda model, x: torch.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1),
    "pooled by a module": lambda model, x: model.flatten(model.pool(x)),
    "mean of a method": lambda model, x: x.mean([2, 3]),
    "mean of a function": lambda model, x: torch.mean(x, dim=(-1, -2)),
    "mean that keeps planes": lambda model, x: x.mean((2, 3), keepdim=True).flatten(1),
}
PLANES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "pooled": lambda model, x: F.adaptive_avg_pool2d(x, 1),
    "read twice": lambda model, x: (means := model.pool(x)) + means.flatten(1)[:, :, None, None],
    "flattened with the batch": lambda model, x: model.pool(x).flatten(0),
}
OTHERS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "four pixels": lambda model, x: F.adaptive_avg_pool2d(x, 2).flatten(1),
    "rows": lambda model, x: x.mean(2).flatten(1),
    "of channels": lambda model, x: x.mean((1, 2)),
    "no batch": lambda model, x: model.pool(x[0])[None],
}


def _model(means: Callable[[Any, Tensor], Tensor], **more: nn.Module) -> Model:
    torch.manual_seed(0)
    layers = {"one": block(), "pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), **more}
    return Model(lambda model, x: means(model, model.one(x)), **layers).eval()


def _means(optimized: convx.OptimizedModel) -> list[bool]:
    return [each.keeps_planes for each in optimized.network.modules() if isinstance(each, PlaneMeans)]


def _steps(optimized: convx.OptimizedModel) -> list[int]:
    """Of the latest program: how many layers each of its steps has."""
    program = next(reversed(optimized.programs._programs.values()))
    return [len(step.layers) or 1 for step in program.steps]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("means", "found"),
    [
        *((each, [False]) for each in FLAT.values()),
        *((each, [True]) for each in PLANES.values()),
        *((each, []) for each in OTHERS.values()),
    ],
    ids=[*FLAT, *PLANES, *OTHERS],
)
def test_what_is_a_mean_of_planes(means: Any, found: list[bool], layout: str, device: str) -> None:
    x = image(device, layout=layout)
    model = _model(means).to(device)
    optimized = convx.optimize(model, x, layout="as given")
    assert _means(optimized) == found
    expected = model(x)
    with torch.no_grad():
        first = optimized(x)  # which prepares those after it
    for _ in range(2):
        with torch.no_grad():
            reached = optimized(x)
        assert torch.equal(reached, first)
        assert reached.shape == expected.shape and reached.stride() == expected.stride()
        torch.testing.assert_close(reached, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype: torch.dtype, device: str) -> None:
    optimized_agrees(_model(FLAT["pooled"]).to(device, dtype), image(device, dtype))


def test_hooks_see_their_module() -> None:
    model, seen = _model(FLAT["pooled by a module"]), []
    model.pool.register_forward_hook(lambda *_: seen.append(1))  # type: ignore[union-attr, operator]
    optimized = convx.optimize(model, image())
    seen.clear()
    optimized(image())
    assert seen == [1] and _means(optimized) == []


@without_front
@pytest.mark.parametrize("by_image", [False, True])
def test_the_whole_network_is_one_chain(by_image: bool) -> None:
    model = _model(lambda model, x: model.linear(FLAT["pooled"](model, x)), linear=nn.Linear(12, 7))
    optimized = optimized_agrees(model, image(), layout="as given")
    for layer in optimized.network.modules():
        if isinstance(layer, convx.nn.Conv2d):
            layer.algorithm = "hntmp"
    optimized.programs.by_image = by_image
    optimized.programs.forget()
    x = image(batch=3)
    with torch.no_grad():
        before = optimized(x)
        assert _steps(optimized) == ([2, 1] if by_image else [3])
        torch.testing.assert_close(before, model(x), rtol=1e-4, atol=1e-5)
        optimized.network.linear.weight.mul_(2)  # type: ignore[union-attr, operator]
        optimized.network.linear.bias = None  # type: ignore[union-attr]
        after = optimized(x)
    bias = model.linear.bias  # type: ignore[union-attr]
    torch.testing.assert_close(after, 2 * (before - bias), rtol=1e-4, atol=1e-4)  # type: ignore[operator]


@without_front
@pytest.mark.parametrize("by_image", [False, True])
def test_pixels_that_are_flattened_are_in_the_chain(by_image: bool) -> None:
    """As where a convolution is behind the means."""

    def run(model: Any, x: Tensor) -> Tensor:
        return model.linear(model.head(F.adaptive_avg_pool2d(x, 1)).flatten(1))  # type: ignore[no-any-return]

    model = Model(run, head=nn.Conv2d(12, 20, 1), linear=nn.Linear(20, 7)).eval()
    optimized = optimized_agrees(model, image(), layout="as given")
    optimized.programs.by_image = by_image
    optimized.programs.forget()
    with torch.no_grad():
        for batch in (3, 1):
            x = image(batch=batch)
            for _ in range(2):
                torch.testing.assert_close(optimized(x), model(x), rtol=1e-4, atol=1e-5)
        assert _steps(optimized) == ([3, 1] if by_image else [4])


def test_pixels_are_flattened_for_sizes_that_have_more() -> None:
    model = Model(lambda own, x: own.conv(x).flatten(1), conv=nn.Conv2d(12, 4, (11, 13))).eval()
    optimized = optimized_agrees(model, image())
    x = torch.randn(2, 12, 12, 15)
    torch.testing.assert_close(optimized(x), model(x), rtol=1e-4, atol=1e-5)


def test_flattened_planes_that_others_see_are_views() -> None:
    def run(own: Any, x: Tensor) -> Tensor:
        y = own.conv(x)
        y.flatten(1).mul_(2)
        return y  # type: ignore[no-any-return]

    optimized_agrees(Model(run, conv=nn.Conv2d(12, 4, (11, 13))).eval(), image())


@without_front
def test_classifiers_that_learn() -> None:
    model = _model(lambda model, x: model.linear(FLAT["pooled"](model, x)), linear=nn.Linear(12, 7))
    optimized, x = convx.optimize(model, image()), image()
    optimized(x)
    linear: Any = optimized.network.linear
    linear.requires_grad_(True)
    optimized(x).sum().backward()
    assert linear.weight.grad is not None
    torch.testing.assert_close(linear.bias.grad, torch.full((7,), 2.0))


@without_front
@pytest.mark.parametrize("keeps_planes", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "size", [(1, 1280, 7, 7), (3, 33, 1, 1), (2, 31, 5, 13), (1, 1, 112, 112), (4, 96, 56, 1)], ids=str
)
def test_means_by_the_chain(size: tuple[int, ...], layout: str, keeps_planes: bool) -> None:
    x = (torch.randn(size) + 3).contiguous(memory_format=LAYOUTS[layout])
    link = _front.mean_link(x, keeps_planes)
    chain = _front.Chain([link], [(0, -1)], 1, [1], False)
    (result,) = chain.run([x], torch.empty(chain.bytes, dtype=torch.uint8))
    exact = x.double().mean((2, 3), keepdim=keeps_planes)
    assert result.shape == exact.shape
    own = distance(x.mean((2, 3), keepdim=keeps_planes), exact)
    assert distance(result, exact) <= 2 * own + 4 * torch.finfo(torch.float32).eps
    assert torch.equal(result, _front.plane_means(x, keeps_planes))
    x[0, 0, 0, 0] = float("nan")
    (result,) = chain.run([x], torch.empty(chain.bytes, dtype=torch.uint8))
    assert result.flatten()[0].isnan() and int(result.isnan().sum()) == 1


@pytest.mark.gpu
@without_front
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_means_on_a_gpu(layout: str, dtype: torch.dtype) -> None:
    """By convx's kernel where it takes them, else by torch."""
    sizes = [(1, 1280, 7, 7), (3, 40, 1, 1), (65, 136, 14, 13), (2, 24, 32, 32)]
    for size in [*sizes, (2, 33, 5, 5), (1, 16, 112, 112)]:
        x = (torch.randn(size, device="cuda") + 3).to(dtype).contiguous(memory_format=LAYOUTS[layout])
        made = _front.plane_means(x, False)
        assert (made is not None) or size not in sizes
        for keeps_planes in (False, True):
            exact = x.double().mean((2, 3), keepdim=keeps_planes)
            result = PlaneMeans(keeps_planes)(x)
            assert result.shape == exact.shape and result.dtype == dtype
            own = distance(x.mean((2, 3), keepdim=keeps_planes), exact)
            assert distance(result, exact) <= 2 * own + 4 * torch.finfo(torch.float32).eps
    begins_anywhere = torch.randn(2 * 64 * 49 + 1, device="cuda").to(dtype)[1:].view(2, 64, 7, 7)
    torch.testing.assert_close(PlaneMeans(False)(begins_anywhere), begins_anywhere.mean((2, 3)))
    x = torch.randn(2, 64, 7, 7, device="cuda", dtype=dtype, requires_grad=True)
    PlaneMeans(False)(x).sum().backward()
    assert x.grad is not None


@without_front
def test_means_that_torch_has_to_make() -> None:
    x = torch.randn(2, 12, 5, 6)
    for given in (x.double(), x[0], x[:, :, :, 1:], x[:0], x.to_mkldnn()):
        assert _front.mean_link(given, True) is None and _front.plane_means(given, True) is None
    assert _front.plane_means(x.requires_grad_(), True) is None
    x = x.detach()
    for given in (x, x[0, 0].t().contiguous().t()):
        assert _front.linear_link(given, torch.randn(7, 6), None) is None


POOLS: dict[str, tuple[Callable[[Any, Tensor], Tensor], Pooling]] = {
    "module": (lambda model, x: model.most(x), Pooling("max", (3, 3), (2, 2), (1, 1), ceil_mode=True)),
    "function": (lambda model, x: F.max_pool2d(x, 2), Pooling("max", (2, 2), (2, 2), (0, 0))),
    "all arguments": (
        lambda model, x: F.max_pool2d(x, (2, 3), [1, 2], padding=(1, 0), dilation=2, ceil_mode=True),
        Pooling("max", (2, 3), (1, 2), (1, 0), (2, 2), ceil_mode=True),
    ),
    "averages by a module": (
        lambda model, x: model.average(x),
        Pooling("average", (2, 2), (1, 1), (1, 1), counts_padding=False),
    ),
    "averages": (
        lambda model, x: F.avg_pool2d(x, 2, None, 0, True, True, 3),
        Pooling("average", (2, 2), (2, 2), (0, 0), ceil_mode=True, divisor=3),
    ),
}
NO_POOLS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "places of the values": lambda model, x: F.max_pool2d(x, 2, return_indices=True)[0],
    "sizes of the results": lambda model, x: F.adaptive_max_pool2d(x, 2),
    "no batch": lambda model, x: F.max_pool2d(x[0], 2)[None],
    "by the input": lambda model, x: F.max_pool2d(x, x.shape[3] // 3),
    "one dimension": lambda model, x: F.max_pool1d(x.flatten(2), 2)[..., None],
}


def _pooling_model(run: Callable[[Any, Tensor], Tensor]) -> Model:
    torch.manual_seed(0)
    layers = {
        "one": block(),
        "most": nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        "average": nn.AvgPool2d(2, 1, 1, count_include_pad=False),
        "two": block(),
    }
    return Model(lambda model, x: model.two(run(model, model.one(x))), **layers).eval()


def _pools(optimized: convx.OptimizedModel) -> list[Pooling]:
    return [each.pooling for each in optimized.network.modules() if isinstance(each, PooledPlanes)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", POOLS)
def test_what_is_a_pool(name: str, layout: str, device: str) -> None:
    run, pooling = POOLS[name]
    x = image(device, layout=layout)
    optimized = optimized_agrees(_pooling_model(run).to(device), x)
    assert _pools(optimized) == [pooling]
    if device == "cpu" and not front_problem():
        for layer in optimized.network.modules():
            if isinstance(layer, convx.nn.Conv2d):
                layer.algorithm = "hntmp"
        optimized.programs.forget()
        for _ in range(2):
            optimized(x)
        assert _steps(optimized) == [3]
    exported = torch.export.export(optimized, (x,)).module()
    torch.testing.assert_close(exported(x), optimized(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NO_POOLS)
def test_what_is_no_pool(name: str) -> None:
    optimized = optimized_agrees(_pooling_model(NO_POOLS[name]), image())
    assert _pools(optimized) == []
    assert optimized.report is not None and not optimized.report.reason  # the rest is followed


def test_pools_of_other_dtypes_and_gradients() -> None:
    model, x = _pooling_model(POOLS["module"][0]), image()
    assert _pools(optimized_agrees(model.double(), x.double())) == []
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    model.float()
    for each, input in zip((convx.optimize(model, x), model), inputs, strict=True):
        each(input).square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-4, atol=1e-4)
