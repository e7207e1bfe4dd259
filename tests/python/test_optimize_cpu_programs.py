"""Optimized models on a CPU: convolutions that follow one another are one call of C++, in kept memory."""

from __future__ import annotations

import copy
import io
import pickle
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from at_once import at_once
from hypothesis import given, settings
from hypothesis import strategies as st
from optimized import LAYOUTS, Model, block, fused_is_the_fastest, image, optimized_agrees
from steady import assert_steady
from torch import Tensor, nn

import convx
from convx import _core, _libraries, _planning
from convx._blocks import InvertedResidual, SqueezeExcite
from convx._libraries import front_problem
from convx.optimize import OptimizedModel, optimizing
from convx.optimize.layers import FusedConv2d
from convx.tune import records

__all__ = ["fused_is_the_fastest"]
pytestmark = pytest.mark.skipif(bool(front_problem()), reason=f"no convx._front: {front_problem()}")
_front: Any = _libraries.front()


def _branches(model: Any, x: Tensor) -> Tensor:
    """A value that is read twice, sums of branches, and something in between that is no convolution."""
    first = model.one(x)
    second = F.relu(model.two(first) + model.three(x))
    pooled = F.lp_pool2d(F.pad(second, (1, 1, 1, 1)), 2, 3, 1)
    return model.four(pooled) + second  # type: ignore[no-any-return]


def _model() -> Model:
    torch.manual_seed(0)
    layers = {name: block() for name in ("one", "four")}
    return Model(_branches, **layers, two=block()[:2], three=block()[:2]).eval()


def _optimized(model: nn.Module | None = None, x: Tensor | None = None) -> OptimizedModel:
    """By a kernel in all layers."""
    optimized = optimized_agrees(_model() if model is None else model, image() if x is None else x)
    for layer in optimized.network.modules():
        if isinstance(layer, FusedConv2d):
            layer.algorithm = "hntmp"
    optimized.programs.forget()
    return optimized


def _chains(optimized: OptimizedModel) -> list[int]:
    """Of the latest program: how many layers each of its chains has."""
    program = next(reversed(optimized.programs._programs.values()))
    return [len(step.layers) for step in program.steps if step.layers]


def _by_layers(optimized: OptimizedModel, *args: Any) -> Any:
    return optimized.network(*optimized.in_own_layout(args, {})[0])


def _ones(model: nn.Module) -> None:
    with torch.no_grad():
        for each in model.parameters():
            each.fill_(0.5)


@pytest.mark.parametrize("inference", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_chains_are_the_layers(dtype: torch.dtype, layout: str, inference: bool) -> None:
    """Bit for bit, at the first call, which prepares them, and at those after it."""
    optimized = _optimized(_model().to(dtype), image(dtype=dtype, layout=layout))
    with torch.inference_mode(inference), torch.no_grad():
        for batch in (1, 2, 5, 2):
            x = image(dtype=dtype, layout=layout, batch=batch)
            expected = _by_layers(optimized, x)
            for _ in range(3):
                result = optimized(x)
                assert torch.equal(result, expected) and result.stride() == expected.stride()
                assert result.is_inference() == inference
    assert _chains(optimized) == [3, 1] and len(optimized.programs) == 3


@st.composite
def _programs(draw: st.DrawFn) -> tuple[list[tuple[Any, ...]], int]:
    """Layers, each of earlier values: (kind, input, residual or none)."""
    count = draw(st.integers(1, 8))
    layers: list[tuple[Any, ...]] = []
    for place in range(count):
        kind = draw(st.sampled_from(["3x3", "1x1", "depthwise", "pool"]))
        residual = draw(st.none() | st.integers(0, place)) if kind != "pool" else None
        layers.append((kind, draw(st.integers(0, place)), residual, draw(st.booleans())))
    return layers, draw(st.integers(1, 3))


@settings(max_examples=60, deadline=None)
@given(case=_programs(), by_image=st.booleans(), layout=st.sampled_from(list(LAYOUTS)))
def test_any_chain(case: tuple[list[tuple[Any, ...]], int], by_image: bool, layout: str) -> None:
    """Values in one memory lie apart for as long as they are read."""
    layers, outputs = case
    kinds = {"3x3": (3, 1, 1), "1x1": (1, 0, 1), "depthwise": (3, 1, 12)}

    def run(model: Any, x: Tensor) -> tuple[Tensor, ...]:
        values = [x]
        for place, (kind, source, residual, activates) in enumerate(layers):
            if kind == "pool":
                values.append(F.avg_pool2d(values[source], 3, 1, 1))
                continue
            value = getattr(model, f"layer_{place}")(values[source])
            if residual is not None:
                value = value + values[residual]
            values.append(F.relu(value) if activates else value)
        return tuple(values[-outputs:])

    torch.manual_seed(len(layers))
    modules = {}
    for place, (kind, *_) in enumerate(layers):
        if kind in kinds:
            size, padding, groups = kinds[kind]
            modules[f"layer_{place}"] = nn.Conv2d(12, 12, size, padding=padding, groups=groups)
    optimized = convx.optimize(Model(run, **modules), image(layout=layout), tune=False)
    optimized.programs.by_image = by_image
    optimized.programs.forget()
    for batch in (3, 2):
        x = image(layout=layout, batch=batch)
        expected = _by_layers(optimized, x)
        for _ in range(2):
            for result, right in zip(optimized(x), expected, strict=True):
                torch.testing.assert_close(result, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_pixel_or_one_channel_is_in_both_layouts(layout: str) -> None:
    """As gates of channels have it, of another kind than the blocks that are one operator."""

    def run(model: Any, x: Tensor) -> Tensor:
        scale = model.expand(F.relu(model.squeeze(F.adaptive_avg_pool2d(x, 1))))
        return x * torch.tanh(scale) + model.back(model.single(x))  # type: ignore[no-any-return]

    layers = {"squeeze": nn.Conv2d(12, 4, 1), "expand": nn.Conv2d(4, 12, 1)}
    layers |= {"single": nn.Conv2d(12, 1, 3, padding=1), "back": nn.Conv2d(1, 12, 3, padding=1)}
    optimized = _optimized(Model(run, **layers), image(layout=layout))
    for batch in (1, 3):
        x = image(layout=layout, batch=batch)
        for _ in range(2):
            torch.testing.assert_close(optimized(x), _by_layers(optimized, x))
    assert _chains(optimized) in ([3, 1, 1], [3, 2])  # the mean is in the first


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_are_called_without_their_checks(layout: str) -> None:
    """Between chains, in inference; layer by layer where a gradient is asked for."""

    def run(model: Any, x: Tensor) -> Tensor:
        y = model.first(x)
        gates = torch.sigmoid(model.expand(F.relu(model.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        return model.last(y * gates)  # type: ignore[no-any-return]

    layers = {"squeeze": nn.Conv2d(12, 4, 1), "expand": nn.Conv2d(4, 12, 1)}
    layers |= {"first": nn.Conv2d(12, 12, 3, padding=1), "last": nn.Conv2d(12, 12, 1)}
    optimized = _optimized(Model(run, **layers), image(layout=layout))
    (block,) = (each for each in optimized.modules() if isinstance(each, SqueezeExcite))
    device = _planning.device(torch.device("cpu"))
    for batch in (1, 3):
        x = image(layout=layout, batch=batch)
        problem = block.problem(tuple(x.shape), x.dtype, layout == "channels_last")
        plan = _core.candidates("squeeze_excite", problem, device)[0].name
        of_problem = records.environment_of(device), records.problem_fields(problem)
        records.remember(records.Record(*of_problem, plan, 1.0, {plan: 1.0}))
    try:
        for batch in (1, 3, 1):
            x = image(layout=layout, batch=batch)
            with torch.no_grad():
                for _ in range(2):
                    torch.testing.assert_close(optimized(x), _by_layers(optimized, x))
            assert _chains(optimized) == [1, 1]
            kept = block._kept[tuple(x.shape), x.dtype, layout == "channels_last", x.device]
            assert kept[1].startswith("squeeze_excite")
        given = image(layout=layout).requires_grad_()
        optimized(given).sum().backward()
        assert given.grad is not None
        with torch.no_grad():  # the program holds the weights as they were
            block.excite.weight.mul_(2)
            torch.testing.assert_close(optimized(x), _by_layers(optimized, x))
    finally:
        records.forget()


@pytest.mark.parametrize("by_image", [True, False])
@pytest.mark.parametrize("adds", [True, False])
def test_blocks_that_their_layers_do_are_in_the_chain(
    adds: bool, by_image: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InvertedResidual, "_found", lambda *_: None)  # what no kernel is the fastest for

    def run(model: Any, x: Tensor) -> Tensor:
        y = model.first(x)
        inner = model.project(model.depthwise(model.expand(y).relu()).relu())
        return model.last(inner + y if adds else inner)  # type: ignore[no-any-return]

    layers = {name: nn.Conv2d(12, 12, 3, padding=1) for name in ("first", "last")}
    layers |= {"expand": nn.Conv2d(12, 40, 1), "project": nn.Conv2d(40, 12, 1)}
    layers |= {"depthwise": nn.Conv2d(40, 40, 3, padding=1, groups=40)}
    optimized = _optimized(Model(run, **layers), image(layout="channels_last"))
    assert any(isinstance(each, InvertedResidual) for each in optimized.modules())
    optimized.programs.by_image = by_image
    optimized.programs.forget()
    with torch.no_grad():
        for batch in (1, 3, 1):
            x = image(layout="channels_last", batch=batch)
            for _ in range(2):
                torch.testing.assert_close(optimized(x), _by_layers(optimized, x))
        assert _chains(optimized) == [3]
        optimized.network.get_submodule("block").project.weight.mul_(2)  # type: ignore[union-attr, operator]
        torch.testing.assert_close(optimized(x), _by_layers(optimized, x))
    given = image(layout="channels_last").requires_grad_()
    optimized(given).sum().backward()
    assert given.grad is not None


def test_results_are_the_callers() -> None:
    """Neither they nor views of them lie in the memory that the next call works in."""

    def run(model: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return model.one(x), model.two(model.one(x)).flatten(1)

    optimized = convx.optimize(Model(run, one=block(), two=block()), image(), tune=False)
    first = optimized(image())
    kept = [each.clone() for each in first]
    optimized(image())
    assert all(map(torch.equal, first, kept))


def test_what_writes_to_a_result_writes_to_that() -> None:
    def run(model: Any, x: Tensor) -> Tensor:
        y = model.one(x)
        z = y.clone()
        y[:, :3].mul_(2)
        return model.two(y) + z  # type: ignore[no-any-return]

    optimized = _optimized(Model(run, one=block(), two=block()))
    for _ in range(3):
        x = image()
        assert torch.equal(optimized(x), _by_layers(optimized, x))


@pytest.mark.parametrize("by_image", [True, False])
@pytest.mark.parametrize(
    "write",
    [
        lambda layer: layer.weight.mul_(2),
        lambda layer: layer.bias.add_(1),
        lambda layer: setattr(layer, "weight", nn.Parameter(torch.ones_like(layer.weight), False)),
        lambda layer: setattr(layer.weight, "data", torch.ones_like(layer.weight)),
        lambda layer: layer.load_state_dict({k: v + 1 for k, v in layer.state_dict().items()}),
    ],
)
def test_weights_that_change(write: Callable[[Any], object], by_image: bool) -> None:
    optimized, x = _optimized(), image()
    optimized.programs.by_image = by_image
    before = optimized(x)
    with torch.no_grad():
        write(next(each for each in optimized.network.modules() if isinstance(each, FusedConv2d)))
        after = optimized(x)
    assert not torch.equal(after, before)
    torch.testing.assert_close(after, _by_layers(optimized, x), rtol=1e-5, atol=1e-5)


def test_steps_that_count_no_version() -> None:
    """As of fused optimizers."""
    optimized, x = _optimized(), image()
    optimized.requires_grad_(True)
    optimizer = torch.optim.Adam(optimized.parameters(), lr=0.1, fused=True)
    with torch.no_grad():
        before = optimized(x)
    optimized(x).sum().backward()
    optimizer.step()
    with torch.no_grad():
        after = optimized(x)
        assert not torch.equal(after, before) and _chains(optimized) == [3, 1]
        torch.testing.assert_close(after, _by_layers(optimized, x), rtol=1e-5, atol=1e-5)


def test_weights_that_are_to_have_gradients() -> None:
    optimized, x = _optimized(), image()
    optimized(x)
    optimized.requires_grad_(True)
    optimized(x).sum().backward()
    assert all(each.grad is not None for each in optimized.parameters())
    optimized.requires_grad_(False)
    assert not optimized(x).requires_grad and _chains(optimized) == [3, 1]


@pytest.mark.parametrize("how", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_begin_anew(how: Callable[[OptimizedModel], OptimizedModel]) -> None:
    optimized, x = _optimized(), image()
    optimized.programs.by_image = True
    expected = optimized(x)
    copied = how(optimized)
    assert len(copied.programs) == 0 and copied.programs.by_image
    assert torch.equal(copied(x), expected) and len(copied.programs) == 1


def test_pickles_of_older_versions() -> None:
    optimized, x = _optimized(), image()
    expected = optimized(x)
    for name in ("programs", "compiled"):
        del vars(optimized)[name]
    assert torch.equal(pickle.loads(pickle.dumps(optimized))(x), expected)


def test_saved_and_loaded() -> None:
    optimized, x, file = _optimized(), image(), io.BytesIO()
    torch.save(optimized, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), optimized(x))


def test_threads_at_once() -> None:
    """One has the memory; others go by layers meanwhile."""
    optimized = _optimized()
    images = [image() for _ in range(4)]
    expected = [_by_layers(optimized, each) for each in images]

    def serve(place: int) -> None:
        for _ in range(40):
            assert torch.equal(optimized(images[place]), expected[place])

    at_once(4, serve)


def test_another_number_of_threads_is_another_program() -> None:
    optimized, x, before = _optimized(), image(), torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            results.append(optimized(x))
    finally:
        torch.set_num_threads(before)
    assert len(optimized.programs) == 2 + (before > 2)
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-5)
    assert torch.equal(results[0], results[2])


def test_many_kinds_of_input_do_not_pile_up() -> None:
    optimized = _optimized()
    for batch in range(1, 14):
        x = image(batch=batch)
        assert torch.equal(optimized(x), _by_layers(optimized, x))
    assert len(optimized.programs) == optimized.programs._MOST


def test_memory_is_flat() -> None:
    optimized, x = _optimized(), torch.randn(1, 12, 160, 160)
    assert_steady(lambda: optimized(x), "cpu", "an optimized model", x.nbytes)


def test_the_memory_is_what_lives_at_once() -> None:
    """Of ten layers one behind the other two values are, and neither the first input nor the result."""
    model = nn.Sequential(*[nn.Conv2d(12, 12, 3, padding=1) for _ in range(10)])
    optimized = _optimized(model, image(batch=1))
    optimized(image(batch=1))
    value = 4 * 12 * 11 * 13
    assert _chains(optimized) == [10] and optimized.programs._memory.numel() <= 2 * (value + 64)


def test_what_is_unusual_goes_by_the_graph() -> None:
    optimized, x = _optimized(), image()
    count = len(optimized.programs)
    with torch.autocast("cpu", torch.bfloat16):
        assert optimized(x[:1]).dtype == torch.bfloat16
    leaf = image(batch=1).requires_grad_()
    optimized(leaf).sum().backward()
    assert leaf.grad is not None
    meta = copy.deepcopy(optimized).to("meta")(image().to("meta"))
    assert meta.is_meta and len(optimized.programs) == count


def test_weights_of_inference_mode_go_by_the_graph() -> None:
    """Nobody counts writes to them."""
    with torch.inference_mode():
        model = _model()
        optimized = convx.optimize(model, image(), tune=False)
        x = image()
        before = optimized(x)
        _ones(optimized)
        assert not torch.equal(optimized(x), before)
        torch.testing.assert_close(optimized(x), _by_layers(optimized, x))


def test_errors_are_the_layers() -> None:
    optimized = _optimized()
    for wrong in (torch.randn(2, 5, 11, 13), torch.randn(2, 12, 11, 13).double()):
        with pytest.raises(Exception) as said:
            optimized(wrong)
        with pytest.raises(type(said.value)) as expected:
            _by_layers(optimized, wrong)
        assert str(said.value) == str(expected.value)
    x = image()
    assert torch.equal(optimized(x), _by_layers(optimized, x))


def test_images_one_by_one_where_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    def times(calls: dict[str, Any], *_: Any) -> dict[str, float]:
        return {name: 1.0 if "by image" in name else 2.0 for name in calls}

    monkeypatch.setattr(optimizing, "_times", times)
    optimized = optimized_agrees(_model(), image(batch=3))
    assert optimized.report is not None and optimized.report.by_image
    assert "image by image" in str(optimized.report) and "1x12x11x13" in optimized.report.rows[0].shape
    for batch in (1, 2, 3, 4):
        x = image(batch=batch)
        torch.testing.assert_close(optimized(x), _by_layers(optimized, x), rtol=1e-5, atol=1e-5)
    assert not convx.optimize(_model(), image(batch=1)).report.by_image  # type: ignore[union-attr]


def test_results_of_any_structure() -> None:
    """Lists and dicts are the caller's to write to; arguments may be in lists, slices and by name."""
    pair = namedtuple("pair", "first second")

    def run(model: Any, x: Tensor) -> dict[str, Any]:
        y = model.one(x)
        z = torch.cat([y, x[:, :6], y.narrow(1, start=2, length=3)], dim=1)
        return {"list": [y, (z, 3)], "pair": pair(z.mean(dim=(2, 3)), second=None)}

    optimized = convx.optimize(Model(run, one=block()), image(), tune=False)
    for _ in range(3):
        x = image()
        result, expected = optimized(x), _by_layers(optimized, x)
        assert type(result) is dict and type(result["list"]) is list and type(result["list"][1]) is tuple
        assert type(result["pair"]) is pair and result["pair"].second is None and result["list"][1][1] == 3
        torch.testing.assert_close(result["list"][0], expected["list"][0])
        torch.testing.assert_close(result["list"][1][0], expected["list"][1][0])
        torch.testing.assert_close(result["pair"].first, expected["pair"].first)
        result["list"].append(0)
        result["new"] = 0


def test_sizes_that_depend_on_values() -> None:
    """As many images as are positive somewhere go through the layers."""

    def run(model: Any, x: Tensor) -> Tensor:
        return model.two(model.one(x[x.amax((1, 2, 3)) > 0])).sum((2, 3))  # type: ignore[no-any-return]

    optimized = _optimized(Model(run, one=block(), two=block()), image(batch=3))
    for optimized.programs.by_image in (False, True):
        optimized.programs.forget()
        for count in (3, 3, 1, 2, 3):
            x = image(batch=3)
            x[count:] = -x[count:].abs()
            result = optimized(x)
            assert len(result) == count
            torch.testing.assert_close(result, _by_layers(optimized, x), rtol=1e-5, atol=1e-4)
    assert _chains(optimized) == [2] and len(optimized.programs) == 1


def test_gradients_of_what_is_no_convolution() -> None:
    layers = {"scale": nn.BatchNorm2d(12, track_running_stats=False), "one": block(), "two": block()}
    optimized = _optimized(Model(lambda model, x: model.two(model.one(model.scale(x))), **layers), image())
    optimized(image())
    scale = optimized.network.scale
    scale.requires_grad_(True)  # type: ignore[operator, union-attr]
    optimized(image()).sum().backward()
    assert scale.weight.grad is not None  # type: ignore[union-attr]


def test_images_of_two_batches() -> None:
    """Of one size apart, in layers that follow one another."""

    def run(model: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        half = x[:1]
        return model.two(model.one(x)), model.four(model.three(half))

    layers = {name: block() for name in ("one", "two", "three", "four")}
    optimized = convx.optimize(Model(run, **layers), image(batch=4), tune=False)
    for optimized.programs.by_image in (False, True):
        optimized.programs.forget()
        for batch in (4, 4, 2):
            x = image(batch=batch)
            for result, right in zip(optimized(x), _by_layers(optimized, x), strict=True):
                torch.testing.assert_close(result, right, rtol=1e-5, atol=1e-5)
    assert _chains(optimized) == [2, 2]


def test_a_model_with_the_batch_in_its_code() -> None:
    """Layers can't be measured with one image of it."""
    model = Model(lambda model, x: model.one(x).view(2, 12, -1), one=block())
    report = convx.optimize(model, image(batch=2)).report
    assert report is not None and not report.reason and not report.by_image


def _link(residual: bool = False, x: Tensor | None = None) -> Any:
    x = image() if x is None else x
    layer = FusedConv2d(12, 12, 3, padding=1, algorithm="hntmp").eval().requires_grad_(False)
    rest = ((1, 1), (1, 1, 1, 1), (1, 1), 1, "none", "hntmp")
    kept = {"residual": x if residual else None, "residual_after_activation": False}
    packed = layer._packed.of(x, layer.weight, layer.bias, *rest, 0, **kept)  # type: ignore[union-attr, arg-type]
    return _front.convolution_link(x, layer.weight, layer.bias, kept["residual"], False, *rest, packed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([(0, -1), (2, -1)], 1, [2]), "what there is before it"),
        (([(0, -1), (-1, -1)], 1, [2]), "what there is before it"),
        (([(0, -1), (1, 0)], 1, [2]), "with a residual or without"),
        (([(0, -1)], 1, [1]), "something each"),
        (([(0, -1), (1, -1)], 1, [0]), "outputs are its links'"),
        (([(0, -1), (1, -1)], 1, [2], True), "prepared for one"),
    ],
)
def test_chains_that_are_none(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        _front.Chain([_link(), _link()], *arguments, *((False,) if len(arguments) == 3 else ()))


def test_calls_of_a_chain_that_are_none() -> None:
    chain = _front.Chain([_link(), _link()], [(0, -1), (1, -1)], 1, [2], False)
    memory = torch.empty(chain.bytes, dtype=torch.uint8)
    assert chain.bytes >= 4 * image().numel()
    assert len(chain.run([image()], memory)) == 1
    with pytest.raises(ValueError, match="inputs are all given"):
        chain.run([], memory)
    with pytest.raises(ValueError, match="as much memory as it says"):
        chain.run([image()], memory[1:])
    one = _link(x=image(batch=1)), _link(residual=True, x=image(batch=1))
    apart = _front.Chain([*one], [(0, -1), (2, 1)], 2, [3], True)
    memory = torch.empty(apart.bytes, dtype=torch.uint8)
    assert [each.shape[0] for each in apart.run([image(batch=3), image(batch=3)], memory)] == [3]
    for others in ([image(batch=3), image(batch=2)], [image().double()] * 2, [torch.randn(2, 12, 11, 9)] * 2):
        assert apart.run(others, memory) is None
    leaf = image().requires_grad_()
    assert apart.run([leaf, leaf], memory) is None
    with torch.no_grad():
        assert apart.run([leaf, leaf], memory) is not None
