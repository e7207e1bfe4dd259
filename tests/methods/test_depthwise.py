"""Depthwise convolution by every kernel of every method, against float64: an error of at most twice torch's
own.

The kernels are the registry's candidates for each problem, forced by name, so that one that is added is
tested.
"""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planned import layout_of_result, plans_of
from reference import (
    ACTIVATIONS,
    DTYPES,
    OPERATIONS,
    Case,
    Tensors,
    assert_agrees,
    depthwise_reference,
    is_garbage,
    make,
    reference,
    torch_result,
)
from torch import Tensor

import convx

SIZES = [
    Case(),
    Case(batch=1, channels=1, height=1, width=1),
    Case(batch=3, channels=33, height=7, width=7),
    Case(batch=1, channels=16, height=14, width=14),
    Case(batch=2, channels=8, height=28, width=30),
    Case(batch=1, channels=3, height=5, width=65),
    Case(batch=1, channels=70, height=2, width=3),
    Case(batch=2, channels=4, height=33, width=1),
    Case(batch=1, channels=4, height=1, width=40),
    Case(batch=1, channels=5, height=57, width=19),
    Case(batch=1, channels=3, height=67, width=85),
]
SHAPES = [
    *SIZES,
    *(case.with_(stride=(2, 2)) for case in SIZES[:7]),
    *(
        Case(channels=6, height=15, width=18, filter=filter, padding=padding)
        for filter, padding in (
            ((1, 1), (0, 0, 0, 0)),
            ((5, 5), (2, 2, 2, 2)),
            ((7, 7), (3, 3, 3, 3)),
            ((7, 7), (1, 5, 3, 3)),
            ((9, 9), (4, 4, 4, 4)),
            ((2, 2), (0, 1, 0, 1)),
            ((1, 5), (0, 0, 2, 2)),
            ((7, 3), (3, 3, 1, 1)),
            ((4, 11), (1, 2, 5, 5)),
            ((15, 18), (4, 4, 3, 3)),
        )
    ),
    *(
        Case(batch=2, channels=channels, height=height, width=35, filter=filter, padding=padding)
        for channels, height, filter, padding in (
            (16, 18, (13, 13), (6, 6, 6, 6)),
            (9, 33, (31, 31), (15, 15, 15, 15)),
            (8, 17, (5, 32), (0, 4, 16, 15)),
        )
    ),
    Case(channels=2, height=16, width=1, filter=(5, 5), padding=(2, 2, 2, 2)),
    Case(channels=2, height=9, width=3, filter=(7, 7), padding=(3, 3, 3, 3)),
    Case(height=14, width=17, filter=(5, 5), padding=(2, 2, 2, 2), stride=(2, 2)),
    Case(height=20, width=17, stride=(3, 2)),
    Case(height=20, width=17, stride=(1, 2)),
    Case(height=14, width=13, stride=(4, 5), padding=(0, 0, 0, 0)),
    Case(height=14, width=13, dilation=(2, 2), padding=(2, 2, 2, 2)),
    Case(height=14, width=23, dilation=(3, 1), stride=(2, 1), padding=(3, 3, 1, 1)),
    Case(height=17, width=16, dilation=(1, 4), filter=(5, 3), stride=(2, 3)),
    Case(padding=(0, 0, 0, 0)),
    Case(padding=(0, 2, 3, 1)),
    Case(padding=(5, 0, 0, 4), stride=(2, 2)),
    Case(padding=(9, 9, 11, 11)),
    Case(multiplier=2),
    Case(channels=3, multiplier=5, stride=(2, 2), height=12),
    Case(channels=16, multiplier=3, filter=(5, 5), padding=(2, 2, 2, 2)),
    Case(channels=8, height=1, width=100, filter=(1, 7), padding=(0, 0, 3, 3)),
    Case(channels=8, height=1, width=101, filter=(1, 4), padding=(0, 0, 3, 0), stride=(1, 2)),
]


def operation_result(operation: str, case: Case, tensors: Tensors, algorithm: str) -> Tensor:
    geometry = (case.stride, case.padding, case.dilation, case.group_count)
    operators = torch.ops.convx
    if operation == "forward":
        return operators.conv2d(
            tensors.input, tensors.weight, tensors.bias, *geometry, case.activation, algorithm, 0
        )
    if operation == "input_grad":
        size = list(tensors.input.shape)
        return operators.conv2d_input_grad(tensors.output_grad, tensors.weight, size, *geometry, algorithm, 0)
    size = list(tensors.weight.shape)
    return operators.conv2d_weight_grad(tensors.input, tensors.output_grad, size, *geometry, algorithm, 0)


def algorithms(operation: str, case: Case, tensors: Tensors) -> list[str]:
    """auto, every method that can run the problem and every kernel of each, by the names that select them."""
    names = {"auto": None}
    for method in (row["name"] for row in convx.methods()):
        for plan in plans_of(method, operation, case, tensors):
            names[method] = None
            if plan.candidate:
                names[f"{method}/{plan.candidate}"] = None
    return list(names)


def check(
    operation: str,
    case: Case,
    dtype: torch.dtype,
    device: str,
    channels_last: bool,
    tensors: Tensors | None = None,
) -> None:
    assert case.runnable, case
    tensors = tensors or make(case, dtype, device, channels_last)
    own, exact = torch_result(operation, case, tensors), reference(operation, case, tensors)
    names = algorithms(operation, case, tensors)
    if is_garbage(operation, case, tensors):
        own = exact.to(dtype)
        names = [name for name in names if name.split("/")[0] not in ("auto", "native")]
    for algorithm in names:
        result = operation_result(operation, case, tensors, algorithm)
        what = f"{algorithm} {operation} {case} {dtype}"
        assert_agrees(result, own, exact, what, case.terms(operation))
        assert result.device == tensors.input.device
        assert result.is_contiguous(memory_format=layout_of_result(operation, tensors))


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_shape(operation: str, dtype: torch.dtype, channels_last: bool, device: str) -> None:
    for case in SHAPES:
        check(operation, case, dtype, device, channels_last)


def test_depthwise_runs_everything_depthwise(device: str) -> None:
    for case, dtype, operation, channels_last in product(SHAPES, DTYPES, OPERATIONS, (False, True)):
        tensors = make(case, dtype, device, channels_last)
        assert "depthwise" in algorithms(operation, case, tensors), (case, dtype, operation, channels_last)


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_epilogue(activation: str, dtype: torch.dtype, channels_last: bool, device: str) -> None:
    for case in (Case(channels=19, width=35), Case(channels=4, multiplier=2, stride=(2, 2))):
        for bias in (False, True):
            check("forward", case.with_(activation=activation, bias=bias), dtype, device, channels_last)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_unusual_strides(operation: str, device: str) -> None:
    """Slices, permutations, expanded (stride 0) tensors and storage that begins anywhere."""
    case = Case(batch=3, channels=6, height=8, width=9)
    for view in ("slice", "permutation", "expanded", "offset", "channels of a wider tensor"):
        tensors = make(case, torch.float32, device)
        for name in ("input", "output_grad"):
            tensor = getattr(tensors, name)
            if view == "slice":
                tensor = torch.cat([tensor, tensor], 3)[..., 1 : 1 + tensor.size(3)]
            elif view == "permutation":
                tensor = tensor.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2)
            elif view == "expanded":
                tensor = tensor[:1, :, :1].expand(tensor.shape)
            elif view == "offset":
                flat = torch.empty(tensor.numel() + 1, device=device)
                tensor = flat[1:].view(tensor.shape).copy_(tensor)
            else:
                wide = torch.cat([tensor] * 3, 1).contiguous(memory_format=torch.channels_last)
                tensor = wide[:, 6:12]
            setattr(tensors, name, tensor)
        tensors.weight = torch.cat([tensors.weight] * 2, 3)[..., ::2].contiguous()[..., :3]
        check(operation, case, torch.float32, device, False, tensors)


# What is multiplied one by one, and what matrix units take.
KINDS = {
    "3x3 float32": (torch.float32, Case(channels=24), 1e-5),
    "9x9 bfloat16": (torch.bfloat16, Case(channels=24, filter=(9, 9), padding=(4, 4, 4, 4)), 2e-2),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_not_a_number_and_infinity_stay_where_they_belong(operation: str, kind: str, device: str) -> None:
    dtype, case, tolerance = KINDS[kind]
    case = case.with_(batch=1, height=9, width=12)
    for channels_last in (False, True):
        tensors = make(case, dtype, device, channels_last)
        tensors.input[0, 1, 4, 5] = tensors.output_grad[0, 1, 4, 5] = 0
        exact = reference(operation, case, tensors).to(device, dtype)
        tensors.input[0, 1, 4, 5], tensors.output_grad[0, 1, 4, 5] = float("nan"), float("inf")
        finite = torch.isfinite(torch_result(operation, case, tensors))
        most = tolerance * float(exact[finite].abs().max())
        for algorithm in algorithms(operation, case, tensors):
            result = operation_result(operation, case, tensors, algorithm)
            assert torch.equal(torch.isfinite(result), finite), algorithm
            torch.testing.assert_close(result[finite], exact[finite], rtol=0, atol=most)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_bit_for_bit_repeatable(operation: str, kind: str, device: str) -> None:
    dtype, case, _ = KINDS[kind]
    case = case.with_(batch=5, height=30, width=31)
    for channels_last in (False, True):
        tensors = make(case, dtype, device, channels_last)
        for algorithm in algorithms(operation, case, tensors):
            if algorithm in ("auto", "native"):
                continue  # torch's own need not be
            runs = [operation_result(operation, case, tensors, algorithm) for _ in range(3)]
            assert all(torch.equal(run, runs[0]) for run in runs[1:]), algorithm


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_references_agree(operation: str) -> None:
    for case in (*SHAPES, Case(bias=True, activation="silu")):
        tensors = make(case, torch.float64)
        expected = torch_result(operation, case, tensors)
        torch.testing.assert_close(depthwise_reference(operation, case, tensors), expected)


def test_the_rule_can_fail() -> None:
    case = Case(channels=8, height=14, width=14)
    tensors = make(case)
    own, exact = torch_result("forward", case, tensors), reference("forward", case, tensors)
    assert_agrees(own, own, exact)
    for wrong in (own * (1 + 1e-5), own.bfloat16().float(), own.roll(1, 3)):
        with pytest.raises(AssertionError, match="is allowed"):
            assert_agrees(wrong, own, exact)


def extent(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


CASES = st.builds(
    Case,
    batch=st.integers(1, 4),
    channels=st.integers(1, 40),
    multiplier=st.sampled_from([1, 1, 1, 2, 3]),
    height=st.integers(1, 40),
    width=st.integers(1, 70),
    filter=st.one_of(st.sampled_from([(3, 3), (5, 5), (7, 7)]), extent(1, 8)),
    stride=st.one_of(st.sampled_from([(1, 1), (2, 2)]), extent(1, 3)),
    padding=st.one_of(
        st.sampled_from([(1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)]),
        st.tuples(*[st.integers(0, 6)] * 4),
    ),
    dilation=st.one_of(st.just((1, 1)), extent(1, 3)),
    bias=st.booleans(),
    activation=st.sampled_from(ACTIVATIONS),
).filter(lambda case: case.runnable)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(
    case=CASES,
    dtype=st.sampled_from(DTYPES),
    operation=st.sampled_from(OPERATIONS),
    channels_last=st.booleans(),
)
def test_any_problem(
    case: Case, dtype: torch.dtype, operation: str, channels_last: bool, device: str
) -> None:
    if operation != "forward":
        case = case.with_(bias=False, activation="none")
    check(operation, case, dtype, device, channels_last)


@pytest.mark.gpu
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "channels_last"])
def test_large_grids(channels_last: bool) -> None:
    """More than 65535 planes and more than 65535 images: grids past what two of the dimensions may hold."""
    for case in (
        Case(batch=70000, channels=2, height=4, width=4),
        Case(batch=1, channels=70000, height=4, width=4),
    ):
        for operation in OPERATIONS:
            check(operation, case, torch.float32, "cuda", channels_last)


@pytest.mark.gpu
def test_side_stream() -> None:
    case = Case(batch=8, channels=64, height=56, width=56)
    tensors = make(case, torch.float32, "cuda")
    exact, own = reference("forward", case, tensors), torch_result("forward", case, tensors)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        tensors.input = tensors.input.clone()
        result = operation_result("forward", case, tensors, "auto")
    side.synchronize()
    assert_agrees(result, own, exact)
