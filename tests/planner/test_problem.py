"""ConvProblem without tensors: output sizes, counts, and every rejection one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convx import _core

GOOD: dict[str, Any] = {
    "batch": 2,
    "in_channels": 4,
    "in_height": 9,
    "in_width": 8,
    "out_channels": 8,
    "filter_height": 3,
    "filter_width": 3,
    "groups": 4,
}


def problem(**changes: Any) -> _core.Problem:
    return _core.Problem(**{**GOOD, **changes})


def positions(size: int, filter_size: int, stride: int, before: int, after: int, dilation: int) -> int:
    """Output positions, counted one by one."""
    last = size + before + after - (filter_size - 1) * dilation - 1
    return len(range(0, last + 1, stride))


@given(
    size=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    filter_size=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    stride=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    padding=st.tuples(*[st.integers(0, 8)] * 4),
    dilation=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_output_size(
    size: tuple[int, int],
    filter_size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
) -> None:
    top, bottom, left, right = padding
    height = positions(size[0], filter_size[0], stride[0], top, bottom, dilation[0])
    width = positions(size[1], filter_size[1], stride[1], left, right, dilation[1])
    changes = {
        "in_height": size[0],
        "in_width": size[1],
        "filter_height": filter_size[0],
        "filter_width": filter_size[1],
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
    }
    if height == 0 or width == 0:
        with pytest.raises(ValueError, match="weight: the filter spans"):
            problem(**changes)
    else:
        made = problem(**changes)
        assert (made.out_height, made.out_width) == (height, width)


def test_counts() -> None:
    made = problem(padding=(1, 1, 1, 1), bias=True, activation="relu6", dtype="bfloat16")
    assert made.is_depthwise
    assert made.bytes == 2 * (2 * 4 * 9 * 8 + 2 * 8 * 9 * 8 + 8 * 1 * 3 * 3 + 8)
    assert made.flops == 2 * (2 * 8 * 9 * 8) * (3 * 3)
    assert made.describe() == (
        "forward bfloat16 nchw 2x4x9x8 -> 8x9x8, filter 3x3, stride (1, 1), padding (1, 1), groups 4, "
        "bias, relu6"
    )


def test_a_residual_is_read_once() -> None:
    plain, made = problem(activation="relu"), problem(activation="relu", scale=True, residual=True)
    assert made.bytes - plain.bytes == 4 * (8 + 2 * 8 * 7 * 6)
    assert made.describe().endswith("groups 4, scale, residual, relu")
    after = problem(activation="relu", residual=True, residual_after_activation=True)
    assert after.describe().endswith("groups 4, relu, residual after activation")


def test_without_an_activation_there_is_one_place_for_a_residual() -> None:
    assert problem(residual=True) == problem(residual=True, residual_after_activation=True)
    assert problem() == problem(residual_after_activation=True)


def test_describe_names_asymmetric_padding_and_dilation() -> None:
    text = problem(padding=(1, 2, 3, 4), dilation=(1, 2)).describe()
    assert "padding (top 1, bottom 2, left 3, right 4)" in text
    assert "dilation (1, 2)" in text


def test_equality_and_hash() -> None:
    assert problem() == problem()
    assert hash(problem()) == hash(problem())
    for change in (
        {"batch": 3},
        {"dtype": "float64"},
        {"layout": "channels_last"},
        {"activation": "gelu"},
        {"bias": True},
        {"scale": True},
        {"residual": True},
        {"residual": True, "activation": "relu", "residual_after_activation": True},
        {"stride": (1, 2)},
        {"padding": (0, 1, 0, 0)},
        {"dilation": (2, 1)},
        {"operation": "weight_grad"},
    ):
        assert problem(**change) != problem(), change
        assert hash(problem(**change)) != hash(problem()), change


def test_an_empty_batch_is_a_problem_like_any_other() -> None:
    assert problem(batch=0).flops == 0


REJECTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "negative batch": ({"batch": -1}, r"input: the batch must be at least 0, got -1"),
    "no input channels": ({"in_channels": 0}, r"input: the channels must be at least 1, got 0"),
    "no input rows": ({"in_height": 0}, r"input: height and width must be at least 1, got \(0, 8\)"),
    "no input columns": ({"in_width": 0}, r"input: height and width must be at least 1, got \(9, 0\)"),
    "no output channels": ({"out_channels": 0}, r"weight: the output channels must be at least 1, got 0"),
    "empty filter": ({"filter_height": 0}, r"weight: the filter's height and width .* got \(0, 3\)"),
    "empty filter columns": ({"filter_width": 0}, r"weight: the filter's height and width .* got \(3, 0\)"),
    "stride 0": ({"stride": (1, 0)}, r"stride must be at least 1, got \(1, 0\)"),
    "negative stride": ({"stride": (-2, 1)}, r"stride must be at least 1, got \(-2, 1\)"),
    "dilation 0": ({"dilation": (0, 1)}, r"dilation must be at least 1, got \(0, 1\)"),
    "negative padding": ({"padding": (0, 0, -1, 0)}, r"padding must be at least 0, got .*left -1.*slice"),
    "groups 0": ({"groups": 0}, r"groups must be at least 1, got 0"),
    "groups and inputs": ({"groups": 3}, r"groups must divide both channel counts, got groups 3 with 4"),
    "groups and outputs": ({"out_channels": 6}, r"groups must divide .* 6 output channels"),
    "filter too tall": ({"filter_height": 10}, r"spans 10 in height .* padded input has only 9"),
    "filter too wide": ({"dilation": (1, 4)}, r"spans 9 in width \(size 3, dilation 4\).* has only 8"),
    "padding overflow": ({"padding": (2**62, 2**62, 0, 0)}, r"height of the padded input .* overflows"),
    "dilation overflow": ({"dilation": (1, 2**63 - 1)}, r"the width of .* the dilated filter overflows"),
    "input overflow": ({"batch": 2**40, "in_height": 2**30}, r"the input of size .* more elements than"),
    "output overflow": ({"padding": (2**60, 0, 2**60, 0)}, r"the output of size .* more elements than"),
    "operation": ({"operation": "backward"}, r"operation must be one of forward, input_grad, weight_grad"),
    "dtype": ({"dtype": "int8"}, r"dtype must be one of float32, float64, float16, bfloat16; got 'int8'"),
    "layout": ({"layout": "NHWC"}, r"layout must be one of nchw, channels_last; got 'NHWC'"),
    "activation": ({"activation": "tanh"}, r"activation must be one of none, relu, .*; got 'tanh'"),
    "bias in a gradient": ({"operation": "input_grad", "bias": True}, r"belong to the forward operation"),
    "residual in a gradient": (
        {"operation": "input_grad", "residual": True},
        r"bias, scale, residual and activation belong to the forward operation",
    ),
    "activation in a gradient": (
        {"operation": "weight_grad", "activation": "relu"},
        r"belong to the forward operation; got them with operation 'weight_grad'",
    ),
}


@pytest.mark.parametrize("name", REJECTIONS)
def test_rejections_say_what_was_given_and_what_is_supported(name: str) -> None:
    changes, message = REJECTIONS[name]
    with pytest.raises(ValueError, match=message):
        problem(**changes)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_sizes_never_wrap_around(size: int, padding: int) -> None:
    try:
        made = problem(in_height=size, padding=(padding, 0, 0, 0))
    except ValueError:
        return
    assert made.out_height == size + padding - 2
