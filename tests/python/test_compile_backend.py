"""torch.compile(model, backend="convx"): what is fused, what stays; results and gradients."""

from __future__ import annotations

import contextlib
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
from compiled import agrees, all_by_convx, fresh, gradients_agree, graphs, take_all, without_inductor
from hypothesis import given, settings
from hypothesis import strategies as st
from models import enliven, torchvision_network
from optimized import ACTIVATIONS, LAYOUTS, Model, block, distance, image
from programs import CHANNELS, Program, layers, steps
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from unfused import UNFUSED

import convx
from convx import _planning
from convx.compile import backend, kept, planning
from convx.tune import records

__all__ = ["all_by_convx", "fresh", "graphs", "without_inductor"]

ROOT = Path(__file__).resolve().parents[2]
Graphs = Callable[[], list[list[tuple[str, ...]]]]
in_parts = pytest.mark.usefixtures("without_inductor", "all_by_convx")


def compiled(model: nn.Module, **options: Any) -> Any:
    return torch.compile(model, backend="convx", **options)


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
    with torch.no_grad():
        agrees(call, model, x)
        before = call(x)
        for _ in range(2):
            change(model)
            agrees(call, model, x)
        assert distance(call(x), before) > 0.01


@in_parts
def test_weights_are_folded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    fold = kept.folded

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return fold(*arguments)

    monkeypatch.setattr(kept, "folded", counted)
    model, x = block().eval(), image()
    call = compiled(model)
    with torch.no_grad():
        for _ in range(3):
            call(x)
    assert count == 1
    with torch.inference_mode():
        agrees(call, model, x)
        made_within = copy.deepcopy(model)
        other = compiled(made_within)
        agrees(other, made_within, x)
        made_within[0].weight.mul_(2)
        agrees(other, made_within, x)


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
    packed = [sum(isinstance(each, kept.Packing) for each in makings) for makings in made]
    assert packed[0] == 3 and not any(packed[1:])
    gradients_agree(call, model, image(device))


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


@pytest.mark.slow
def test_inductor(graphs: Graphs) -> None:
    """As it comes: what the planner wants, and inductor's code around it."""
    network: Any = torchvision_network("mobilenet_v2")
    model, x = network.features[:3], torch.randn(1, 3, 112, 112)
    enliven(model, x)
    call = compiled(model, fullgraph=True)
    with torch.no_grad():
        agrees(call, model, x)
        model[0][0].weight.mul_(2)
        agrees(call, model, x)
    gradients_agree(call, model.train(), x, times=8)  # inductor's norms round more often than torch's
    inference, training = graphs()
    assert all("batch norm" in each for each in inference) and ("batch norm", "relu6") in inference
    assert len(training) == len(inference)


@pytest.mark.slow
@pytest.mark.usefixtures("all_by_convx")
def test_inductor_with_everything_by_convx() -> None:
    model, x = nn.Sequential(block(), block(groups=12, activation="silu")), image()
    call = compiled(model, dynamic=True)
    gradients_agree(call, model, x, times=8)
    model.eval()
    with torch.no_grad():
        for batch in (1, 4):
            agrees(call, model, image(batch=batch))


@pytest.mark.parametrize(
    "asked, given",
    [
        ({"mode": "default"}, {}),
        ({"mode": "reduce-overhead"}, {"triton.cudagraphs": True}),
        (
            {"options": {"max_autotune": True, "layout-optimization": True}},
            {"max_autotune": True, "layout_optimization": True},
        ),
    ],
)
def test_inductor_is_given_what_was_asked_for(
    asked: Any, given: Any, monkeypatch: pytest.MonkeyPatch, graphs: Graphs
) -> None:
    seen: list[Any] = []

    def compiler(module: Any, examples: Any, config_patches: Any) -> Any:
        seen.append(config_patches)
        return module

    take_all(monkeypatch)
    monkeypatch.setattr(backend, "compile_fx", compiler)
    with torch.no_grad():
        compiled(block().eval(), **asked)(image())
        compiled(block().eval(), **asked)(image(layout="channels_last"))
    # Beside convx's operators, torch's convolutions keep the layout that they are given.
    assert seen == [{"layout_optimization": False, **given}, given]


@pytest.mark.parametrize(
    "asked, message",
    [
        ({"mode": "fastest"}, "Unrecognized mode"),
        ({"options": {"speed": 9}}, "Unexpected optimization option"),
    ],
)
def test_what_inductor_does_not_know_is_refused(asked: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        compiled(block(), **asked)(image())


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_modes_gpu(dtype: torch.dtype, layout: str, mode: str, all_by_convx: None) -> None:
    """CUDA graphs read what is folded where it is: replays see weights that have changed."""
    model = nn.Sequential(block(), block(groups=12, activation="silu")).eval().to("cuda", dtype)
    call = compiled(model, mode=mode)
    with torch.no_grad():
        for step in range(6):
            if step == 4:
                model[0][0].weight.mul_(2)  # type: ignore[index,union-attr,operator]
            x = image("cuda", dtype, layout)
            agrees(lambda x: call(x).clone(), model, x)


@pytest.mark.gpu
def test_training_gpu(all_by_convx: None) -> None:
    model = nn.Sequential(block(), block(groups=12, activation="silu")).cuda()
    for mode in ("default", "reduce-overhead"):
        call = compiled(model, mode=mode)
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            gradients_agree(call, model, image("cuda"), times=8)


def _in_a_graph(call: Any, x: Tensor) -> tuple[Any, Tensor]:
    """Captured as torch says, after a call on another stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        return graph, call(x)


@pytest.mark.gpu
@in_parts
def test_a_cuda_graph_of_a_compiled_call_folds_in_the_graph() -> None:
    model, x = block().eval().cuda(), image("cuda")
    call = compiled(model)
    with torch.no_grad():
        graph, output = _in_a_graph(call, x)
        for _ in range(2):
            model[0].weight.mul_(2)  # type: ignore[union-attr,operator]
            graph.replay()
            agrees(lambda _: output, model, x)
            agrees(call, model, x)


@pytest.mark.gpu
@in_parts
def test_a_cuda_graph_within_constant_filters_reads_what_is_kept() -> None:
    model, x = block().eval().cuda(), image("cuda")
    call = compiled(model)
    with torch.no_grad(), convx.constant_filters():
        graph, output = _in_a_graph(call, x)
        graph.replay()
        agrees(lambda _: output, model, x)
        before = output.clone()
        model[0].weight.mul_(2)  # type: ignore[union-attr,operator]
        graph.replay()
        assert torch.equal(output, before)
        agrees(call, model, x)
