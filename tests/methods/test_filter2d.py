"""filter2d against float64: every dtype, border, kernel and ragged sizes; uint8 to the bit; bad input."""

from __future__ import annotations

import functools
import math
import zlib
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from filter_reference import BORDERS, exact_filter2d, photo, random, torch_filter2d
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import ISAS, succeeds_on
from reference import DTYPES, assert_agrees
from torch import Tensor

import convx
from convx.functional import filter2d, separable_filter2d

KERNELS = ("row_reuse", "column_reuse", "both", "direct")
# (leading dimensions, height, width), filter
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((9, 11), (3, 3)),
    ((3, 37, 75), (3, 3)),
    ((2, 2, 33, 70), (2, 3, 3)),
    ((64, 200), (5, 5)),
    ((1, 30, 130), (3, 7, 7)),
    ((5, 3), (7, 7)),
    ((1, 1), (5, 5)),
    ((1, 40), (3, 3)),
    ((40, 1), (3, 3)),
    ((3, 20, 61), (2, 4)),
    ((33, 90), (2, 1, 9)),
    ((33, 90), (11, 1)),
    ((41, 150), (31, 31)),
    ((2, 6, 1100), (3, 3)),
    ((0, 6, 7), (3, 3)),
]


def has_kernel(kernel: str, filter: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Column reuse on CPUs is for the common filters."""
    common = filter[-1] == filter[-2] and filter[-1] in (3, 5, 7) and dtype != torch.float64
    return common or kernel in ("row_reuse", "direct")


@functools.lru_cache(maxsize=64)
def known(
    shape: tuple[int, ...], filter_shape: tuple[int, ...], dtype: torch.dtype, border: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images, a filter, torch's result and the exact one; kept for the kernels to come."""
    images, filter = random(*shape, dtype=dtype), random(*filter_shape, dtype=dtype)
    return images, filter, torch_filter2d(images, filter, border), exact_filter2d(images, filter, border)


@functools.lru_cache(maxsize=16)
def known_uint8(shape: tuple[int, ...], filter_shape: tuple[int, ...], border: str) -> tuple[Tensor, ...]:
    """Filters of small integers over 16, whose sums float32 holds: the result is known to the bit."""
    images, generator = photo(*shape), torch.Generator().manual_seed(zlib.crc32(str(filter_shape).encode()))
    filter = torch.randint(-8, 12, filter_shape, generator=generator).float() / 16
    exact = exact_filter2d(images, filter, border)
    return images, filter, exact.round().clamp(0, 255).to(torch.uint8)


def check(
    shape: tuple[int, ...],
    filter_shape: tuple[int, ...],
    dtype: torch.dtype,
    border: str,
    algorithm: str,
    device: str = "cpu",
) -> None:
    images, filter, own, exact = known(shape, filter_shape, dtype, border)
    result = filter2d(images.to(device), filter.to(device), border, algorithm=algorithm)
    what = f"{shape} {filter_shape} {dtype} {border} {algorithm}"
    assert_agrees(result.cpu(), own, exact, what, math.prod(filter_shape[-2:]))


def check_uint8(
    shape: tuple[int, ...], filter_shape: tuple[int, ...], border: str, algorithm: str, device: str = "cpu"
) -> None:
    images, filter, exact = known_uint8(shape, filter_shape, border)
    result = filter2d(images.to(device), filter.to(device), border, algorithm=algorithm).cpu()
    assert result.dtype == torch.uint8
    assert torch.equal(result, exact), (shape, border, algorithm)


def check_everything() -> None:
    """All of it for the kernels in use; tests of the instruction sets run it in processes of their own."""
    for (shape, filter_shape), border in product(SHAPES, BORDERS):
        for kernel in KERNELS:
            for dtype in DTYPES:
                if has_kernel(kernel, filter_shape, dtype):
                    check(shape, filter_shape, dtype, border, kernel)
            if has_kernel(kernel, filter_shape, torch.uint8):
                check_uint8(shape, filter_shape, border, kernel)


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize(("shape", "filter_shape"), SHAPES, ids=str)
def test_against_float64(
    shape: tuple[int, ...], filter_shape: tuple[int, ...], border: str, device: str
) -> None:
    for dtype in DTYPES:
        check(shape, filter_shape, dtype, border, "auto", device)
    check_uint8(shape, filter_shape, border, "auto", device)


@pytest.mark.parametrize("isa", ISAS)
def test_every_kernel_of_every_instruction_set(isa: str) -> None:
    # One thread: test_any_size and the test of bands see to several.
    program = "import torch; torch.set_num_threads(1); import test_filter2d; test_filter2d.check_everything()"
    succeeds_on(isa, program)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["strip", "rotation", "row_reuse", "column_reuse", "both", "direct"])
def test_every_kernel_of_a_gpu(kernel: str) -> None:
    dtypes = [dtype for dtype in DTYPES if kernel != "strip" or dtype != torch.float64]  # strip has none
    for shape, border, dtype in product([(3, 37, 75), (1, 130, 257)], BORDERS, dtypes):
        check(shape, (3, 3), dtype, border, kernel, "cuda")
        check_uint8(shape, (3, 3), border, kernel, "cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8])
@pytest.mark.parametrize("filter_shape", [(3, 3), (2, 7, 7), (2, 4)])
def test_every_plan_is_an_algorithm(filter_shape: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    shape, border = (2, 33, 70), "reflect"
    run = check_uint8 if dtype == torch.uint8 else functools.partial(check, dtype=dtype)
    images, filter = torch.empty(shape, dtype=dtype, device=device), torch.empty(filter_shape)
    filter = filter.to(torch.float32 if dtype == torch.uint8 else dtype)
    rows = convx.explain_filter2d(images, filter, border).rows
    assert len({row.plan for row in rows}) == len(rows) > 1
    for row in rows:
        run(shape, filter_shape, border=border, algorithm=row.plan, device=device)
        run(shape, filter_shape, border=border, algorithm=f"fft|{row.algorithm}|auto", device=device)


@settings(max_examples=80, deadline=None)
@given(
    images=st.integers(1, 3),
    height=st.integers(1, 40),
    width=st.one_of(st.integers(1, 140), st.sampled_from((255, 512, 1025))),
    filters=st.integers(1, 3),
    extent=st.tuples(st.integers(1, 10), st.integers(1, 10)),
    border=st.sampled_from(BORDERS),
    dtype=st.sampled_from((*DTYPES, torch.uint8)),
    threads=st.integers(1, 3),
)
def test_any_size(
    images: int,
    height: int,
    width: int,
    filters: int,
    extent: tuple[int, int],
    border: str,
    dtype: torch.dtype,
    threads: int,
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        if dtype == torch.uint8:
            check_uint8((images, height, width), (filters, *extent), border, "auto")
        else:
            check((images, height, width), (filters, *extent), dtype, border, "auto")
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_images_of_several_strips_and_bands(threads: int) -> None:
    """CPUs take wide images strip by strip of columns, and give each thread a band of rows."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for width, border in product((12000, 12011), BORDERS):
            for algorithm in KERNELS:
                check((1, 13, width), (3, 3), torch.float32, border, algorithm)
                check_uint8((1, 13, width), (3, 3), border, algorithm)
    finally:
        torch.set_num_threads(before)


def test_uint8_rounds_to_even_and_saturates() -> None:
    half = torch.tensor([[0.5]])
    ramp = torch.arange(256, dtype=torch.uint8).view(16, 16)
    assert torch.equal(filter2d(ramp, half), (ramp.double() / 2).round().to(torch.uint8))
    assert filter2d(ramp, torch.tensor([[1e30]])).flatten()[1:].unique().tolist() == [255]
    assert filter2d(ramp, torch.tensor([[-1e30]])).unique().tolist() == [0]
    assert filter2d(ramp, torch.tensor([[float("nan")]])).unique().tolist() == [0]


def test_uint8_with_any_filter_is_right_but_for_ties() -> None:
    images, filter = photo(3, 100, 130), torch.rand(5, 5) / 12
    result = filter2d(images, filter, "reflect")
    exact = exact_filter2d(images, filter, "reflect")
    clear = (exact - exact.floor() - 0.5).abs() > 1e-3
    assert clear.double().mean() > 0.99
    assert torch.equal(result[clear], exact.round().clamp(0, 255).to(torch.uint8)[clear])


def test_it_is_the_correlation_of_conv2d() -> None:
    images, filter = torch.randn(4, 30, 31), torch.randn(4, 5)
    expected = F.conv2d(images.unsqueeze(1), filter[None, None], padding="same").squeeze(1)
    torch.testing.assert_close(filter2d(images, filter), expected)


def test_strides_do_not_matter() -> None:
    images, filter = torch.randn(3, 40, 50), torch.randn(5, 3)
    expected = filter2d(images.mT.contiguous(), filter.contiguous())
    assert torch.equal(filter2d(images.mT, filter), expected)
    assert torch.equal(filter2d(images.expand(2, 3, 40, 50), filter)[1], filter2d(images, filter))
    assert torch.equal(filter2d(images[:, ::2], filter.t()), filter2d(images[:, ::2].clone(), filter.t()))


def test_filters_as_numbers_and_integers() -> None:
    images, weights = torch.randn(9, 9, dtype=torch.float64), [[1, 2, 1], [2, 4, 2]]
    expected = filter2d(images, torch.tensor(weights, dtype=torch.float64))
    assert torch.equal(filter2d(images, weights), expected)
    assert torch.equal(filter2d(images, torch.tensor(weights)), expected)
    assert torch.equal(
        filter2d(photo(9, 9), torch.tensor(weights)), filter2d(photo(9, 9), torch.tensor(weights).float())
    )


@pytest.mark.parametrize("dtype", [*DTYPES, torch.uint8])
@pytest.mark.parametrize("border", BORDERS)
def test_separable(dtype: torch.dtype, border: str, device: str) -> None:
    exact_type = torch.float32 if dtype == torch.uint8 else dtype
    images = photo(2, 20, 33) if dtype == torch.uint8 else random(2, 20, 33, dtype=dtype)
    column, row = (torch.tensor(w, dtype=exact_type) / 16 for w in ([1, 4, 6, 4, 1], [-8, 0, 24]))
    result = separable_filter2d(*(t.to(device) for t in (images, column, row)), border).cpu()
    exact = exact_filter2d(images, torch.outer(column, row), border)
    assert result.dtype == dtype
    if dtype == torch.uint8:
        assert torch.equal(result, exact.round().clamp(0, 255).to(torch.uint8))
    else:
        epsilon = torch.finfo(dtype).eps
        assert (result.double() - exact).abs().max() <= 4 * epsilon * exact.abs().max()


def test_algorithms_of_separable_filters(device: str) -> None:
    algorithms = ["row_reuse", "direct"] + (["both", "column_reuse", "rotation"] if device == "cuda" else [])
    images, weights = torch.randn(2, 20, 33, device=device), torch.rand(5, device=device)
    expected = separable_filter2d(images, weights, weights, "wrap")
    for algorithm in algorithms:
        result = separable_filter2d(images, weights, weights, "wrap", algorithm=algorithm)
        torch.testing.assert_close(result, expected)


def test_autocast() -> None:
    images, filter = torch.randn(9, 9), torch.randn(3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert filter2d(images, filter).dtype == torch.bfloat16
        assert filter2d(images.bfloat16(), filter).dtype == torch.bfloat16
        assert filter2d(images.double(), filter.double()).dtype == torch.float64
        assert filter2d(photo(9, 9), filter).dtype == torch.uint8
        raw = torch.ops.convx.filter2d.default(images[None], filter[None], "zero", "auto")
        assert raw.dtype == torch.bfloat16
        assert filter2d(images.to("meta"), filter.to("meta")).dtype == torch.float32  # meta has no autocast


@pytest.mark.parametrize("dtype", [*DTYPES, torch.uint8])
def test_autocast_rounds_separable_filters_once(dtype: torch.dtype) -> None:
    images = photo(20, 33) if dtype == torch.uint8 else random(20, 33, dtype=dtype)
    weights = torch.tensor([0.1, 0.3, 0.6], dtype=torch.float32 if dtype == torch.uint8 else dtype)
    kept = dtype in (torch.uint8, torch.float64)
    cast = (images, weights) if kept else (images.bfloat16(), weights.bfloat16())
    expected = separable_filter2d(cast[0], cast[1], cast[1], "reflect")
    calls = [separable_filter2d, torch.compile(separable_filter2d, backend="aot_eager", fullgraph=True)]
    for call in calls:
        with torch.autocast("cpu", torch.bfloat16):
            result = call(images, weights, weights, "reflect")
        assert result.dtype == expected.dtype and torch.equal(result, expected)


def test_the_same_call_gives_the_same_bits(device: str) -> None:
    images, filter = torch.randn(200, 301, device=device), torch.randn(5, 5, device=device)
    first = filter2d(images, filter, "wrap")
    assert all(torch.equal(first, filter2d(images, filter, "wrap")) for _ in range(5))


def test_conv2d_reaches_it() -> None:
    images, weight, bias = torch.randn(2, 1, 20, 30), torch.randn(3, 1, 3, 3), torch.randn(3)
    for algorithm in ("filter2d", "filter2d/direct", "filter2d/both"):
        result = convx.functional.conv2d(
            images, weight, bias, padding=((2, 0), (1, 3)), activation="silu", algorithm=algorithm
        )
        expected = F.silu(F.conv2d(F.pad(images, (1, 3, 2, 0)), weight, bias))
        torch.testing.assert_close(result, expected)
    dilated = convx.functional.conv2d(images, weight, dilation=(3, 2), algorithm="filter2d")
    torch.testing.assert_close(dilated, F.conv2d(images, weight, dilation=(3, 2)))
    with pytest.raises((ValueError, RuntimeError), match=r"in_channels is 4, it must be 1"):
        convx.functional.conv2d(torch.randn(1, 4, 5, 5), torch.randn(4, 4, 3, 3), algorithm="filter2d")


def test_explain_shows_it_for_one_channel() -> None:
    text = str(convx.explain(torch.nn.Conv2d(1, 1, 3, padding=1), torch.randn(1, 1, 64, 64)))
    assert "filter2d" in text
