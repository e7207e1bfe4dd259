"""convx::filter2d. Images are (images, height, width), filters (filters, height, width), the result (images,
filters, height, width).

Its gradients are convolutions with one input channel, the other two operators; borders other than zero pad
before one and add back after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from convx._arguments import DTYPES
from convx._errors import check, dtype_name, shape
from convx.images import borders
from convx.operators.autocast import cast
from convx.operators.gradients import flops
from convx.operators.operator import Derivative, Facts, Gradients, Operator, linear_tangent


def check_dtype(images: Tensor) -> None:
    check(
        images.dtype in DTYPES or images.dtype == torch.uint8,
        f"images must be float32, float64, float16, bfloat16 or uint8, got {dtype_name(images.dtype)}; "
        f"convert them with .to(torch.float32)",
    )


def _fake(a: Any) -> Tensor:
    images, filters = a.images, a.filters
    for name, meaning, tensor in (("images", "images", images), ("filter", "filters", filters)):
        check(
            tensor.dim() == 3,
            f"{name} must have 3 dimensions ({meaning}, height, width), got {tensor.dim()}: shape "
            f"{shape(tensor.shape)}; convx.functional.filter2d takes other numbers of them",
        )
    check_dtype(images)
    expected = torch.float32 if images.dtype == torch.uint8 else images.dtype
    way_out = "convert it with .to(torch.float32)" if images.dtype == torch.uint8 else "convert one of them"
    check(
        filters.dtype == expected,
        f"filter must be {dtype_name(expected)} for images of {dtype_name(images.dtype)}, got "
        f"{dtype_name(filters.dtype)}; {way_out}",
    )
    check(
        filters.device == images.device,
        f"filter must be on the device of images ({images.device}), got {filters.device}; move one of them "
        f"with .to()",
    )
    for name, tensor, extents in (("images", images, images.shape[1:]), ("filter", filters, filters.shape)):
        for extent in extents:
            check(
                extent >= 1,
                f"{name} must not be empty, got shape {shape(tensor.shape)}; only the number of images may "
                f"be 0",
            )
    check(
        a.border in borders.BORDERS,
        f"border must be one of {', '.join(borders.BORDERS)}; got '{a.border}'",
    )
    size = (images.size(0), filters.size(0), images.size(1), images.size(2))
    return images.new_empty(size)  # type: ignore[no-any-return]


def _saves(a: Any, output: Tensor, needs: Any) -> Mapping[str, Tensor | None]:
    return {
        "images": a.images if needs.filters else None,
        "filters": a.filters if needs.images else None,
    }


def _backward(calls: Any, a: Any, needs: Any, grad: Tensor, facts: Facts) -> Gradients:
    """A transposed and a correlating convolution of one channel."""
    count, height, width = facts.sizes["images"]
    filters, *extent = facts.sizes["filters"]
    (top, bottom), (left, right) = borders.sides(extent[0]), borders.sides(extent[1])
    padded_size, padding = (height, width), (top, bottom, left, right)
    if a.border != "zero":
        padded_size, padding = (height + extent[0] - 1, width + extent[1] - 1), (0, 0, 0, 0)
    rest = ((1, 1), padding, (1, 1), 1, "auto", 0)
    found: dict[str, Tensor | None] = {}
    if needs.images:
        size = [count, 1, *padded_size]
        image_grad = calls.conv2d_input_grad(grad, a.filters.unsqueeze(1), size, *rest).squeeze(1)
        if a.border != "zero":
            image_grad = borders.fold(image_grad, (extent[0], extent[1]), a.border, (height, width))
        found["images"] = image_grad
    if needs.filters:
        padded = a.images if a.border == "zero" else borders.pad(a.images, (extent[0], extent[1]), a.border)
        size = [filters, 1, *extent]
        found["filters"] = calls.conv2d_weight_grad(padded.unsqueeze(1), grad, size, *rest).squeeze(1)
    return found


def _tangent(calls: Any, a: Any, tangents: Any, facts: Facts) -> Tensor | None:
    return linear_tangent(calls.filter2d, a._replace(algorithm="auto"), tangents, "images", "filters")


def _vmap(call: Callable[..., Tensor], copies: int, dimensions: Any, a: Any) -> tuple[Tensor, int]:
    """Mapped images join the images, mapped filters the bank; both mapped are called one by one."""
    if dimensions.filters is None:
        folded = a.images.movedim(dimensions.images, 0)
        output = call(*a._replace(images=folded.flatten(0, 1)))
        return output.unflatten(0, folded.shape[:2]), 0
    bank = a.filters.movedim(dimensions.filters, 0)
    if dimensions.images is None:
        output = call(*a._replace(filters=bank.flatten(0, 1)))
        return output.unflatten(1, bank.shape[:2]), 1
    pairs = zip(a.images.movedim(dimensions.images, 0), bank, strict=True)
    return torch.stack([call(*a._replace(images=image, filters=each)) for image, each in pairs]), 0


def _flops(shapes: Any, output: Sequence[int]) -> int:
    return flops(output, shapes.filters)


def _autocast(dtype: torch.dtype, a: Any) -> Any:
    """As a convolution's; uint8 images and their filters stay."""
    if not a.images.is_floating_point():
        return a
    return a._replace(images=cast(a.images, dtype), filters=cast(a.filters, dtype))


filter2d = Operator("filter2d", _fake, Derivative(_saves, _backward, _tangent), _vmap, _flops, _autocast)
