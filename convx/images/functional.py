"""filter2d and separable_filter2d as users call them."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from convx import dispatch
from convx._arguments import DTYPES
from convx._errors import InvalidArgument, blame, dtype_name, require_strided, require_tensors, shape
from convx.images import borders
from convx.operators import autocast as casting
from convx.operators.image_filter import check_dtype

_FILTER_DTYPES = {torch.uint8: torch.float32, **{dtype: dtype for dtype in DTYPES}}


def autocast(images: Tensor, *filters: Tensor) -> tuple[Tensor, ...]:
    """What torch.autocast, where it is on, makes of them before they are filtered: as of a convolution's
    arguments; uint8 images and their filters stay."""
    if not isinstance(images, Tensor):
        require_tensors(images=images)
    if not (casting.is_on(images.device.type) and images.is_floating_point()):
        return images, *filters
    dtype = torch.get_autocast_dtype(images.device.type)
    return tuple(casting.cast(each, dtype) for each in (images, *filters))


def without_autocast(images: Tensor) -> AbstractContextManager[Any]:
    """For filters that keep float32 inside, whatever torch.autocast made of their images."""
    on = casting.is_on(images.device.type)
    return torch.autocast(images.device.type, enabled=False) if on else nullcontext()


def filter_dtype(images: Any) -> torch.dtype:
    """What the filter of images has to be."""
    try:
        return _FILTER_DTYPES[images.dtype]
    except (AttributeError, KeyError):
        require_strided("images", _require_images(images))
        check_dtype(images)
        raise


def tensor_of(name: str, numbers: Any, dtype: torch.dtype | None = None) -> Tensor:
    try:
        return torch.tensor(numbers, dtype=dtype)
    except (OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(
            f"{name} must be a tensor or nested lists of numbers, got {type(numbers).__name__}: {error}"
        ) from None


def converted(name: str, filter: Tensor, dtype: torch.dtype) -> Tensor:
    """A filter in another dtype."""
    try:
        return filter.to(dtype)
    except NotImplementedError:
        raise InvalidArgument(
            f"{name} must be {dtype_name(dtype)} or what torch converts to it, got {dtype_name(filter.dtype)}"
        ) from None
    except RuntimeError:
        require_strided(name, filter)
        raise


def _as_filter(name: str, filter: Any, images: Tensor) -> Tensor:
    """A filter as the operator takes it: numbers become a tensor, integers the dtype that images need."""
    if not isinstance(filter, Tensor):
        return tensor_of(name, filter, filter_dtype(images)).to(images.device)
    if filter.is_floating_point() or filter.is_complex():
        return filter
    return converted(name, filter, filter_dtype(images))


def _require_filter(filter: Tensor) -> None:
    if filter.dim() not in (2, 3):
        raise InvalidArgument(
            f"filter must be (height, width) or a bank (filters, height, width), got {filter.dim()} "
            f"dimensions: shape {shape(filter.shape)}"
        )


def _require_images(images: object) -> Tensor:
    if not isinstance(images, Tensor):
        raise TypeError(f"images must be a tensor, got {type(images).__name__}")
    if images.dim() < 2:
        raise InvalidArgument(
            f"images must have 2 dimensions or more (..., height, width), got {images.dim()}: shape "
            f"{shape(images.shape)}"
        )
    return images


def _require_algorithm(algorithm: object) -> None:
    if not isinstance(algorithm, str):
        raise InvalidArgument(f'algorithm must be one of "auto" and the kernels\' names, got {algorithm!r}')


def filter2d(
    images: Tensor,
    filter: Tensor | Any,
    border: str = "zero",
    *,
    algorithm: str = "auto",
) -> Tensor:
    """Filters every image by itself, with one filter or with each of a bank.

    A correlation, as torch.nn.functional.conv2d is: result[y, x] is the sum of filter[r, s] times
    images[y + r - (R - 1) // 2, x + s - (S - 1) // 2]; flip the filter for a convolution of signal
    processing. The result is as large as the image.

    Args:
        images: (..., height, width): float32, float64, float16, bfloat16 or uint8; any strides. All leading
            dimensions are batches: an RGB photo as (3, height, width) has each channel filtered.
        filter: (R, S), any size in pixels, or a bank (filters, R, S), with which an image is read once for
            all. Dtype and device of images; float32 for uint8 images. Integers and lists are converted.
        border: what is outside of an image: "zero"; "replicate", its edge; "reflect", its mirror image
            without the edge itself; "wrap", the image again. Any filter size works with any of them.
        algorithm: "auto", a kernel, a kernel with its tiling as convx.explain_filter2d lists it, or several
            of these as "strip|both", of which the first that can run the problem counts. "auto" takes what
            convx.tune measured for the problem, else what is expected to be the fastest. "row_reuse" and
            "direct" run every filter; "both" and "column_reuse" too on GPUs, on CPUs squares of 3, 5 and 7
            without float64. GPUs alone have "strip", for squares of 3, 5, 7 and 9 without float64, and
            "rotation", for filters up to some 100x100 (float64: 75x75) that are no wider than some 120.

    Returns:
        (..., height, width) for (R, S), (..., filters, height, width) for a bank, of the images' dtype.
        float16 and bfloat16 are accumulated in float32; uint8 too, then rounded to nearest even and limited
        to 0 ... 255.

    Raises:
        TypeError: images is no tensor, or filter neither a tensor nor numbers.
        convx.InvalidArgument, a ValueError and a RuntimeError: shapes, dtypes or devices that do not fit, an
            unknown border or algorithm, or an algorithm that can't run this problem; the message says what
            can.

    Differentiable any number of times at float images and their filter, in reverse and forward mode; follows
    torch.autocast as torch.nn.Conv2d does; never rounds to TF32. After Lu, Zhang, Wang, "Optimizing GPU
    memory transactions for convolution operations", 2020.

    >>> import torch, convx
    >>> photo = torch.randint(256, (3, 480, 640), dtype=torch.uint8)
    >>> blur = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
    >>> convx.functional.filter2d(photo, blur, border="reflect").shape
    torch.Size([3, 480, 640])
    """
    images = _require_images(images)
    borders.require_border(border)
    _require_algorithm(algorithm)
    filter = _as_filter("filter", filter, images)
    _require_filter(filter)
    try:
        bank = filter if filter.dim() == 3 else filter.unsqueeze(0)
        if images.dim() == 3:
            output = dispatch.filter2d(images, bank, border, algorithm)
        else:
            stack = images.unsqueeze(0) if images.dim() == 2 else images.flatten(0, -3)
            output = dispatch.filter2d(stack, bank, border, algorithm)
    except (RuntimeError, ValueError) as error:
        blame(error, {"images": images, "filter": filter}, {})
        raise
    leading = images.shape[:-2]
    if filter.dim() == 2:
        return output.squeeze(1) if images.dim() == 3 else output.view(images.shape)
    return output if images.dim() == 3 else output.view(*leading, *output.shape[1:])


def described(images: Any, filter: Any, border: str, algorithm: str) -> tuple[Tensor, Tensor]:
    """What filter2d would give to the operator, checked as there, as meta tensors."""
    filter = _as_filter("filter", filter, _require_images(images))
    _require_filter(filter)
    require_strided("images", images)
    require_strided("filter", filter)
    size = (math.prod(images.shape[:-2]), *images.shape[-2:])
    stack = torch.empty(size, dtype=images.dtype, device="meta")
    bank = torch.empty(filter.shape, dtype=filter.dtype, device="meta")
    filter2d(stack, bank, border, algorithm=algorithm)  # there is nothing to compute, only to check
    return stack, bank if bank.dim() == 3 else bank.unsqueeze(0)


def separable_filter2d(
    images: Tensor,
    column: Tensor | Any,
    row: Tensor | Any,
    border: str = "zero",
    *,
    algorithm: str = "auto",
) -> Tensor:
    """filter2d with the outer product of a column and a row, as two passes: R + S products instead of R * S.

    Args:
        images: (..., height, width), as in filter2d.
        column: (R,), weights along the height; as in filter2d's filter.
        row: (S,), weights along the width.
        border: as in filter2d.
        algorithm: as in filter2d. It runs both passes, whose filters are (R, 1) and (1, S): "row_reuse" and
            "direct" can, on GPUs "both", "column_reuse" and "rotation" too, "strip" nowhere.

    Returns:
        As filter2d: (..., height, width). What is between the passes is float32 for uint8, float16 and
        bfloat16 images, so that results are rounded once; under torch.autocast too, which rounds float
        images and weights before.

    Errors and derivatives as in filter2d.

    >>> import torch, convx
    >>> image = torch.rand(512, 512)
    >>> binomial = torch.tensor([1.0, 4, 6, 4, 1]) / 16
    >>> convx.functional.separable_filter2d(image, binomial, binomial, "replicate").shape
    torch.Size([512, 512])
    """
    images = _require_images(images)
    column, row = _as_filter("column", column, images), _as_filter("row", row, images)
    images, column, row = autocast(images, column, row)
    _require_vector("column", column, images)
    _require_vector("row", row, images)
    return two_passes(images, column, row, border, algorithm)


def _require_vector(name: str, vector: Tensor, images: Tensor) -> None:
    if vector.dim() != 1:
        raise InvalidArgument(
            f"{name} must have 1 dimension (the filter's weights along it), got {vector.dim()}: shape "
            f"{shape(vector.shape)}"
        )
    wanted = filter_dtype(images)
    if vector.dtype != wanted:
        raise InvalidArgument(
            f"{name} must be {dtype_name(wanted)} for images of {dtype_name(images.dtype)}, "
            f"got {dtype_name(vector.dtype)}; convert one of them with .to()"
        )


def two_passes(images: Tensor, column: Tensor, row: Tensor, border: str, algorithm: str) -> Tensor:
    """separable_filter2d of what autocast has cast; weights of narrow images may be float32."""
    narrow = images.dtype in (torch.uint8, torch.float16, torch.bfloat16)
    wide = images.float() if narrow else images
    if narrow:
        column, row = column.float(), row.float()
    with without_autocast(images):
        between = filter2d(wide, column.unsqueeze(1), border, algorithm=algorithm)
        result = filter2d(between, row.unsqueeze(0), border, algorithm=algorithm)
    if images.dtype == torch.uint8:
        return result.nan_to_num(0, 255, 0).round().clamp(0, 255).to(torch.uint8)
    return result.to(images.dtype)
