"""cuConv and HNTMP on a GPU: every plan of theirs against float64.

Without a GPU the kernels run in test_simt_cuconv and test_simt_hntmp.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import test_cuconv
import test_hntmp
import torch
from planned import begin_between_pieces, plans_of, result_of
from reference import ACTIVATIONS, Dense, Tensors, assert_agrees, make, reference, torch_result
from torch import Tensor

METHODS = ("cuconv", "hntmp")
# The second: channels_last.
IN_LAYOUTS = [("cuconv", False), ("cuconv", True), ("hntmp", False), ("hntmp", True)]
# Whole pieces of channels, planes of several tiles, rows of odd and even lengths.
LARGER = [
    Dense(batch=1, channels=64, filters=96, height=28, width=28),
    Dense(batch=3, channels=96, filters=130, height=14, width=14, bias=True, activation="relu"),
    Dense(batch=2, channels=72, filters=64, height=13, width=13),
    Dense(batch=9, channels=40, filters=70, height=7, width=7, filter=(1, 1), padding=(0, 0, 0, 0)),
    Dense(batch=1, channels=5, filters=6, height=20, width=56, filter=(5, 5), padding=(2, 2, 2, 2)),
]
# First convolutions whose rows are whole pieces in 16 bits and channels_last.
IMAGES = [
    Dense(batch=2, channels=3, filters=32, height=33, width=64, stride=(2, 2), bias=True, activation="silu"),
    Dense(
        batch=1, channels=3, filters=84, height=40, width=272, stride=(2, 2), bias=True, activation="relu6"
    ),
    Dense(
        batch=3,
        channels=3,
        filters=64,
        height=37,
        width=40,
        filter=(7, 7),
        padding=(3, 3, 3, 3),
        stride=(2, 2),
    ),
    Dense(
        batch=2,
        channels=3,
        filters=96,
        height=32,
        width=48,
        filter=(4, 4),
        padding=(0, 0, 0, 0),
        stride=(4, 4),
    ),
]
# Channels of 16 bytes and more of them than a block's warps have in registers at once.
FEW_PIXELS = [
    Dense(batch=2, channels=48, filters=40, height=15, width=13, stride=(2, 2), bias=True),
    Dense(batch=1, channels=256, filters=72, height=14, width=14, bias=True, activation="relu"),
    Dense(batch=1, channels=512, filters=36, height=7, width=7),
    Dense(
        batch=3,
        channels=160,
        filters=68,
        height=9,
        width=8,
        filter=(1, 1),
        padding=(0, 0, 0, 0),
        stride=(2, 2),
    ),
    Dense(batch=2, channels=72, filters=64, height=12, width=11, dilation=(2, 3), padding=(2, 2, 3, 3)),
]
SHAPES = {
    "cuconv": [*test_cuconv.SHAPES, *test_cuconv.STRIDED, *LARGER, *FEW_PIXELS],
    "hntmp": [*test_hntmp.SHAPES, *test_hntmp.STRIDED, *LARGER, *IMAGES],
}


@pytest.fixture(autouse=True)
def _exact_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own float32, which errors are measured against, is not TF32."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def results(
    method: str, operation: str, case: Dense, tensors: Tensors, tf32: bool = False
) -> Iterator[tuple[str, Tensor]]:
    """What every plan of the method gives; nothing where it can't run the case."""
    for plan in plans_of(method, operation, case, tensors, tf32):
        yield plan.name, result_of(operation, case, tensors, plan.name, tf32)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", test_cuconv.DTYPES, ids=str)
@pytest.mark.parametrize("operation", ["forward", "input_grad"])
@pytest.mark.parametrize(("method", "channels_last"), IN_LAYOUTS)
def test_every_plan_agrees(method: str, channels_last: bool, operation: str, dtype: torch.dtype) -> None:
    seen: set[str] = set()
    for case in SHAPES[method]:
        if operation == "input_grad":
            case = case.with_(bias=False, activation="none")
        tensors = make(case, dtype, "cuda", channels_last)
        own, exact = torch_result(operation, case, tensors), reference(operation, case, tensors)
        for algorithm, result in results(method, operation, case, tensors):
            seen.add(algorithm.split(" ")[0])
            assert_agrees(result, own, exact, f"{algorithm} {case}", case.terms(operation))
    has_units = torch.version.cuda is not None and torch.cuda.get_device_capability() >= (8, 0)
    if has_units and method == "cuconv" and dtype != torch.float64:
        assert "cuconv/deep" in seen
    assert len(seen) > 1, f"only {seen} ran"
    if (method, channels_last, operation, dtype) == ("hntmp", False, "forward", torch.float32):
        assert seen >= {f"hntmp/{form}" for form in test_hntmp.FORMS}
    if has_units and (method, channels_last, operation) == ("hntmp", True, "forward") and dtype.itemsize == 2:
        assert "hntmp/stem_tensor" in seen


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
@pytest.mark.parametrize(("method", "channels_last"), IN_LAYOUTS)
def test_epilogue(method: str, channels_last: bool, activation: str) -> None:
    for width in (13, 14):
        filters = 72 if channels_last else 70  # deep products' are quads there
        case = Dense(channels=24, filters=filters, width=width, bias=True, activation=activation)
        for dtype in (torch.float32, torch.bfloat16):
            tensors = make(case, dtype, "cuda", channels_last)
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
@pytest.mark.parametrize(("method", "channels_last"), IN_LAYOUTS)
def test_memory_that_begins_anywhere(method: str, channels_last: bool) -> None:
    """Kernels load pairs and pieces of elements at once; slices of storage begin between them."""
    for width in (13, 14, 28):
        case = Dense(channels=24, filters=32, height=9, width=width)
        for dtype in (torch.float32, torch.bfloat16):
            tensors = make(case, dtype, "cuda", channels_last)
            begin_between_pieces(tensors)
            own, exact = torch_result("forward", case, tensors), reference("forward", case, tensors)
            for algorithm, result in results(method, "forward", case, tensors):
                assert_agrees(result, own, exact, f"{algorithm} {case}", case.terms("forward"))
