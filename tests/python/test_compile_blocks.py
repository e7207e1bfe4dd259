"""torch.compile(model, backend="convx"): inverted residual blocks and squeeze-and-excitations."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from block_kernels import kernels_are_the_fastest
from compiled import agrees, captured, compiled, follows, fresh, gradients_agree, take_all, without_inductor
from compiled_blocks import blocks_of, kernels_are_measured, measures_kernels, remember_kernel, seen
from models import enliven, torchvision_network
from optimized import LAYOUTS, Model, distance, fused_is_the_fastest, optimized_agrees
from test_optimize_blocks import (
    _excites_the_expanded,
    _excites_what_is_behind,
    _sees_excited,
    _sees_expanded,
    _sees_filtered,
    _sees_what_is_excited,
    as_efficient,
    as_mobile,
    excited,
    first,
    image,
    layer,
    plain,
    residual,
    three,
)
from test_optimize_excites import (
    _activates_twice,
    _hard_gate_in_place,
    _larger_means,
    _means_of_rows,
    _one_channel_gate,
    _scales_another,
    _sees_gates,
    _sees_means,
    with_functions,
    with_hard_gate,
    with_methods,
    with_modules,
)
from test_optimize_excites import layers as excitation
from torch import Tensor, nn
from tuned import own_folder

from convx._block_kinds import Excitation
from convx.compile import backend, planning
from convx.compile.watch import CompiledGraph
from convx.optimize import optimizing
from convx.tune import first_call, records

__all__ = [
    "fresh",
    "fused_is_the_fastest",
    "kernels_are_measured",
    "kernels_are_the_fastest",
    "own_folder",
    "seen",
    "without_inductor",
]

INVERTED, EXCITE = "inverted_residual", "squeeze_excite"
Seen = list[CompiledGraph]
by_kernels = pytest.mark.usefixtures("without_inductor", "kernels_are_measured")
RUNS = [plain, residual, as_efficient, as_mobile]


def network(run: Callable[[Any, Tensor], Any], **changes: Any) -> Model:
    layers = excited(**changes) if "xcite" in str(run.__code__.co_names) else three(**changes)
    return Model(run, **layers).eval()


@by_kernels
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("changes", [{}, {"taps": 5, "inside": nn.Hardswish}, {"inside": nn.ReLU}], ids=str)
@pytest.mark.parametrize("run", RUNS)
def test_blocks(run: Any, changes: dict[str, Any], layout: str, seen: Seen, device: str) -> None:
    """Of pixels in channels_last alone; squeeze-and-excitations in both layouts."""
    model = network(run, **changes).to(device)
    call = compiled(model, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            agrees(call, model, image(device).contiguous(memory_format=LAYOUTS[layout]))
    inside = [EXCITE] if run in (as_efficient, as_mobile) else []
    is_one = layout == "channels_last" and (device == "cpu" or not inside)  # on GPUs in 16 bits
    assert blocks_of(seen) == [[INVERTED] if is_one else inside]
    within = {row.name: row.within for row in seen[0].rewritten.rows}
    names = [row.name for row in seen[0].rewritten.blocks]
    assert len(within) == 3 + 2 * len(inside)
    assert {each for each in within.values() if each} == set(names)
    assert sum(bool(each) for each in within.values()) == (len(within) if is_one else 2 * len(inside))


@by_kernels
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("run", [with_modules, with_functions, with_methods, with_hard_gate])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_excitations(run: Any, dtype: torch.dtype, layout: str, seen: Seen) -> None:
    model = Model(run, **excitation()).to(dtype=dtype).eval()
    x = image(dtype=dtype).contiguous(memory_format=LAYOUTS[layout])
    call = compiled(model, fullgraph=True)
    with torch.no_grad():
        agrees(call, model, x)
        assert call(x).stride() == model(x).stride()
    assert blocks_of(seen) == [[EXCITE]]


@by_kernels
@pytest.mark.parametrize("layers", [first(), first(1, 1, 5)], ids=["rgb", "5x5"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_networks_first_layers(layers: dict[str, nn.Module], layout: str, seen: Seen) -> None:
    """Images may come in either layout where filters say that the result is to be in channels_last."""
    channels: Any = layers["expand"][0].in_channels  # type: ignore[index]
    model = Model(plain, **layers).eval().to(memory_format=torch.channels_last)
    x = torch.randn(2, channels, 12, 13).contiguous(memory_format=LAYOUTS[layout])
    call = compiled(model)
    with torch.no_grad():
        agrees(call, model, x)
        assert call(x).stride() == model(x).stride()
    assert blocks_of(seen) == [[INVERTED]]


def two_in_turns(model: Any, x: Tensor) -> Tensor:
    y = residual(model, x)
    return model.last(y + model.second(y)).relu()  # type: ignore[no-any-return]


@by_kernels
def test_blocks_one_after_another(seen: Seen) -> None:
    """The second reads what the first gives, and convolutions beside them are fused as ever."""
    second = nn.Sequential(layer(16, 32, 1), layer(32, 32, 3, groups=32), layer(32, 16, 1, None))
    model = Model(two_in_turns, **three(), second=second, last=layer(16, 8, 1, None)).eval()
    with torch.no_grad():
        agrees(compiled(model, fullgraph=True), model, image())
    assert blocks_of(seen) == [[INVERTED, INVERTED]]
    last = seen[0].rewritten.rows[-1]
    assert last.fused == ("batch norm", "relu") and not last.within


def _adds_another(model: Any, x: Tensor) -> Any:
    return model.project(model.depthwise(model.expand(x))) + x.abs()


def _writes_between(model: Any, x: Tensor) -> Any:
    y = x * 2
    expanded = model.expand(y)
    y.add_(1)
    return model.project(model.depthwise(expanded)) + y


def _changes_modes(model: Any, x: Tensor) -> Any:
    expanded = model.expand(x)
    with torch.autocast("cpu", torch.bfloat16):
        unused = torch.ones(2, 2) @ torch.ones(2, 2)
    return model.project(model.depthwise(expanded)) + unused.float().mean()


@by_kernels
@pytest.mark.parametrize(
    "run", [_sees_expanded, _sees_filtered, _adds_another, _writes_between, _changes_modes]
)
def test_what_is_no_block(run: Any, seen: Seen) -> None:
    model = network(run)
    with torch.no_grad():
        agrees(compiled(model, fullgraph=True), model, image())
    assert blocks_of(seen) == [[]]


@by_kernels
@pytest.mark.parametrize(
    "run", [_sees_excited, _sees_what_is_excited, _excites_the_expanded, _excites_what_is_behind]
)
def test_excitations_that_are_in_no_block(run: Any, seen: Seen) -> None:
    model = network(run)
    with torch.no_grad():
        agrees(compiled(model, fullgraph=True), model, image())
    assert blocks_of(seen) == [[EXCITE]]


def _written_between(model: Any, x: Tensor) -> Any:
    y = x + 1
    gates = model.gate(model.excite(model.inner(model.squeeze(model.pool(y)))))
    y.mul_(2)
    return y * gates


@by_kernels
@pytest.mark.parametrize(
    "run",
    [
        *(_sees_gates, _sees_means, _scales_another, _activates_twice, _larger_means, _means_of_rows),
        *(_hard_gate_in_place, _written_between, _one_channel_gate),
    ],
)
def test_what_is_no_excitation(run: Any, seen: Seen) -> None:
    model = Model(run, **excitation(), to_one=nn.Conv2d(8, 1, 1)).eval()
    with torch.no_grad():
        agrees(compiled(model, fullgraph=True), model, image())
    assert blocks_of(seen) == [[]]


@by_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_dtypes_without_a_kernel(dtype: torch.dtype, seen: Seen) -> None:
    """On CPUs that of blocks is of float32."""
    model = network(as_mobile).to(dtype=dtype)
    with torch.no_grad():
        agrees(compiled(model), model, image(dtype=dtype))
    assert blocks_of(seen) == [[EXCITE]]


@by_kernels
def test_batches_that_change_are_run_by_layers(seen: Seen) -> None:
    """A time is of one size."""
    model = network(as_mobile)
    call = compiled(model)
    with torch.no_grad():
        for batch in (2, 3, 4, 2):
            agrees(call, model, image(batch=batch))
        assert blocks_of(seen) == [[INVERTED], []]
        agrees(compiled(model, dynamic=True), model, image())
    assert blocks_of(seen)[2:] == [[]]


@by_kernels
@pytest.mark.parametrize("run", RUNS)
def test_training_is_left_to_layers(run: Any, seen: Seen) -> None:
    model = network(run)
    call = compiled(model, fullgraph=True)
    gradients_agree(call, model.train(), image())
    gradients_agree(call, model.eval(), image())
    assert not any(blocks_of(seen)) and seen
    model.requires_grad_(False)
    agrees(call, model, image())
    assert blocks_of(seen)[-1] == [INVERTED]


def scaled(model: Any) -> None:
    model.depthwise[0].weight.mul_(2)


def copied_to(model: Any) -> None:
    model.project[0].weight.copy_(torch.randn_like(model.project[0].weight))


def moved(model: Any) -> None:
    model.expand[1].running_mean.add_(1)


def squeezed(model: Any) -> None:
    model.squeeze.bias.add_(1)


def loaded(model: Any) -> None:
    model.load_state_dict(network(as_mobile).state_dict())


def assigned(model: Any) -> None:
    model.load_state_dict(network(as_mobile).state_dict(), assign=True)


def stepped(model: Any) -> None:
    for each in model.parameters():
        each.grad = torch.ones_like(each)
    torch.optim.SGD(model.parameters(), lr=0.1).step()


def shared(model: Any) -> None:
    model.share_memory()
    model.expand[0].weight.numpy(force=True)[:] = 0.5  # another process, which nobody here is told of


CHANGES = [scaled, copied_to, moved, squeezed, loaded, assigned, stepped, shared]


@by_kernels
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_weights_that_change(change: Callable[[Any], None], seen: Seen) -> None:
    model, x = network(as_mobile), image()
    call = compiled(model)
    follows(call, model, x, change, 0.001)
    assert blocks_of(seen)[0] == [INVERTED]


@by_kernels
def test_weights_that_nobody_could_keep(seen: Seen) -> None:
    """Those of blocks would be packed at each call; those of squeeze-and-excitations are read as they are."""
    with torch.inference_mode():
        model = network(as_mobile)
        call = compiled(model)
        agrees(call, model, image())
        model.squeeze.weight.mul_(2)
        agrees(call, model, image())
    assert blocks_of(seen) == [[EXCITE]]


@by_kernels
def test_autocast(seen: Seen) -> None:
    """Weights of squeeze-and-excitations are cast once."""
    model = Model(
        lambda model, x: with_modules(model, model.first(x)), **excitation(), first=layer(16, 16, 1)
    )
    model.eval()

    def run(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)  # type: ignore[no-any-return]

    outer, inner = compiled(model), torch.compile(run, backend="convx")
    with torch.no_grad():
        for _ in range(2):
            x = image()
            exact, own = copy.deepcopy(model).double()(x.double()), run(x)
            with torch.autocast("cpu", torch.bfloat16):
                by_outer = outer(x)
            for reached in (by_outer, inner(x)):
                assert reached.dtype == torch.bfloat16
                assert distance(reached, exact) <= 2 * distance(own, exact)
            model.excite.weight.mul_(1.5)
    assert blocks_of(seen) == [[EXCITE]] * 2


def _problem(x: Tensor) -> Any:
    return Excitation(8, "silu", "sigmoid").problem(tuple(x.shape), x.dtype, channels_last=True)


@pytest.mark.usefixtures("without_inductor", "own_folder")
@pytest.mark.parametrize("faster", [None, False, True])
def test_records_decide(faster: bool | None, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is measured, for nobody has asked for that."""
    monkeypatch.setattr(first_call, "measure", None)
    model, x = Model(with_modules, **excitation()).eval(), image()
    if faster is not None:
        remember_kernel(_problem(x), x.device, faster)
    with torch.no_grad():
        agrees(compiled(model), model, x)
    assert blocks_of(seen) == [[EXCITE] if faster else []]


@pytest.mark.usefixtures("without_inductor", "own_folder")
def test_first_calls_measure_where_they_are_to(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block's layers too: it is held against them."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    model, x = network(as_mobile), image()
    with torch.no_grad():
        agrees(compiled(model), model, x)
    found = [each.problem["operation"] for each in records.all_remembered()]
    assert sorted(found) == ["forward"] * 5 + [INVERTED, EXCITE]
    assert found.index(EXCITE) == 5 and found.index(INVERTED) == 6
    assert all(each.by == records.FIRST_CALL for each in records.all_remembered())
    (block,) = (each for each in records.all_remembered() if each.problem["operation"] == INVERTED)
    assert (blocks_of(seen) == [[INVERTED]]) == (block.algorithm != "native")


@by_kernels
def test_slower_graphs_have_no_blocks(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where inductor has all convolutions faster in a layout of its own."""
    monkeypatch.setattr(planning, "are_faster", lambda choices: False)
    model = network(as_mobile)
    with torch.no_grad():
        agrees(compiled(model), model, image())
    assert blocks_of(seen) == [[]]
    assert {row.plan for row in seen[0].rewritten.rows} == {"torch"}


@pytest.mark.usefixtures("kernels_are_measured")
def test_other_numbers_of_threads(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are of those that a graph is compiled with; a process that finds it may have others."""
    given: list[Any] = []

    def compiler(module: Any, examples: Any, config_patches: Any) -> Any:
        return lambda *args: given.append((module, args)) or module(*args)

    monkeypatch.setattr(backend, "compile_fx", compiler)
    monkeypatch.setattr(first_call, "measure", measures_kernels(which=1))
    model, x, before = network(as_mobile), image(batch=1), torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with torch.no_grad():
            agrees(compiled(model), model, x)
            assert [each.plan for each in seen[0].rewritten.blocks] == ["inverted_residual/channels"]
            ((module, args),) = given
            for threads in (1, 3):
                torch.set_num_threads(threads)
                agrees(lambda _: module(*args)[0], model, x)
    finally:
        torch.set_num_threads(before)


@by_kernels
def test_the_log_names_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "convx.compile")
    model = network(residual)
    with torch.no_grad():
        compiled(model)(image())
    (text,) = (each.getMessage() for each in caplog.records if each.name == "convx.compile")
    of = "expand + depthwise + project + residual, 16->48->16 3x3 on 2x16x12x13"
    assert f"add: inverted_residual/strips of {of}" in text and text.startswith(
        "3 of 3 convolutions by convx"
    )
    assert text.count("within add") == 3


@by_kernels
def test_graphs_without_them_are_as_ever(seen: Seen) -> None:
    model = nn.Sequential(layer(16, 24, 3), layer(24, 16, 3, nn.SiLU)).eval()
    with torch.no_grad():
        agrees(compiled(model, fullgraph=True), model, image())
    rows = seen[0].rewritten.rows
    assert [row.fused for row in rows] == [("batch norm", "relu6"), ("batch norm", "silu")]
    assert blocks_of(seen) == [[]] and not any(row.within for row in rows)


@by_kernels
@pytest.mark.parametrize(
    ("name", "blocks", "excitations"),
    [
        ("efficientnet_b0", 16, 0),
        ("mobilenet_v3_small", 10, 1),
        ("mobilenet_v2", 17, 0),
        ("mnasnet0_5", 17, 0),
    ],
)
def test_networks(name: str, blocks: int, excitations: int, seen: Seen) -> None:
    """All that convx.optimize finds."""
    model, x = torchvision_network(name), torch.randn(2, 3, 64, 64)
    x = x.contiguous(memory_format=torch.channels_last)
    enliven(model, x)
    with torch.no_grad():
        agrees(compiled(model, fullgraph=True), model, x)
    (found,) = blocks_of(seen)
    assert (found.count(INVERTED), found.count(EXCITE)) == (blocks, excitations)
    rows, layers = seen[0].rewritten.rows, list(model.modules())
    assert len(rows) == sum(isinstance(each, nn.Conv2d) for each in layers)
    skips = (getattr(each, name, False) for name in ("use_res_connect", "apply_residual") for each in layers)
    assert sum("residual" in block.parts for block in seen[0].rewritten.blocks) == sum(skips)


@pytest.mark.usefixtures("without_inductor", "own_folder", "fused_is_the_fastest", "kernels_are_the_fastest")
def test_compiled_networks_of_optimized_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that convx.optimize has measured are in those too."""
    take_all(monkeypatch)
    monkeypatch.setattr(
        optimizing, "_times", lambda calls, *_: {name: 1.0 + (name != "compiled") for name in calls}
    )
    optimized = optimized_agrees(network(as_mobile), image(), compile=True, layout="as given")
    assert optimized.compiled is not None
    assert blocks_of(optimized.compiled.graphs)[0] == [INVERTED]
    assert optimized.report is not None
    (row,) = optimized.report.rows  # of all five layers
    assert row.method.startswith("inverted_residual") and row.us is not None
    assert row.name == "expand.0, depthwise.0, squeeze, excite, project.0"
    assert {"expand", "depthwise", "squeeze", "excite", "project"} < set(row.fused)


@pytest.mark.slow
@pytest.mark.usefixtures("kernels_are_measured")
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_inductor(mode: str, seen: Seen) -> None:
    """As it comes."""
    whole: Any = torchvision_network("mobilenet_v3_small")
    model, x = whole.features[:4], torch.randn(2, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    enliven(model, x)
    call = compiled(model, fullgraph=True, mode=mode)
    with torch.no_grad():
        for _ in range(3):
            agrees(call, model, x)
            for each in model.parameters():
                each.mul_(1.1)
    assert INVERTED in blocks_of(seen)[0]


@pytest.mark.gpu
@pytest.mark.usefixtures("kernels_are_measured")
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("run", RUNS)
def test_modes_gpu(run: Any, dtype: torch.dtype, mode: str, seen: Seen) -> None:
    """CUDA graphs read what is packed where it is: replays see weights that have changed."""
    model = network(run, inside=nn.Hardswish).to("cuda", dtype)
    call = compiled(model, mode=mode, fullgraph=True)
    with torch.no_grad():
        for step in range(6):
            if step == 4:
                model.depthwise[0].weight.mul_(2)  # type: ignore[index,union-attr,operator]
                model.expand[1].running_mean.add_(0.5)  # type: ignore[index,union-attr,operator]
            agrees(lambda x: call(x).clone(), model, image("cuda", dtype))
    is_excited = run in (as_efficient, as_mobile)
    assert blocks_of(seen) == [[EXCITE if is_excited and dtype == torch.float32 else INVERTED]]


@pytest.mark.gpu
@pytest.mark.usefixtures("kernels_are_measured")
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("run", [with_modules, with_hard_gate])
def test_excitations_gpu(run: Any, dtype: torch.dtype, layout: str, mode: str, seen: Seen) -> None:
    model = Model(run, **excitation()).eval().to("cuda", dtype)
    call = compiled(model, mode=mode, fullgraph=True)
    with torch.no_grad():
        for step in range(5):
            if step == 3:
                model.excite.weight.mul_(2)  # type: ignore[union-attr,operator]
            x = image("cuda", dtype).contiguous(memory_format=LAYOUTS[layout])
            agrees(lambda x: call(x).clone(), model, x)
    assert blocks_of(seen) == [[EXCITE]]


@pytest.mark.gpu
@by_kernels
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_networks_first_layers_gpu(channels: int, layout: str, seen: Seen) -> None:
    """Strides of images of one channel tell no layout: theirs are run one by one."""
    model = Model(plain, **first(channels)).eval().to("cuda", torch.bfloat16)
    model.to(memory_format=torch.channels_last)
    x = image("cuda", torch.bfloat16)[:, :channels].contiguous(memory_format=LAYOUTS[layout])
    with torch.no_grad():
        agrees(compiled(model), model, x)
    assert blocks_of(seen) == [[INVERTED] if channels > 1 else []]


@pytest.mark.gpu
@by_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_gpu(dtype: torch.dtype, seen: Seen) -> None:
    """What comes before the block is of autocast's type."""
    layers = {**excited(inside=nn.Hardswish), "first": layer(16, 16, 1)}
    model = Model(lambda model, x: as_mobile(model, model.first(x)), **layers).eval().cuda()
    call, x = compiled(model), image("cuda")
    with torch.no_grad():
        for _ in range(2):
            exact = copy.deepcopy(model).double().cpu()(x.double().cpu())
            with torch.autocast("cuda", dtype):
                own, reached = model(x), call(x)
            assert reached.dtype == own.dtype
            assert distance(reached.cpu(), exact) <= 2 * distance(own.cpu(), exact)
            model.excite.weight.mul_(1.5)  # type: ignore[union-attr,operator]
    assert blocks_of(seen) == [[INVERTED]]


@pytest.mark.gpu
@by_kernels
def test_a_cuda_graph_of_a_compiled_call_packs_in_the_graph() -> None:
    model, x = network(residual).to("cuda", torch.bfloat16), image("cuda", torch.bfloat16)
    call = compiled(model)
    with torch.no_grad():
        graph, output = captured(call, x)
        for _ in range(2):
            model.depthwise[0].weight.mul_(2)  # type: ignore[index,union-attr,operator]
            graph.replay()
            agrees(lambda _: output, model, x)
            agrees(call, model, x)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize(
    ("name", "operation"),
    [("mobilenet_v2", INVERTED), ("efficientnet_b0", INVERTED), ("regnet_y_400mf", EXCITE)],
)
def test_first_calls_measure_gpu(
    name: str, operation: str, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels are taken where they were faster, and memory stays as it is."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    model, x = torchvision_network(name), torch.randn(8, 3, 224, 224)
    enliven(model, x)
    model.to("cuda", torch.bfloat16)
    x = x.to("cuda", torch.bfloat16).contiguous(memory_format=torch.channels_last)
    call = compiled(model, mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            agrees(lambda x: call(x).clone(), model, x)
        measured = [each for each in records.all_remembered() if each.problem["operation"] == operation]
        assert len(measured) > 3 and all("native" in each.candidates for each in measured)
        (found,) = blocks_of(seen)
        faster = [each for each in measured if each.algorithm != "native"]
        assert (operation in found) == bool(faster) or not found  # or all of it is faster without convx
        used = []
        for _ in range(20):
            call(x)
            used.append(torch.cuda.memory_allocated())
        assert len({*used[10:]}) == 1
