"""What optimized models choose by measured times: plans of layers, layouts, torch's own network."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from optimized import LAYOUTS, Model, block, fused, fused_is_the_fastest, image, optimized_agrees
from torch import Tensor, nn
from tuned import CPU, depthwise, own_folder

import convx
from convx import OptimizationReport, _planning
from convx.optimize import FusionReport, optimizing
from convx.tune import measuring, records
from convx.tune.operands import Operands
from convx.tune.profiler import Timing

__all__ = ["fused_is_the_fastest", "own_folder"]
_measured, _choose_plans = optimizing._times, optimizing.choose


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_torchs_own_layers_where_they_are_faster(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def times(calls: dict[str, Any], *_: Any) -> dict[str, float]:
        return {**dict.fromkeys(calls, 2.0), list(calls)[-1]: 1.0}

    monkeypatch.setattr(optimizing, "_times", times)
    optimized = optimized_agrees(block().to(device), image(device))
    report = optimized.report
    assert report is not None and fused(optimized) == [()] and report.layout == "as given"
    assert "torch's own layers take less time" in str(report) and report.left == report.rows
    assert type(optimized.network.get_submodule("0")) is nn.Conv2d


def test_layouts_are_chosen_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def times(calls: dict[str, Any], *arguments: Any) -> dict[str, float]:
        seen.append(list(calls))
        assert all(each > 0 for each in _measured(calls, *arguments).values())
        return {name: 1.0 if name in LAYOUTS else 1.02 for name in calls}

    monkeypatch.setattr(optimizing, "_times", times)
    for layout, other in (("nchw", "channels_last"), ("channels_last", "nchw")):
        for options in ({}, {"layout": "as given"}):
            report = optimized_agrees(block(), image(layout=layout), **options).report
            assert report is not None and report.layout == "as given"  # 2 % are no difference
            layouts = ["as given", *(() if options else (other,))]
            by_image = [f"{each} by image" for each in layouts]  # of the two that image() has
            assert seen.pop() == ["native", *layouts, *by_image, "torch's own layers"]


def test_models_that_view_images_as_rows(device: str) -> None:
    """In one layout alone: the other one is no candidate, and an error where it is asked for."""
    layers = {"one": block(), "linear": nn.Linear(12 * 11 * 13, 3)}
    model = Model(lambda model, x: model.linear((y := model.one(x)).view(y.size(0), -1)), **layers).to(device)
    report = optimized_agrees(model, image(device)).report
    assert report is not None and report.layout == "as given" and not report.reason
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        convx.optimize(model, image(device), layout="channels_last")


def test_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizing, "_times", _measured)
    monkeypatch.setattr(optimizing, "_choose", lambda times, candidates: candidates[0])
    report = convx.optimize(nn.Sequential(*block(), nn.Flatten(1)), image()).report
    assert report is not None and not report.left and report.times_faster > 0
    text = str(report)
    assert "12->12 3x3 on 2x12x11x13" in text and "batch norm, relu" in text and "times as fast" in text
    assert "1 of 1 convolution layers run by convx" in text
    plain = report.to_dict()
    assert plain["rows"][0]["fused"] == ("batch norm", "relu") and plain["native_us"] > 0
    assert plain["optimized_error"] <= 2 * plain["native_error"] + 1e-6
    assert plain["rows"][0]["us"] is None  # nothing was measured of it


class Page(HTMLParser):
    """Checks that every element is closed, and keeps the text of cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {"src", "href"} & {name for name, _ in attrs}, "nothing is loaded from elsewhere"
        if tag not in ("meta", "!doctype"):
            self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open:
            self.cells[-1] += data


def test_the_page() -> None:
    rows = (
        FusionReport("stem & <first>", "3->8 3x3", ("batch norm", "relu"), "hntmp/cpu", "", 12.34, 20.0),
        FusionReport("last", "8->8 1x1", (), "", "it has hooks"),
    )
    report = OptimizationReport(rows, "", "nchw", True, 300.0, 100.0, 1e-7, 2e-7)
    text = report.to_html()
    page = Page(text)
    first, last = page.cells[:8], page.cells[8:]
    assert first == [
        "stem & <first>",
        "3->8 3x3",
        "batch norm, relu",
        "hntmp/cpu",
        "",
        "12.3",
        "20.0",
        "1.62",
    ]
    assert last == ["last", "8->8 1x1", "", "left: it has hooks", "", "", "", ""]
    assert "width: 123px" in text and "width: 200px" in text and "3.00" in text and "1 of 2" in text
    assert "12.3  20.0" in str(report)
    Page(dataclasses.replace(report, rows=(), reason="a < b").to_html())


class Skip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(12, 12, 3, padding=1), nn.BatchNorm2d(12)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)) + x)


def slower_first(contenders: dict[str, Any], *_: Any) -> dict[str, Timing]:
    """Of all contenders the last one wins; each has run."""
    for call in contenders.values():
        call(0)
    return {name: Timing([float(len(contenders) - place)]) for place, name in enumerate(contenders)}


@pytest.mark.parametrize("make", [block, Skip])
def test_plans_are_chosen_by_measured_times(
    make: Callable[[], nn.Module], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizing, "choose", _choose_plans)
    monkeypatch.setattr(measuring, "profile", slower_first)
    model, x = make().to(device), image(device)
    optimized = optimized_agrees(model, x, layout="as given")
    (choice,) = optimized.choices
    names = list(choice.candidates)
    assert choice.algorithm == names[0] and choice.us == 1.0 and "native" in names and len(names) > 1
    assert choice.problem.get("residual", False) == (make is Skip)
    assert optimized.report is not None
    (row,) = optimized.report.rows
    assert row.method == choice.algorithm.split(" ")[0]
    assert (row.us, row.torch_us) == (choice.us, choice.candidates["native"])
    # Of the likely ones: fewer than convx.tune measures.
    problem = records._problem_of(choice.problem)
    where = _planning.device(device)
    assert set(names) < set(measuring.plans_of(problem, where)) or len(names) <= 8 + 2
    # Whoever loads it takes the same plans, and records of the folder are nobody's business.
    assert not records.folder().exists()
    data = pickle.dumps(optimized)
    records.forget()
    assert records.remembered(problem, where) is None
    loaded = pickle.loads(data)
    assert records.remembered(problem, where) == choice and loaded.choices == optimized.choices
    torch.testing.assert_close(loaded(x), optimized(x))
    assert not convx.optimize(model, image(device, batch=3), tune=False).choices


def test_what_was_tuned_before_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizing, "choose", _choose_plans)
    optimized = convx.optimize(block(), image(), layout="as given")
    monkeypatch.setattr(measuring, "profile", lambda *_: pytest.fail("measured again"))
    again = convx.optimize(block(), image(), layout="as given")
    assert again.choices == optimized.choices
    other = dataclasses.replace(optimized.choices[0], environment={"device": "another"})
    loaded = copy.deepcopy(again)
    loaded.choices = (other,)
    pickle.loads(pickle.dumps(loaded))
    assert not records.is_remembered(other)


@pytest.mark.parametrize("loses", [True, False])
def test_kernels_that_lose_nan_are_left_out(loses: bool) -> None:
    operands = Operands(depthwise(), CPU)
    native = operands.call("native")
    given = operands.inputs[0]

    def call(index: int) -> Tensor:
        return native(index).nan_to_num() if loses else native(index)

    if loses:
        with pytest.raises(RuntimeError, match="zero of NaN"):
            operands.require_nan(call)
    else:
        operands.require_nan(call)
    assert operands.inputs[0] is given


def test_no_plan_whose_kernel_is_not_known_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    operands = Operands(depthwise(), CPU)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    with pytest.raises(RuntimeError, match="other kernels"):
        operands.require_nan(operands.call("native"))


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
def test_chosen_plans_keep_nan(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizing, "choose", _choose_plans)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for size in (1, 3):
            conv = nn.Conv2d(64, 64, size, padding=size // 2, bias=False)
            model = nn.Sequential(conv, nn.BatchNorm2d(64), nn.ReLU()).cuda().to(dtype).eval()
            x = torch.randn(2, 64, 14, 14, device="cuda", dtype=dtype).to(memory_format=LAYOUTS[layout])
            optimized = convx.optimize(model, x, layout="as given")
            x[0, :, 5, 5] = float("nan")
            with torch.no_grad():
                assert torch.equal(optimized(x).isnan(), model(x).isnan()), optimized.choices


def test_what_was_not_chosen_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of the weights among it."""
    monkeypatch.setattr(optimizing, "gc", gc)

    def models() -> int:
        return sum(type(each) is convx.OptimizedModel for each in gc.get_objects())

    gc.collect()
    before = models()
    optimized = convx.optimize(block(), image())
    assert models() == before + 1 and optimized.report is not None
