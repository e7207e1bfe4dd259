"""convx.tune measures filters as it does convolutions, and its records of either stay apart."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from tuned import depthwise, here, own_folder, record

import convx
from convx import _core
from convx.functional import filter2d
from convx.tune import records

__all__ = ["own_folder"]

BORDERS = ("zero", "replicate", "reflect", "wrap")


def filtering(**changes: Any) -> _core.FilterProblem:
    fields = {"images": 2, "height": 20, "width": 30, "filter_height": 3, "filter_width": 3}
    return _core.FilterProblem(**{**fields, **changes})


def filter_record(algorithm: str, **changes: Any) -> records.Record:
    problem = filtering(**changes)
    fields = records.problem_fields(problem)
    return records.Record(records.environment_of(here()), fields, algorithm, 3.5, {algorithm: 3.5})


def names(problem: _core.FilterProblem) -> list[str]:
    return [plan.name for plan in _core.candidates("filter2d", problem, here())]


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_the_choice_reaches_explain_and_calls(border: str, dtype: torch.dtype) -> None:
    images = torch.randint(256, (2, 20, 30)).to(dtype)
    filter = torch.ones(3, 3, dtype=torch.float32 if dtype == torch.uint8 else dtype) / 8
    expected = filter2d(images, filter, border)
    changes = {"border": border, "dtype": str(dtype).removeprefix("torch.")}
    for name in names(filtering(**changes)):
        records.remember(filter_record(name, **changes))
        chosen = convx.explain_filter2d(images, filter, border).chosen
        assert (chosen.plan, chosen.predicted_us, chosen.source) == (name, 3.5, "tuned")
        torch.testing.assert_close(filter2d(images, filter, border), expected)
        other = "zero" if border == "wrap" else "wrap"
        assert convx.explain_filter2d(images, filter, other).chosen.source != "tuned"
    assert _core.select(filtering(**changes), here(), "row_reuse").plan.candidate == "row_reuse"
    records.forget()
    assert convx.explain_filter2d(images, filter, border).chosen.source != "tuned"


def test_every_layer_of_filters_is_measured() -> None:
    model = nn.Sequential(
        convx.nn.GaussianBlur2d(0.5),
        convx.nn.Filter2d([[0, -1, 0], [-1, 5, -1], [0, -1, 0]], "replicate"),
        convx.nn.Filter2d([[0, -1, 0], [-1, 4, -1], [0, -1, 0]], "replicate"),
        convx.nn.Sobel2d(),
    )
    report = convx.tune(model, torch.rand(3, 20, 30), rounds=2, progress=False)
    assert [(row.layers, row.problem) for row in report.rows] == [
        ("0", "filter2d float32 3x20x30 -> 1x20x30, filter 5x1, border reflect"),
        ("0", "filter2d float32 3x20x30 -> 1x20x30, filter 1x5, border reflect"),
        ("1, 2", "filter2d float32 3x20x30 -> 1x20x30, filter 3x3, border replicate"),
        ("3", "filter2d float32 3x20x30 -> 2x20x30, filter 3x3, border replicate"),
    ]
    assert all(row.is_new and row.winner in row.candidates for row in report.rows)
    explanation = convx.explain(model[1], torch.rand(3, 20, 30))
    assert explanation.chosen.plan == report.rows[2].winner and explanation.chosen.source == "tuned"
    assert set(report.rows[2].candidates) == {row.plan for row in explanation.rows if not row.by_name_only}
    assert any(row.by_name_only for row in explanation.rows)  # the paper's forms, which auto never takes

    again = convx.tune(model, torch.rand(3, 20, 30), rounds=2, progress=False)
    assert [row.winner for row in again.rows] == [row.winner for row in report.rows]
    assert not any(row.is_new for row in again.rows)
    records.forget()
    assert records.load() == 4
    assert convx.explain(model[1], torch.rand(3, 20, 30)) == explanation


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.uint8])
def test_the_problem_is_that_of_the_call(dtype: torch.dtype) -> None:
    """Leading dimensions are images, and layers that compute in float32 are measured so."""
    image = torch.zeros(2, 3, 9, 11, dtype=dtype)
    name, wide = str(dtype).removeprefix("torch."), "float64" if dtype == torch.float64 else "float32"
    narrow = "float32" if dtype == torch.uint8 else name
    for layer, expected in (
        (convx.nn.Filter2d(torch.ones(4, 3, 3)), name),
        (convx.nn.Sobel2d(), narrow),
        (convx.nn.GaussianBlur2d(0.3), wide),
    ):
        rows = convx.tune(layer, {"images": image}, rounds=1, progress=False).rows
        assert all(row.problem.startswith(f"filter2d {expected} 6x9x11 -> ") for row in rows)


def test_autocast_casts_the_images() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        (row,) = convx.tune(convx.nn.Filter2d([[1.0, 2.0]]), torch.rand(5, 7), rounds=1, progress=False).rows
    assert row.problem.startswith("filter2d bfloat16 1x5x7 -> ")


def test_convolutions_and_filters_of_one_model() -> None:
    model = nn.Sequential(convx.nn.Filter2d([[1.0, 2.0, 1.0]]), nn.Conv2d(3, 3, 3, groups=3))
    operations = ("forward", "weight_grad")
    report = convx.tune(model, torch.rand(1, 3, 8, 9), operations=operations, rounds=1, progress=False)
    assert [row.problem.split()[0] for row in report.rows] == ["forward", "weight_grad", "filter2d"]
    assert records.load() == 3 and not report.left
    gradients = convx.tune(
        model, torch.rand(1, 3, 8, 9), operations=["weight_grad"], rounds=1, progress=False
    )
    assert gradients.left == {"0": "a filter's weight_grad is made of convolutions that no layer has"}
    with pytest.raises(
        convx.InvalidArgument, match=r"none of .* can be tuned: 0: there is nothing to filter"
    ):
        convx.tune(model[:1], torch.rand(0, 8, 9), progress=False)


def test_records_of_filters_are_found_again() -> None:
    written = filter_record(names(filtering())[-1])
    assert records.find(filtering(), here()) is None
    assert records.save(written) and records.save(record())
    assert records.find(filtering(), here()) == written
    assert records.find(filtering(border="wrap"), here()) is None
    assert records.load() == 2
    assert _core.select(filtering(), here()).plan.name == written.algorithm
    assert _core.select(depthwise(), here()).plan.source == "tuned"


def test_records_of_convolutions_have_the_names_that_they_always_had() -> None:
    name = records.path_of({"device": "a GPU"}, records.problem_fields(depthwise())).name
    assert name == "a5b6ffc20698ad53fc44c4f24e08a2b7.json"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": "native"}, "no method is called 'native', the methods are filter2d"),
        ({"algorithm": "filter2d/strip lanes=32"}, "no kernel is called 'filter2d/strip'; filter2d float32"),
        ({"problem": {**records.problem_fields(filtering()), "images": 0}}, "can't run filter2d .*are empty"),
        ({"problem": {**records.problem_fields(filtering()), "border": "mirror"}}, "border must be one of"),
        ({"problem": {**records.problem_fields(filtering()), "operation": "forward"}}, "fields are missing"),
        ({"problem": {**records.problem_fields(depthwise()), "operation": "filter2d"}}, "fields are missing"),
        ({"kernel": {"key": "abc", "name": "k"}}, None),
    ],
)
def test_records_that_make_no_sense_are_passed_over(change: dict[str, Any], message: str | None) -> None:
    assert records.save(replace(filter_record("filter2d/row_reuse reuse=2"), **change))
    if message is None:
        assert records.load() == 0
        return
    with pytest.warns(RuntimeWarning, match=message):
        assert records.load() == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert records.load() == 0


def test_text_of_a_record_is_checked() -> None:
    text = records._text(filter_record("filter2d/row_reuse reuse=2"))
    for change, message in (
        (("height = 20", ""), "'height' is missing"),
        (("height = 20", "height = 0"), "images: height and width must be at least 1"),
        (("us = ", "stride = 1 1\nus = "), "no field is called 'stride'"),
        (("us = 3.5", "us = -1"), "us must be above 0"),
    ):
        assert change[0] in text
        with pytest.raises(ValueError, match=message):
            _core.remember_tuned(text.replace(*change))
    assert _core.select(filtering(), here()).plan.source != "tuned"
