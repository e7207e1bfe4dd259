"""cuConv and HNTMP on a GPU: every plan of theirs against float64.

Without a GPU the kernels run in test_simt_cuconv and test_simt_hntmp.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import test_cuconv
import test_hntmp
import torch
from reference import ACTIVATIONS, Dense, Tensors, assert_agrees, make, reference, torch_result
from torch import Tensor

from convx import _planning, ops

METHODS = ("cuconv", "hntmp")
# Whole pieces of channels, planes of several tiles, rows of odd and even lengths.
LARGER = [
    Dense(batch=1, channels=64, filters=96, height=28, width=28),
    Dense(batch=3, channels=96, filters=130, height=14, width=14, bias=True, activation="relu"),
    Dense(batch=2, channels=72, filters=64, height=13, width=13),
    Dense(batch=9, channels=40, filters=70, height=7, width=7, filter=(1, 1), padding=(0, 0, 0, 0)),
    Dense(batch=1, channels=5, filters=6, height=20, width=56, filter=(5, 5), padding=(2, 2, 2, 2)),
]
SHAPES = {
    "cuconv": [*test_cuconv.SHAPES, *test_cuconv.STRIDED, *LARGER],
    "hntmp": [*test_hntmp.SHAPES, *test_hntmp.STRIDED, *LARGER],
}


@pytest.fixture(autouse=True)
def _exact_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own float32, which errors are measured against, is not TF32."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def plans_of(method: str, operation: str, case: Dense, dtype: torch.dtype, tf32: bool = False) -> list[str]:
    """Every plan, by the name that selects it; none where the method can't run the case."""
    problem = _planning.problem(
        operation,
        dtype,
        False,
        (case.batch, case.channels, case.height, case.width),
        (case.out_channels, case.channels // case.group_count, *case.filter),
        case.stride,
        case.padding,
        case.dilation,
        case.group_count,
        case.bias,
        case.activation,
        tf32,
    )
    core, device = _planning.core(), _planning.device(torch.device("cuda"))
    (row,) = (row for row in core.explain(problem, device) if row.method == method)
    return [plan.name for plan in row.plans]


def result_of(operation: str, case: Dense, t: Tensors, algorithm: str, tf32: bool = False) -> Tensor:
    rest: tuple[Any, ...] = (case.stride, case.padding, case.dilation, case.group_count)
    if operation == "forward":
        return ops.conv2d(t.input, t.weight, t.bias, *rest, case.activation, algorithm, tf32)
    size = list(t.input.shape)
    return ops.conv2d_input_grad(t.output_grad, t.weight, size, *rest, algorithm, tf32)


def results(
    method: str, operation: str, case: Dense, tensors: Tensors, tf32: bool = False
) -> Iterator[tuple[str, Tensor]]:
    for algorithm in plans_of(method, operation, case, tensors.input.dtype, tf32):
        yield algorithm, result_of(operation, case, tensors, algorithm, tf32)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", test_cuconv.DTYPES, ids=str)
@pytest.mark.parametrize("operation", ["forward", "input_grad"])
@pytest.mark.parametrize("method", METHODS)
def test_every_plan_agrees(method: str, operation: str, dtype: torch.dtype) -> None:
    seen: set[str] = set()
    for case in SHAPES[method]:
        if operation == "input_grad":
            case = case.with_(bias=False, activation="none")
        tensors = make(case, dtype, "cuda")
        own, exact = torch_result(operation, case, tensors), reference(operation, case, tensors)
        for algorithm, result in results(method, operation, case, tensors):
            seen.add(algorithm.split(" ")[0])
            assert_agrees(result, own, exact, f"{algorithm} {case}", case.terms(operation))
    assert len(seen) > 1, f"only {seen} ran"


@pytest.mark.gpu
def test_long_sums_of_cuconv_in_float32() -> None:
    """Of 825 products, for which cuDNN takes an FFT, whose roundings are few."""
    case = Dense(batch=1, channels=33, filters=65, height=20, width=56, filter=(5, 5), padding=(2, 2, 2, 2))
    tensors = make(case, torch.float32, "cuda")
    own, exact = torch_result("forward", case, tensors), reference("forward", case, tensors)
    for algorithm, result in results("cuconv", "forward", case, tensors):
        assert_agrees(result, own, exact, f"{algorithm} {case}", case.terms("forward"))


@pytest.mark.gpu
@pytest.mark.parametrize("operation", ["forward", "input_grad"])
def test_tf32_where_it_is_allowed(operation: str) -> None:
    tensor_cores = 0
    for case in (*test_cuconv.SHAPES, *LARGER):
        case = case.with_(bias=False, activation="none")
        tensors = make(case, torch.float32, "cuda")
        exact = reference(operation, case, tensors)
        for algorithm, result in results("cuconv", operation, case, tensors, tf32=True):
            tensor_cores += algorithm.startswith("cuconv/tensor")
            error = (result.cpu().double() - exact).norm() / exact.norm()
            assert error < 6e-4, (algorithm, case)  # two roundings to 11 bits, a sum of products
    assert tensor_cores > 0 or torch.cuda.get_device_capability() != (9, 0)


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("method", METHODS)
def test_epilogue(method: str, activation: str) -> None:
    for width in (13, 14):
        case = Dense(channels=24, filters=70, width=width, bias=True, activation=activation)
        for dtype in (torch.float32, torch.bfloat16):
            tensors = make(case, dtype, "cuda")
            own, exact = torch_result("forward", case, tensors), reference("forward", case, tensors)
            for algorithm, result in results(method, "forward", case, tensors):
                assert_agrees(result, own, exact, f"{algorithm} {case}", case.terms("forward"))


@pytest.mark.gpu
@pytest.mark.parametrize("operation", ["forward", "input_grad"])
@pytest.mark.parametrize("method", METHODS)
def test_bit_for_bit_repeatable(method: str, operation: str) -> None:
    case = Dense(batch=3, channels=200, filters=96, height=14, width=14)
    for dtype in (torch.float32, torch.bfloat16):
        tensors = make(case, dtype, "cuda")
        for algorithm, first in results(method, operation, case, tensors):
            for _ in range(2):
                assert torch.equal(result_of(operation, case, tensors, algorithm), first), algorithm


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_memory_that_begins_anywhere(method: str) -> None:
    """Kernels load pairs and pieces of elements at once; slices of storage begin between them."""
    for width in (13, 14, 28):
        case = Dense(channels=24, filters=32, height=9, width=width)
        for dtype in (torch.float32, torch.bfloat16):
            tensors = make(case, dtype, "cuda")
            for name in ("input", "weight"):
                tensor = getattr(tensors, name)
                flat = torch.empty(tensor.numel() + 1, device="cuda", dtype=dtype)
                setattr(tensors, name, flat[1:].view(tensor.shape).copy_(tensor))
            own, exact = torch_result("forward", case, tensors), reference("forward", case, tensors)
            for algorithm, result in results(method, "forward", case, tensors):
                assert_agrees(result, own, exact, f"{algorithm} {case}", case.terms("forward"))
