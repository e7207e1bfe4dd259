"""Optimized models as CUDA graphs: which calls are, whose results they are, how many are kept."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models import enliven, torchvision_network
from optimized import Model, block, distance, fused_is_the_fastest, image, optimized_agrees
from torch import Tensor, nn

import convx
from convx.optimize.graph import Reader
from convx.optimize.model import FORMATS

__all__ = ["fused_is_the_fastest"]


def writes_to_its_input(model: Any, x: Tensor) -> Tensor:
    x[:, :3].mul_(2)
    return model.first(x)  # type: ignore[no-any-return]


def counts_calls(model: Any, x: Tensor) -> Tensor:
    model.first[1].num_batches_tracked.add_(1)
    return model.first(x)  # type: ignore[no-any-return]


def writes_to_a_part_of_its_input(model: Any, x: Tensor) -> Tensor:
    F.relu(x.flatten(1), inplace=True)
    return model.first(x)  # type: ignore[no-any-return]


def writes_to_its_own(model: Any, x: Tensor) -> Tensor:
    y = model.first(x) * 2
    y += 1
    return F.relu(y.add_(x), inplace=True)


def writes_to_a_view_of_its_own(model: Any, x: Tensor) -> Tensor:
    y = model.first(x).flatten(1)
    y[:, 1:].mul_(2)
    return y


def drops_in_place(model: Any, x: Tensor) -> Tensor:
    return model.drop(x.flatten(1))  # type: ignore[no-any-return]


def writes_to_nothing(model: Any, x: Tensor) -> Tensor:
    y = F.normalize(model.first(x))
    return y.masked_fill(~(y > 0) & (x > 0), 0.0)


def writes_behind_a_norm(model: Any, x: Tensor) -> Tensor:
    return F.relu(F.group_norm(x, 3, model.first[1].weight), inplace=True)


def writes_to_what_is_new(model: Any, x: Tensor) -> Tensor:
    mask = torch.zeros((1, x.shape[2], 1))
    mask[:, :5].fill_(1)
    return model.first(x) * mask  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("run", "effects"),
    [
        (writes_to_its_input, True),
        (writes_to_a_part_of_its_input, True),
        (counts_calls, True),
        (writes_to_its_own, False),
        (writes_to_a_view_of_its_own, False),
        (drops_in_place, False),
        (writes_to_nothing, False),
        (writes_to_what_is_new, False),
        (writes_behind_a_norm, False),
    ],
)
def test_calls_with_effects_are_no_cuda_graphs(run: Callable[[Any, Tensor], Tensor], effects: bool) -> None:
    optimized = convx.optimize(Model(run, first=block(), drop=nn.Dropout(0.5, inplace=True)).eval(), image())
    assert Reader(optimized.network).has_effects() == effects  # type: ignore[arg-type]
    assert (optimized.graphs.most == 0) == effects


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18", "efficientnet_b0", "googlenet"])
def test_networks_as_cuda_graphs(name: str, dtype: torch.dtype) -> None:
    model, x = torchvision_network(name).cuda(), torch.randn(2, 3, 64, 64, device="cuda")
    enliven(model, x)
    model, x = model.to(dtype).eval(), x.to(dtype)
    optimized = convx.optimize(model, x)
    assert optimized.report is not None and optimized.report.cuda_graphs
    results = []
    for _ in range(5):
        given = torch.randn_like(x)
        exact = copy.deepcopy(model).double()(given.double())
        with torch.no_grad():
            results.append((optimized(given), exact, distance(model(given), exact)))
    for reached, exact, own in results:  # no replay has written to results before
        assert distance(reached, exact) <= 2 * own + torch.finfo(dtype).eps


@pytest.mark.gpu
def test_graphs_are_kept_for_kinds_of_input() -> None:
    model = block().cuda().eval()
    optimized = convx.optimize(model, image("cuda"), cuda_graphs=2, layout="as given")
    graphs = optimized.graphs
    with torch.no_grad():
        for batch in (1, 2, 3, 1, 2, 3):
            x = image("cuda", batch=batch)
            torch.testing.assert_close(optimized(x), model(x), rtol=1e-4, atol=1e-5)
        assert len(graphs) == 2
        optimized(image("cuda", layout="channels_last", batch=3))
        assert len(graphs) == 2
        expected = model(x)
        with torch.autocast("cuda", torch.bfloat16):
            assert optimized(x).dtype == torch.bfloat16
        torch.testing.assert_close(optimized(x), expected, rtol=1e-4, atol=1e-5)
        with torch.inference_mode():
            torch.testing.assert_close(optimized(x), expected, rtol=1e-4, atol=1e-5)
    x.requires_grad_()
    optimized(x).sum().backward()
    assert x.grad is not None
    assert len(copy.deepcopy(optimized).graphs) == 0
    assert not convx.optimize(model, image("cuda"), cuda_graphs=0).graphs


@pytest.mark.gpu
@pytest.mark.usefixtures("fused_is_the_fastest")
@pytest.mark.parametrize("inside", list(FORMATS))
def test_inputs_are_copied_into_the_networks_layout(inside: str) -> None:
    """Once: a graph has no copy of them in it."""
    model = block().eval().cuda()
    given = FORMATS["nchw" if inside == "channels_last" else "channels_last"]
    x = image("cuda").contiguous(memory_format=given)
    optimized = optimized_agrees(model, x, layout=inside)
    assert optimized(x).is_contiguous(memory_format=given)
    assert len(optimized.graphs) > 0
    for graph in optimized.graphs._captured.values():
        assert graph._inputs[0].is_contiguous(memory_format=FORMATS[inside])
        assert not graph._inputs[0].is_contiguous(memory_format=given)


@pytest.mark.gpu
def test_threads_and_streams_get_their_own_results() -> None:
    model = nn.Sequential(*(layer for _ in range(4) for layer in block())).cuda().eval()
    optimized = convx.optimize(model, image("cuda"))
    inputs = [image("cuda") * (index + 1) for index in range(4)]
    expected = [model(x).detach() for x in inputs]
    failures: list[str] = []

    def work(index: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
            for _ in range(50):
                reached = optimized(inputs[index])
                torch.cuda.current_stream().synchronize()
                if not torch.allclose(reached, expected[index], rtol=1e-3, atol=1e-4):
                    failures.append(f"thread {index}")

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.gpu
def test_inside_a_graph_of_the_caller_and_memory() -> None:
    model = block().cuda().eval()
    optimized, x = convx.optimize(model, image("cuda")), image("cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        optimized(x)
        with torch.cuda.graph(graph):
            result = optimized(x)
        x.copy_(image("cuda"))
        graph.replay()
        torch.testing.assert_close(result, model(x), rtol=1e-4, atol=1e-5)
        gc.collect()  # what other tests have left
        taken = []
        for _ in range(200):
            optimized(x)
            taken.append(torch.cuda.memory_allocated())
    assert len(set(taken[2:])) == 1, taken


@pytest.mark.gpu
def test_graphs_have_workspaces_of_their_own() -> None:
    """Where torch.compile frees cuBLAS's, a graph loses nothing; where a model goes, nothing is left."""
    model = nn.Sequential(*block(), nn.Flatten(), nn.Linear(12 * 11 * 13, 1000)).cuda().eval()
    x = image("cuda")
    with torch.no_grad():
        expected = model(x)
    after = []
    for _ in range(3):
        optimized = convx.optimize(model, x)
        torch._C._cuda_clearCublasWorkspaces()  # of what was called to make it
        with torch.no_grad():
            torch.testing.assert_close(optimized(x), expected, rtol=1e-3, atol=1e-4)
        held = torch.cuda.memory_allocated()
        torch._C._cuda_clearCublasWorkspaces()
        assert torch.cuda.memory_allocated() == held
        del optimized
        gc.collect()
        after.append(torch.cuda.memory_allocated())
    assert len(set(after)) == 1, after
