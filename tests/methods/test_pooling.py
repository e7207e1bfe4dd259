"""Pooling of planes on CPUs: bit for bit what torch's gives, by a call and in a chain."""

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
    (Pooling("average", (3, 4), (2, 2), (1, 2), divisor=5), (1, 16, 21, 40)),
]


def check(pooling: Pooling, x: Tensor) -> None:
    expected = pooling(x)
    result = _front.pooled(x, pooling.asked)
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
    chain = _front.Chain([_front.pooled_link(x, pooling.asked)], [(0, -1)], 1, [1], False)
    (result,) = chain.run([x], torch.empty(chain.bytes, dtype=torch.uint8))
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


def check_cases() -> None:
    for pooling, size in CASES:
        for memory_format in FORMATS.values():
            x = torch.randn(size).contiguous(memory_format=memory_format)
            check(pooling, x)
            x[torch.rand(size) < 0.02] = float("nan")
            x[torch.rand(size) < 0.02] = float("-inf")
            check(pooling, x)


@pytest.mark.parametrize("isa", ISAS)
def test_cases(isa: str) -> None:
    succeeds_on(isa, "from test_pooling import check_cases\n\ncheck_cases()")


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


@settings(max_examples=150, deadline=None)
@given(
    poolings(),
    st.tuples(st.integers(1, 2), st.integers(1, 70), st.integers(1, 20), st.integers(1, 70)),
    st.sampled_from(list(FORMATS)),
)
@example(Pooling("max", (2, 2), (1, 1), (1, 1), (3, 3)), (1, 1, 3, 3), "nchw")  # a window of padding alone
def test_any(pooling: Pooling, size: tuple[int, ...], layout: str) -> None:
    x = torch.randn(size).contiguous(memory_format=FORMATS[layout])
    try:
        pooling(x)
    except RuntimeError:  # no place for a window
        assert _front.pooled(x, pooling.asked) is None
        assume(False)
    check(pooling, x)


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
