"""cuConv end to end: the CPU form against float64, its planner and workspace budget, what it refuses.

The GPU kernels run in test_simt_cuconv.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import ISAS, run_python, succeeds_on
from reference import ACTIVATIONS, DTYPES, Dense, Tensors, assert_agrees, make, reference, torch_result
from torch import Tensor

import convx
from convx import _planning
from convx import operators as ops

# Planes around one and three vectors of each instruction set, filters around a block of four and eight.
SHAPES = [
    Dense(),
    Dense(batch=1, channels=1, filters=1, height=1, width=1),
    Dense(batch=1, channels=1, filters=9, height=4, width=3),
    Dense(batch=1, channels=40, filters=32, height=7, width=7),
    Dense(batch=3, channels=17, filters=5, height=5, width=6),
    Dense(batch=1, channels=64, filters=8, height=14, width=14),
    Dense(batch=1, channels=4, filters=20, height=30, width=1),
    Dense(channels=24, filters=36, groups=3),
    Dense(channels=6, filters=6, groups=6),
    Dense(filter=(1, 1), padding=(0, 0, 0, 0), height=7, width=7, channels=70),
    Dense(filter=(1, 1), padding=(0, 0, 0, 0), height=13, width=15),
    Dense(filter=(1, 1), padding=(0, 0, 0, 0), height=2, width=3),
    Dense(filter=(1, 1), padding=(1, 0, 0, 2)),
    Dense(filter=(5, 5), padding=(2, 2, 2, 2)),
    Dense(filter=(11, 4), padding=(5, 5, 2, 1), channels=3, height=12),
    Dense(filter=(1, 7), padding=(0, 0, 3, 3)),
    Dense(filter=(7, 1), padding=(3, 3, 0, 0)),
    Dense(padding=(0, 0, 0, 0)),
    Dense(padding=(5, 0, 3, 6)),
    Dense(dilation=(2, 2), padding=(2, 2, 2, 2)),
    Dense(dilation=(1, 3), filter=(2, 3), padding=(0, 1, 3, 3)),
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


def result_of(operation: str, case: Dense, tensors: Tensors) -> Tensor:
    rest = (case.stride, case.padding, case.dilation, case.group_count)
    if operation == "forward":
        return ops.conv2d(tensors.input, tensors.weight, tensors.bias, *rest, case.activation, "cuconv", 0)
    size = list(tensors.input.shape)
    return ops.conv2d_input_grad(tensors.output_grad, tensors.weight, size, *rest, "cuconv", 0)


def check(operation: str, case: Dense, dtype: torch.dtype) -> None:
    assert case.runnable, case
    tensors = make(case, dtype)
    what = f"{operation} {case} {dtype}"
    if dtype == torch.float64:  # torch would be its own reference: of whole numbers all sums are exact
        for tensor in (tensors.input, tensors.weight, tensors.bias, tensors.output_grad):
            if tensor is not None:
                tensor.mul_(3).round_()
        result, own = result_of(operation, case, tensors), torch_result(operation, case, tensors)
        torch.testing.assert_close(result, own, rtol=1e-14, atol=0, msg=what)
        return
    own, exact = torch_result(operation, case, tensors), reference(operation, case, tensors)
    assert_agrees(result_of(operation, case, tensors), own, exact, what, case.terms(operation))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_forward(dtype: torch.dtype) -> None:
    for case in (*SHAPES, *STRIDED):
        check("forward", case, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_input_grad(dtype: torch.dtype) -> None:
    for case in SHAPES:
        check("input_grad", case, dtype)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_epilogue(activation: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for case in (Dense(filters=13), Dense(groups=2, filters=6, stride=(2, 2))):
            check("forward", case.with_(activation=activation, bias=True), dtype)
            check("forward", case.with_(activation=activation), dtype)


def test_long_sums_and_many_images() -> None:
    check("forward", Dense(batch=1, channels=600, filters=16, height=7, width=7), torch.float32)
    check("forward", Dense(batch=70, channels=64, filters=9, height=28, width=28), torch.float32)


PROGRAM = """
import sys
import torch
from convx import _planning
from test_cuconv import DTYPES, SHAPES, STRIDED, check

assert _planning.device("cpu").isa == sys.argv[1], _planning.device("cpu").isa
for dtype in DTYPES:
    for case in (*SHAPES, *STRIDED):
        check("forward", case, dtype)
    for case in SHAPES[::3]:
        check("input_grad", case, dtype)
"""


@pytest.mark.slow
@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set(isa: str) -> None:
    succeeds_on(isa, PROGRAM)


def extent(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


@st.composite
def any_case(draw: st.DrawFn) -> Dense:
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    return Dense(
        batch=draw(st.integers(1, 3)),
        channels=groups * draw(st.integers(1, 20)),
        filters=groups * draw(st.integers(1, 20)),
        groups=groups,
        height=draw(st.integers(1, 24)),
        width=draw(st.integers(1, 40)),
        filter=draw(st.one_of(st.sampled_from([(1, 1), (3, 3), (5, 5)]), extent(1, 6))),
        stride=draw(st.one_of(st.just((1, 1)), extent(1, 3))),
        padding=draw(st.tuples(*[st.integers(0, 5)] * 4)),
        dilation=draw(st.one_of(st.just((1, 1)), extent(1, 3))),
        bias=draw(st.booleans()),
        activation=draw(st.sampled_from(ACTIVATIONS)),
    )


@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much],
)
@given(
    case=any_case().filter(lambda case: case.runnable), dtype=st.sampled_from(DTYPES), gradient=st.booleans()
)
def test_any_problem(case: Dense, dtype: torch.dtype, gradient: bool) -> None:
    check("forward", case, dtype)
    if gradient and case.stride == (1, 1):
        check("input_grad", case.with_(bias=False, activation="none"), dtype)


def test_repeats_bit_for_bit_on_slices_and_any_storage() -> None:
    case = Dense(batch=2, channels=24, filters=20, height=17, width=19)
    tensors = make(case)
    first = result_of("forward", case, tensors)
    wide = torch.cat([tensors.input, tensors.input], 3)
    tensors.input = wide[..., : case.width]
    assert torch.equal(result_of("forward", case, tensors), first)
    flat = torch.empty(first.numel() * 4)[1 : 1 + tensors.weight.numel()].view(tensors.weight.shape)
    tensors.weight = flat.copy_(tensors.weight)
    assert torch.equal(result_of("forward", case, tensors), first)


def problem_of(
    batch: int = 1,
    channels: int = 64,
    size: tuple[int, int] = (14, 14),
    filters: int = 32,
    filter: tuple[int, int] = (3, 3),
    **more: Any,
) -> Any:
    """A planner's problem with padding that keeps the size."""
    more.setdefault("padding", (filter[0] // 2, filter[0] // 2, filter[1] // 2, filter[1] // 2))
    return _planning.core().Problem(
        batch=batch,
        in_channels=channels,
        in_height=size[0],
        in_width=size[1],
        out_channels=filters,
        filter_height=filter[0],
        filter_width=filter[1],
        **more,
    )


def plans_of(problem: Any, device: str = "h200") -> list[Any]:
    return list(_planning.core().candidates("cuconv", problem, _planning.device(device)))


@pytest.mark.parametrize("device", ["h200", "a100", "mi250", "rx7900"])
@pytest.mark.parametrize(
    ("dtype", "width"), [("float32", 4), ("float64", 8), ("bfloat16", 4), ("float16", 4)]
)
def test_workspace_is_the_planes(device: str, dtype: str, width: int) -> None:
    """R * S planes of the output for the two stages, as many as the channels' shares for the split."""
    problem = problem_of(batch=3, size=(13, 17), filters=30, filter=(3, 5), dtype=dtype)
    plane = 3 * 30 * 13 * 17 * width
    plans = plans_of(problem, device)
    matrix = {"h200": {"tensor", "deep"}, "rx7900": set()}.get(device, {"deep"})
    matrix = set() if dtype == "float64" else matrix
    assert {plan.candidate for plan in plans} == {"fused", "split", "two_stage", "two_stage_blocked"} | matrix
    for plan in plans:
        if plan.candidate == "deep":
            assert plan.workspace_bytes == 0
            continue
        shares = plan.tiling["planes"]
        by_channels = {"fused": 0, "split": shares, "tensor": shares if shares > 1 else 0}
        assert plan.workspace_bytes == by_channels.get(plan.candidate, 15) * plane, plan
    assert [plan.predicted_us for plan in plans] == sorted(plan.predicted_us for plan in plans)


def test_matrix_units_of_sm_90() -> None:
    """float32 by products of parts, where TF32 is not allowed."""

    def has_tensor(device: str = "h200", **more: Any) -> bool:
        return "tensor" in {plan.candidate for plan in plans_of(problem_of(**more), device)}

    assert has_tensor(dtype="bfloat16") and has_tensor(dtype="float16") and not has_tensor(dtype="float64")
    # A sum of few products of parts has the error of one.
    assert has_tensor(channels=8) and not has_tensor(channels=7) and has_tensor(channels=1, allow_tf32=True)
    for tf32 in (False, True):
        precisions = {
            plan.tiling["precision"]
            for plan in plans_of(problem_of(allow_tf32=tf32))
            if plan.candidate == "tensor"
        }
        assert precisions == {2 if tf32 else 3}
    for device in ("a100", "b200", "mi300"):
        assert not has_tensor(device, dtype="bfloat16")
    assert has_tensor(dtype="bfloat16", stride=(2, 2)) and has_tensor(dtype="bfloat16", dilation=(2, 2))
    assert not has_tensor(dtype="bfloat16", stride=(2, 2), dilation=(2, 2))


def test_deep_products_are_of_few_pixels() -> None:
    """In either layout: an auto that took them for large images would be slow."""

    def has_deep(device: str = "h200", **more: Any) -> bool:
        return "deep" in {plan.candidate for plan in plans_of(problem_of(**more), device)}

    for layout in ("nchw", "channels_last"):
        assert has_deep(layout=layout, size=(64, 64)) and not has_deep(layout=layout, size=(65, 64))
        assert has_deep("a100", layout=layout) and has_deep("mi250", layout=layout, dtype="float16")
        assert has_deep(layout=layout, operation="input_grad", dtype="bfloat16")
        assert not has_deep("rx7900", layout=layout) and not has_deep(layout=layout, dtype="float64")
        assert not has_deep(layout=layout, groups=2)
    assert has_deep(channels=9, filters=3) and has_deep(channels=1, allow_tf32=True)
    assert not has_deep(channels=7)  # a sum of few products of parts has the error of one


@pytest.mark.parametrize(
    ("problem", "device", "reason"),
    [
        ({"groups": 2}, "h200", "it takes one group"),
        ({}, "rx7900", "it needs matrix units"),
        ({"dtype": "float64"}, "h200", "it takes no float64"),
        ({"filter": (1, 1)}, "h200", "is pointwise/deep's"),
        ({"size": (65, 64)}, "a100", "few pixels: 4096 of the output"),
        ({"channels": 7}, "h200", "exact float32 needs 8 channels"),
        ({"channels": 10, "layout": "channels_last"}, "h200", "whole 16 bytes, and filters by four"),
        ({"filters": 30, "layout": "channels_last"}, "h200", "whole 16 bytes, and filters by four"),
        ({"channels": 4, "dtype": "bfloat16", "layout": "channels_last"}, "mi250", "whole 16 bytes"),
    ],
)
def test_says_why_there_is_no_deep_product(problem: dict[str, Any], device: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        _planning.core().select(problem_of(**problem), _planning.device(device), "cuconv/deep")


def test_planes_of_the_tensor_kernel_have_channels() -> None:
    """None is left without a stage, and none is made where there are tiles enough."""
    for channels in range(16, 1000, 48):
        problem = problem_of(channels=channels, size=(7, 7), filters=64, dtype="bfloat16")
        for plan in plans_of(problem):
            if plan.candidate == "tensor":
                stages, planes = -(-channels // 32), plan.tiling["planes"]
                assert (planes - 1) * -(-stages // planes) < stages, plan
    large = problem_of(batch=64, channels=512, size=(28, 28), filters=512, dtype="bfloat16")
    assert all(plan.tiling["planes"] == 1 for plan in plans_of(large) if plan.candidate == "tensor")


@pytest.mark.parametrize("device", ["h200", "a100", "mi250"])
@pytest.mark.parametrize("taps", [1, 3, 5, 11])
def test_float32_is_not_summed_in_long_chains(device: str, taps: int) -> None:
    """A warp's part of a sum, unless planes are taps, where the sum over planes keeps them short."""
    in_parts = set()
    for channels in (3, 16, 33, 96, 512, 2048):
        for dtype in ("float32", "bfloat16", "float64"):
            for plan in plans_of(problem_of(channels=channels, filter=(taps, taps), dtype=dtype), device):
                t = plan.tiling
                if "part" not in t or t["planes_are_taps"]:
                    continue
                if dtype != "float32":
                    assert t["part"] == 0
                    continue
                chunks = -(-channels // t["chunk"])
                chain = -(-chunks // (t["planes"] * t["warps"])) * t["chunk"] * taps * taps
                in_parts.add(t["part"] > 0)
                assert (t["part"] > 0) == (chain > 128), plan.name
                assert t["part"] * t["chunk"] * t["window_rows"] * t["window_columns"] < 128 + 64 * 4
    assert in_parts == {False, True}


def test_a_filter_row_of_the_published_form_serves_all_images() -> None:
    """Section 3 of the paper: a block a filter row, or several where a block has not threads enough."""
    for batch, size, threads, shared in ((1, 7, 64, 1), (8, 7, 416, 1), (1, 27, 736, 1), (8, 28, 1024, 7)):
        problem = problem_of(batch=batch, channels=16, filters=48, size=(size, size))
        plan = next(each for each in plans_of(problem) if each.candidate == "two_stage")
        assert plan.by_name_only
        assert (plan.tiling["threads"], plan.tiling["blocks"]) == (threads, 48 * 9 * shared)


def test_pointwise_filters_need_no_second_stage() -> None:
    plans = plans_of(problem_of(filter=(1, 1)))
    by_name = {plan.candidate: plan for plan in plans}
    assert by_name["two_stage"].workspace_bytes == by_name["two_stage_blocked"].workspace_bytes == 0
    assert by_name["two_stage"].tiling["planes"] == 1


BUDGET = """
import sys
from test_cuconv import plans_of, problem_of
from convx import _planning

problem = problem_of(channels=8, size=(64, 64), filters=int(sys.argv[1]))
print(*sorted({plan.candidate for plan in plans_of(problem)}))
try:
    _planning.core().select(problem, _planning.device("h200"), "cuconv/two_stage")
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
def test_budget_leaves_the_fused_form_and_says_why() -> None:
    """Nine planes of 4 * 64 * 64 floats are 0.56 MB, those of 32 filters 4.5 MB."""
    within = run_python(BUDGET, "4", CONVX_WORKSPACE_LIMIT_MB="1")
    assert within.stdout.split() == [
        *("deep", "fused", "split", "tensor", "two_stage", "two_stage_blocked"),
    ], within.stderr
    beyond = run_python(BUDGET, "32", CONVX_WORKSPACE_LIMIT_MB="1")
    names = beyond.stdout.splitlines()[0].split()
    assert {"deep", "fused", "tensor"} <= set(names) <= {"deep", "fused", "split", "tensor"}, beyond.stderr
    assert "9 planes of partial sums take 5 MB, and CONVX_WORKSPACE_LIMIT_MB is 1" in beyond.stdout
    nothing = run_python(BUDGET, "32", CONVX_WORKSPACE_LIMIT_MB="0")
    assert nothing.stdout.startswith("deep fused tensor\n"), nothing.stdout + nothing.stderr


BUDGET_ON_CPU = """
import torch
import convx

x, w = torch.randn(16, 64, 40, 40), torch.randn(8, 64, 3, 3)
call = dict(padding=1, algorithm="cuconv")
try:
    print(convx.explain(x, w, **call).chosen.workspace_bytes)
    result, expected = convx.functional.conv2d(x, w, **call), torch.conv2d(x, w, padding=1)
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_cpu_packs_as_many_images_at_once_as_the_budget_holds() -> None:
    """One takes 64 * 42 * 42 floats, 0.45 MB."""
    taken = []
    for megabytes in ("8", "1"):
        done = run_python(BUDGET_ON_CPU, CONVX_WORKSPACE_LIMIT_MB=megabytes)
        assert done.returncode == 0, done.stderr
        taken.append(int(done.stdout))
    assert taken[1] < 1 << 20 < taken[0] < 8 << 20
    nothing = run_python(BUDGET_ON_CPU, CONVX_WORKSPACE_LIMIT_MB="0")
    assert "packed copy of one image is more than the 0 MB of CONVX_WORKSPACE_LIMIT_MB" in nothing.stdout


@pytest.mark.slow
@pytest.mark.parametrize("text", ["many", "-1", "1.5", "99999999999999999999"])
def test_budget_must_be_a_number_of_megabytes(text: str) -> None:
    done = run_python(BUDGET, "4", CONVX_WORKSPACE_LIMIT_MB=text)
    assert done.returncode != 0
    assert "CONVX_WORKSPACE_LIMIT_MB must be a whole number of megabytes" in done.stderr
    assert f"got '{text}'" in done.stderr


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ({"layout": "channels_last", "size": (65, 64)}, "needs the layout nchw"),
        ({"operation": "weight_grad"}, "computes forward and input_grad"),
        ({"operation": "input_grad", "stride": (2, 2)}, "input_grad at stride 1 alone"),
        ({"batch": 0}, "the batch is empty"),
        ({"size": (2**15, 2**15)}, r"must be below 2\^30"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_refuses_with_the_condition_that_fails(problem: dict[str, Any], reason: str, device: str) -> None:
    select = _planning.core().select
    with pytest.raises(ValueError, match=f"algorithm 'cuconv' can't run this problem: .*{reason}"):
        select(problem_of(**problem), _planning.device(device), "cuconv")


def test_refuses_an_unknown_candidate() -> None:
    x, w = torch.randn(1, 4, 9, 9), torch.randn(6, 4, 3, 3)
    with pytest.raises(ValueError, match=r"cuconv has no candidate 'fusion'.*cuconv/rows"):
        convx.functional.conv2d(x, w, algorithm="cuconv/fusion")


def test_flipped_filters_are_packed_for_the_gradient_alone() -> None:
    """But for matrix units, which read filters in an order of their own."""
    size = 64 * 32 * 9 * 4

    def packings(**more: Any) -> set[tuple[str, int]]:
        plans = [plan for plan in plans_of(problem_of(**more)) if plan.candidate not in ("tensor", "deep")]
        return {(plan.packing, plan.packed_weight_bytes) for plan in plans}

    assert packings() == {("", 0)}
    assert packings(operation="input_grad") == {("crsk 1 flipped", size)}
