"""filter2d's bad input, one by one: the error names the argument, what was given and what is supported."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from filter_reference import photo
from torch import Tensor

import convx
from convx.functional import filter2d, separable_filter2d

BAD = (convx.InvalidArgument, TypeError)

ERRORS: list[tuple[str, dict[str, Any], str]] = [
    ("no tensor", {"images": [[1.0]]}, r"images must be a tensor, got list"),
    ("rank of images", {"images": torch.randn(5)}, r"images must have 2 dimensions or more.*got 1"),
    ("rank of filter", {"filter": torch.randn(3)}, r"filter must be \(height, width\) or a bank.*got 1"),
    ("rank 4", {"filter": torch.randn(1, 1, 3, 3)}, r"filter must be \(height, width\) or a bank.*got 4"),
    ("no dimension", {"images": torch.randn(())}, r"images must have 2 dimensions or more.*got 0: shape"),
    ("a number", {"filter": 1.0}, r"filter must be \(height, width\) or a bank.*got 0"),
    ("no numbers", {"filter": "sobel"}, r"filter must be a tensor or nested lists of numbers, got str"),
    ("ragged", {"filter": [[1, 2], [3]]}, r"filter must be a tensor or nested lists of numbers, got list"),
    ("dtype", {"filter": torch.randn(3, 3).double()}, r"filter must be float32 for images of float32, got f"),
    ("int images", {"images": torch.ones(5, 5).int()}, r"images must be float32, .*or uint8, got int32"),
    ("large", {"filter": [[10**400]]}, r"filter must be .*numbers, got list: int too large"),
    ("float8", {"images": torch.ones(5, 5).to(torch.float8_e4m3fn)}, r"images must .*, got float8_e4m3fn;"),
    ("uint16", {"images": torch.ones(5, 5, dtype=torch.uint16)}, r"images must be float32, .*, got uint16;"),
    ("filter of float8", {"filter": torch.ones(3, 3).to(torch.float8_e5m2)}, r"filter .*got float8_e5m2"),
    ("bits", {"images": torch.empty(5, 5, dtype=torch.bits8), "filter": [[1.0]]}, r"images .*got bits8"),
    ("filter of bits", {"filter": torch.empty(3, 3, dtype=torch.bits8)}, r"filter must be .*got bits8"),
    ("sparse", {"images": torch.eye(5).to_sparse()}, r"images must be a dense tensor.*torch.sparse_coo"),
    ("sparse filter", {"filter": torch.eye(3).to_sparse_csr()}, r"filter must be a dense .*sparse_csr"),
    ("complex", {"images": torch.ones(5, 5).cfloat()}, r"images must be float32, .*or uint8, got complex64"),
    ("uint8", {"images": photo(5, 5), "filter": torch.randn(3, 3).half()},
     r"filter must be float32 for images of uint8, got float16"),
    ("empty filter", {"filter": torch.randn(0, 3)}, r"filter must not be empty, got shape \(1, 0, 3\)"),
    ("no filters", {"filter": torch.randn(0, 3, 3)}, r"filter must not be empty, got shape \(0, 3, 3\)"),
    ("empty images", {"images": torch.randn(0, 5)}, r"images must not be empty, got shape \(1, 0, 5\)"),
    ("border", {"border": "mirror"}, r"border must be one of zero, replicate, reflect, wrap; got 'mirror'"),
    ("no border", {"border": None}, r"border must be one of zero, replicate, reflect, wrap; got None"),
    ("no algorithm", {"algorithm": None}, r"algorithm must be one of .*auto.*kernels.*, got None"),
    ("algorithm", {"algorithm": "fft"}, r"algorithm 'fft' can't run .*candidate 'fft' .*filter2d/row_reuse"),
    ("no name", {"algorithm": ""}, r"algorithm must be one of auto, filter2d, or .*; got ''"),
    ("method", {"algorithm": "depthwise/strip"}, r"must be one of auto, filter2d, .*; got 'depthwise/strip'"),
    ("tiling", {"algorithm": "both reuse=7"}, r"algorithm 'both reuse=7' can't .*has no such tiling"),
    ("list", {"algorithm": "fft|dft"}, r"algorithm 'dft' can't run .*filter2d has no candidate 'dft'"),
    ("in a list", {"algorithm": "both|native/im2col"}, r"must be one of .*got 'native/im2col'"),
    ("kernel", {"filter": torch.randn(4, 4), "algorithm": "both"}, r"algorithm 'both' can't run .*2d/direct"),
    ("device", {"filter": torch.randn(3, 3, device="meta")}, r"filter must be on the device of images.*meta"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_errors(change: dict[str, Any], message: str) -> None:
    arguments = {"images": torch.randn(5, 5), "filter": torch.randn(3, 3), **change}
    with pytest.raises(BAD, match=message):
        filter2d(**arguments)


@pytest.mark.parametrize(
    "layer",
    [
        convx.nn.Sobel2d(),
        convx.nn.GaussianBlur2d(1.0),
        convx.nn.Filter2d([[1.0]]),
        convx.nn.Filter2d([[1.0]], trainable=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_errors_of_layers(layer: torch.nn.Module) -> None:
    for images, message in (
        ([[1.0]], r"images must be a tensor, got list"),
        (torch.randn(()), r"images must have 2 dimensions or more.*got 0"),
        (torch.randn(5), r"images must have 2 dimensions or more.*got 1"),
        (torch.ones(5, 5).int(), r"images must be float32, .*got int32"),
        (torch.ones(5, 5, dtype=torch.uint16), r"images must be float32, .*got uint16"),
        (torch.empty(5, 5, dtype=torch.bits8), r"images must be float32, .*got bits8"),
        (torch.eye(5).to_sparse(), r"images must be a dense tensor.*got torch.sparse_coo"),
    ):
        with pytest.raises(BAD, match=message):
            layer(images)


@pytest.mark.parametrize("filter", ["sobel", [[1, 2], [3]], None, [[10**400]]])
def test_errors_of_a_layers_filter(filter: Any) -> None:
    with pytest.raises(TypeError, match="filter must be a tensor or nested lists of numbers, got"):
        convx.nn.Filter2d(filter)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10**400,), r"sigma must be above 0 and finite, got 1000"),
        ((1e300,), r"size, by default 6 sigma, is too large: \(\d+, \d+\), for sigma 1e\+300"),
        ((1.0, 2**70 + 1), rf"size, .*is too large: {2**70 + 1}, for sigma 1.0"),
        ((1.0, 2**62 + 1), r"size, .*is too large"),
        ((1.0, True), r"size takes one int or a pair \(height, width\), got True"),
    ],
)
def test_errors_of_the_blur(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(convx.InvalidArgument, match=message):
        convx.nn.GaussianBlur2d(*arguments)


def test_errors_of_the_separable_filter() -> None:
    images = torch.randn(5, 5)
    with pytest.raises(convx.InvalidArgument, match=r"row must have 1 dimension.*got 2: shape \(1, 3\)"):
        separable_filter2d(images, [1.0], [[1, 2, 1]])
    with pytest.raises(
        convx.InvalidArgument, match=r"column must be float32 for images of float32, got float64"
    ):
        separable_filter2d(images, torch.ones(3, dtype=torch.float64), [1.0])
    with pytest.raises(convx.InvalidArgument, match=r"algorithm 'both' can't run .*3x1.*what it has: "):
        separable_filter2d(images, torch.ones(3), torch.ones(3), algorithm="both")


def test_meta_and_fakes_have_the_real_shapes_and_errors() -> None:
    for images, filter in ((torch.randn(2, 5, 6), torch.randn(4, 3, 3)), (photo(5, 6), torch.randn(3, 3))):
        real = filter2d(images, filter)
        fake = filter2d(images.to("meta"), filter.to("meta"))
        assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride())
    # Of algorithms devices know; torch converts more between dtypes where there is no data.
    real_alone = ("algorithm", "no name", "method", "tiling", "list", "in a list", "kernel", "device")
    for name, change, message in ERRORS:
        if name in (*real_alone, "filter of bits"):
            continue
        arguments = {"images": torch.randn(5, 5), "filter": torch.randn(3, 3), **change}
        arguments = {k: v.to("meta") if isinstance(v, Tensor) else v for k, v in arguments.items()}
        with pytest.raises(BAD, match=message):
            filter2d(**arguments)
