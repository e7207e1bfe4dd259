"""Pooling of planes: bit for bit what torch's gives, by a call and, on CPUs, in a chain."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from processes import ISAS, succeeds_on
from torch import Tensor

from convx import _libraries
from convx._libraries import front_problem
from convx.optimize.layers import PooledPlanes, Pooling

pytestmark = pytest.mark.skipif(bool(front_problem()), reason=f"no convx._front: {front_problem()}")
_front: Any = _libraries.front()
FORMATS = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}
# Of networks, and of rows that are longer and shorter than vectors.
CASES = [
    (Pooling("max", (3, 3), (2, 2), (1, 1)), (1, 64, 56, 112)),
    (Pooling("max", (3, 3), (2, 2), (0, 0), ceil_mode=True), (2, 70, 13, 55)),
    (Pooling("max", (3, 3), (1, 1), (1, 1), ceil_mode=True), (3, 17, 7, 14)),
    (Pooling("max", (2, 2), (2, 2), (0, 0)), (1, 5, 40, 35)),
    (Pooling("max", (2, 3), (3, 1), (1, 1), dilation=(2, 3)), (2, 33, 9, 41)),
    (Pooling("average", (2, 2), (2, 2), (0, 0)), (2, 40, 14, 28)),
    (Pooling("average", (3, 3), (1, 1), (1, 1), counts_padding=False), (1, 19, 17, 17)),
    (Pooling("average", (5, 5), (3, 3), (2, 2), ceil_mode=True), (2, 3, 24, 37)),
    (Pooling("average", (3, 3), (2, 2), (1, 1), ceil_mode=True), (2, 8, 24, 37)),
    (Pooling("average", (3, 4), (2, 2), (1, 2), divisor=5), (1, 16, 21, 40)),
]
# Of as many results as GPUs have longer vectors for.
LARGE_CASES = [
    (Pooling("max", (3, 3), (1, 1), (1, 1)), (4, 64, 70, 71)),
    (Pooling("max", (3, 3), (2, 2), (0, 0)), (8, 72, 113, 111)),
    (Pooling("average", (2, 2), (2, 2), (0, 0)), (16, 64, 101, 102)),
]
# Windows whose averages kernels of GPUs take.
SQUARES = [((3, 3), (2, 2)), ((3, 3), (1, 1)), ((2, 2), (2, 2))]


def check(pooling: Pooling, x: Tensor) -> None:
    expected = pooling(x)
    result = _front.pooled(x, pooling.asked)
    if not x.is_cpu and pooling.kind == "average" and (pooling.filter, pooling.stride) not in SQUARES:
        assert result is None
        return
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
    if not x.is_cpu:
        return
    chain = _front.Chain([_front.pooled_link(x, pooling.asked)], [(0, -1)], 1, [1], False)
    (result,) = chain.run([x], torch.empty(chain.bytes, dtype=torch.uint8))
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


def check_cases(cases: Any = CASES, device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
    for pooling, size in cases:
        for memory_format in FORMATS.values():
            x = torch.randn(size, device=device).to(dtype).contiguous(memory_format=memory_format)
            check(pooling, x)
            x[torch.rand(size, device=device) < 0.02] = float("nan")
            x[torch.rand(size, device=device) < 0.02] = float("-inf")
            check(pooling, x)


@pytest.mark.parametrize("isa", ISAS)
def test_cases(isa: str) -> None:
    succeeds_on(isa, "from test_pooling import check_cases\n\ncheck_cases()")


GPU_DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", GPU_DTYPES, ids=str)
def test_cases_on_a_gpu(dtype: torch.dtype) -> None:
    check_cases(CASES + LARGE_CASES, "cuda", dtype)
    begins_anywhere = torch.randn(2 * 8 * 81 + 1, device="cuda").to(dtype)[1:].view(2, 8, 9, 9)
    check(CASES[0][0], begins_anywhere)


@st.composite
def poolings(draw: st.DrawFn) -> Pooling:
    def two(least: int, most: int) -> tuple[int, int]:
        return draw(st.integers(least, most)), draw(st.integers(least, most))

    kind = draw(st.sampled_from(["max", "average"]))
    filter, stride, dilation = two(1, 5), two(1, 3), two(1, 3)
    padding = (draw(st.integers(0, filter[0] // 2)), draw(st.integers(0, filter[1] // 2)))
    if kind == "max":
        return Pooling(kind, filter, stride, padding, dilation, draw(st.booleans()))
    ends = (draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([None, 3])))
    return Pooling(kind, filter, stride, padding, (1, 1), *ends)


SIZES = st.tuples(st.integers(1, 2), st.integers(1, 70), st.integers(1, 20), st.integers(1, 70))
PADDING_ALONE = (Pooling("max", (2, 2), (1, 1), (1, 1), (3, 3)), (1, 1, 3, 3), "nchw")  # has a window of it


def _check_any(pooling: Pooling, x: Tensor) -> None:
    try:
        pooling(x)
    except RuntimeError:  # no place for a window
        assert _front.pooled(x, pooling.asked) is None
        assume(False)
    check(pooling, x)


@settings(max_examples=150, deadline=None)
@given(poolings(), SIZES, st.sampled_from(list(FORMATS)))
@example(*PADDING_ALONE)
def test_any(pooling: Pooling, size: tuple[int, ...], layout: str) -> None:
    _check_any(pooling, torch.randn(size).contiguous(memory_format=FORMATS[layout]))


@pytest.mark.gpu
@settings(max_examples=150, deadline=None)
@given(poolings(), SIZES, st.sampled_from(list(FORMATS)), st.sampled_from(GPU_DTYPES))
@example(*PADDING_ALONE, torch.float32)
def test_any_on_a_gpu(pooling: Pooling, size: tuple[int, ...], layout: str, dtype: torch.dtype) -> None:
    _check_any(pooling, torch.randn(size, device="cuda").to(dtype).contiguous(memory_format=FORMATS[layout]))


@pytest.mark.gpu
def test_what_torch_has_to_do_on_a_gpu() -> None:
    x, pooling = torch.randn(2, 12, 5, 6, device="cuda"), CASES[0][0]
    for given_ in (x.double(), x[0], x[:, :, :, 1:], x[:0], x.requires_grad_()):
        assert _front.pooled(given_, pooling.asked) is None
        if given_.numel():
            assert torch.equal(PooledPlanes(pooling)(given_), pooling(given_))
    assert _front.pooled(x.detach(), Pooling("max", (3, 3), (2, 2), (2, 2)).asked) is None


def test_what_torch_has_to_do() -> None:
    x, pooling = torch.randn(2, 12, 5, 6), Pooling("max", (2, 2), (2, 2), (0, 0))
    for given_ in (x.double(), x[0], x[:, :, :, 1:], x[:0], x.to_mkldnn(), x.requires_grad_()):
        assert _front.pooled(given_, pooling.asked) is None
        if not given_.is_mkldnn:
            assert torch.equal(PooledPlanes(pooling)(given_), pooling(given_))
    x = x.detach()
    for refused in (
        Pooling("max", (3, 3), (2, 2), (2, 2)),
        Pooling("average", (0, 2), (2, 2), (0, 0)),
        Pooling("max", (2, 2), (0, 1), (0, 0)),
        Pooling("max", (2, 2), (1, 1), (0, 0), (0, 1)),
        Pooling("average", (2, 2), (1, 1), (-1, 0)),
    ):
        assert _front.pooled(x, refused.asked) is None
        with pytest.raises(RuntimeError):
            PooledPlanes(refused)(x)
