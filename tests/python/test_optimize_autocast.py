"""Models that turn autocast off or on for a part of them: a graph has nothing of that in it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from optimized import Model, block, distance, fused, fused_is_the_fastest, image
from torch import Tensor

import convx

__all__ = ["fused_is_the_fastest"]


def _without(model: Any, x: Tensor) -> Tensor:
    y = model.first(x)
    with torch.autocast(x.device.type, enabled=False):
        return model.last(y.float())  # type: ignore[no-any-return]


def _model(run: Any, device: str) -> torch.nn.Module:
    return Model(run, first=block(), last=block()).to(device).eval()


def test_a_part_without_autocast_stays_without(device: str) -> None:
    model, x = _model(_without, device), image(device)
    optimized = convx.optimize(model, x)
    assert distance(optimized(x), model(x)) < 1e-5
    assert fused(optimized) == [("batch norm", "relu")] * 2
    for each in (optimized, copy.deepcopy(optimized), pickle.loads(pickle.dumps(optimized))):
        with torch.no_grad(), torch.autocast(device, torch.bfloat16):
            expected, results = model(x), [each(x) for _ in range(2)]
        for result in results:
            assert result.dtype == expected.dtype == torch.float32
            assert distance(result, expected) < 0.02
        assert each(x).dtype == torch.float32  # by the network, after calls by its layers


def test_without_such_a_part_the_network_is_cast(device: str) -> None:
    optimized = convx.optimize(_model(lambda model, x: model.last(model.first(x)), device), image(device))
    assert optimized.otherwise is None
    with torch.autocast(device, torch.bfloat16):
        assert optimized(image(device)).dtype == torch.bfloat16


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_a_part_with_autocast_is_run_as_it_is(precision: torch.dtype, device: str) -> None:
    def run(model: Any, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, precision):
            return model.last(model.first(x))  # type: ignore[no-any-return]

    model, x = _model(run, device), image(device)
    optimized = convx.optimize(model, x)
    assert "turns autocast on" in optimized.report.reason  # type: ignore[union-attr]
    assert optimized(x).dtype == model(x).dtype == precision
    assert distance(optimized(x), model(x)) < 0.02
