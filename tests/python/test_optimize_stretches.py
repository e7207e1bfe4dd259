"""Networks in stretches of either layout: where they may change it, when they do, and that they are right."""

from __future__ import annotations

import copy
import dataclasses
import io
import itertools
import json
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compiled import fresh, take_all, without_inductor
from hypothesis import given, settings
from hypothesis import strategies as st
from optimized import LAYOUTS, Model, block, fused_is_the_fastest, image, optimized_agrees
from programs import CHANNELS, Program, layers, steps
from torch import Tensor, nn
from tuned import own_folder

import convx
from convx import _planning
from convx._arguments import is_channels_last
from convx.optimize import conversions, optimizing, stretches
from convx.optimize.assignment import cheapest
from convx.optimize.check import Reference
from convx.optimize.conversions import Conversions
from convx.optimize.cuts import cuts_of
from convx.optimize.optimizing import followed
from convx.tune import choosing, records

__all__ = ["fresh", "fused_is_the_fastest", "own_folder", "without_inductor"]
pytestmark = pytest.mark.usefixtures("own_folder")
_choose_plans = optimizing.choose
OTHER = {"nchw": "channels_last", "channels_last": "nchw"}
US = st.integers(0, 40).map(float)
BOTH = st.tuples(US, US)


@given(st.lists(st.tuples(BOTH, BOTH), min_size=1, max_size=8))
def test_the_cheapest_assignment(stretches: list[tuple[Any, Any]]) -> None:
    costs, leaving = [each for each, _ in stretches], [each for _, each in stretches[1:]]

    def us(layouts: tuple[int, ...]) -> float:
        pairs = zip(leaving, layouts, layouts[1:], strict=False)
        own = sum(each[layout] for each, layout in zip(costs, layouts, strict=True))
        return own + sum(leave[before] for leave, before, after in pairs if before != after)

    found = cheapest(costs, leaving)
    every = list(itertools.product((0, 1), repeat=len(costs)))
    assert found.us == us(found.layouts) == min(map(us, every))
    changes = [place for place in range(len(costs) - 1) if len(set(found.layouts[place : place + 2])) > 1]
    assert found.changes == changes


def test_nothing_is_converted_for_nothing() -> None:
    assert not cheapest([(1.0, 1.0)] * 4, [(0.0, 0.0)] * 3).changes
    assert not cheapest([(1.0, 2.0), (2.0, 1.0)], [(1.0, 1.0)]).changes
    assert cheapest([(1.0, 9.0), (9.0, 1.0)], [(float("inf"), 1.0)]).layouts == (0, 0)


def graph_of(model: nn.Module, x: Tensor) -> torch.fx.GraphModule:
    with torch.no_grad():
        network = followed(model.eval(), Reference(model, (x,), {}), (x,), {})
    assert not network.reason
    return network.module  # type: ignore[no-any-return]


def cut_names(run: Callable[[Any, Tensor], Any], **modules: nn.Module) -> list[str]:
    """Of what is called where the layout may change."""
    module = graph_of(Model(run, **modules), image())
    nodes = list(module.graph.nodes)
    return [str(nodes[place].target) for place in cuts_of(module)]


def three() -> dict[str, nn.Module]:
    return {name: block() for name in ("one", "two", "three")}


def squeeze_excite(model: Any, x: Tensor) -> Tensor:
    y = model.two(model.one(x))
    return model.three(y * torch.sigmoid(model.gate(y.mean((2, 3), keepdim=True))))  # type: ignore[no-any-return]


def by_size(model: Any, x: Tensor) -> Tensor:
    """The size of the input, which is no tensor, is read at the end."""
    batch = x.size(0)
    return model.two(model.one(x)).sum((2, 3)).view(batch, -1)  # type: ignore[no-any-return]


CUTS: dict[str, tuple[Callable[[Any, Tensor], Any], list[str]]] = {
    "chain": (lambda m, x: m.three(m.two(m.one(x))), ["one.0", "two.0"]),
    "residual": (lambda m, x: m.three(m.two(y := m.one(x)) + y), ["one.0", "two.0"]),
    "residual of the input": (lambda m, x: m.three(m.two(m.one(x)) + x), ["two.0"]),
    "concatenation": (lambda m, x: torch.cat([m.two(y := m.one(x)), m.three(y)], 1).relu(), ["one.0", "cat"]),
    "side output": (lambda m, x: (y := m.one(x), m.three(m.two(y))), ["one.0"]),
    "shared layer": (lambda m, x: m.three(m.plain(m.two(m.plain(m.one(x))))), ["one.0", "plain"]),
    "of one pixel": (lambda m, x: m.three(m.one(x).mean((2, 3), keepdim=True)), ["one.0"]),
    "two ways from the input": (lambda m, x: m.one(x) * m.two(x.sin()), []),
}


@pytest.mark.parametrize("name", CUTS)
def test_cuts(name: str) -> None:
    run, expected = CUTS[name]
    found = cut_names(run, **three(), plain=nn.Conv2d(12, 12, 1))
    assert [each if "cat" not in each and "moved" not in each else "cat" for each in found] == expected


def test_cuts_beside_gates_and_sizes() -> None:
    gate = nn.Conv2d(12, 12, 1)
    assert cut_names(squeeze_excite, **three(), gate=gate)[:2] == ["one.0", "two.0"]
    found = cut_names(squeeze_excite, **three(), gate=gate)
    assert len(found) == 3 and found[2] not in ("gate", "one.0")  # the product
    assert cut_names(by_size, one=block(), two=block()) == ["one.0", "two.0"]


def test_no_cut_where_one_filter_is_on_both_sides() -> None:
    """By whatever names."""
    one, two = block(), block()
    two[0].weight = one[0].weight
    two[1], one[1] = nn.Identity(), nn.Identity()
    module = graph_of(Model(lambda m, x: m.three(m.two(m.one(x))), one=one, two=two, three=block()), image())
    nodes = list(module.graph.nodes)
    assert [str(nodes[place].target) for place in cuts_of(module)] == ["two.0"]


@pytest.mark.parametrize("alternate", [False, True])
@given(layers(), steps(), st.lists(st.sampled_from([*LAYOUTS]), min_size=16, max_size=16), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_stretches_of_programs_nobody_wrote(
    alternate: bool, layers: list[str], program: list[tuple[str, int, int]], names: list[str], seed: int
) -> None:
    torch.manual_seed(seed)
    model = Program(layers, program).eval()
    x = torch.randn(2, CHANNELS, 5, 7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimizing, "gc", SimpleNamespace(collect=lambda: 0))
        with torch.no_grad():
            module = followed(model, Reference(model, (x,), {}), (x,), {}).module
    if not isinstance(module, torch.fx.GraphModule):
        return
    cuts = cuts_of(module)
    if alternate:
        names = ["nchw", "channels_last"] * 32
    mixed = stretches._in_stretches(module, cuts, [*names, *names][: len(cuts) + 1])
    exact = copy.deepcopy(model).double()(x.double())
    with torch.no_grad():
        for own, reached, true in zip(model(x), mixed(x.clone()), exact, strict=True):
            assert (reached - true).norm() <= 2 * (own - true).norm() + 1e-5 * true.norm() + 1e-12, mixed


Liked = Callable[[Any], str]


def channels_of(problem: Any) -> int:
    return int(getattr(problem, "in_channels", 0) or problem.channels)


def narrow_in(layout: str) -> Liked:
    """Layers of 12 channels are faster in this one, all others in the other."""
    return lambda problem: layout if channels_of(problem) == 12 else OTHER[layout]


class Timed:
    """Makes up times of layers and conversions, and lets the mixed model, where there is one, be the fastest;
    names of the models that were timed."""

    def __init__(self, patch: pytest.MonkeyPatch, liked: Liked, conversion: float = 1.0) -> None:
        self.names: list[str] = []
        self.liked, self.slow, self.mixed = liked, 100.0, 1.0
        patch.setattr(optimizing, "choose", _choose_plans)
        patch.setattr(choosing, "measured", self._measured)
        patch.setattr(Conversions, "_measure", lambda *_: conversion)
        patch.setattr(optimizing, "_times", self._times)

    def _measured(self, problem: Any, where: torch.device, *_: Any) -> records.Record:
        us = 50.0 if problem.layout == self.liked(problem) else self.slow
        environment = records.environment_of(_planning.device(where))
        return records.Record(environment, records.problem_fields(problem), "native", us, {"native": us})

    def _times(self, calls: dict[str, Any], *_: Any) -> dict[str, float]:
        for call in calls.values():
            call()
        self.names = list(calls)
        return {name: self.mixed if name == "mixed" else 3.0 for name in calls} | {"native": 4.0}


def network(runs_to: str = "vector") -> Model:
    """A narrow part and a wide one; residuals, gates and concatenations in both."""

    def run(model: Any, x: Tensor) -> Any:
        y = model.one(x)
        y = F.relu(model.two(y) + y)
        y = torch.cat([y, model.three(y)], 1)
        y = model.wide(y)
        y = y * torch.sigmoid(model.excite(F.relu(model.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        y = model.last(F.max_pool2d(y, 2)) + model.skip(F.max_pool2d(y, 2))
        if runs_to == "image":
            return y
        if runs_to == "narrow image":
            return model.narrow(y)
        return model.linear(y.mean((2, 3)))

    return Model(
        run,
        **three(),
        wide=block(24),
        squeeze=nn.Conv2d(24, 8, 1),
        excite=nn.Conv2d(8, 24, 1),
        last=block(24, groups=24),
        skip=nn.Conv2d(24, 24, 1),
        narrow=nn.Conv2d(24, 12, 1),
        linear=nn.Linear(24, 5),
    )


def conversions_in(optimized: convx.OptimizedModel) -> list[torch.memory_format]:
    found = optimized.network.graph.find_nodes(op="call_method", target="contiguous")  # type: ignore[union-attr, operator]
    return [each.kwargs["memory_format"] for each in found]


def layouts_seen(optimized: convx.OptimizedModel, x: Tensor) -> dict[str, set[str]]:
    """That the inputs of convolutions have which have so many channels, where layouts differ."""
    seen: dict[str, set[str]] = {}

    def see(layer: Any, inputs: tuple[Tensor, ...]) -> None:
        if inputs[0].shape[2:] != (1, 1):
            kind = "narrow" if layer.in_channels == 12 else "wide"
            found = "channels_last" if is_channels_last(inputs[0]) else "nchw"
            seen.setdefault(kind, set()).add(found)
            assert is_channels_last(layer.weight) == (found == "channels_last"), layer

    of_layers = [each for each in optimized.network.modules() if isinstance(each, nn.Conv2d)]
    handles = [each.register_forward_pre_hook(see) for each in of_layers]
    with torch.no_grad():
        tensors, _ = optimized.in_own_layout((x,), {})
        optimized.network(*tensors)
    for each in handles:
        each.remove()
    return seen


@pytest.mark.parametrize("given", LAYOUTS)
@pytest.mark.parametrize("narrow", LAYOUTS)
@pytest.mark.parametrize("runs_to", ["vector", "image", "narrow image"])
def test_stretches_that_are_forced_apart(
    runs_to: str, narrow: str, given: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = Timed(monkeypatch, narrow_in(narrow))
    model, x = network(runs_to).to(device), image(device, layout=given)
    optimized = optimized_agrees(model, x)
    assert timed.names.count("mixed") == 1 and timed.names[-2:] == ["mixed", "torch's own layers"]
    assert optimized.layout == narrow and optimized.report is not None
    (converted,) = conversions_in(optimized)
    assert converted == LAYOUTS[OTHER[narrow]]
    wide = "wide.0"
    assert optimized.report.layout == f"{narrow}, {OTHER[narrow]} from layer {wide} on"
    assert layouts_seen(optimized, x) == {"narrow": {narrow}, "wide": {OTHER[narrow]}}
    for layout in LAYOUTS:  # of the input, whatever it is inside
        other = x.contiguous(memory_format=LAYOUTS[layout])
        with torch.no_grad():
            expected, results = model(other), [optimized(other) for _ in range(3)]
        assert {each.stride() for each in results} == {expected.stride()}
        torch.testing.assert_close(results[0], expected, rtol=1e-4, atol=1e-4)
        assert all(torch.equal(each, results[0]) for each in results)
    if device == "cuda":
        assert optimized.report.cuda_graphs and len(optimized.graphs) > 0


def test_more_than_one_change(monkeypatch: pytest.MonkeyPatch) -> None:
    Timed(monkeypatch, narrow_in("nchw"))

    def run(model: Any, x: Tensor) -> Any:
        return model.back(model.deep(model.wide(model.one(x)))).sum((2, 3))

    wide = nn.Conv2d(12, 24, 1)
    optimized = optimized_agrees(Model(run, one=block(), wide=wide, deep=block(24), back=back()), image())
    assert optimized.report is not None
    first, second = "channels_last from layer deep.0 on", "nchw from layer back.1.0 on"
    assert optimized.report.layout == f"nchw, {first}, {second}"
    assert len(conversions_in(optimized)) == 2


def back() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(24, 12, 1), block())


@pytest.mark.parametrize("given", LAYOUTS)
def test_blocks_by_their_kernels_alone(given: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which they have in channels_last; in the other layout they are several layers at one place."""
    timed = Timed(monkeypatch, lambda problem: "nchw")

    def measured(problem: Any, where: torch.device, plans: Any, *_: Any) -> records.Record:
        record = timed._measured(problem, where)
        if problem.operation != "inverted_residual":
            return record
        kernel = next(each for each in plans if not each.startswith("native"))
        times = {kernel: 5.0, "native": 200.0}
        return dataclasses.replace(record, algorithm=kernel, us=5.0, candidates=times)

    monkeypatch.setattr(choosing, "measured", measured)

    def run(model: Any, x: Tensor) -> Any:
        y = model.widen(model.one(x))
        return model.last(y + model.project(F.relu6(model.depthwise(F.relu6(model.expand(y)))))).mean((2, 3))

    wide = {
        "expand": nn.Conv2d(16, 48, 1),
        "depthwise": nn.Conv2d(48, 48, 3, padding=1, groups=48),
        "project": nn.Conv2d(48, 16, 1),
    }
    model = Model(run, one=block(), widen=nn.Conv2d(12, 16, 1), **wide, last=nn.Conv2d(16, 8, 3))
    optimized = optimized_agrees(model.to(device), image(device, layout=given))
    report = optimized.report
    assert report is not None and [row.name for row in report.in_order] == ["one.0", "widen", "block", "last"]
    assert report.layout == "nchw, channels_last from layer block on, nchw from layer last on"
    assert report.in_order[2].method == "inverted_residual" and report.in_order[2].us == 5.0


@pytest.mark.parametrize("conversion", [1.0, 60.0, 1e6])
def test_conversions_count(conversion: float, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(monkeypatch, narrow_in("nchw"), conversion)
    report = convx.optimize(network(), image()).report
    assert report is not None
    # Of 450 us at least in one layout 350 would be left, and 9 once more of them one by one.
    assert ("mixed" in timed.names) == ("from layer" in report.layout) == (conversion < 1000)


def test_no_more_than_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than 3 % of gain are not timed, and who is timed is taken where it is faster alone."""
    timed = Timed(monkeypatch, narrow_in("nchw"))
    timed.slow = 51.0
    convx.optimize(network(), image())
    assert timed.names == [
        "native",
        "as given",
        "channels_last",
        "as given by image",
        "channels_last by image",
        "torch's own layers",
    ]
    records.forget()
    timed.slow, timed.mixed = 100.0, 2.95  # of 3.0
    report = convx.optimize(network(), image()).report
    assert "mixed" in timed.names and report is not None and report.layout == "as given"


@pytest.mark.parametrize("options", [*({"layout": each} for each in ("as given", *LAYOUTS)), {"tune": False}])
def test_who_does_not_ask_for_it(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(monkeypatch, narrow_in("nchw"))
    optimized = optimized_agrees(network(), image(), **options)
    assert "mixed" not in timed.names and not conversions_in(optimized)


@pytest.mark.parametrize(
    "run",
    [
        lambda model, x: model.wide(torch.cat([model.one(x), x], 1)) + torch.cat([x, x], 1),
        lambda model, x: model.two(model.one(x)),
        lambda model, x: x.mul_(1.0) + model.two(model.one(x)),
    ],
    ids=["no cut", "one layout", "writes to the input"],
)
def test_models_that_gain_nothing(run: Callable[[Any, Tensor], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(monkeypatch, narrow_in("nchw"))
    model = Model(run, one=block(), two=block(), wide=block(24))
    report = convx.optimize(model, image()).report
    assert report is not None and report.layout == "as given" and "mixed" not in timed.names


def test_layers_without_times_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured in one layout alone."""
    timed = Timed(monkeypatch, narrow_in("nchw"))
    monkeypatch.setattr(records, "remembered", lambda problem, _: None)
    convx.optimize(network(), image())
    assert "mixed" not in timed.names


@pytest.mark.parametrize("cheap", [1, 3])
def test_images_one_by_one(cheap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the way that is the faster one by what layers take."""
    timed = Timed(monkeypatch, narrow_in("nchw"))
    measured = timed._measured

    def by_batch(problem: Any, *rest: Any) -> records.Record:
        record = measured(problem, *rest)
        return dataclasses.replace(record, us=record.us * (1.0 if problem.batch == cheap else 4.0))

    monkeypatch.setattr(choosing, "measured", by_batch)
    optimized = optimized_agrees(network(), image(batch=3))
    assert optimized.report is not None and optimized.report.by_image == optimized.programs.by_image
    assert optimized.programs.by_image == (cheap == 1) and len(conversions_in(optimized)) == 1


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "save": lambda model: _saved(model),
}


def _saved(model: Any) -> Any:
    torch.save(model, file := io.BytesIO())
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("how", COPIES)
def test_copies(how: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Timed(monkeypatch, narrow_in("channels_last"))
    x = image(device)
    optimized = optimized_agrees(network("image").to(device), x)
    made = COPIES[how](optimized)
    assert made.layout == optimized.layout and conversions_in(made) == conversions_in(optimized)
    assert layouts_seen(made, x) == {"narrow": {"channels_last"}, "wide": {"nchw"}}
    assert made.report == optimized.report and made.choices == optimized.choices
    with torch.no_grad():
        for batch in (1, 2, 5):
            other = image(device, batch=batch)
            result, expected = made(other), optimized(other)
            assert result.stride() == expected.stride()
            torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    made.load_state_dict(optimized.state_dict())
    torch.testing.assert_close(made(x), optimized(x), rtol=1e-5, atol=1e-5)


def test_choices_are_of_the_layouts_that_layers_have(monkeypatch: pytest.MonkeyPatch) -> None:
    Timed(monkeypatch, narrow_in("channels_last"))
    optimized = optimized_agrees(network(), image())
    for each in optimized.choices:
        problem = records._problem_of(each.problem)
        if problem.operation == "forward" and problem.in_height > 1:
            assert problem.layout == ("channels_last" if problem.in_channels == 12 else "nchw")


@pytest.mark.parametrize(
    ("given", "strict"), [("nchw", False), ("channels_last", False), ("channels_last", True)]
)
def test_export(given: str, strict: bool, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Timed(monkeypatch, narrow_in("channels_last"))
    x = image(device, layout=given)
    optimized = optimized_agrees(network("image").to(device), x)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(optimized, (x,), dynamic_shapes=(({0: batch},),), strict=strict)
    assert not program.constants and program.state_dict.keys() == optimized.state_dict().keys()
    with torch.no_grad():
        for count in (1, 2, 5):
            other = image(device, layout=given, batch=count)
            result, expected = program.module()(other), optimized(other)
            assert result.stride() == expected.stride()
            torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


def test_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    Timed(monkeypatch, narrow_in("nchw"))
    report = optimized_agrees(network(), image()).report
    assert report is not None
    told = "nchw, channels_last from layer wide.0 on"
    assert f"layout {told}" in str(report) and told in report.to_html()
    assert json.loads(json.dumps(report.to_dict()))["layout"] == told
    of_images = [row for row in report.rows if not row.shape.endswith("x1x1")]
    assert len(of_images) == 6 and all(row.us == 50.0 for row in of_images)  # each as it likes it


@pytest.mark.parametrize("faster", ["as given", "channels_last"])
def test_what_is_compiled_has_one_layout(faster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    timed, seen = Timed(monkeypatch, narrow_in("nchw")), []

    def times(calls: dict[str, Any], *_: Any) -> dict[str, float]:
        return timed._times(calls) | {faster: 2.9}

    def compiled(found: Any, *_: Any) -> Any:
        seen.append(found)
        return found

    monkeypatch.setattr(optimizing, "_times", times)
    monkeypatch.setattr(optimizing, "_compiled_if_faster", compiled)
    optimized = convx.optimize(network(), image(), compile=True)
    assert [each.layout for each in seen] == [faster] and conversions_in(optimized)


@pytest.mark.usefixtures("without_inductor")
def test_what_is_compiled_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of stretches is left in its report."""
    timed = Timed(monkeypatch, narrow_in("nchw"))
    take_all(monkeypatch)

    def times(calls: dict[str, Any], *_: Any) -> dict[str, float]:
        return timed._times(calls) | ({"compiled": 0.5, "uncompiled": 1.0} if "compiled" in calls else {})

    monkeypatch.setattr(optimizing, "_times", times)
    optimized = convx.optimize(network(), image(), compile=True)
    assert optimized.report is not None and optimized.report.compiled
    assert optimized.report.layout == optimized.layout == "as given"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_conversions_are_measured_once(layout: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    profile = conversions.profile

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return profile(*arguments)

    monkeypatch.setattr(conversions, "profile", counted)
    known = Conversions(torch.device(device))
    x = torch.randn(4, 32, 56, 56, device=device).contiguous(memory_format=LAYOUTS[OTHER[layout]])
    assert known.known(x, layout) == 0 and not known.is_measured(x, layout)
    us = known.measured(x, layout)
    assert 0 < us < 1e5 and known.measured(x, layout) == known.known(x, layout) == us
    assert len(calls) == 1 and not known.is_measured(x.half(), layout)
    (contenders, *_) = calls[0]
    made = contenders[layout](0)
    assert made.is_contiguous(memory_format=LAYOUTS[layout])
    assert made.shape == x.shape and made.dtype == x.dtype


def test_a_conversion_that_can_not_be_made() -> None:
    """Of more memory than there is, say: nobody takes it."""
    known = Conversions(torch.device("cpu"))
    known._us[(2, 12, 11, 13), torch.float32, "nchw"] = float("inf")
    assert not cheapest([(1.0, 9.0), (9.0, 1.0)], [(known.known(image(), "nchw"), 0.0)]).changes


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_measured_on_a_gpu(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of layers are made up, and all others are measured."""
    measured, compare = Conversions._measure, optimizing.compare
    timed = Timed(monkeypatch, narrow_in("nchw"))
    monkeypatch.setattr(Conversions, "_measure", measured)
    seen: dict[str, float] = {}

    def times(calls: dict[str, Any], *_: Any) -> dict[str, float]:
        seen.update(compare(calls, torch.device("cuda"), 3, 3).us)
        return timed._times(calls)

    monkeypatch.setattr(optimizing, "_times", times)
    x = torch.randn(8, 12, 28, 28, device="cuda", dtype=dtype)
    optimized = optimized_agrees(network().cuda().to(dtype), x)
    assert all(us > 0 for us in seen.values()) and "mixed" in seen
    assert len(conversions_in(optimized)) == 1 and optimized.report is not None
    assert optimized.report.cuda_graphs and "from layer" in optimized.report.layout
