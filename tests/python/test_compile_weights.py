"""torch.compile(model, backend="convx"): weights that change, and what is kept of those that stay."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compiled import (
    Graphs,
    agrees,
    all_by_convx,
    compiled,
    follows,
    fresh,
    gradients_agree,
    graphs,
    in_parts,
    kernels,
    without_inductor,
)
from optimized import Model, block, image
from torch import Tensor, nn

import convx
from convx.compile import backend, kept, planning
from convx.compile.makings import Packing
from convx.optimize import filters

__all__ = ["all_by_convx", "fresh", "graphs", "without_inductor"]


def scaled(model: nn.Sequential) -> None:
    model[0].weight.mul_(2)


def moved(model: nn.Sequential) -> None:
    model[1].running_mean.add_(1)  # type: ignore[union-attr,operator]


def loaded(model: nn.Sequential) -> None:
    model.load_state_dict(block(bias=True).state_dict())


def assigned(model: nn.Sequential) -> None:
    model.load_state_dict(block(bias=True).state_dict(), assign=True)


def of_other_data(model: nn.Sequential) -> None:
    model[0].weight.data = torch.randn_like(model[0].weight)  # type: ignore[arg-type]


def another_parameter(model: nn.Sequential) -> None:
    model[1].bias = nn.Parameter(torch.randn(12))


def stepped(model: nn.Sequential) -> None:
    for each in model.parameters():
        each.grad = torch.ones_like(each)
    torch.optim.Adam(model.parameters(), lr=0.1, fused=True).step()


def shared(model: nn.Sequential) -> None:
    model.share_memory()
    model[0].weight.numpy(force=True)[:] = 0.5  # another process, which nobody here is told of


@in_parts
@pytest.mark.parametrize(
    "change",
    [scaled, moved, loaded, assigned, of_other_data, another_parameter, stepped, shared],
    ids=lambda change: change.__name__,
)
def test_weights_that_change_are_folded_anew(change: Callable[[nn.Module], None]) -> None:
    model, x = block(bias=True).eval(), image()
    call = compiled(model)
    follows(call, model, x, change, 0.01)


@in_parts
def test_weights_are_folded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    fold = filters.folded

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return fold(*arguments)

    monkeypatch.setattr(filters, "folded", counted)
    model, x = block().eval(), image()
    call = compiled(model)
    with torch.no_grad():
        for _ in range(3):
            call(x)
    assert count == 1
    with torch.inference_mode():
        agrees(call, model, x)
        before = count
        made_within = copy.deepcopy(model)
        other = compiled(made_within)
        agrees(other, made_within, x)
        made_within[0].weight.mul_(2)
        agrees(other, made_within, x)
    assert count == before  # not at each call of a model to which nobody counts writes


def pointwise_between(model: Any, x: Tensor) -> Tensor:
    y = F.relu(model.one(x))  # with a norm
    return model.two(y) + F.silu(model.three(x))  # a residual, none


@in_parts
def test_filters_are_packed_where_sizes_stay(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """And anew when the weight changes."""
    monkeypatch.setattr(planning, "PACKED_ON", ("cpu", "cuda"))
    made: list[Any] = []

    def noted(makings: Any, examples: Any) -> kept.KeptWeights:
        made.append(makings)
        return kept.KeptWeights(makings, examples)

    monkeypatch.setattr(backend, "KeptWeights", noted)
    one = nn.Sequential(nn.Conv2d(12, 32, 1), nn.BatchNorm2d(32))
    model = Model(pointwise_between, one=one, two=nn.Conv2d(32, 16, 1), three=nn.Conv2d(12, 16, 3, padding=1))
    model.eval().to(device)
    call, dynamic = compiled(model), compiled(model, dynamic=True)
    with torch.no_grad():
        for _ in range(3):
            agrees(call, model, image(device))
            agrees(dynamic, model, image(device))
            for each in model.parameters():
                each.mul_(1.5)
    packed = [sum(isinstance(each, Packing) for each in makings) for makings in made]
    assert packed[0] == 3 and not any(packed[1:])
    gradients_agree(call, model, image(device))


@in_parts
def test_filters_that_nobody_could_keep_are_not_packed(
    monkeypatch: pytest.MonkeyPatch, device: str, graphs: Graphs
) -> None:
    """Of weights that were made in inference mode: at each call, that would take longer than torch's own."""
    monkeypatch.setattr(planning, "PACKED_ON", ("cpu", "cuda"))
    layers = {"one": nn.Sequential(nn.Conv2d(12, 32, 1), nn.BatchNorm2d(32)), "two": nn.Conv2d(32, 16, 1)}
    model = Model(pointwise_between, **layers, three=nn.Conv2d(12, 16, 3, padding=1)).eval().to(device)
    with torch.inference_mode():
        agrees(compiled(model), model, image(device))
        made_within = copy.deepcopy(model)
        call = compiled(made_within)
        agrees(call, made_within, image(device))
        by_convx, other = graphs()
        assert len(by_convx) == len(other) == 3 and not any("torch" in each for each in by_convx)
        if device == "cpu":
            assert other == [("torch",)] * 3
        else:  # where kernels that read filters as they are may be left
            launched = kernels(lambda: call(image(device)))
            assert launched and not any("pack" in name for name in launched)


@in_parts
@pytest.mark.parametrize("promised", [False, True])
def test_captures_use_what_is_kept_where_filters_are_constant(
    promised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where it is up to date. The capture is a pretended one, so that what is made in it is there."""
    made: list[bool] = []
    captures = [False]
    make = kept.KeptWeights._make

    def counted(self: kept.KeptWeights, args: Any) -> None:
        made.append(captures[0])
        make(self, args)

    monkeypatch.setattr(kept.KeptWeights, "_make", counted)
    monkeypatch.setattr(kept.KeptWeights, "_is_captured", lambda self: captures[0])
    model = block().eval()
    call = compiled(model)
    with torch.no_grad(), convx.constant_filters() if promised else contextlib.nullcontext():
        for captures[0] in (False, True, True):
            agrees(call, model, image())
        assert made == ([False] if promised else [False, True, True])
        made.clear()
        model[0].weight.mul_(2)
        for captures[0] in (True, False, True):  # nothing that could be used, then what a call has left
            agrees(call, model, image())
        assert made == ([True, False] if promised else [True, False, True])


@in_parts
def test_training_and_inference_in_turns() -> None:
    model, x = nn.Sequential(block(), block()), image()
    call = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model.train()
        call(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            agrees(call, model, x)
