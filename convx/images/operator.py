"""The operator convx::filter2d for Python: its fake, derivatives, autocast, vmap, and the eager way to it.

Images are (images, height, width), filters (filters, height, width), the result (images, filters, height,
width). Its gradients are convolutions with one input channel, the two operators of convx.ops; borders other
than zero pad before one and add back after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C import _AutoDispatchBelowAutograd as BelowAutograd

from convx import _eager, _libraries, ops
from convx._arguments import DTYPES
from convx._errors import check, dtype_name, require_tensors, shape
from convx.images import borders

Gradients = tuple[Tensor | None, ...]


def check_dtype(images: Tensor) -> None:
    check(
        images.dtype in DTYPES or images.dtype == torch.uint8,
        f"images must be float32, float64, float16, bfloat16 or uint8, got {dtype_name(images.dtype)}; "
        f"convert them with .to(torch.float32)",
    )


def _fake(images: Tensor, filters: Tensor, border: str, algorithm: str) -> Tensor:
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
        border in borders.BORDERS,
        f"border must be one of {', '.join(borders.BORDERS)}; got '{border}'",
    )
    return images.new_empty((images.size(0), filters.size(0), images.size(1), images.size(2)))


def _gradients(
    needs: Sequence[bool],
    grad: Tensor,
    images: Tensor | None,
    filters: Tensor | None,
    image_size: Sequence[int],
    filter_size: Sequence[int],
    border: str,
) -> Gradients:
    """Gradients at images and filters: a transposed and a correlating convolution of one channel."""
    count, height, width = image_size
    extent = (filter_size[1], filter_size[2])
    (top, bottom), (left, right) = borders.sides(extent[0]), borders.sides(extent[1])
    padded_size = (height, width)
    padding = (top, bottom, left, right)
    if border != "zero":
        padded_size, padding = (height + extent[0] - 1, width + extent[1] - 1), (0, 0, 0, 0)
    geometry = ((1, 1), padding, (1, 1), 1, "auto", False)
    image_grad = filter_grad = None
    if needs[0]:
        assert filters is not None
        image_grad = _eager.conv2d_input_grad(
            grad, filters.unsqueeze(1), [count, 1, *padded_size], *geometry
        ).squeeze(1)
        if border != "zero":
            image_grad = borders.fold(image_grad, extent, border, (height, width))
    if needs[1]:
        assert images is not None
        padded = images if border == "zero" else borders.pad(images, extent, border)
        filter_grad = _eager.conv2d_weight_grad(
            padded.unsqueeze(1), grad, [filter_size[0], 1, *extent], *geometry
        ).squeeze(1)
    return image_grad, filter_grad, None, None


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    images, filters, border, _ = inputs
    ctx.save_for_backward(images, filters)
    ctx.border = border


def _backward(ctx: Any, grad: Tensor) -> Gradients:
    images, filters = ctx.saved_tensors
    return _gradients(ctx.needs_input_grad, grad, images, filters, images.shape, filters.shape, ctx.border)


def _vmap(
    call: Callable[..., Tensor],
    info: Any,
    in_dims: Sequence[int | None],
    images: Tensor,
    filters: Tensor,
    border: str,
    algorithm: str,
) -> tuple[Tensor, int]:
    """Mapped images join the images, mapped filters the bank; both mapped are called one by one."""
    image_dim, filter_dim = in_dims[:2]
    if filter_dim is None:
        assert image_dim is not None
        folded = images.movedim(image_dim, 0)
        output = call(folded.flatten(0, 1), filters, border, algorithm)
        return output.unflatten(0, folded.shape[:2]), 0
    bank = filters.movedim(filter_dim, 0)
    if image_dim is None:
        output = call(images, bank.flatten(0, 1), border, algorithm)
        return output.unflatten(1, bank.shape[:2]), 1
    pairs = zip(images.movedim(image_dim, 0), bank, strict=True)
    return torch.stack([call(image, each, border, algorithm) for image, each in pairs]), 0


class _Filter2d(torch.autograd.Function):
    """Inputs: images, filters, border, algorithm."""

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        with BelowAutograd():
            return operator(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        images, filters, border, _ = inputs
        needs = ctx.needs_input_grad
        ctx.save_for_backward(images if needs[1] else None, filters if needs[0] else None)
        ctx.arguments = (images.shape, filters.shape, border)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        return _gradients(ctx.needs_input_grad, grad, *ctx.saved_tensors, *ctx.arguments)


class _TransformedFilter2d(_Filter2d):
    """The same for torch.func and forward mode, which keep both tensors and know vmap."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _Filter2d.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:2])
        ctx.rest = (inputs[2], "auto")

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor | None:
        return _eager._linear_jvp(filter2d, ctx, *tangents[:2])

    vmap = staticmethod(partial(_vmap, lambda *arguments: filter2d(*arguments)))


def filter2d(images: Tensor, filters: Tensor, border: str, algorithm: str) -> Tensor:
    """The operator, the cheapest way that is right here; see convx._eager."""
    if _eager._takes_registered_path(images, filters, None):
        return operator(images, filters, border, algorithm)
    if ops.autocasts(images.device.type):
        images, filters = _autocast_cast(images.device.type, images, filters)
    floating = images.is_floating_point()
    if floating and _eager._is_transformed():
        return _transformed(images, filters, border, algorithm)  # type: ignore[no-any-return]
    if floating and torch.is_grad_enabled() and (images.requires_grad or filters.requires_grad):
        return _apply(images, filters, border, algorithm)  # type: ignore[no-any-return]
    if _eager._is_transformed():
        return operator(images, filters, border, algorithm)
    with BelowAutograd():
        return operator(images, filters, border, algorithm)


def autocast(images: Tensor, *filters: Tensor) -> tuple[Tensor, ...]:
    """What torch.autocast, where it is on, makes of them before they are filtered."""
    if not isinstance(images, Tensor):
        require_tensors(images=images)
    if not ops.autocasts(images.device.type):
        return images, *filters
    return _autocast_cast(images.device.type, images, *filters)


def without_autocast(images: Tensor) -> AbstractContextManager[Any]:
    """For filters that keep float32 inside, whatever torch.autocast made of their images."""
    return (
        torch.autocast(images.device.type, enabled=False)
        if ops.autocasts(images.device.type)
        else nullcontext()
    )


def _autocast_cast(device_type: str, images: Tensor, *filters: Tensor) -> tuple[Tensor, ...]:
    """As a convolution's arguments; uint8 images and their filters stay."""
    if not images.is_floating_point():
        return images, *filters
    dtype = torch.get_autocast_dtype(device_type)
    return tuple(ops.autocast_cast(each, dtype) for each in (images, *filters))


def _autocast(device_type: str) -> Callable[..., Tensor]:
    excluded = torch._C.DispatchKeySet(
        torch._C.DispatchKey.AutocastCPU if device_type == "cpu" else torch._C.DispatchKey.AutocastCUDA
    )

    def call(images: Tensor, filters: Tensor, *rest: Any) -> Tensor:
        with torch._C._ExcludeDispatchKeyGuard(excluded):
            return operator(*_autocast_cast(device_type, images, filters), *rest)

    return call


def _register() -> torch.library.Library:
    torch.library.register_fake("convx::filter2d", _fake)
    torch.library.register_vmap("convx::filter2d", partial(_vmap, operator))
    library = torch.library.Library("convx", "IMPL")
    kernel = ops.derivative(operator, _save, _backward)
    library.impl("filter2d", kernel, "Autograd", with_keyset=True)
    library.impl("filter2d", _autocast("cpu"), "AutocastCPU")
    library.impl("filter2d", _autocast("cuda"), "AutocastCUDA")
    if not _libraries.load()["gpu"].loaded:
        library.impl("filter2d", ops._not_loaded("cuda"), "CUDA")
    return library  # kept: its registrations end with it


operator = ops._operator("filter2d")
_apply: Any = _Filter2d.apply
_transformed: Any = _TransformedFilter2d.apply
_registrations = _register() if ops.available else None
