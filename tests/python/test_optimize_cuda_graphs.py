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
from torch.utils._pytree import tree_leaves

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
        (copied_to,) = graph.inputs
        assert copied_to is not None and copied_to.is_contiguous(memory_format=FORMATS[inside])
        assert not copied_to.is_contiguous(memory_format=given)


def copies_of(call: Callable[[], object]) -> int:
    """Copies from device memory to device memory that the call makes."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return sum("Memcpy DtoD" in event.name for event in profile.events())


def one_result(model: Any, x: Tensor) -> Tensor:
    return model.second(model.first(x))  # type: ignore[no-any-return]


def several_results(model: Any, x: Tensor) -> dict[str, Tensor]:
    y = model.first(x)
    return {"first": y, "second": model.second(y)}


def a_result_and_its_part(model: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    y = one_result(model, x)
    return y, y[:, 1:]


def a_result_and_the_input(model: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    return one_result(model, x), x.flatten(1)


def a_result_in_two_halves(model: Any, x: Tensor) -> Tensor:
    y = model.first(x)
    return torch.cat([model.second(y), y], 1)


def a_result_that_is_written_to(model: Any, x: Tensor) -> Tensor:
    return one_result(model, x).mul_(2)


def ends_by_torch(model: Any, x: Tensor) -> Tensor:
    return F.gelu(model.norm(model.first(x)), approximate="tanh")


@pytest.mark.gpu
@pytest.mark.usefixtures("fused_is_the_fastest")
@pytest.mark.parametrize("layout", list(FORMATS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("run", "inputs_move", "copies"),
    [
        (one_result, True, 0),
        (several_results, True, 1),
        (a_result_and_its_part, True, None),
        (a_result_and_the_input, None, None),
        (a_result_in_two_halves, True, None),
        (a_result_that_is_written_to, True, None),
        (ends_by_torch, True, None),
    ],
)
def test_graphs_read_and_write_where_callers_have_tensors(
    run: Callable[[Any, Tensor], Any],
    inputs_move: bool | None,
    copies: int | None,
    dtype: torch.dtype,
    layout: str,
) -> None:
    # In channels_last the last kernel is convx's own; in nchw one finishes in place what another has written.
    layers = {"first": block(), "second": block(groups=12), "norm": nn.GroupNorm(3, 12)}
    model = Model(run, **layers).eval().cuda().to(dtype)
    x = image("cuda", layout=layout).to(dtype)
    with torch.no_grad():
        optimized = convx.optimize(model, x, layout="as given")
        (graph,) = optimized.graphs._captured.values()
        assert inputs_move in (None, graph.inputs[0] is None)
        if copies is not None and layout == "channels_last":
            assert copies_of(lambda: optimized(x)) == copies
        room = torch.empty(x.numel() + 8, dtype=dtype, device="cuda")
        shifted = room[8:].as_strided(x.shape, x.stride(), 8)  # 16 or 32 bytes behind where memory begins
        kept = []
        for given in (x, x * 2, shifted.copy_(x * 3), x.clone()):
            kept.append((tree_leaves(optimized(given)), tree_leaves(model(given))))
        assert len(optimized.graphs) == 1
        for reached, expected in kept:  # nobody has written to them since
            for one, other in zip(reached, expected, strict=True):
                assert one.shape == other.shape
                assert distance(one, other) <= 8 * torch.finfo(dtype).eps


class Added(Model):
    """Of two inputs."""

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__(one_result, **layers)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.first(x) + y  # type: ignore[no-any-return, operator]


@pytest.mark.gpu
@pytest.mark.usefixtures("fused_is_the_fastest")
def test_inputs_that_are_not_read_in_place_are_copied() -> None:
    """Beside integers; and where the example's result is no number, which tells nothing."""
    model = Added(first=block()).eval().cuda()
    x, y = image("cuda"), torch.randint(0, 5, (1,), device="cuda")
    for given in ((x, y), (x / 0, y.float())):
        with torch.no_grad():
            optimized = convx.optimize(model, given)
            torch.testing.assert_close(optimized(*given), model(*given), rtol=1e-4, atol=1e-4, equal_nan=True)
        (graph,) = optimized.graphs._captured.values()
        assert None not in graph.inputs


@pytest.mark.gpu
def test_graphs_hold_no_copy_of_inputs() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=8), nn.ReLU()).cuda().eval()
    x = torch.randn(16, 3, 256, 256, device="cuda")
    optimized = convx.optimize(model, x)
    optimized.graphs.forget()
    with torch.no_grad():
        model(x)
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        optimized(x)
    assert torch.cuda.memory_allocated() - before < x.nbytes / 2


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
