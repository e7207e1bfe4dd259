"""torch.compile(backend="convx") in tests: what was fused, and results against eager ones in float64."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from optimized import distance
from torch import Tensor, fx, nn
from torch._dynamo.backends.registry import lookup_backend

from convx.compile import backend, planning

Graphs = Callable[[], list[list[tuple[str, ...]]]]
in_parts = pytest.mark.usefixtures("without_inductor", "all_by_convx")


def compiled(model: nn.Module, **options: Any) -> Any:
    return torch.compile(model, backend="convx", **options)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing that another test, or checkout, has compiled; and exact float32."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.compiler.reset()
    with torch.compiler.config.patch(force_disable_caches=True):
        yield


@pytest.fixture
def all_by_convx(monkeypatch: pytest.MonkeyPatch) -> None:
    take_all(monkeypatch)


def take_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions that are too small to be worth it too."""
    choice = planning.choice

    def taken(chain: Any) -> Any:
        found = choice(chain)
        return None if found is None else dataclasses.replace(found, is_torchs=False)

    monkeypatch.setattr(planning, "AUTO", "depthwise|pointwise|hntmp|auto")
    monkeypatch.setattr(planning, "choice", taken)
    monkeypatch.setattr(planning, "are_faster", lambda choices: len(choices) > 0)


@pytest.fixture
def without_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    """AOTAutograd, and what it makes is run as it is: no compiler takes seconds."""

    def compiler(module: fx.GraphModule, examples: Any, config_patches: Any) -> Any:
        return lookup_backend("aot_eager")(module, examples)

    monkeypatch.setattr(backend, "compile_fx", compiler)


@pytest.fixture
def graphs(caplog: pytest.LogCaptureFixture) -> Callable[[], list[list[tuple[str, ...]]]]:
    """What was fused into each convolution of each graph so far; ("torch",) or ("torch", "batch norm") of one
    that was left."""
    caplog.set_level(logging.INFO, "convx.compile")

    def found() -> list[list[tuple[str, ...]]]:
        records: Any = (each.args for each in caplog.records if each.name == "convx.compile")
        return [
            [(("torch",) if row.plan == "torch" else ()) + row.fused for row in args[0].rows]
            for args in records
            if args
        ]

    return found


def kernels(call: Callable[[], Any]) -> Counter[str]:
    """That a call runs on the GPU, copies apart."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    on_gpu = (each for each in profile.events() if each.device_type == torch.autograd.DeviceType.CUDA)
    return Counter(each.name for each in on_gpu if not each.name.startswith(("Mem", "mem")))


def agrees(compiled: Callable[..., Tensor], model: nn.Module, x: Tensor) -> None:
    """As near to float64 as the model itself; the input is left as it was."""
    # On GPUs torch's own hardswish of float64 is exact to float32 alone.
    where = "cpu" if x.dtype == torch.float64 else x.device
    exact = copy.deepcopy(model).to(where, torch.float64)(x.detach().to(where, torch.float64))
    own, reached = model(x.detach().clone()), compiled(x)
    assert reached.shape == own.shape and reached.dtype == own.dtype
    exact = exact.to(own.device)
    assert distance(reached, exact) <= 2 * distance(own, exact) + 4 * torch.finfo(own.dtype).eps


def gradients(call: Callable[..., Tensor], model: nn.Module, x: Tensor) -> list[Tensor]:
    """Of a loss at the input and at the parameters."""
    model.zero_grad()
    x = x.detach().clone().requires_grad_()
    output = call(x)
    # No norm of it: of what batch norm gives that is the same whatever the weights are.
    ramp = torch.linspace(-1, 1, output.numel(), dtype=output.dtype, device=output.device)
    (output * ramp.view(output.shape)).mean().backward()
    found = [x.grad, *(each.grad for each in model.parameters())]
    return [each.clone() for each in found if each is not None]


def gradients_agree(
    compiled: Callable[..., Tensor],
    model: nn.Module,
    x: Tensor,
    times: float = 2,
    peer: Callable[..., Tensor] | None = None,
) -> None:
    """Of models in training, whose statistics a call changes, too. times: of the model's own error, or twice
    that of a peer, the same model by another compiler, where that is larger."""
    before = copy.deepcopy(model.state_dict())
    own = gradients(model, model, x)
    after = copy.deepcopy(model.state_dict())
    model.load_state_dict(before)
    reached = gradients(compiled, model, x)
    others = own
    if peer is not None:
        model.load_state_dict(before)
        others = gradients(peer, model, x)
    double = copy.deepcopy(model).double()
    double.load_state_dict(before)
    exact = gradients(double, double, x.double())
    for name, each in model.state_dict().items():
        torch.testing.assert_close(each, after[name], rtol=1e-4, atol=1e-5)
    eps, largest = torch.finfo(own[0].dtype).eps, max(float(each.norm()) for each in exact)
    for one, other, peers, true in zip(reached, own, others, exact, strict=True):
        if float(true.norm()) < eps * largest:  # of a bias before another norm, say: roundings are all of it
            assert float(one.norm()) < eps**0.5 * largest
        else:
            allowed = max(times * distance(other, true), 2 * distance(peers, true))
            assert distance(one, true) <= allowed + 64 * eps


def follows(call: Any, model: nn.Module, x: Tensor, change: Callable[[Any], None], least: float) -> None:
    """Weights that change, each time; and results are others by so much then."""
    with torch.no_grad():
        agrees(call, model, x)
        before = call(x)
        for _ in range(2):
            change(model)
            agrees(call, model, x)
        assert distance(call(x), before) > least


def captured(call: Any, x: Tensor) -> tuple[Any, Tensor]:
    """A CUDA graph and its result, as torch says: after a call on another stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        return graph, call(x)
