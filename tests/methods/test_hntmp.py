"""HNTMP end to end: the CPU form against float64, the order of its filters, its planner, what it refuses.

The GPU kernels run in test_simt_hntmp.
"""

from __future__ import annotations

from typing import Any

import planned
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import ISAS, succeeds_on
from reference import ACTIVATIONS, DTYPES, Dense, Tensors, assert_agrees, make, reference, torch_result
from torch import Tensor

from convx import _planning
from convx import operators as ops
from convx._arguments import gives_channels_last

# Of some hundred products each, whose errors in one chain were more than twice torch's.
SUMS = Dense(batch=3, channels=48, filters=54, groups=3, height=14, width=33, filter=(3, 2))
# Channels around one, two and three vectors of each instruction set; rows around the registers' tiles.
SHAPES = [
    Dense(),
    Dense(batch=1, channels=1, filters=1, height=1, width=1),
    Dense(batch=1, channels=1, filters=33, height=4, width=3),
    Dense(batch=1, channels=40, filters=32, height=7, width=7),
    Dense(batch=3, channels=17, filters=65, height=5, width=6),
    Dense(batch=1, channels=64, filters=48, height=14, width=14),
    Dense(batch=1, channels=9, filters=7, height=3, width=57),
    Dense(batch=1, channels=4, filters=20, height=30, width=1),
    Dense(channels=24, filters=36, groups=3),
    Dense(channels=6, filters=6, groups=6),
    Dense(channels=8, filters=2, groups=2, height=13, width=15),
    Dense(filter=(1, 1), padding=(0, 0, 0, 0), height=12, width=14),
    Dense(filter=(1, 1), padding=(0, 0, 0, 0), height=5, width=5),
    Dense(filter=(1, 1), padding=(1, 0, 0, 2)),
    Dense(filter=(5, 5), padding=(2, 2, 2, 2)),
    Dense(filter=(7, 7), padding=(3, 3, 3, 3), channels=3),
    Dense(filter=(11, 4), padding=(5, 5, 2, 1), channels=3, height=12),
    Dense(filter=(1, 7), padding=(0, 0, 3, 3)),
    Dense(filter=(7, 1), padding=(3, 3, 0, 0)),
    Dense(padding=(0, 0, 0, 0)),
    Dense(padding=(5, 0, 3, 6)),
    Dense(dilation=(2, 2), padding=(2, 2, 2, 2)),
    Dense(dilation=(1, 3), filter=(2, 3), padding=(0, 1, 3, 3)),
    SUMS.with_(dilation=(2, 1), padding=(1, 2, 2, 3)),
]
STRIDED = [
    Dense(stride=(2, 2)),
    Dense(stride=(2, 2), filter=(1, 1), padding=(0, 0, 0, 0), height=14, width=13),
    Dense(stride=(2, 2), filter=(7, 7), padding=(3, 3, 3, 3), channels=3, height=20, width=22),
    Dense(stride=(1, 3), width=20),
    Dense(stride=(4, 5), filter=(2, 2), padding=(0, 0, 0, 0), height=14, width=23),
    Dense(stride=(2, 2), dilation=(3, 2), padding=(3, 3, 2, 2), height=15, width=17, groups=2),
    Dense(stride=(3, 2), dilation=(1, 3), filter=(5, 3), height=17, width=16, padding=(2, 2, 3, 3)),
]


def result_of(
    operation: str, case: Dense, t: Tensors, packed: Tensor | None = None, algorithm: str = "hntmp/cpu"
) -> Tensor:
    rest = (case.stride, case.padding, case.dilation, case.group_count)
    if operation == "forward":
        return ops.conv2d(t.input, t.weight, t.bias, *rest, case.activation, algorithm, 0, packed)
    size = list(t.input.shape)
    return ops.conv2d_input_grad(t.output_grad, t.weight, size, *rest, algorithm, 0)


def check(operation: str, case: Dense, dtype: torch.dtype, channels_last: bool) -> None:
    """Every plan."""
    assert case.runnable, case
    tensors = make(case, dtype, "cpu", channels_last)
    names = [plan.name for plan in planned.plans_of("hntmp", operation, case, tensors)]
    are_pixels = gives_channels_last(tensors.input, tensors.weight) and case.group_count == 1
    is_plain = dtype == torch.float32 and operation == "forward" and case.dilation == (1, 1)
    assert any(name.startswith("hntmp/pixels") for name in names) == (are_pixels and is_plain)
    for name in names:
        check_plan(name, operation, case, tensors)


def check_plan(name: str, operation: str, case: Dense, tensors: Tensors) -> None:
    dtype = tensors.input.dtype
    what = f"{name} {operation} {case} {dtype}"
    if dtype == torch.float64:  # torch would be its own reference: of whole numbers all sums are exact
        for tensor in (tensors.input, tensors.weight, tensors.bias, tensors.output_grad):
            if tensor is not None:
                tensor.mul_(3).round_()
        result = result_of(operation, case, tensors, algorithm=name)
        assert torch.equal(result, torch_result(operation, case, tensors)), what
        return
    own, exact = torch_result(operation, case, tensors), reference(operation, case, tensors)
    result = result_of(operation, case, tensors, algorithm=name)
    assert_agrees(result, own, exact, what, case.terms(operation))


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_forward(dtype: torch.dtype, channels_last: bool) -> None:
    for case in (*SHAPES, *STRIDED):
        check("forward", case, dtype, channels_last)


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_input_grad(dtype: torch.dtype, channels_last: bool) -> None:
    for case in SHAPES:
        check("input_grad", case, dtype, channels_last)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_epilogue(activation: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for channels_last in (False, True):
            for case in (Dense(filters=37), Dense(groups=2, filters=6, stride=(2, 2))):
                check("forward", case.with_(activation=activation, bias=True), dtype, channels_last)
                check("forward", case.with_(activation=activation), dtype, channels_last)


PROGRAM = """
import sys
import torch
from convx import _planning
from test_hntmp import DTYPES, SHAPES, STRIDED, check

assert _planning.device("cpu").isa == sys.argv[1], _planning.device("cpu").isa
for dtype in DTYPES:
    for channels_last in (False, True):
        for case in (*SHAPES, *STRIDED):
            check("forward", case, dtype, channels_last)
        for case in SHAPES:
            check("input_grad", case, dtype, channels_last)
"""


@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set(isa: str) -> None:
    """The instruction set is read once, at import: each in a process of its own."""
    succeeds_on(isa, PROGRAM)


@st.composite
def any_case(draw: st.DrawFn) -> Dense:
    def pair(low: int, high: int) -> tuple[int, int]:
        return draw(st.integers(low, high)), draw(st.integers(low, high))

    filter, dilation, groups = pair(1, 5), pair(1, 3), draw(st.integers(1, 3))
    reach = [(f - 1) * d + 1 for f, d in zip(filter, dilation, strict=True)]
    return Dense(
        batch=draw(st.integers(1, 3)),
        channels=groups * draw(st.integers(1, 20)),
        filters=groups * draw(st.integers(1, 40)),
        groups=groups,
        height=reach[0] + draw(st.integers(0, 12)),
        width=reach[1] + draw(st.integers(0, 40)),
        filter=filter,
        dilation=dilation,
        stride=(1, 1) if draw(st.booleans()) else pair(1, 3),
        padding=(*pair(0, 4), *pair(0, 4)),
        bias=draw(st.booleans()),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=any_case(), dtype=st.sampled_from(DTYPES), channels_last=st.booleans())
def test_any_problem(case: Dense, dtype: torch.dtype, channels_last: bool) -> None:
    check("forward", case, dtype, channels_last)
    if case.stride == (1, 1):
        check("input_grad", case.with_(bias=False), dtype, channels_last)


def test_pixels_of_more_images_than_threads_and_of_fewer() -> None:
    """Whole images, bands of rows, parts of the channels; strips of rows where not all fit a cache."""
    for batch in (1, 2, 5):
        for height, width, channels in ((7, 7, 96), (57, 70, 130)):
            case = Dense(batch, channels, 70, height=height, width=width, bias=True, activation="relu")
            check("forward", case, torch.float32, True)


@pytest.mark.parametrize(("channels", "size", "shared"), [(512, 7, "parts"), (64, 56, "bands")])
def test_threads_share_out_what_is_more_of_rows_and_filters(channels: int, size: int, shared: str) -> None:
    case = Dense(batch=1, channels=channels, filters=channels, height=size, width=size)
    problem, device = problem_of(case, channels_last=True), _planning.core().Device.host_cpu(2)
    plans = _planning.core().candidates("hntmp", problem, device, fitted=False)
    fastest = min((plan for plan in plans if plan.candidate == "pixels"), key=lambda plan: plan.predicted_us)
    assert {name: fastest.tiling[name] for name in ("bands", "parts")} == {"bands": 1, "parts": 1, shared: 2}


def test_no_value_spreads() -> None:
    """An infinity is met by the taps that reach it alone: neither spare lanes nor padding multiply it."""
    case = Dense(channels=5, filters=19, height=9, width=12, batch=1)
    tensors = make(case)
    tensors.input[0, 2, 4, 5] = float("inf")
    own = torch_result("forward", case, tensors)
    result = result_of("forward", case, tensors)
    assert torch.equal(torch.isfinite(result), torch.isfinite(own))


def problem_of(case: Dense, operation: str = "forward", channels_last: bool = False) -> Any:
    shape = (case.batch, case.channels, case.height, case.width)
    weight = (case.out_channels, case.channels // case.group_count, *case.filter)
    rest = (case.stride, case.padding, case.dilation, case.group_count)
    return _planning.problem(operation, torch.float32, channels_last, shape, weight, *rest)


def plans_of(case: Dense, device: Any) -> list[Any]:
    plans: list[Any] = _planning.core().candidates("hntmp", problem_of(case), device)
    return plans


FORMS = ("published", "direct", "direct_cached")
RESNETS = Dense(batch=1, channels=64, filters=64, height=56, width=56)


@pytest.mark.parametrize("device", ["h200", "mi250"])
def test_published_forms_are_for_those_who_name_them(device: str) -> None:
    core, where = _planning.core(), _planning.device(device)
    by_name = {plan.candidate: plan.by_name_only for plan in plans_of(RESNETS, where)}
    assert all(by_name[form] for form in FORMS)
    assert {name for name, only in by_name.items() if only} == set(FORMS)
    for form in FORMS:
        assert core.select(problem_of(RESNETS), where, f"hntmp/{form}").plan.candidate == form
    assert core.select(problem_of(RESNETS), where, "hntmp").plan.candidate not in FORMS


@pytest.mark.parametrize("change", ["filter", "stride", "dilation", "groups", "layout", "operation"])
def test_published_forms_of_nothing_but_the_papers_layers(change: str) -> None:
    changed = {
        "filter": {"filter": (3, 1)},
        "stride": {"stride": (2, 2)},
        "dilation": {"dilation": (2, 2)},
        "groups": {"groups": 2},
    }.get(change, {})
    problem = problem_of(
        RESNETS.with_(**changed), "input_grad" if change == "operation" else "forward", change == "layout"
    )
    with pytest.raises(Exception, match="filters of 1x1 and 3x3, stride 1"):
        _planning.core().select(problem, _planning.device("h200"), "hntmp/published")


@pytest.mark.parametrize("groups", [1, 3])
def test_the_order_of_packed_filters(groups: int) -> None:
    """[group][block][C][R][S][channel of the block], zeros up to a whole block; and conv2d takes it."""
    case = Dense(channels=6 * groups, filters=21 * groups, groups=groups, filter=(3, 2), padding=(1, 1, 1, 0))
    tensors = make(case)
    rest = (case.stride, case.padding, case.dilation, case.group_count, "none", "hntmp", False)
    packed = ops.pack_weight(tensors.input, tensors.weight, None, *rest)
    (plan,) = plans_of(case, _planning.device("cpu"))
    block = plan.tiling["block_channels"]
    assert plan.packing == f"crsk {block}"
    blocks = -(-21 // block)
    filled = torch.zeros(groups, blocks * block, 6, 3, 2)
    filled[:, :21] = tensors.weight.view(groups, 21, 6, 3, 2)
    expected = filled.view(groups, blocks, block, 6, 3, 2).permute(0, 1, 3, 4, 5, 2).contiguous()
    assert torch.equal(packed.view(torch.float32).flatten(), expected.flatten())
    own = torch_result("forward", case, tensors)
    torch.testing.assert_close(result_of("forward", case, tensors, packed), own, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", _planning.core().Device.known_names())
def test_plans_of_every_gpu(name: str) -> None:
    """They come sorted, say how they pack, and the dense networks' sizes have tiles of their own."""
    device = _planning.core().Device.known_device(name)
    expected = {
        Dense(batch=1, channels=512, filters=512, height=7, width=7): "image",
        Dense(batch=1, channels=256, filters=256, height=14, width=14): "rows",
        Dense(batch=1, channels=64, filters=64, height=56, width=56): "tile",
        Dense(batch=1, channels=32, filters=64, filter=(5, 5), height=28, width=28): "taps",
        Dense(batch=1, dilation=(2, 2), height=28, width=28): "general",
    }
    for case, candidate in expected.items():
        plans = plans_of(case, device)
        times = [plan.predicted_us for plan in plans]
        assert times == sorted(times)
        assert min(times) > 0
        assert candidate in {plan.candidate for plan in plans}
        for plan in plans:
            tiling = plan.tiling
            if plan.candidate in FORMS:
                assert plan.packing == ("crsk 64" if plan.candidate == "published" else "")
                continue
            assert plan.packing == f"crsk {tiling['block_channels']}"
            assert tiling["block_channels"] == tiling["lane_filters"] * tiling["filters"]
            assert (plan.workspace_bytes > 0) == (tiling["splits"] > 1)


def refusal(case: Dense, operation: str, device: Any) -> str:
    supported, reason = _planning.core().supports("hntmp", problem_of(case, operation), device)
    assert not supported
    return str(reason)


def test_what_it_refuses_and_why() -> None:
    cpu, gpu = _planning.device("cpu"), _planning.core().Device.known_device("h200")
    assert refusal(Dense(), "weight_grad", cpu) == "it computes forward and input_grad, not weight_grad"
    strided = Dense(stride=(2, 1))
    assert refusal(strided, "input_grad", cpu) == "its input_grad needs stride 1, not (2, 1)"
    assert refusal(Dense(batch=0), "forward", gpu) == "the batch is empty"
    large = Dense(filter=(9, 3), height=20)
    assert "filters of up to 7x7, not 9x3" in refusal(large, "forward", gpu)
    wide = Dense(dilation=(99, 99), height=500, width=500)
    assert "shared memory" in refusal(wide, "forward", gpu)


def test_a_named_algorithm_that_cannot_run_says_why() -> None:
    tensors = make(Dense(stride=(2, 2)))
    with pytest.raises(Exception, match=r"'hntmp' can't run this problem: its input_grad needs stride 1"):
        result_of("input_grad", Dense(stride=(2, 2)), tensors, algorithm="hntmp")
    case = Dense()
    with pytest.raises(Exception, match=r"no candidate 'tile'"):
        ops.conv2d(
            make(case).input,
            make(case).weight,
            None,
            *((1, 1), (1, 1, 1, 1), (1, 1)),
            1,
            "none",
            "hntmp/tile",
            0,
        )
