"""What models decide by sizes, in convx.optimize: as for the example input, and right for all others."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from optimized import Model, block, distance, fused, fused_is_the_fastest, image, optimized_agrees
from torch import Tensor, nn

import convx
from convx.optimize.branches import expect, has_branches

__all__ = ["fused_is_the_fastest"]
WHOLE = ("batch norm", "relu")


def by_size(model: Any, x: Tensor) -> Tensor:
    return model.wide(x) if x.shape[-1] > 12 else model.narrow(x)  # type: ignore[no-any-return]


def test_the_branch_of_the_example_is_fused_and_the_other_is_right(device: str) -> None:
    model = Model(by_size, wide=block(), narrow=block()).to(device)
    optimized = optimized_agrees(model, image(device))
    assert fused(optimized) == [WHOLE] and not optimized.report.reason  # type: ignore[union-attr]
    x = image(device)[..., :9]
    exact = copy.deepcopy(model).double()(x.double())
    for _ in range(2):  # found out by the graph, and known
        assert distance(optimized(x), exact) <= 2 * distance(model(x), exact) + 1e-6
    assert distance(optimized(x[..., :3]), exact[..., :3]) > 0.01
    optimized(image(device))  # as before


@pytest.mark.parametrize(
    "decide",
    [
        lambda model, x: model.conv(x) * int(x.shape[-1]),
        lambda model, x: model.conv(x) * float(x.size(2) / 2),
        lambda model, x: model.conv(x[:, :, : max(x.shape[2], 4)]),
        lambda model, x: model.conv(x) if len(x.shape) == 4 else x,
        lambda model, x: model.conv(torch.stack([x[:, place] for place in range(x.shape[1])], 1)),
        lambda model, x: model.conv(x) * max([*x.shape[2:]]),
        lambda model, x: sum(model.conv(x).chunk(2, dim=1)),
    ],
)
def test_sizes_as_numbers(decide: Callable[..., Any]) -> None:
    optimized = convx.optimize(Model(decide, conv=block()).eval(), image())
    assert fused(optimized) == [WHOLE] and not optimized.report.reason  # type: ignore[union-attr]


def test_numbers_that_are_not_sizes_are_nobodys_to_know() -> None:
    def run(model: Any, x: Tensor) -> Tensor:
        return model.conv(x) * int(x.sum())  # type: ignore[no-any-return]

    report = convx.optimize(Model(run, conv=block()).eval(), image()).report
    assert report is not None and "depends on the input's values" in report.reason


def test_what_weights_alone_decide_is_not_checked() -> None:
    def run(model: Any, x: Tensor) -> Tensor:
        return model.conv(x) if model.scale.shape[0] == 1 else x

    model = Model(run, conv=block())
    model.scale = nn.Parameter(torch.ones(1))
    optimized = optimized_agrees(model, image())
    assert fused(optimized) == [WHOLE]
    assert not has_branches(optimized.network) and optimized.otherwise is None  # type: ignore[arg-type]


def test_a_call_that_leaves_something_changed_is_made_once() -> None:
    """The graph may have written before it finds that it is not for these sizes."""

    def run(model: Any, x: Tensor) -> Tensor:
        x.add_(1)
        return by_size(model, x)

    optimized = convx.optimize(Model(run, wide=block(), narrow=block()).eval(), image())
    assert "leaves something changed" in optimized.report.reason  # type: ignore[union-attr]


def test_copies_and_pickles_decide_too() -> None:
    def agrees(each: convx.OptimizedModel) -> bool:
        return torch.equal(each(x), optimized(x)) and torch.equal(each(narrow), optimized(narrow))

    x, narrow = image(), image()[..., :9]
    optimized = convx.optimize(nn.Sequential(Deciding(), nn.Identity()).eval(), x)
    assert optimized.otherwise is not None
    assert agrees(copy.deepcopy(optimized)) and agrees(pickle.loads(pickle.dumps(optimized)))


class Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = block(), block()

    def forward(self, x: Tensor) -> Tensor:
        return by_size(self, x)


def test_a_network_that_decides_is_not_compiled() -> None:
    model = Model(by_size, wide=block(), narrow=block()).eval()
    report = convx.optimize(model, image(), compile=True).report
    assert report is not None and "decides by sizes" in report.not_compiled


def test_checks_are_left_alone() -> None:
    optimized = convx.optimize(Model(by_size, wide=block(), narrow=block()).eval(), image())
    assert [
        node.args[1] for node in optimized.network.graph.find_nodes(op="call_function", target=expect)
    ] == [True]
