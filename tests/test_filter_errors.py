"""filter2d's bad input, one by one: the error names the argument, what was given and what is supported."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from filter_reference import photo
from torch import Tensor

from convx.functional import filter2d, separable_filter2d

ERRORS: list[tuple[str, dict[str, Any], str]] = [
    ("no tensor", {"images": [[1.0]]}, r"images must be a tensor, got list"),
    ("rank of images", {"images": torch.randn(5)}, r"images must have 2 dimensions or more.*got 1"),
    ("rank of filter", {"filter": torch.randn(3)}, r"filter must be \(height, width\) or a bank.*got 1"),
    ("rank 4", {"filter": torch.randn(1, 1, 3, 3)}, r"filter must be \(height, width\) or a bank.*got 4"),
    ("no numbers", {"filter": "sobel"}, r"filter must be a tensor or nested lists of numbers, got str"),
    ("ragged", {"filter": [[1, 2], [3]]}, r"filter must be a tensor or nested lists of numbers, got list"),
    ("dtype", {"filter": torch.randn(3, 3).double()}, r"filter must be float32 for images of float32, got f"),
    ("int images", {"images": torch.ones(5, 5).int()}, r"images must be float32, .*or uint8, got int32"),
    ("complex", {"images": torch.ones(5, 5).cfloat()}, r"images must be float32, .*or uint8, got complex64"),
    ("uint8", {"images": photo(5, 5), "filter": torch.randn(3, 3).half()},
     r"filter must be float32 for images of uint8, got float16"),
    ("empty filter", {"filter": torch.randn(0, 3)}, r"filter must not be empty, got shape \(1, 0, 3\)"),
    ("no filters", {"filter": torch.randn(0, 3, 3)}, r"filter must not be empty, got shape \(0, 3, 3\)"),
    ("empty images", {"images": torch.randn(0, 5)}, r"images must not be empty, got shape \(1, 0, 5\)"),
    ("border", {"border": "mirror"}, r"border must be one of zero, replicate, reflect, wrap; got 'mirror'"),
    ("no border", {"border": None}, r"border must be one of zero, replicate, reflect, wrap; got None"),
    ("no algorithm", {"algorithm": None}, r"algorithm must be one of .*auto.*kernels.*, got None"),
    ("algorithm", {"algorithm": "fft"}, r"algorithm 'fft' can't run .*what can: auto, .*row_reuse"),
    ("list", {"algorithm": "both|direct"}, r"algorithm 'both\|direct' can't run .*what can: auto, "),
    ("kernel", {"filter": torch.randn(4, 4), "algorithm": "both"}, r"algorithm 'both' can't run .*direct"),
    ("device", {"filter": torch.randn(3, 3, device="meta")}, r"filter must be on the device of images.*meta"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_errors(change: dict[str, Any], message: str) -> None:
    arguments = {"images": torch.randn(5, 5), "filter": torch.randn(3, 3), **change}
    with pytest.raises((ValueError, RuntimeError, TypeError), match=message):
        filter2d(**arguments)


def test_errors_of_the_separable_filter() -> None:
    images = torch.randn(5, 5)
    with pytest.raises(ValueError, match=r"row must have 1 dimension.*got 2: shape \(1, 3\)"):
        separable_filter2d(images, [1.0], [[1, 2, 1]])
    with pytest.raises(ValueError, match=r"column must be float32 for images of float32, got float64"):
        separable_filter2d(images, torch.ones(3, dtype=torch.float64), [1.0])
    with pytest.raises(ValueError, match=r"algorithm 'both' can't run .*3x1.*what can: auto, "):
        separable_filter2d(images, torch.ones(3), torch.ones(3), algorithm="both")


def test_meta_and_fakes_have_the_real_shapes_and_errors() -> None:
    for images, filter in ((torch.randn(2, 5, 6), torch.randn(4, 3, 3)), (photo(5, 6), torch.randn(3, 3))):
        real = filter2d(images, filter)
        fake = filter2d(images.to("meta"), filter.to("meta"))
        assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride())
    for _, change, message in ERRORS[2:-4]:
        arguments = {"images": torch.randn(5, 5), "filter": torch.randn(3, 3), **change}
        arguments = {k: v.to("meta") if isinstance(v, Tensor) else v for k, v in arguments.items()}
        with pytest.raises((ValueError, RuntimeError, TypeError), match=message):
            filter2d(**arguments)
