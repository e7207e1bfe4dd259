"""What reports of convx.optimize say beside the convolutions, and their pictures."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
import torch.nn.functional as F
from optimized import Model, block, fused_is_the_fastest, image
from torch import Tensor, nn
from tuned import own_folder

import convx
from convx import OptimizationReport
from convx.optimize import FusionReport, optimizing
from convx.optimize.report import Operation, Others
from convx.tune import measuring
from convx.tune.profiler import Timing

__all__ = ["fused_is_the_fastest", "own_folder"]
_choose_plans = optimizing.choose
LINEAR = "convx takes those of pixels and, on GPUs, small classifiers"


def report_of(model: nn.Module, x: Tensor | None = None) -> OptimizationReport:
    report = convx.optimize(model.eval(), image() if x is None else x).report
    assert report is not None
    return report


def others_of(run: Callable[[Any, Tensor], Tensor], **layers: nn.Module) -> dict[str, str]:
    report = report_of(Model(run, **layers))
    assert not report.reason
    return {each.kind: each.reason for each in report.others}


def dense(model: Any, x: Tensor) -> Tensor:
    """As DenseNet has it."""
    y = torch.cat([model.first(x), x, x + 1], 1)
    return model.second(F.relu(model.norm(y)))  # type: ignore[no-any-return]


def test_norms_that_are_left_say_why() -> None:
    found = others_of(dense, first=block(), norm=nn.BatchNorm2d(36), second=nn.Conv2d(36, 4, 3))
    assert found == {
        "concatenation": "convx moves channels of one or two float32 images",
        "batch norm": "behind a concatenation, an activation between it and the next convolution",
        "activation": "behind a batch norm",
    }


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (lambda model, x: model.conv(model.norm(x)), "behind the input, ahead of a convolution"),
        (lambda model, x: model.norm(F.relu(model.conv(x))), "behind the convolution's relu"),
        (lambda model, x: model.norm(y := model.conv(x)) * y, "others read the convolution's result too"),
        (lambda model, x: model.norm(model.conv(x).sin()), "behind what is no convolution"),
    ],
)
def test_reasons(run: Callable[[Any, Tensor], Tensor], reason: str) -> None:
    found = others_of(run, conv=nn.Conv2d(12, 12, 3, padding=1), norm=nn.BatchNorm2d(12))
    assert found["batch norm"] == reason


def test_pooling_means_and_linear_layers_are_named() -> None:
    layers = [*block(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5)]
    report = report_of(nn.Sequential(*layers))
    expected = Others("pooling", 1, ""), Others("mean of planes", 1, ""), Others("linear layer", 1, LINEAR)
    assert report.others == expected
    assert [each.name for each in report.operations] == ["_3", "_5", "6"]
    assert "beside them by convx: pooling (1), mean of planes (1)\n" in str(report)
    assert f"left to torch: linear layer (1): {LINEAR}\n" in str(report)
    data = json.loads(json.dumps(report.to_dict()))
    assert data["others"][0] == {"kind": "pooling", "count": 1, "reason": ""}
    assert data["operations"][2] == {"name": "6", "kind": "linear layer", "place": 4, "reason": LINEAR}
    assert "beside" not in data["rows"][0]
    assert "<td>linear layer</td><td>torch</td>" in report.to_html()


def test_operations_are_between_the_rows_as_they_are_called() -> None:
    report = report_of(nn.Sequential(nn.MaxPool2d(2), *block(), nn.AvgPool2d(2), block(), nn.Flatten()))
    first, second = report.rows
    pooling, averaging = report.operations
    assert pooling.place < first.place < averaging.place < second.place
    assert not pooling.reason and not averaging.reason
    chain = re.findall(r"<svg.*?</svg>", report.to_html(), re.DOTALL)[-1]
    boxes = re.findall(r"<title>(.*?)</title>", chain)
    assert [each.split(";")[0] for each in boxes] == ["_0", "1 1", "_4", "2 5.0"]


def test_a_network_without_convolutions_tells_of_its_operations() -> None:
    report = report_of(nn.Sequential(nn.MaxPool2d(2), nn.BatchNorm2d(12), nn.Flatten(), nn.Linear(360, 3)))
    assert not report.rows and not report.reason
    assert [each.kind for each in report.operations] == ["pooling", "batch norm", "linear layer"]
    text = str(report)
    assert text.startswith("beside them by convx: pooling (1)\n") and "layer  shape" not in text
    assert "left to torch: batch norm (1): behind a pooling\n" in text
    page = report.to_html()
    assert "<td>batch norm</td><td>torch</td>" in page and "The network's kernels, in order" in page
    assert ">pooling<" in page and "<h2>Layers</h2>" not in page
    assert [each["kind"] for each in report.to_dict()["others"]] == ["pooling", "batch norm", "linear layer"]


def test_places_are_those_of_the_calls() -> None:
    def run(model: Any, x: Tensor) -> Tensor:
        return model.behind(model.ahead(x))  # type: ignore[no-any-return]

    report = report_of(Model(run, behind=block(), ahead=block()))
    report = replace(report, rows=report.rows[::-1])
    names = [row.name for row in report.in_order]
    assert names == ["ahead.0", "behind.0"]
    assert str(report).index("ahead.0") < str(report).index("behind.0")


def test_torchs_own_layers_are_told_with_one_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizing, "_choose", lambda times, candidates: candidates[-1])
    report = report_of(nn.Sequential(*block(), nn.MaxPool2d(2)))
    assert report.reason and {each.reason for each in report.others} == {report.reason}
    assert {each.kind for each in report.others} == {"batch norm", "activation", "pooling"}
    assert str(report).count(report.reason) == 2  # of the row, and of all


def inverted_residual() -> nn.Sequential:
    wide = nn.Conv2d(48, 48, 3, padding=1, groups=48)
    return nn.Sequential(nn.Conv2d(16, 48, 1), nn.ReLU6(), wide, nn.ReLU6(), nn.Conv2d(48, 16, 1))


def last_is_the_fastest(contenders: dict[str, Any], *_: Any) -> dict[str, Timing]:
    """The layers of a block come first."""
    return {name: Timing([float(len(contenders) - place)]) for place, name in enumerate(contenders)}


@pytest.mark.usefixtures("own_folder")
def test_the_gain_of_a_block_is_over_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizing, "choose", _choose_plans)
    monkeypatch.setattr(measuring, "profile", last_is_the_fastest)
    x = torch.randn(2, 16, 12, 13).contiguous(memory_format=torch.channels_last)
    optimized = convx.optimize(inverted_residual().eval(), x, layout="as given")
    assert optimized.report is not None
    (row,) = optimized.report.rows
    record = optimized.choices[-1]
    assert row.method == "inverted_residual" and row.fused == ("expand", "depthwise", "project")
    assert (row.us, row.torch_us) == (1.0, record.candidates["native"])
    assert row.times_faster == record.candidates["native"] > 1


def measured_report() -> OptimizationReport:
    """Of a network with names and lists that are too long for a box."""
    name, fused = "features.denseblock1.denselayer11.conv & more", ("batch norm", "residual", "hardswish")
    beside = tuple(Operation(f"cat_{place}", "concatenation", 2, "<why>") for place in range(3))
    made = [FusionReport(f"{name}.{place}", "8->8", fused, "hntmp", "", 5.0, 9.0) for place in range(12)]
    left = FusionReport("last", "8->8 1x1", (), "", "it has hooks & more", None, None, 1)
    own = FusionReport("own", "8->8 1x1", (), "native", "", 1.0, 1.0)
    rows = (*made, left, own)
    return OptimizationReport(rows, "", "nchw", True, 300.0, 100.0, 1e-7, 2e-7, operations=beside)


def test_pictures_are_whole_and_within_their_size() -> None:
    drawn = re.findall(r"<svg.*?</svg>", measured_report().to_html(), re.DOTALL)
    assert len(drawn) == 3
    for each in drawn:
        picture = ElementTree.fromstring(each)
        _, _, width, height = map(float, picture.attrib["viewBox"].split())
        for box in picture.iter("rect"):
            x, y, across, down = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
            assert x >= 0 and y >= 0 and x + across <= width and y + down <= height


def test_texts_of_the_chain_stay_in_their_boxes() -> None:
    chain = ElementTree.fromstring(re.findall(r"<svg.*?</svg>", measured_report().to_html(), re.DOTALL)[2])
    boxes = [box for box in chain.iter("rect") if box.find("title") is not None]
    assert len(boxes) == 15
    places = [tuple(float(each.attrib[name]) for name in "xy") for each in chain.iter("text")]
    assert len(places) == len(set(places))
    for each in chain.iter("text"):
        assert len(each.text or "") <= 25
    for x, y in places:
        inside = [
            box
            for box in boxes
            if float(box.attrib["x"]) < x < float(box.attrib["x"]) + float(box.attrib["width"])
            and float(box.attrib["y"]) < y < float(box.attrib["y"]) + float(box.attrib["height"])
        ]
        assert len(inside) == 1


def test_a_page_of_nothing_measured() -> None:
    report = measured_report()
    unmeasured = tuple(replace(row, us=None, torch_us=None) for row in report.rows)
    assert replace(report, rows=unmeasured).to_html().count("<svg") == 2
    assert replace(report, rows=()).to_html().count("<svg") == 2
    assert replace(report, rows=(), operations=()).to_html().count("<svg") == 1


@pytest.mark.parametrize("had_beside", [False, True])
def test_reports_of_older_pickles(had_beside: bool) -> None:
    """Rows had no place, and later operations beside them, which the report did not have."""
    report = measured_report()
    beside = report.__dict__.pop("operations")
    for row in report.rows:
        if had_beside:
            row.__dict__["beside"] = beside
        else:
            del row.__dict__["place"]
    found = pickle.loads(pickle.dumps(report))
    assert "operations" not in found.__dict__ and found.others == () and found.operations == ()
    assert had_beside or found.rows[0].place == 0
    assert str(found) and found.to_html() and found.to_dict()["others"] == []
    assert found.to_dict()["operations"] == () and "beside" not in found.to_dict()["rows"][0]
