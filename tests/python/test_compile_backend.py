"""torch.compile(model, backend="convx"): what is fused, what stays; results and gradients."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compiled import (
    Graphs,
    agrees,
    all_by_convx,
    compiled,
    fresh,
    gradients_agree,
    graphs,
    in_parts,
    take_all,
    without_inductor,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from models import enliven, torchvision_network
from optimized import ACTIVATIONS, LAYOUTS, Model, block, distance, image
from programs import CHANNELS, Program, layers, steps
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from unfused import UNFUSED

import convx
from convx import _libraries, _planning
from convx.compile import backend, planning
from convx.tune import records

__all__ = ["all_by_convx", "fresh", "graphs", "without_inductor"]

ROOT = Path(__file__).resolve().parents[2]


def skip_before(model: Any, x: Tensor) -> Tensor:
    y = model.first(x)
    y += x
    return F.relu(y, inplace=True)


def skip_after(model: Any, x: Tensor) -> Tensor:
    return x + F.silu(model.first(x))


def two_branches(model: Any, x: Tensor) -> Tensor:
    return torch.relu(model.first(x) + model.other(x))


def called_twice(model: Any, x: Tensor) -> Tensor:
    return model.first(F.relu(model.first(x)))  # type: ignore[no-any-return]


def rows(model: Any, x: Tensor) -> Tensor:
    y = x.flatten(2)
    return F.relu6(model.rows(y), inplace=True) + y


# What is run, and what is fused into each convolution in inference and in training.
FUSED: dict[str, tuple[Callable[..., Tensor], list[tuple[str, ...]], list[tuple[str, ...]]]] = {
    "skip_before": (skip_before, [("batch norm", "residual", "relu")], [()]),
    "skip_after": (skip_after, [("batch norm", "silu", "residual")], [()]),
    "two_branches": (two_branches, [("batch norm", "residual", "relu"), ("batch norm",)], [(), ()]),
    "called_twice": (called_twice, [("batch norm", "relu"), ("batch norm",)], [(), ()]),
    "rows": (rows, [("batch norm", "relu6", "residual")], [()]),
}


def small(run: Callable[..., Tensor]) -> Model:
    rows = nn.Sequential(nn.Conv1d(12, 12, 3, padding="same", groups=4), nn.BatchNorm1d(12))
    model = Model(run, first=block()[:2], other=block(groups=12)[:2], rows=rows)
    for name in [name for name in ("first", "other", "rows") if name not in run.__code__.co_names]:
        delattr(model, name)
    return model


@pytest.mark.slow
def test_the_backend_is_known(tmp_path: Path) -> None:
    """By the entry point of what is installed, without an import; by an import; and by both."""
    assert "convx" in torch.compiler.list_backends()
    with (ROOT / "pyproject.toml").open() as file:
        entry = next(line for line in file if line.startswith("convx = ") and "compile" in line).replace(
            '"', ""
        )
    assert convx.compile.ENTRY.value == entry.split(" = ")[1].strip()
    installed = tmp_path / "convx-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: convx\nVersion: 0\n")
    (installed / "entry_points.txt").write_text(f"[torch_dynamo_backends]\n{entry}")
    for first in ("", "import convx; "):
        program = (
            f"{first}from torch._dynamo import lookup_backend; print(lookup_backend('convx').__module__)"
        )
        paths = os.pathsep.join((str(tmp_path), *sys.path))
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
        )
        assert done.stdout.strip() == "convx.compile.backend", done.stderr


@pytest.mark.parametrize("is_installed", [True, False])
def test_an_import_leaves_torchs_compiler_where_torch_finds_the_backend(is_installed: bool) -> None:
    """It takes as long to import as torch does; a checkout on the path has to tell it of the backend."""
    entry = convx.compile.ENTRY
    fields = (entry.name, entry.value, entry.group)
    program = (
        "import importlib.metadata as metadata, sys\n"
        f"own = [metadata.EntryPoint(*{fields})] * {is_installed}\n"
        "metadata.entry_points = lambda group: metadata.EntryPoints(own).select(group=group)\n"
        "import convx\n"
        "print('torch._dynamo' in sys.modules)\n"
        "from torch._dynamo import lookup_backend\n"
        "print(lookup_backend('convx').__module__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == [str(not is_installed), "convx.compile.backend"], done.stderr


@in_parts
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FUSED)
def test_inference(name: str, layout: str, dynamic: bool | None, graphs: Graphs, device: str) -> None:
    run, expected, _ = FUSED[name]
    model = small(run).eval().to(device)
    call = compiled(model, dynamic=dynamic, fullgraph=True)
    with torch.no_grad():
        for batch in (2, 3, 5):
            agrees(call, model, image(device, layout=layout, batch=batch))
    assert all(each == expected for each in graphs()) and len(graphs()) <= 3  # SymFloats are taken back


@in_parts
@pytest.mark.parametrize("name", FUSED)
def test_training(name: str, graphs: Graphs, device: str) -> None:
    run, _, expected = FUSED[name]
    model = small(run).to(device)
    gradients_agree(compiled(model, fullgraph=True), model, image(device))
    assert graphs() == [expected]


@in_parts
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation: str, graphs: Graphs, device: str) -> None:
    """Those whose gradient needs their input are not fused where one is needed."""
    model = nn.Sequential(nn.Conv2d(12, 12, 3), ACTIVATIONS[activation]()).to(device)
    call, x = compiled(model), image(device)
    gradients_agree(call, model, x)
    with torch.no_grad():
        agrees(call, model, x)
    assert graphs() == [[(activation,) if activation in ("relu", "relu6") else ()], [(activation,)]]


@in_parts
def test_batch_norm_of_statistics_under_gradients(graphs: Graphs) -> None:
    """Frozen norms stay where something in them, or before them, is trained; else they are folded."""
    model = nn.Sequential(block(), block()).eval()
    call, x = compiled(model), image()
    gradients_agree(call, model, x)
    model[0].requires_grad_(False)
    call(x).sum().backward()
    agrees(call, model, x)
    assert graphs() == [[(), ()], [("batch norm", "relu"), ()]]


@in_parts
def test_dynamic_batch_compiles_twice_at_most(graphs: Graphs) -> None:
    model = block().eval()
    call = compiled(model)
    with torch.no_grad():
        for batch in (2, 3, 4, 7, 5):
            agrees(call, model, image(batch=batch))
    assert graphs() == [[("batch norm", "relu")]] * 2


@in_parts
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype, graphs: Graphs, device: str) -> None:
    """The weight is folded in float64, for the type that autocast has."""
    model = nn.Sequential(block(activation="silu"), nn.Conv2d(12, 4, 1)).eval().to(device)

    def run(x: Tensor) -> Tensor:
        with torch.autocast(device, dtype):
            return model(x)  # type: ignore[no-any-return]

    call, x = torch.compile(run, backend="convx"), image(device)
    exact = copy.deepcopy(model).double()(x.double())
    with torch.no_grad():
        own, reached = run(x), call(x)
    assert reached.dtype == dtype and distance(reached, exact) <= 2 * distance(own, exact)
    outer = torch.compile(model, backend="convx")
    with torch.autocast(device, dtype):
        outer(x).sum().backward()
    assert graphs()[0] == [("batch norm", "silu"), ()]
    assert all(each.grad is not None for each in model.parameters())


@in_parts
def test_autocast_that_ends_before_the_activation(graphs: Graphs) -> None:
    model = block().eval()

    def run(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = model[1](model[0](x))
        return F.relu(y) + x

    with torch.no_grad():
        x = image()
        reached, own = torch.compile(run, backend="convx")(x), run(x)
    assert reached.dtype == own.dtype and distance(reached, own) < 0.01
    assert graphs() == [[("batch norm",)]]


def broken(model: Any, x: Tensor) -> Tensor:
    y = model.first(x)
    torch._dynamo.graph_break()
    return model.other(F.relu(y))  # type: ignore[no-any-return]


def nothing_to_convolve(model: Any, x: Tensor) -> Tensor:
    return x.mean((2, 3)) * 2


def weight_of_the_graph(model: Any, x: Tensor) -> Tensor:
    return model.first[1](F.conv2d(x, model.first[0].weight * 2, padding=1))  # type: ignore[no-any-return]


def weight_written_to(model: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        model.first[0].weight.mul_(0.5)
    return model.first(x)  # type: ignore[no-any-return]


def updates_statistics(model: Any, x: Tensor) -> Tensor:
    of: Any = model.other[1]
    y = F.batch_norm(x, of.running_mean, of.running_var, training=True)
    return of(model.other[0](y)) + model.first(y)  # type: ignore[no-any-return]


@in_parts
@pytest.mark.parametrize(
    "run, expected",
    [
        (broken, [[("batch norm",)], [("batch norm",)]]),
        (nothing_to_convolve, [[]]),
        (weight_of_the_graph, [[()]]),
        (weight_written_to, [[()]]),
        (updates_statistics, [[(), ("batch norm", "residual")]]),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_other_graphs(run: Callable[..., Tensor], expected: Any, graphs: Graphs) -> None:
    model = small(run).eval()
    with torch.no_grad():
        call, own = compiled(model), copy.deepcopy(model)
        for _ in range(2):
            x = image()
            torch.testing.assert_close(call(x), own(x))
        for name, each in model.state_dict().items():
            torch.testing.assert_close(each, own.state_dict()[name])
    assert graphs() == expected


@in_parts
def test_checkpoints(graphs: Graphs) -> None:
    """Graphs within a graph are inductor's."""
    model = small(lambda model, x: F.relu(model.other(checkpoint(model.first[0], x, use_reentrant=False))))
    gradients_agree(compiled(model), model, image())
    assert graphs() == [[()]]


@in_parts
@pytest.mark.parametrize("run", UNFUSED, ids=lambda run: run.__name__)
def test_what_a_kernel_can_not_do_stays(run: Callable[[Any, Tensor], Tensor], graphs: Graphs) -> None:
    model = Model(run, first=block()).eval()
    with torch.no_grad():
        agrees(compiled(model, fullgraph=True), model, image())
    assert graphs() == [[()]]


class Unusual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.turned = nn.ConvTranspose2d(12, 12, 3, padding=1)
        self.mirrored = nn.Conv2d(12, 12, 3, padding=1, padding_mode="reflect")
        self.solid = nn.Conv3d(1, 1, 3, padding=1)
        self.plain = nn.Conv2d(12, 12, (3, 2), padding="same", dilation=(1, 2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.solid(self.mirrored(self.turned(x)).unsqueeze(1)).squeeze(1)
        return self.plain(F.dropout(y, 0.0)) + self.plain(y[0])


@in_parts
def test_what_convx_does_not_run_stays(graphs: Graphs) -> None:
    """Unbatched images, transposed and 3D convolutions."""
    model = Unusual()
    gradients_agree(compiled(model), model, image())
    assert graphs() == [[(), ()]]  # the mirrored one, and the plain one's call with a batch


@pytest.mark.parametrize("trained", [False, True])
def test_passes_that_are_planned(trained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients count where there will be some."""
    seen: list[str] = []
    problem = planning._planning.problem

    def noted(operation: str, *rest: Any, **named: Any) -> Any:
        seen.append(operation)
        return problem(operation, *rest, **named)

    monkeypatch.setattr(planning._planning, "problem", noted)
    monkeypatch.setattr(backend, "compile_fx", lambda module, *_, **__: module)
    with torch.set_grad_enabled(trained):
        compiled(nn.Conv2d(12, 4, 3))(image())
    assert set(seen) == ({"forward", "weight_grad"} if trained else {"forward"})


def test_what_the_planner_has_torch_run_stays_torchs(graphs: Graphs, monkeypatch: pytest.MonkeyPatch) -> None:
    """And inductor gives it the layout that it likes."""
    seen: list[Any] = []

    def compiler(module: Any, examples: Any, config_patches: Any) -> Any:
        seen.append(config_patches)
        return module

    monkeypatch.setattr(backend, "compile_fx", compiler)
    model = nn.Sequential(nn.Conv2d(12, 12, 7, dilation=2, padding=6), nn.BatchNorm2d(12), nn.ReLU()).eval()
    with torch.no_grad():
        agrees(compiled(model), model, image())
    assert graphs() == [[("torch", "batch norm")]] and seen == [{}]


@pytest.mark.parametrize(
    ("convx_us", "torch_us", "runs"), [(1.0, 1e6, "hntmp"), (1e6, 2e6, "hntmp"), (5.0, 5.0, "torch")]
)
def test_measured_times_are_compared_with_measured_ones(
    convx_us: float, torch_us: float, runs: str, graphs: Graphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is predicted: a choice of torch's own is as fast as that."""
    monkeypatch.setattr(backend, "compile_fx", lambda module, *_, **__: module)
    x = image(layout="channels_last")
    problem = _planning.problem(
        *("forward", x.dtype, True),
        input_size=x.shape,
        weight_size=(4, 12, 3, 3),
        stride=(1, 1),
        padding=(0, 0, 0, 0),
        dilation=(1, 1),
        groups=1,
        bias=True,
        activation="none",
        tf32=0,
    )
    device = _planning.device(x.device)
    name = "native" if runs == "torch" else _planning.core().select(problem, device, runs).plan.name
    times = {name: convx_us, "native": torch_us}
    environment, fields = records.environment_of(device), records.problem_fields(problem)
    records.remember(records.Record(environment, fields, name, convx_us, times))
    try:
        with torch.no_grad():
            compiled(nn.Conv2d(12, 4, 3))(x)
    finally:
        records.forget()
    assert graphs() == [[("torch",) if runs == "torch" else ()]]


@in_parts
def test_transforms_are_left_to_inductor(graphs: Graphs) -> None:
    layer, x = nn.Conv2d(12, 4, 3), image()

    def run(x: Tensor) -> Tensor:
        return torch.func.vmap(torch.func.grad(lambda each: layer(each[None]).square().sum()))(x)  # type: ignore[no-any-return]

    torch.testing.assert_close(torch.compile(run, backend="convx")(x), run(x))
    assert graphs() == []


@given(layers(), steps(), st.booleans(), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_programs(names: list[str], program: list[tuple[str, int, int]], trained: bool, seed: int) -> None:
    """That nobody wrote, in the graph as it is rewritten."""
    torch.manual_seed(seed)
    torch.compiler.reset()
    model, x = Program(names, program).eval(), torch.randn(2, CHANNELS, 5, 7)
    with pytest.MonkeyPatch.context() as patch, torch.set_grad_enabled(trained):
        take_all(patch)
        patch.setattr("convx.compile.backend.compile_fx", lambda module, *_, **__: module)
        reached = compiled(model, fullgraph=True)(x)
        exact = copy.deepcopy(model).double()(x.double())
        for own, found, true in zip(model(x), reached, exact, strict=True):
            allowed = 2 * (own - true).norm() + 1e-5 * true.norm() + 1e-12
            assert (found - true).norm() <= allowed


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, trained, layout",
    [
        *(("mobilenet_v2", False, "nchw"), ("mobilenet_v2", True, "channels_last")),
        *(("resnet18", False, "channels_last"), ("resnet18", True, "nchw")),
        *(("efficientnet_b0", False, "nchw"), ("efficientnet_b0", True, "channels_last")),
    ],
)
@in_parts
def test_networks(name: str, trained: bool, layout: str, graphs: Graphs) -> None:
    model, x = torchvision_network(name), torch.randn(4, 3, 64, 64).contiguous(memory_format=LAYOUTS[layout])
    enliven(model, x)
    convolutions = sum(isinstance(each, nn.Conv2d) for each in model.modules())
    for each in model.modules():
        if type(each).__name__ in ("Dropout", "StochasticDepth"):
            each.p = 0.0  # type: ignore[assignment]
    call = compiled(model, fullgraph=True)
    if trained:
        gradients_agree(call, model.train(), x)
    else:
        with torch.no_grad():
            agrees(call, model, x)
    (found,) = graphs()
    norms = sum(isinstance(each, nn.BatchNorm2d) for each in model.modules())
    assert len(found) == convolutions and sum("batch norm" in each for each in found) == norms * (not trained)


@pytest.mark.usefixtures("fresh")
def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's own convolutions would be what nobody has asked for."""
    missing = {"cpu": _libraries.Library("libconvx_cpu", Path("lib"), False, "it was never built")}
    monkeypatch.setattr(_libraries, "load", lambda: missing)
    with pytest.raises(RuntimeError, match="no operators for cpu tensors: it was never built"):
        torch.compile(nn.Conv2d(3, 4, 3), backend="convx")(torch.randn(1, 3, 8, 8))
    assert torch.compile(nn.ReLU(), backend="convx")(torch.ones(3)).sum() == 3
