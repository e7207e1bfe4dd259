"""Concatenations, slices and shuffles of channels: links of the chain in optimized models on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from optimized import LAYOUTS, Model, block, fused_is_the_fastest, image, optimized_agrees
from torch import Tensor, nn

import convx
from convx import _libraries
from convx._libraries import front_problem
from convx.optimize.layers import MovedChannels

__all__ = ["fused_is_the_fastest"]
_front: Any = _libraries.front()
without_front = pytest.mark.skipif(bool(front_problem()), reason=f"no convx._front: {front_problem()}")


def shuffled(x: Tensor, groups: int) -> Tensor:
    """As torchvision's ShuffleNetV2 has it."""
    batch, channels, height, width = x.size()
    grouped = x.view(batch, groups, channels // groups, height, width)
    return torch.transpose(grouped, 1, 2).contiguous().view(batch, channels, height, width)


def by_shape(x: Tensor, groups: int) -> Tensor:
    grouped = x.reshape(x.shape[0], groups, x.shape[1] // groups, x.shape[2], x.shape[3])
    return grouped.transpose(1, 2).contiguous().reshape(x.shape[0], -1, x.size(2), x.size(3))


def shuffle_unit(model: Any, x: Tensor) -> Tensor:
    kept, rest = model.one(x).chunk(2, dim=1)
    return shuffled(torch.cat((kept, model.six(rest)), dim=1), 2)


def two_units(model: Any, x: Tensor) -> Tensor:
    kept, rest = shuffle_unit(model, x).chunk(2, dim=1)
    return model.two(shuffled(torch.cat((kept, model.six(rest)), dim=1), 2))


# What is done, and how many nodes that comes to.
MOVES: dict[str, tuple[Callable[[Any, Tensor], Tensor], int]] = {
    "cat": (lambda model, x: model.wide(torch.cat([model.one(x), x], 1)), 1),
    "cat with itself": (lambda model, x: model.wide(torch.cat([x, x], -3)), 1),
    "slices": (lambda model, x: model.six(x[:, 4:10]) + model.six(model.one(x)[:, :-6]), 2),
    "split": (lambda model, x: model.six(torch.split(x, [2, 6, 4], 1)[1]), 1),
    "unequal pieces": (lambda model, x: model.five(x.split(5, dim=1)[1]), 1),
    "chunks": (lambda model, x: model.six(torch.cat([x.chunk(2, 1)[1], x.chunk(2, 1)[0]], 1)[:, 3:9]), 3),
    "shuffle of three": (lambda model, x: model.two(shuffled(x, 3)), 1),
    "by the shape": (lambda model, x: model.two(by_shape(x, 4)), 1),
    "shuffle by torch": (lambda model, x: model.two(torch.channel_shuffle(model.one(x), 6)), 1),
    "shuffle by a module": (lambda model, x: model.two(model.shuffle(model.one(x))), 1),
    "unit": (lambda model, x: model.two(shuffle_unit(model, x)), 3),
    "two units": (two_units, 5),
    "read twice": (lambda model, x: (both := model.two(torch.channel_shuffle(x, 2))) + both, 1),
}
OTHERS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "three tensors": lambda model, x: model.wider(torch.cat([x, model.one(x), model.two(x)], 1)),
    "rows": lambda model, x: torch.cat([x, model.one(x)], 2),
    "every other channel": lambda model, x: model.six(x[:, ::2]),
    "pixels too": lambda model, x: model.six(x[:, :6, 1:]),
    "other turns": lambda model, x: x.view(x.size(0), 2, 6, x.size(2), x.size(3)).transpose(1, 3).sum(1),
    "views": lambda model, x: model.six(x[:, :6] * x[:, 6:]),
    "written to": lambda model, x: model.six(x[:, :6].add_(1)),
}


def _model(run: Callable[[Any, Tensor], Tensor]) -> Model:
    torch.manual_seed(0)
    sizes = {"one": 12, "two": 12, "six": 6, "five": 5, "wide": 24, "wider": 36}
    layers = {name: block(channels) for name, channels in sizes.items()}
    return Model(run, **layers, shuffle=nn.ChannelShuffle(4)).eval()


def _moves(optimized: convx.OptimizedModel) -> int:
    return sum(isinstance(each, MovedChannels) for each in optimized.network.modules())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str, layout: str) -> None:
    run, count = MOVES[name]
    x = image().contiguous(memory_format=LAYOUTS[layout])
    optimized = optimized_agrees(_model(run), x)
    assert _moves(optimized) == count
    if not front_problem():
        program = next(reversed(optimized.programs._programs.values()))
        called = {str(step.results[0]).partition("_")[0] for step in program.steps if not step.layers}
        assert called.isdisjoint(
            {"cat", "chunk", "split", "getitem", "view", "reshape", "contiguous", "channel"}
        )
    exported = torch.export.export(optimized, (x,)).module()
    torch.testing.assert_close(exported(x), optimized(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_left(name: str) -> None:
    assert _moves(optimized_agrees(_model(OTHERS[name]), image())) == 0


def test_what_nobody_reads_stays() -> None:
    """A model's own layers: they may have hooks."""

    def run(model: Any, x: Tensor) -> Tensor:
        model.two(x)
        return model.six(torch.channel_shuffle(x, 2)[:, :6])  # type: ignore[no-any-return]

    report = optimized_agrees(_model(run), image()).report
    assert report is not None and len(report.rows) == 2


def test_other_devices_and_dtypes(device: str) -> None:
    run, count = MOVES["unit"]
    model, x = _model(run).to(device), image().to(device)
    assert _moves(optimized_agrees(model, x)) == (count if device == "cpu" else 0)
    assert _moves(optimized_agrees(model.double(), x.double())) == 0


def test_gradients() -> None:
    run, _ = MOVES["unit"]
    x = image()
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    for model, each in zip((convx.optimize(_model(run), x), _model(run)), inputs, strict=True):
        model(each).square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-4, atol=1e-4)


@st.composite
def any_order(draw: st.DrawFn) -> tuple[list[int], int, int]:
    """Of runs of two tensors' channels, in turns or not."""
    first, second = draw(st.integers(1, 9)), draw(st.integers(0, 9))
    channels = st.integers(0, first + second - 1)
    order = draw(st.lists(channels, min_size=1, max_size=6))
    run = st.lists(channels, min_size=1, max_size=2)
    for _ in range(draw(st.integers(0, 3))):
        starts, length = draw(run), draw(st.integers(1, 5))
        order += [(start + step) % (first + second) for step in range(length) for start in starts]
    return order, first, second


@without_front
@settings(max_examples=60, deadline=None, derandomize=True)
@given(any_order(), st.sampled_from([(1, 1, 1), (2, 3, 5), (1, 40, 33)]), st.sampled_from(list(LAYOUTS)))
def test_any_order(case: tuple[list[int], int, int], size: tuple[int, int, int], layout: str) -> None:
    """By the chain and by a call, bit for bit."""
    order, first, second = case
    batch, *pixels = size

    def channels(count: int) -> Tensor:
        return torch.randn(batch, count, *pixels).contiguous(memory_format=LAYOUTS[layout])

    tensors = [channels(count) for count in (first, second) if count]
    expected = torch.cat(tensors, 1)[:, order]
    other = tensors[1] if second else None
    assert torch.equal(_front.moved_channels(tensors[0], other, order), expected)
    link = _front.moved_link(tensors[0], other, order)
    chain = _front.Chain([link], [(0, len(tensors) - 1 or -1)], len(tensors), [len(tensors)], False)
    (result,) = chain.run(tensors, torch.empty(chain.bytes, dtype=torch.uint8))
    assert torch.equal(result, expected)
    assert torch.equal(MovedChannels(order)(*(each.double() for each in tensors)), expected.double())


@without_front
def test_what_torch_has_to_move() -> None:
    x = image()
    others = (x.double(), x[0], x[:, :, :, 1:], x[:0])
    for each in others:
        assert _front.moved_link(each, None, [0]) is None
        assert _front.moved_channels(each, None, [0]) is None
    for second in (*others, x[:1], F.pad(x, (0, 1)), x.contiguous(memory_format=torch.channels_last)):
        assert _front.moved_channels(x, second, [0]) is None
    for order in ([], [12], [-1]):
        assert _front.moved_channels(x, None, order) is None
    assert _front.moved_channels(x.requires_grad_(), None, [0]) is None
