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
from convx.optimize import conditions
from convx.optimize.branches import expect

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
    assert optimized.conditions is None and optimized.otherwise is None


@pytest.mark.parametrize("width", [14, 9])
def test_a_call_that_leaves_something_changed_is_made_once(width: int) -> None:
    """Conditions are looked at before anything is written."""

    def run(model: Any, x: Tensor) -> Tensor:
        x.add_(1)
        return by_size(model, x)

    model = Model(run, wide=block(), narrow=block()).eval()
    optimized = convx.optimize(model, image())
    assert fused(optimized) == [WHOLE] and not optimized.report.reason  # type: ignore[union-attr]
    for _ in range(2):
        own = image()[..., :width].clone()
        expected = own.clone()
        assert distance(optimized(own), model(expected)) < 1e-5
        assert torch.equal(own, expected)


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


def test_nothing_that_is_decided_comes_between_layers() -> None:
    """Sizes of what layers give are conditions of the input, and their numbers are in no graph."""

    def run(model: Any, x: Tensor) -> Tensor:
        x = model.first(x)
        assert x.shape[-1] > 8
        x = model.second(x)
        return model.second(x) if x.size(2) % 2 == 0 else x

    model = Model(run, first=block(), second=block()).eval()
    optimized = optimized_agrees(model, image())
    nodes = optimized.network.graph.nodes  # type: ignore[union-attr]
    assert {node.op for node in nodes} == {"placeholder", "call_module", "output"}
    found = optimized.conditions
    assert found is not None and not any(each.target is expect for each in nodes)
    x = image()
    assert found.hold([x]) and found.hold([torch.cat([x, x])])
    assert not found.hold([x[:, :, 1:]]) and not found.hold([x[..., :8]])
    odd = x[:, :, 1:]
    assert distance(optimized(odd), model(odd)) < 1e-5
    with pytest.raises(AssertionError):  # the model's own
        optimized(x[..., :8])


def test_compiled_and_exported_it_decides_too() -> None:
    model = Model(by_size, wide=block(), narrow=block()).eval()
    optimized = convx.optimize(model, image())
    compiled = torch.compile(optimized, backend="eager", fullgraph=True)
    any_batch = (({0: torch.export.Dim("batch", min=1, max=8)},),)
    with torch.no_grad():
        for x in (image(), image()[..., :9]):
            assert distance(compiled(x), model(x)) < 1e-5
            assert distance(torch.export.export(optimized, (x,)).module()(x), model(x)) < 1e-5
            program = torch.export.export(optimized, (x,), dynamic_shapes=any_batch, strict=False)
            more = torch.cat([x, x, x])
            assert distance(program.module()(more), model(more)) < 1e-5


def test_kinds_of_input_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "_MOST", 3)
    found = convx.optimize(Model(by_size, wide=block(), narrow=block()).eval(), image()).conditions
    assert found is not None
    for width in range(5, 14):
        assert found.hold([image()[..., :width]]) is (width > 12)
        assert len(found._known) <= 3


def test_the_state_is_of_the_network_and_of_what_runs_otherwise() -> None:
    """Layers that find sizes have no numbers, and no place in the state."""
    optimized = convx.optimize(Model(by_size, wide=block(), narrow=block()).eval(), image())
    names = {name.partition(".")[0] for name in optimized.state_dict()}
    assert names == {"network", "otherwise"}
    assert all(each.device.type == "cpu" for each in optimized.state_dict().values())


def test_asserted_ranks_are_no_nodes(device: str) -> None:
    """timm's norms assert them at every call."""

    def run(model: Any, x: Tensor) -> Tensor:
        for layer in (model.first, model.second):
            torch._assert(x.ndim == 4, f"expected images, got {x.ndim} dimensions")
            x = layer(x)
        return x

    model = Model(run, first=block(), second=block()).to(device).eval()
    optimized = optimized_agrees(model, image(device))
    nodes = list(optimized.network.graph.nodes)  # type: ignore[union-attr]
    assert [node.op for node in nodes] == ["placeholder", "call_module", "call_module", "output"]
    assert optimized.conditions is None
    with pytest.raises(convx.InvalidArgument, match="inputs of 4; got 3"):
        optimized(image(device)[0])


def test_ranks_that_sizes_change_are_asserted_at_each_call() -> None:
    def run(model: Any, x: Tensor) -> Tensor:
        x = model.conv(x)[:, :1].squeeze()
        torch._assert(x.dim() == 3, "one image")
        return x

    optimized = convx.optimize(Model(run, conv=block()).eval(), image())
    with pytest.raises(AssertionError, match="one image"):
        optimized(image()[:1])
