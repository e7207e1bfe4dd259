"""Optimized models that inductor compiles: when that is tried and taken, calls and weights of these."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from at_once import at_once
from compiled import fresh, kernels, take_all, without_inductor
from optimized import (
    LAYOUTS,
    Model,
    block,
    distance,
    fused,
    fused_is_the_fastest,
    image,
    optimized_agrees,
    times_by_order,
)
from torch import Tensor, nn
from tuned import own_folder

import convx
from convx.compile import backend, kept
from convx.optimize import FusionReport, OptimizationReport, optimizing
from convx.optimize.worth import could_gain
from convx.tune.choosing import choose

__all__ = ["fresh", "fused_is_the_fastest", "own_folder", "without_inductor"]

in_parts = pytest.mark.usefixtures("without_inductor")
_measured = optimizing._times


def convnext_block(model: Any, x: Tensor) -> Tensor:
    y = model.norm(model.depthwise(x).permute(0, 2, 3, 1))
    y = model.narrow(F.gelu(model.wide(y))).permute(0, 3, 1, 2)
    return x + y  # type: ignore[no-any-return]


def squeeze_excite(model: Any, x: Tensor) -> Tensor:
    y = model.first(x)
    scale = model.expand(F.relu(model.squeeze(F.adaptive_avg_pool2d(y, 1))))
    return y * torch.sigmoid(scale)  # type: ignore[no-any-return]


def convnext() -> Model:
    layers = {"norm": nn.LayerNorm(12), "wide": nn.Linear(12, 48), "narrow": nn.Linear(48, 12)}
    return Model(convnext_block, depthwise=nn.Conv2d(12, 12, 7, padding=3, groups=12), **layers).eval()


def excited(activation: str = "silu") -> Model:
    layers = {"squeeze": nn.Conv2d(12, 4, 1), "expand": nn.Conv2d(4, 12, 1)}
    return Model(squeeze_excite, first=block(activation=activation), **layers).eval()


BLOCKS: dict[str, Callable[[], Model]] = {"convnext": convnext, "squeeze_excite": excited}


@pytest.fixture
def compiled_is_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    def times(calls: dict[str, Any], *rest: Any) -> dict[str, float]:
        found = times_by_order(calls, *rest)
        return {**found, "compiled": 0.5} if "compiled" in calls else found

    take_all(monkeypatch)
    monkeypatch.setattr(optimizing, "_times", times)


taken = pytest.mark.usefixtures("compiled_is_the_fastest")


def graphs_of(optimized: convx.OptimizedModel) -> int:
    assert optimized.compiled is not None
    return len(optimized.compiled.graphs)


def report_of(optimized: convx.OptimizedModel) -> OptimizationReport:
    assert optimized.report is not None
    return optimized.report


def close(reached: Tensor, expected: Tensor) -> None:
    assert reached.shape == expected.shape and distance(reached, expected) < 1e-5


@pytest.mark.slow
@taken
def test_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it comes; the rest goes by what AOTAutograd makes."""
    seen: list[Any] = []
    compile_fx = backend.compile_fx
    monkeypatch.setattr(
        backend, "compile_fx", lambda *args, **named: seen.append(1) or compile_fx(*args, **named)
    )
    model, x = convnext(), image()
    optimized = convx.optimize(model, x, compile=True)
    assert report_of(optimized).compiled and seen and type(optimized.network.depthwise) is nn.Conv2d
    close(optimized(x), model(x))


@in_parts
@taken
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", BLOCKS)
def test_results_and_report(name: str, layout: str, device: str) -> None:
    """Of other batch sizes too."""
    model, x = BLOCKS[name]().to(device), image(device, layout=layout)
    optimized = optimized_agrees(model, x, compile=True)
    assert optimized(x).stride() == model(x).stride()
    report = report_of(optimized)
    assert report.compiled and not report.reason and not report.not_compiled and not report.left
    expected = {"convnext": [()], "squeeze_excite": [("batch norm", "silu"), ("relu",), ()]}
    assert fused(optimized) == expected[name] and all(row.method for row in report.rows)
    names = {"convnext": ["depthwise"], "squeeze_excite": ["first.0", "squeeze", "expand"]}
    assert [row.name for row in report.rows] == names[name]
    words = "ompiled by inductor with convx's convolutions"
    assert words in str(report) and report.to_dict()["compiled"] is True
    assert "ompiled by inductor, with convx" in report.to_html()
    assert report.optimized_us == 0.5 and report.cuda_graphs == (device == "cuda")


@in_parts
@taken
def test_a_network_that_decides_by_sizes(device: str) -> None:
    """Sizes for which it decides otherwise are not the compiled network's."""

    def run(model: Any, x: Tensor) -> Tensor:
        x = model.first(x)
        return model.second(x) if x.shape[-1] > 12 else x  # type: ignore[no-any-return]

    model = Model(run, first=block(), second=block()).to(device).eval()
    x = image(device)
    optimized = optimized_agrees(model, x, compile=True)
    assert report_of(optimized).compiled and optimized.conditions is not None
    before = graphs_of(optimized)
    for each in (x[..., :9], x[..., :10], x):
        close(optimized(each), model(each))
    assert graphs_of(optimized) == before


@in_parts
@taken
def test_rows_say_which_convolutions_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what measured ones take."""
    monkeypatch.setattr(optimizing, "choose", choose)
    layers = {"first": block(), "turned": nn.Conv2d(12, 12, 3, padding=1, padding_mode="reflect")}
    model = Model(lambda model, x: model.first(x) * model.turned(x).tanh(), **layers).eval()
    report = report_of(convx.optimize(model, image(), compile=True))
    assert [row.name for row in report.rows] == ["first.0", "turned"] and not report.left
    first = report.rows[0]
    assert first.fused == ("batch norm", "relu") and first.us is not None and first.torch_us is not None
    planned = backend.rewrite

    def torchs(module: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("convx.compile.planning.are_faster", lambda choices: False)
            return planned(module)

    monkeypatch.setattr(backend, "rewrite", torchs)
    report = report_of(convx.optimize(model, image(), compile=True))
    assert report.compiled and report.left == report.rows and "torch's own" in report.rows[0].reason
    assert report.rows[0].fused == ("batch norm",) and not report.rows[0].method


@in_parts
def test_it_is_not_taken_where_it_is_slower() -> None:
    """And what was kept for it is gone."""

    def count() -> int:
        gc.collect()
        return sum(type(each) is kept.KeptWeights for each in gc.get_objects())

    before = count()
    optimized = convx.optimize(excited(), image(), compile=True)
    assert count() == before
    report = report_of(optimized)
    assert not report.compiled and optimized.compiled is None
    assert report.not_compiled == "3 us compiled, 1 as it is"
    assert f"not compiled: {report.not_compiled}" in str(report) and report.not_compiled in report.to_html()
    assert report.to_dict()["not_compiled"] == report.not_compiled
    assert fused(optimized)[0] == ("batch norm", "silu")


@taken
def test_what_can_not_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no compiler here\nnor anywhere else")

    monkeypatch.setattr(backend, "compile_fx", fails)
    model, x = excited(), image()
    optimized = optimized_agrees(model, x, compile=True)
    assert report_of(optimized).not_compiled == "RuntimeError: no compiler here"
    assert not report_of(optimized).compiled and fused(optimized)[0] == ("batch norm", "silu")
    monkeypatch.setattr(backend, "compile_fx", lambda *_, **__: lambda *args: (torch.zeros_like(x),))
    wrong = report_of(convx.optimize(convnext(), x, compile=True)).not_compiled
    assert "its error on the example input" in wrong


@in_parts
@taken
def test_later_calls_that_can_not_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a pickle is loaded where there is no compiler."""
    model, x = convnext(), image()
    other = pickle.loads(pickle.dumps(convx.optimize(model, x, compile=True)))

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(backend, "compile_fx", fails)
    with pytest.raises(RuntimeError, match="size"):
        other(torch.randn(2, 5, 11, 13))
    with pytest.warns(UserWarning, match="layer by layer: RuntimeError: no compiler here"):
        close(other(x), model(x))
    close(other(x), model(x))


@in_parts
@taken
@pytest.mark.parametrize(
    "run",
    [
        lambda model, x: model.first(x) if x.sum() > 0 else model.first(-x),
        lambda model, x: model.first(x.mul_(2)),
    ],
)
def test_models_that_no_graph_is_made_of(run: Callable[[Any, Tensor], Tensor]) -> None:
    report = report_of(convx.optimize(Model(run, first=block()).eval(), image(), compile=True))
    assert not report.compiled and "torch.fx can't follow" in report.not_compiled


@in_parts
@taken
def test_copies_pickles_and_state() -> None:
    model, x = excited(), image()
    optimized = convx.optimize(model, x, compile=True)
    expected = optimized(x)
    for other in (copy.deepcopy(optimized), pickle.loads(pickle.dumps(optimized))):
        assert graphs_of(other) == 0
        assert torch.equal(other(x), expected) and graphs_of(other) == 1 and other.report == optimized.report
    assert [name.removeprefix("network.") for name in optimized.state_dict()] == list(model.state_dict())
    file = io.BytesIO()
    torch.save(optimized.state_dict(), file)
    file.seek(0)
    other = convx.optimize(excited(), x, compile=True)
    assert not torch.equal(other(x), expected)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x), expected) and graphs_of(other) == 1


@in_parts
@taken
def test_moves(device: str) -> None:
    """Those that move nothing compile nothing."""
    model, x = excited().to(device), image(device)
    optimized = convx.optimize(model, x, compile=True)
    optimized(x)
    before = graphs_of(optimized)
    optimized.to(device).float()
    close(optimized(x), model(x))
    assert graphs_of(optimized) == before
    optimized.double()
    assert graphs_of(optimized) == 0
    exact = copy.deepcopy(model).double()(x.double())
    torch.testing.assert_close(optimized(x.double()), exact, rtol=1e-6, atol=1e-7)
    assert graphs_of(optimized) == 1
    if device == "cuda":
        optimized.cpu().float()
        close(optimized(x.cpu()), copy.deepcopy(model).cpu()(x.cpu()))


@in_parts
@taken
@pytest.mark.parametrize("layout", LAYOUTS)
def test_weights_that_change_are_seen(layout: str, device: str) -> None:
    model, x = excited().to(device), image(device, layout=layout)
    optimized = convx.optimize(model, x, compile=True)
    own = dict(optimized.network.named_parameters())
    with torch.no_grad():
        for factor in (2.0, 0.5, 3.0):
            close(optimized(x), model(x))
            for name, each in model.named_parameters():
                each.mul_(factor)
                own[name].mul_(factor)
            close(optimized(x), model(x))
        for each in (model.first[1], optimized.network.get_submodule("first.1")):
            each.running_var.add_(1)
        close(optimized(x), model(x))
        with torch.inference_mode():
            close(optimized(x), model(x))
        optimized.load_state_dict({f"network.{name}": 2 * each for name, each in model.state_dict().items()})
        doubled = copy.deepcopy(model)
        doubled.load_state_dict({name: 2 * each for name, each in model.state_dict().items()})
        close(optimized(x), doubled(x))
        optimized.network.get_submodule("expand").bias = nn.Parameter(torch.zeros(12, device=device))
        doubled.expand.bias.zero_()
        close(optimized(x), doubled(x))


@in_parts
@taken
def test_what_is_not_compiled_is_run_layer_by_layer() -> None:
    model, x = excited(), image()
    optimized = convx.optimize(model, x, compile=True)
    before = graphs_of(optimized)
    given = image().requires_grad_()
    optimized(given).sum().backward()
    assert given.grad is not None and bool(given.grad.any())
    with torch.autocast("cpu", torch.bfloat16):
        assert optimized(x).dtype == torch.bfloat16
    stacked = torch.stack([x, 2 * x])
    close(torch.func.vmap(optimized)(stacked), torch.stack([model(x), model(2 * x)]))
    outer = torch.compile(lambda x: 2 * optimized(x), backend="aot_eager", fullgraph=True)
    close(outer(x), 2 * model(x))
    for strict in (False, True):  # no backend puts convx's operators into what is exported
        program = torch.export.export(optimized, (x,), strict=strict)
        targets = {node.target for node in program.graph.nodes}
        assert torch.ops.convx.conv2d.default in targets and torch.ops.aten.conv2d.default not in targets
        close(program.module()(x), model(x))
    assert graphs_of(optimized) == before
    with torch.inference_mode():
        within = image()
        close(optimized(within), model(within))
    close(optimized(within), model(within.clone()))
    for batch in range(3, 14):
        other = image(batch=batch)
        close(optimized(other), model(other))
    assert graphs_of(optimized) == 8


@in_parts
@taken
def test_threads() -> None:
    model, inputs = convnext(), [image(batch=1 + index % 3) for index in range(6)]
    optimized = copy.deepcopy(convx.optimize(model, inputs[0], compile=True))
    expected = [model(x).detach() for x in inputs]

    def work(index: int) -> None:
        for _ in range(5):
            close(optimized(inputs[index]), expected[index])

    at_once(6, work)
    assert graphs_of(optimized) <= 3
    for x, own in zip(inputs, expected, strict=True):
        close(optimized(x), own)
    assert graphs_of(optimized) == 3  # each once, by whoever came while nobody else compiled


@in_parts
@taken
def test_kinds_are_compiled_apart() -> None:
    """Threads that call what torch.compile takes for one function with several shapes have it compile some
    again: one puts what fits first while another goes through the rest."""
    model, inputs = convnext(), [image(batch=1 + index) for index in range(3)]
    with torch._dynamo.config.patch(error_on_recompile=True):
        optimized = convx.optimize(model, inputs[0], compile=True)
        for x in inputs:
            close(optimized(x), model(x))
    assert graphs_of(optimized) == 3


@in_parts
@taken
@pytest.mark.parametrize("layout", ["as given", "channels_last"])
def test_weights_are_there_once(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidates that were not taken are gone, and what was compiled goes with its model."""
    monkeypatch.setattr(optimizing, "gc", gc)
    model, x = Model(convnext_block, **dict(convnext().named_children())).eval(), image()
    model.wide, model.narrow = nn.Linear(12, 61), nn.Linear(61, 12)

    def copies() -> int:
        gc.collect()
        return sum(type(each) is nn.Parameter and each.shape == (61, 12) for each in gc.get_objects())

    before = copies()
    optimized = convx.optimize(model, x, compile=True, layout=layout)
    optimized(x)
    assert copies() == before + 1
    del optimized
    assert copies() == before


@in_parts
@taken
def test_what_is_kept_for_a_graph_goes_when_weights_move() -> None:
    model, x = excited(), image()

    def kept_for_graphs() -> int:
        gc.collect()
        return sum(type(each) is kept.KeptWeights for each in gc.get_objects())

    before = kept_for_graphs()
    optimized = convx.optimize(model, x, compile=True)
    optimized(x)
    assert kept_for_graphs() == before + 1
    optimized.double()
    assert kept_for_graphs() == before


@in_parts
@taken
def test_models_that_torch_compile_has_wrapped() -> None:
    model, x = excited(), image()
    optimized = convx.optimize(torch.compile(model, backend="eager"), x, compile=True)  # type: ignore[arg-type]
    assert report_of(optimized).rows[0].name == "first.0" and not report_of(optimized).reason
    close(optimized(x), model(x))
    model.compile(backend="eager")
    close(convx.optimize(model, x, compile=True)(x), model(x))

    def within(x: Tensor) -> Tensor:
        return 2 * convx.optimize(convnext_model, x, compile=True)(x)  # type: ignore[no-any-return]

    convnext_model = convnext()
    close(torch.compile(within, backend="eager")(x), 2 * convnext_model(x))


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What has been compiled."""
    seen: list[Any] = []

    def noted(module: Any, *_: Any, **__: Any) -> Any:
        seen.append(module)
        return module

    monkeypatch.setattr(backend, "compile_fx", noted)
    yield seen


def test_when_it_is_tried(compiles: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = convnext(), image()
    monkeypatch.setattr(optimizing, "could_gain", lambda *_: True)
    for options in ({}, {"compile": "auto"}, {"compile": False}, {"tune": False}):
        report = report_of(convx.optimize(model, x, **options))  # type: ignore[arg-type]
        assert not report.compiled and not report.not_compiled
    assert not compiles
    monkeypatch.setattr(optimizing, "can_inductor", lambda *_: True)  # as of a GPU
    for options in ({"compile": False}, {"tune": False}):
        convx.optimize(model, x, **options)  # type: ignore[arg-type]
    assert not compiles
    assert report_of(convx.optimize(model, x)).not_compiled and len(compiles) == 1
    monkeypatch.setattr(optimizing, "could_gain", lambda *_: False)
    assert not report_of(convx.optimize(model, x)).not_compiled and len(compiles) == 1
    assert report_of(convx.optimize(model, x, compile=True)).not_compiled and len(compiles) == 2


@pytest.mark.parametrize("compile", ["always", None, 1, 0.0])
def test_bad_arguments(compile: Any) -> None:
    with pytest.raises(convx.InvalidArgument, match="compile must be True, False or 'auto'; got"):
        convx.optimize(block(), image(), compile=compile)


def small_network(model: Any, x: Tensor) -> Tensor:
    y = F.relu(model.first(x) + x).permute(0, 1, 3, 2)
    y = torch.flatten(model.pool(F.max_pool2d(y, 2)), 1)
    return model.last(model.drop(y))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "run, expected",
    [
        (small_network, False),
        (lambda model, x: small_network(model, x * x), True),
        (lambda model, x: small_network(model, torch.cat([x[:, :6], x[:, 6:]], 1)), True),
        (lambda model, x: small_network(model, F.gelu(x)), True),
        (lambda model, x: small_network(model, model.norm(x)), True),
        (lambda model, x: small_network(model, x).softmax(1), True),
        (lambda model, x: small_network(model, F.interpolate(x, scale_factor=2.0)), True),
    ],
)
def test_what_a_compiler_could_gain(run: Callable[[Any, Tensor], Tensor], expected: bool) -> None:
    """Where convolutions leave some time, and there is something to fuse."""
    layers = {
        "first": block(),
        "pool": nn.AdaptiveAvgPool2d(1),
        "last": nn.Linear(12, 3),
        "drop": nn.Dropout(),
    }
    model = Model(run, norm=nn.GroupNorm(2, 12), **layers).eval()
    x = image()
    network: Any = convx.optimize(model, x).network
    rows = [FusionReport("", "", (), "hntmp", "", us) for us in (40.0, None, 30.0)]
    assert could_gain(network, rows, 100.0) == expected
    assert not could_gain(network, rows, 80.0) and not could_gain(network, rows[1:2], 100.0)


@pytest.mark.gpu
@taken
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", BLOCKS)
def test_compiled_networks_as_cuda_graphs(name: str, dtype: torch.dtype) -> None:
    """Whose replays neither fold norms nor pack filters."""
    model, x = BLOCKS[name]().to("cuda", dtype), image("cuda", dtype)
    optimized = optimized_agrees(model, x, compile=True)
    report = report_of(optimized)
    assert report.compiled and report.cuda_graphs
    with torch.no_grad():
        results = [(optimized(given), model(given)) for given in (image("cuda", dtype) for _ in range(5))]
        for reached, own in results:
            assert distance(reached, own) < (1e-5 if dtype == torch.float32 else 0.02)
        assert optimized.compiled is not None
        once = kernels(lambda: optimized._run(x))  # what is made of weights is there
        replayed = kernels(lambda: optimized(x))
    assert once and replayed.total() <= once.total(), (once, replayed)


@pytest.mark.gpu
@taken
def test_graphs_of_others_make_what_is_kept_anew() -> None:
    """The count that the test above goes by tells the two apart."""
    model, x = excited().cuda(), image("cuda")
    optimized = convx.optimize(model, x, compile=True)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        optimized._run(x)
        with torch.cuda.graph(graph):
            output = optimized._run(x)
        theirs, ours = kernels(graph.replay), kernels(lambda: optimized(x))
        assert theirs.total() > ours.total(), (theirs, ours)
        for each in (model, optimized):
            next(each.parameters()).mul_(2)
        graph.replay()
        close(output, model(x))
        close(optimized(x), model(x))


@pytest.mark.gpu
@taken
def test_steps_of_optimizers_are_seen() -> None:
    """Fused ones count no version."""
    model, x = excited().cuda(), image("cuda")
    optimized = convx.optimize(model, x, compile=True).requires_grad_()
    with torch.no_grad():
        before = optimized(x)
    optimizer = torch.optim.Adam(optimized.parameters(), lr=0.1, fused=True)
    for each in optimized.parameters():
        each.grad = torch.ones_like(each)
    optimizer.step()
    with torch.no_grad():
        reached = optimized(x)
        close(reached, optimized.network(x))
    assert not torch.allclose(reached, before)


@pytest.mark.gpu
@taken
def test_memory_of_calls_and_after_a_reset() -> None:
    model, x = excited().cuda(), image("cuda")
    optimized = convx.optimize(model, x, compile=True)
    with torch.no_grad():
        optimized(x)
        gc.collect()
        allocated = set()
        for _ in range(50):
            optimized(x)
            allocated.add(torch.cuda.memory_allocated())
        assert len(allocated) == 1, allocated
        torch.compiler.reset()  # drops what graphs read, but for what the model holds
        gc.collect()
        rubbish = [torch.full((1 << 12,), torch.nan, device="cuda") for _ in range(200)]
        close(optimized(x), model(x))
        del rubbish


@pytest.mark.gpu
def test_what_is_tried_on_gpus(compiles: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where convolutions are measured and there is something else."""
    monkeypatch.setattr(optimizing, "choose", choose)
    monkeypatch.setattr(optimizing, "_times", _measured)
    plain = report_of(convx.optimize(block().cuda().eval(), image("cuda")))
    assert not compiles and not plain.compiled and not plain.not_compiled
    wide = Model(lambda model, x: model.norm(F.gelu(model.first(x))), first=block(), norm=nn.GroupNorm(2, 12))
    report = report_of(convx.optimize(wide.cuda().eval(), image("cuda", batch=8)))
    assert compiles and (report.compiled or report.not_compiled)
