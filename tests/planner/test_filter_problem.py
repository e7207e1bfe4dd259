"""FilterProblem: what it describes, and that the planner knows it as it knows convolutions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convx import _core

DEVICES = [_core.Device.host_cpu(2), *map(_core.Device.known_device, _core.Device.known_names())]
BORDERS = ("zero", "replicate", "reflect", "wrap")
DTYPES = ("float32", "float64", "float16", "bfloat16", "uint8")


def filtering(**changes: Any) -> _core.FilterProblem:
    fields = {"images": 3, "height": 48, "width": 64, "filter_height": 3, "filter_width": 3}
    return _core.FilterProblem(**{**fields, **changes})


@st.composite
def problems(draw: st.DrawFn) -> _core.FilterProblem:
    size = st.integers(1, 600)
    extent = st.integers(1, 40)
    return _core.FilterProblem(
        dtype=draw(st.sampled_from(DTYPES)),
        border=draw(st.sampled_from(BORDERS)),
        images=draw(st.integers(0, 5)),
        height=draw(size),
        width=draw(size),
        filters=draw(st.integers(1, 5)),
        filter_height=draw(extent),
        filter_width=draw(extent),
    )


def test_counts_and_names() -> None:
    made = filtering(dtype="uint8", border="wrap", filters=2)
    assert made.operation == "filter2d"
    assert made.bytes == 3 * 48 * 64 * (1 + 2) + 4 * 2 * 9
    assert made.flops == 2 * (3 * 2 * 48 * 64) * 9
    assert made.describe() == "filter2d uint8 3x48x64 -> 2x48x64, filter 3x3, border wrap"
    assert repr(made) == f"FilterProblem({made.describe()})"


def test_equality_and_hash() -> None:
    assert filtering() == filtering() and hash(filtering()) == hash(filtering())
    for change in (
        {"images": 4},
        {"height": 49},
        {"width": 65},
        {"filters": 2},
        {"filter_height": 5},
        {"filter_width": 1},
        {"dtype": "uint8"},
        {"border": "wrap"},
    ):
        assert filtering(**change) != filtering(), change
        assert hash(filtering(**change)) != hash(filtering()), change


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": -1}, "images: their number must be at least 0, got -1"),
        ({"height": 0}, r"images: height and width must be at least 1, got \(0, 64\)"),
        ({"filter_width": 0}, r"filter: height and width must be at least 1, got \(3, 0\)"),
        ({"filters": 0}, "filter: a bank must have at least 1, got 0"),
        ({"dtype": "int8"}, "images must be one of float32, .*uint8; got 'int8'"),
        ({"border": "mirror"}, "border must be one of zero, .*; got 'mirror'"),
        ({"images": 2**62}, "the images of size .* more elements than 64 bits can address"),
        ({"images": 2**30, "filters": 2**40}, "the result of size .* more elements than 64 bits can address"),
    ],
)
def test_rejections(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        filtering(**changes)


def test_each_kind_of_problem_has_its_methods() -> None:
    assert [row["name"] for row in _core.methods(_core.FilterProblem)] == ["filter2d"]
    assert _core.methods(_core.Problem) == _core.methods()
    with pytest.raises(
        TypeError, match="methods takes Problem, FilterProblem, BlockProblem or ExciteProblem"
    ):
        _core.methods(int)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="method must be one of filter2d; got 'native'"):
        _core.supports("native", filtering(), DEVICES[0])


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_auto_takes_the_least_prediction_of_what_may_go_unnamed(problem: _core.FilterProblem) -> None:
    for device in DEVICES:
        supported, reason = _core.supports("filter2d", problem, device)
        plans = _core.candidates("filter2d", problem, device)
        assert supported == bool(plans) == (problem.images > 0) and supported != bool(reason)
        predictions = [plan.predicted_us for plan in plans]
        assert predictions == sorted(predictions)
        if not supported:
            with pytest.raises(ValueError, match=r"algorithm 'auto' can't run .*are empty"):
                _core.select(problem, device)
            continue
        fastest = next(plan for plan in plans if not plan.by_name_only)
        for algorithm in ("auto", "filter2d"):
            assert _core.select(problem, device, algorithm).plan.describe() == fastest.describe()
        (row,) = _core.explain(problem, device)
        assert row.chosen and [plan.name for plan in row.plans] == [plan.name for plan in plans]


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_kernels_and_plans_go_by_their_names_with_and_without_the_method(device: _core.Device) -> None:
    problem = filtering()
    plans = _core.candidates("filter2d", problem, device)
    for plan in plans:
        for name in (plan.name, plan.name.removeprefix("filter2d/")):
            choice = _core.select(problem, device, name)
            assert choice.forced and choice.plan.name == plan.name
        assert _core.select(problem, device, plan.candidate).plan.candidate == plan.candidate


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_the_first_of_a_list_that_can_run(device: _core.Device) -> None:
    def taken(algorithm: str, **changes: Any) -> str:
        return _core.select(filtering(**changes), device, algorithm).plan.candidate

    assert taken("direct|row_reuse") == "direct"
    assert taken("winograd|direct|row_reuse") == "direct"
    assert taken("direct lanes=7|row_reuse") == "row_reuse"
    on_cpu = device.backend == "cpu"
    assert taken("strip|both|auto") == ("both" if on_cpu else "strip")
    assert taken("both|row_reuse", filter_width=4) == ("row_reuse" if on_cpu else "both")
    with pytest.raises(ValueError, match=r"algorithm must be one of auto, filter2d, .*got 'native/im2col'"):
        taken("both|native/im2col")
