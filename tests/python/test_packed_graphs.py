"""Filters that layers keep packed, in CUDA graphs and amid launches that overlap."""

from __future__ import annotations

import weakref

import pytest
import torch
from packed_layers import add_in_place, expected_of, packed_input, packed_layer

import convx
from convx.dispatch.packed import PackedFilters, filters_of_graph


@pytest.mark.gpu
def test_a_graph_copies_no_weight() -> None:
    """A first convolution in channels_last."""
    layer = convx.nn.Conv2d(3, 32, 3, 2, 1, algorithm="hntmp").eval()
    layer, x = layer.to("cuda", torch.bfloat16), torch.randn(1, 3, 32, 32).to("cuda", torch.bfloat16)
    layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
    x = x.contiguous(memory_format=torch.channels_last)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), convx.constant_filters():
        expected = layer(x)
        with torch.cuda.graph(graph):
            y = layer(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        graph.replay()
        torch.cuda.synchronize()
    assert torch.equal(y, expected)
    assert not [each.name for each in seen.events() if "copy" in each.name]


@pytest.mark.gpu
def test_replays_see_what_the_weight_holds_then() -> None:
    layer, x = packed_layer().cuda(), packed_input().cuda()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        layer(x)
        with torch.cuda.graph(graph):
            y = layer(x)
        add_in_place(layer)
        graph.replay()
        torch.testing.assert_close(y, expected_of(layer, x), rtol=1e-3, atol=1e-3)


class _Graph:
    """A CUDA graph's capture as PackedFilters sees it, without one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("convx.dispatch.packed._in_graph", lambda weight: self.captures)
        self.captures = False


def _arguments(layer: convx.nn.Conv2d, x: torch.Tensor) -> tuple[object, ...]:
    geometry = ((1, 1), (1, 1, 1, 1), (1, 1), 1)
    return x, layer.weight, layer.bias, *geometry, "none", "hntmp", False


@torch.no_grad()
def test_a_graph_packs_unless_filters_are_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, layer, x = _Graph(monkeypatch), packed_layer(), packed_input()
    arguments = _arguments(layer, x)
    kept = layer._packed.of(*arguments)
    assert kept is not None
    graph.captures = True
    assert layer._packed.of(*arguments) is None
    with convx.constant_filters():
        assert layer._packed.of(*arguments) is kept
        with convx.constant_filters():
            pass
        assert layer._packed.of(*arguments) is kept, "the inner context ended the outer one's promise"
    assert layer._packed.of(*arguments) is None


@torch.no_grad()
def test_what_a_graph_reads_outlives_the_weights_version(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, layer, x = _Graph(monkeypatch), packed_layer(), packed_input()
    kept = weakref.ref(layer._packed.of(*_arguments(layer, x)))
    graph.captures = True
    with convx.constant_filters():
        for _ in range(2):
            assert layer._packed.of(*_arguments(layer, x)) is kept()
    graph.captures = False
    add_in_place(layer)
    assert layer._packed.of(*_arguments(layer, x)) is not kept()
    layer._packed.forget()
    assert kept() is not None
    layer._packed = PackedFilters()
    assert kept() is None, "nobody reads it any more"


@torch.no_grad()
def test_what_a_graph_holds_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, layer, x = _Graph(monkeypatch), packed_layer(), packed_input()
    kept = weakref.ref(layer._packed.of(*_arguments(layer, x)))
    graph.captures = True
    with filters_of_graph() as held, convx.constant_filters():
        for _ in range(2):
            assert layer._packed.of(*_arguments(layer, x)) is kept()
    assert len(held) == 1 and held[0] is kept()
    assert layer._packed.of(*_arguments(layer, x)) is None, "the promise has ended"
    layer._packed.forget()
    assert kept() is not None
    held.clear()
    assert kept() is None, "the layer holds what its graph has held"


@torch.no_grad()
def test_a_first_call_in_a_graph_packs_there(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, layer, x = _Graph(monkeypatch), packed_layer(), packed_input()
    graph.captures = True
    with convx.constant_filters():
        assert layer._packed.of(*_arguments(layer, x)) is None
        graph.captures = False
        layer._packed.of(*_arguments(layer, x))
        add_in_place(layer)
        graph.captures = True
        assert layer._packed.of(*_arguments(layer, x)) is None, "packed from another version of the weight"


@pytest.mark.gpu
def test_a_graph_with_constant_filters() -> None:
    layer, x = packed_layer().cuda(), packed_input().cuda()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), convx.constant_filters():
        expected = layer(x)
        with torch.cuda.graph(graph):
            y = layer(x)
        add_in_place(layer)
        layer(x)
        layer._packed.forget()
        # Memory that was given back would be taken by these.
        others = [torch.full((1 << size,), 7, dtype=torch.uint8, device="cuda") for size in range(8, 20)]
        graph.replay()
        torch.testing.assert_close(y, expected, rtol=0, atol=0)
        del others


@pytest.mark.gpu
def test_filters_packed_a_moment_ago_amid_overlapping_launches() -> None:
    """Kernels fetch packed filters while the kernel before them runs: never before they are packed."""
    torch.manual_seed(0)
    layers = [
        convx.nn.Conv2d(64, 64, 1, algorithm="pointwise/tensor", device="cuda", dtype=torch.float16).eval()
        for _ in range(3)
    ]
    x = torch.randn(1, 64, 28, 28, device="cuda", dtype=torch.float16)
    weights = [torch.randn(64, 64, 1, 1, device="cuda", dtype=torch.float16) / 8 for _ in range(3 * 50)]
    results = []
    with torch.no_grad():
        for turn in range(50):
            for layer, weight in zip(layers, weights[3 * turn : 3 * turn + 3], strict=True):
                layer.weight.copy_(weight)
            y = x
            for layer in layers:  # the first call of each packs, the second does not
                y = layer(layer(y))
            results.append(y)
        for turn, result in enumerate(results):
            y = x
            for layer, weight in zip(layers, weights[3 * turn : 3 * turn + 3], strict=True):
                for _ in range(2):
                    y = torch.nn.functional.conv2d(y, weight, layer.bias)
            torch.testing.assert_close(result, y, rtol=0.05, atol=0.05 * y.abs().max().item())
