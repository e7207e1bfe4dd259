"""What CUDA graphs of optimized models read: weights that change, filters that are given back, devices."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from optimized import WEIGHT_CHANGES, Model, block, fused_is_the_fastest, image, optimized_agrees
from torch import Tensor, nn

import convx
from convx.optimize.cuda_graphs import _Weights
from convx.optimize.layers import FusedConv2d

__all__ = ["fused_is_the_fastest"]


def _model() -> Any:
    def run(model: Any, x: Tensor) -> Tensor:
        return model.linear(model.two(model.one(x)).mean((2, 3)))  # type: ignore[no-any-return]

    return Model(run, one=block(bias=True), two=block(bias=True), linear=nn.Linear(12, 24)).eval()


def _layers(optimized: convx.OptimizedModel) -> list[Any]:
    return [each for each in optimized.network.modules() if isinstance(each, (FusedConv2d, nn.Linear))]


@pytest.mark.parametrize("change", WEIGHT_CHANGES.values(), ids=WEIGHT_CHANGES)
def test_changes_are_seen(change: Callable[[Any], object]) -> None:
    model = _model()
    with torch.inference_mode():
        model.two[0].weight = nn.Parameter(model.two[0].weight * 1, requires_grad=False)
    for layer in (model.one[0], model.two[0]):
        weights = _Weights(model)
        assert weights.are_as_they_were()
        is_counted = not layer.weight.is_inference()
        with torch.inference_mode(not is_counted), torch.no_grad():
            change(layer)
        is_seen = is_counted or change is not WEIGHT_CHANGES["written to"]
        assert weights.are_as_they_were() is not is_seen


@pytest.mark.gpu
@pytest.mark.parametrize("change", WEIGHT_CHANGES.values(), ids=WEIGHT_CHANGES)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_no_replay_has_weights_of_before(place: int, change: Callable[[Any], object]) -> None:
    x = image("cuda")
    optimized = optimized_agrees(_model().cuda(), x)
    with torch.no_grad():
        before = optimized(x)
        assert len(optimized.graphs) > 0
        change(_layers(optimized)[place])
        after = [optimized(x) for _ in range(3)]
        expected = optimized.network(*optimized.in_own_layout((x,), {})[0])
    assert not torch.equal(after[0], before)
    for each in after:
        torch.testing.assert_close(each, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
def test_filters_of_graphs_that_are_gone_are_given_back() -> None:
    x = torch.randn(1, 64, 14, 14, device="cuda")
    model = nn.Sequential(*block(64), *block(64)).cuda().eval()
    optimized = convx.optimize(model, x, layout="as given")
    layers, held = _layers(optimized), []
    with torch.no_grad():
        for turn in range(6):
            for layer in layers:
                layer.weight.mul_(0.9)
            if turn % 2:
                optimized.graphs.forget()
            optimized(x)
            gc.collect()
            held.append(torch.cuda.memory_allocated())
    assert len(set(held[1:])) == 1, held
    packed = [layer._packed._snapshot.packed for layer in layers]
    assert all(len({id(each) for each in table.values()}) == 1 for table in packed)


two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU or none here")


@pytest.mark.gpu
@two_gpus
def test_on_a_gpu_that_is_not_the_current_one() -> None:
    model, x = _model().to("cuda:1"), image("cuda:1")
    optimized = optimized_agrees(model, x)
    with torch.no_grad():
        expected = model(x)
        for device in (0, 1):
            with torch.cuda.device(device):
                result = optimized(x)
            assert result.device == x.device
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@two_gpus
def test_a_model_and_its_copy_on_two_gpus() -> None:
    model, x = _model().to("cuda:0"), image("cuda:0")
    optimized = convx.optimize(model, x)
    with torch.no_grad():
        expected = optimized(x)
        other = copy.deepcopy(optimized).to("cuda:1")
        for _ in range(3):  # in turns, each with graphs of its own
            torch.testing.assert_close(optimized(x), expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(other(x.to("cuda:1")), expected.to("cuda:1"), rtol=1e-5, atol=1e-5)
        moved = optimized.to("cuda:1")
        torch.testing.assert_close(moved(x.to("cuda:1")), expected.to("cuda:1"), rtol=1e-5, atol=1e-5)
