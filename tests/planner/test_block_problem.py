"""BlockProblem: what it describes, and that the planner takes its kernel where it was measured alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convx import _core
from convx.tune import records

H200 = _core.Device.known_device("h200")
EXCITED = {"squeezed_channels": 6, "squeeze_activation": "silu", "gate": "hardsigmoid"}
DEVICES = [_core.Device.host_cpu(2), *map(_core.Device.known_device, _core.Device.known_names())]


def block(**changes: Any) -> _core.BlockProblem:
    fields = {"dtype": "bfloat16", "batch": 4, "channels": 24, "height": 28, "width": 30}
    fields |= {"expanded_channels": 144, "out_channels": 24}
    return _core.BlockProblem(**{**fields, **changes})


@st.composite
def problems(draw: st.DrawFn) -> _core.BlockProblem:
    stride = draw(st.sampled_from([1, 2]))
    is_first = draw(st.booleans())
    channels = draw(st.integers(1, 3)) if is_first else 8 * draw(st.integers(1, 40))
    residual = stride == 1 and not is_first and draw(st.booleans())
    return block(
        dtype=draw(st.sampled_from(["bfloat16", "float16"])),
        activation=draw(st.sampled_from(["relu", "relu6", "hardswish"])),
        residual=residual,
        batch=draw(st.integers(1, 256)),
        channels=channels,
        height=draw(st.integers(1, 600)),
        width=draw(st.integers(1, 600)),
        expanded_channels=2 * draw(st.integers(1, 1000)),
        out_channels=channels if residual else 8 * draw(st.integers(1, 40)),
        layout=draw(st.sampled_from(["nchw", "channels_last"])) if is_first else "channels_last",
        expand_filter=3 if is_first else 1,
        expand_stride=draw(st.integers(1, 4)) if is_first else 1,
        filter=draw(st.sampled_from([3, 5])),
        stride=stride,
    )


def test_counts_and_names() -> None:
    made = block(stride=2, out_channels=40, filter=5, output_activation="relu")
    assert made.operation == "inverted_residual"
    weights = 144 * (24 + 25 + 40)
    assert made.bytes == 2 * (4 * 24 * 28 * 30 + 4 * 40 * 14 * 15 + weights)
    assert made.flops == 2 * 144 * (4 * 28 * 30 * 24 + 4 * 14 * 15 * (25 + 40))
    assert made.describe() == (
        "inverted_residual bfloat16 4x24x28x30 -> 144 -> 40x14x15, filter 5x5, stride 2, relu6 inside, relu"
    )
    assert repr(made) == f"BlockProblem({made.describe()})"
    first = block(channels=3, expand_filter=3, expand_stride=2, layout="nchw")
    assert first.flops == 2 * 144 * 4 * 14 * 15 * (27 + 9 + 24)
    assert first.describe().endswith(
        "24x14x15, filter 3x3, expanded by 3x3 with stride 2, of nchw, relu6 inside"
    )


def test_squeeze_and_excitation() -> None:
    plain, made = block(stride=2), block(stride=2, **EXCITED)
    assert plain.excitation is None and plain.squeezed_channels == 0
    assert (made.squeezed_channels, made.squeeze_activation, made.gate) == (6, "silu", "hardsigmoid")
    size = {"batch": 4, "channels": 144, "height": 14, "width": 15, "squeezed_channels": 6}
    inner = _core.ExciteProblem(
        dtype="bfloat16", layout="channels_last", activation="silu", gate="hardsigmoid", **size
    )
    assert made.excitation == inner
    assert made.flops == plain.flops + inner.flops
    assert made.bytes == plain.bytes + 2 * 2 * 144 * 6
    assert made.describe() == f"{plain.describe()}, excited by 6 (silu, hardsigmoid)"
    # Without it there is nothing that an activation or a gate could be of.
    assert block(squeeze_activation="silu", gate="hardsigmoid") == block()


@pytest.mark.parametrize("changes", [{}, {"residual": True, "activation": "silu"}], ids=str)
def test_records(changes: dict[str, Any]) -> None:
    plain, excited = block(**changes), block(**changes, **EXCITED)
    before = records.problem_fields(plain)
    assert not before.keys() & EXCITED.keys()
    assert records.problem_fields(excited) == before | EXCITED
    for us, problem in ((3.5, plain), (4.5, excited)):
        found = {"device": _core.tuning_key(H200), "algorithm": "native", "us": us}
        try:
            _core.remember_tuned(records.fields_text({**records.problem_fields(problem), **found}))
            chosen = [_core.select(each, H200).plan.predicted_us == us for each in (plain, excited)]
            assert chosen == [problem is plain, problem is excited]
        finally:
            _core.forget_tuned()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gate": "sigmoid"}, "no field is called 'gate'"),
        ({"squeezed_channels": 6, "gate": "sigmoid"}, "'squeeze_activation' is missing"),
        ({**EXCITED, "gate": "tanh"}, "gate must be one of"),
    ],
    ids=str,
)
def test_records_that_make_no_sense(changes: dict[str, Any], message: str) -> None:
    found = {"device": _core.tuning_key(H200), "algorithm": "native", "us": 1.0}
    text = records.fields_text({**records.problem_fields(block()), **changes, **found})
    with pytest.raises(ValueError, match=message):
        _core.remember_tuned(text)


def test_equality_and_hash() -> None:
    assert block() == block() and hash(block()) == hash(block())
    for change in (
        *({"batch": 5}, {"channels": 32}, {"height": 29}, {"width": 29}, {"expanded_channels": 96}),
        *({"out_channels": 32}, {"filter": 5}, {"stride": 2}, {"residual": True}, {"dtype": "float16"}),
        *({"activation": "relu"}, {"output_activation": "relu"}),
        *({"expand_filter": 3}, {"expand_stride": 2}, {"layout": "nchw"}, {"squeezed_channels": 6}),
    ):
        assert block(**change) != block(), change
        assert hash(block(**change)) != hash(block()), change
    for change in ({"squeezed_channels": 8}, {"squeeze_activation": "relu"}, {"gate": "sigmoid"}):
        assert block(**EXCITED | change) != block(**EXCITED), change
        assert hash(block(**EXCITED | change)) != hash(block(**EXCITED)), change


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": -1}, "input: batch must be at least 0, got -1"),
        ({"width": 0}, "input: width must be at least 1, got 0"),
        ({"expanded_channels": 0}, "expanded_channels must be at least 1, got 0"),
        ({"filter": 4}, "^filter must be odd, .* got 4"),
        ({"expand_filter": 2}, "^expand_filter must be odd, .* got 2"),
        ({"expand_stride": 0}, "expand_stride must be at least 1, got 0"),
        ({"residual": True, "expand_stride": 2}, "residual: .* got stride 2, 24 and 24 channels"),
        ({"stride": 0}, "stride must be at least 1, got 0"),
        ({"residual": True, "stride": 2}, "residual: .* got stride 2, 24 and 24 channels"),
        ({"residual": True, "out_channels": 32}, "residual: .* got stride 1, 24 and 32 channels"),
        ({"batch": 2**40, "height": 2**20}, "the input of size .* more elements than 64 bits can address"),
        ({"squeezed_channels": -1}, "squeezed_channels must be at least 0, got -1"),
        ({"squeeze_activation": "tanh"}, "activation must be one of none, relu"),
        ({"gate": "tanh"}, "gate must be one of sigmoid, hardsigmoid; got 'tanh'"),
        ({"dtype": "int8"}, "dtype must be one of float32, .*got 'int8'"),
    ],
)
def test_rejections(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        block(**changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dtype": "float64"}, "it takes float32, bfloat16 and float16, not float64"),
        (
            {"dtype": "float32", "squeezed_channels": 8},
            "with squeeze-and-excitation it takes bfloat16 and float16, not float32",
        ),
        ({"filter": 7}, "filters of 3x3 and 5x5, not 7x7"),
        ({"stride": 3}, "strides of 1 and 2, not 3"),
        ({"expanded_channels": 75}, "it expands to an even number of channels, not 75"),
        ({"channels": 20}, "multiples of 8 channels, not 20 and 24"),
        ({"out_channels": 12}, "multiples of 8 channels, not 24 and 12"),
        ({"activation": "silu"}, "relu, relu6 and hardswish inside, not silu"),
        ({"output_activation": "silu"}, "relu, relu6 or a residual"),
        ({"output_activation": "relu", "residual": True}, "relu, relu6 or a residual"),
        ({"batch": 0}, "the batch is empty"),
        ({"expand_stride": 2}, "it expands pixels, or patches of up to 32 values without a residual, not"),
        ({"channels": 4, "expand_filter": 3}, "or patches of up to 32 values"),
        ({"channels": 3, "out_channels": 3, "expand_filter": 3, "residual": True}, "multiples of 8 channels"),
        ({"layout": "nchw"}, "it expands pixels of channels_last alone"),
        ({**EXCITED, "activation": "gelu"}, "relu, relu6, hardswish and silu inside, not gelu"),
        ({**EXCITED, "expanded_channels": 100}, "a multiple of 8 channels, at most 256, not 100"),
        ({**EXCITED, "expanded_channels": 264}, "a multiple of 8 channels, at most 256, not 264"),
        ({**EXCITED, "channels": 72}, "it has no tile for so many input channels"),
        ({**EXCITED, "channels": 3, "expand_filter": 3, "layout": "nchw"}, "or are planes"),
        ({**EXCITED, "squeezed_channels": 60000}, "too many for a block's shared memory: 60000"),
    ],
)
def test_what_the_kernel_does_not_take(changes: dict[str, Any], reason: str) -> None:
    problem = block(**changes)
    able, why = _core.supports("inverted_residual", problem, H200)
    assert not able and reason in why
    assert _core.candidates("inverted_residual", problem, H200) == []
    assert _core.select(problem, H200).plan.method == "native"
    with pytest.raises(ValueError, match=r"algorithm 'inverted_residual' can't run this problem: .*native"):
        _core.select(problem, H200, "inverted_residual")


def test_each_kind_of_problem_has_its_methods() -> None:
    names = [row["name"] for row in _core.methods(_core.BlockProblem)]
    assert names == ["inverted_residual", "native"]
    for device in DEVICES:
        able, _ = _core.supports("inverted_residual", block(), device)
        assert able == (device.backend == "cuda")


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_plans_fit_and_native_is_taken_where_nothing_was_measured(problem: _core.BlockProblem) -> None:
    plans = _core.candidates("inverted_residual", problem, H200)
    able, _ = _core.supports("inverted_residual", problem, H200)
    assert able
    predictions = [plan.predicted_us for plan in plans]
    assert predictions == sorted(predictions)
    for plan in plans:
        tiling = dict(plan.tiling)
        if plan.candidate == "banded":
            assert tiling["tile_height"] <= 14 and tiling["ahead"] in (1, 2)
            tiling["chunk"] = 64 if problem.stride == 1 and tiling["shape"] >= 2 else 32
        else:
            assert tiling["warps_down"] * tiling["warps_across"] * 32 <= 512
            assert tiling["chunk"] in (16, 32, 48, 64, 80, 96, 128)
        chunks = -(-problem.expanded_channels // tiling["chunk"])
        assert 1 <= tiling["ranks"] <= 8 and (tiling["ranks"] - 1) * -(-chunks // tiling["ranks"]) < chunks
        assert _core.select(problem, H200, plan.name).plan.name == plan.name
    choice = _core.select(problem, H200)
    assert choice.plan.method == "native" and "not measured on such: inverted_residual" in choice.why


def test_a_measured_plan_is_taken() -> None:
    problem = block(batch=64, expanded_channels=96)
    plan = _core.candidates("inverted_residual", problem, H200)[-1]
    fields = {"device": _core.tuning_key(H200), "algorithm": plan.name, "us": 3.5}
    try:
        _core.remember_tuned(records.fields_text({**records.problem_fields(problem), **fields}))
        choice = _core.select(problem, H200)
        assert choice.plan.name == plan.name and choice.plan.predicted_us == 3.5
        assert _core.select(block(), H200).plan.method == "native"
        (row, native) = _core.explain(problem, H200)
        assert row.chosen and not native.chosen
    finally:
        _core.forget_tuned()
    assert _core.select(problem, H200).plan.method == "native"
