"""Filters as torch modules."""

from __future__ import annotations

import math
import numbers
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from convx._errors import MOST, InvalidArgument, dtype_name, shape
from convx.dispatch.situation import is_transformed
from convx.images import functional
from convx.images.borders import require_border
from convx.images.functional import autocast, without_autocast


class FilterLayer(torch.nn.Module, ABC):
    """What convx.tune and convx.explain have to know of a layer."""

    border: str
    algorithm: str

    @abstractmethod
    def passes(self, dtype: torch.dtype) -> list[tuple[torch.dtype, tuple[int, int, int]]]:
        """The operator's calls that forward makes of images of a dtype (autocast's, where it casts them): the
        images' dtype and the filters' size in each."""


class Filter2d(FilterLayer):
    """convx.functional.filter2d with a filter of its own.

    Args:
        filter: (R, S) or a bank (filters, R, S): a tensor or nested lists of numbers.
        border: "zero", "replicate", "reflect" or "wrap". Default "zero".
        trainable: whether the filter is a parameter; else it is a buffer. Default False.
        algorithm: as in filter2d. Default "auto".

    Input (..., height, width); result (..., height, width), for a bank (..., filters, height, width). A
    buffer follows the dtype of the images, a parameter has to have it, as in torch.nn.Conv2d. Errors as in
    filter2d. convx.explain(layer, images) shows the kernels that there are, convx.tune measures them.

    >>> import torch, convx
    >>> sharpen = convx.nn.Filter2d([[0, -1, 0], [-1, 5, -1], [0, -1, 0]], border="replicate")
    >>> sharpen(torch.randint(256, (3, 64, 64), dtype=torch.uint8)).shape
    torch.Size([3, 64, 64])
    """

    filter: Tensor

    def __init__(
        self, filter: Tensor | Any, border: str = "zero", *, trainable: bool = False, algorithm: str = "auto"
    ) -> None:
        super().__init__()
        values = filter if isinstance(filter, Tensor) else functional.tensor_of("filter", filter)
        if values.is_complex():
            raise InvalidArgument(f"filter must have real numbers, got {dtype_name(values.dtype)}")
        if not values.is_floating_point():
            values = functional.converted("filter", values, torch.get_default_dtype())
        if values.dim() not in (2, 3) or 0 in values.shape:
            raise InvalidArgument(
                f"filter must be (height, width) or a bank (filters, height, width), none of them empty, got "
                f"shape {shape(values.shape)}"
            )
        self.border = require_border(border)
        self.algorithm = algorithm
        if trainable:
            self.filter = torch.nn.Parameter(values.detach().clone())
        else:
            self.register_buffer("filter", values.detach().clone())

    def forward(self, images: Tensor) -> Tensor:
        filter = self.filter
        if not isinstance(filter, torch.nn.Parameter):
            filter = functional.converted("filter", filter, functional.filter_dtype(images))
        return functional.filter2d(images, filter, self.border, algorithm=self.algorithm)

    def passes(self, dtype: torch.dtype) -> list[tuple[torch.dtype, tuple[int, int, int]]]:
        *bank, height, width = self.filter.shape
        return [(dtype, (bank[0] if bank else 1, height, width))]

    def extra_repr(self) -> str:
        text = f"{'x'.join(map(str, self.filter.shape))}, border={self.border}"
        return text if self.algorithm == "auto" else f"{text}, algorithm={self.algorithm}"


def _gaussian(sigma: float, extent: int, device: torch.device | None) -> Tensor:
    """Weights at the middles of the pixels, in float64, with sum 1."""
    places = torch.arange(extent, dtype=torch.float64, device=device) - (extent - 1) / 2
    weights = torch.exp(-0.5 * (places / sigma) ** 2)
    return weights / weights.sum()


def _plain(value: Any) -> Any:
    """numpy's and torch's numbers as Python's."""
    return value.tolist() if hasattr(value, "tolist") else value


def _real(value: Any) -> float:
    try:
        return float(value if isinstance(value, numbers.Real) else operator.index(value))
    except OverflowError:
        return math.inf


def _pair(name: str, kind: str, value: Any, convert: Callable[[Any], Any]) -> tuple[Any, Any]:
    """(height, width), each converted, from one number or two; convert raises TypeError for what is none."""
    given = _plain(value)
    pair = [_plain(each) for each in given] if isinstance(given, Sequence) else [given, given]
    if len(pair) == 2 and not any(isinstance(each, bool) for each in pair):
        with suppress(TypeError):
            return convert(pair[0]), convert(pair[1])
    raise InvalidArgument(f"{name} takes one {kind} or a pair (height, width), got {value!r}")


class GaussianBlur2d(FilterLayer):
    """Blurs with a Gaussian, as two passes of one dimension.

    Args:
        sigma: its standard deviation in pixels, a number or (height, width), above 0.
        size: extent of the filter in pixels, odd, an int or (height, width). Default: up to 3 sigma to each
            side, where 0.3 % of a Gaussian lie beyond.
        border: "zero", "replicate", "reflect" or "wrap". Default "reflect", which keeps edges' brightness.
        algorithm: as in separable_filter2d. Default "auto".

    Input (..., height, width) of every dtype of filter2d, the result alike. The weights have the sum 1: they
    are float64 for float64 images and float32 for all others, whatever dtype the layer is moved to.
    convx.tune measures each pass by itself.

    >>> import torch, convx
    >>> blur = convx.nn.GaussianBlur2d(1.5)
    >>> blur(torch.rand(3, 64, 64)).shape, blur.size
    (torch.Size([3, 64, 64]), (11, 11))
    """

    column: Tensor
    row: Tensor

    def __init__(
        self,
        sigma: float | Sequence[float],
        size: int | Sequence[int] | None = None,
        border: str = "reflect",
        *,
        algorithm: str = "auto",
    ) -> None:
        super().__init__()
        self.sigma: tuple[float, float] = _pair("sigma", "number", sigma, _real)
        if not all(0 < each < math.inf for each in self.sigma):
            raise InvalidArgument(f"sigma must be above 0 and finite, got {sigma!r}")
        if size is None:
            size = tuple(2 * math.ceil(3 * each) + 1 for each in self.sigma)
        self.size: tuple[int, int] = _pair("size", "int", size, operator.index)
        if not all(each >= 1 and each % 2 == 1 for each in self.size):
            raise InvalidArgument(
                f"size must be odd and at least 1, so that the blur moves nothing, got {size!r}"
            )
        if 8 * max(self.size) > MOST:  # bytes of its weights
            raise InvalidArgument(f"size, by default 6 sigma, is too large: {size!r}, for sigma {sigma!r}")
        self.border = require_border(border)
        self.algorithm = algorithm
        self._set_weights(None)

    def _set_weights(self, device: torch.device | None) -> None:
        for name, spread, extent in zip(("column", "row"), self.sigma, self.size, strict=True):
            self.register_buffer(name, _gaussian(spread, extent, device), persistent=False)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Any:
        before = self.column
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.column is not before:  # half() rounds: the sum would not be 1 any more
            self._set_weights(self.column.device)
        return self

    def forward(self, images: Tensor) -> Tensor:
        (images,) = autocast(images)
        wanted = torch.float64 if images.dtype == torch.float64 else torch.float32
        return functional.two_passes(
            images, self.column.to(wanted), self.row.to(wanted), self.border, self.algorithm
        )

    def passes(self, dtype: torch.dtype) -> list[tuple[torch.dtype, tuple[int, int, int]]]:
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        return [(wide, (1, self.size[0], 1)), (wide, (1, 1, self.size[1]))]

    def extra_repr(self) -> str:
        return f"sigma={self.sigma}, size={self.size}, border={self.border}"


def _length(across: Tensor, down: Tensor) -> Tensor:
    """Of vectors, with the derivative 0 where it is 0, for which hypot has NaN.

    torch.linalg.vector_norm has that too, but takes a hundred times as long over two rows of a CPU's memory.
    """
    differentiable = across.requires_grad and torch.is_grad_enabled()
    if not (differentiable or torch.compiler.is_compiling() or is_transformed()):
        return torch.hypot(across, down)
    flat = (across == 0) & (down == 0)
    return torch.hypot(across.masked_fill(flat, 1), down).masked_fill(flat, 0)


class Sobel2d(FilterLayer):
    """Derivatives by Sobel's 3x3 filters, or their magnitude.

    Args:
        magnitude: True (the default): the length of the gradient, (..., height, width). False: both
            derivatives, (..., 2, height, width): along the width, rising to the right, then along the height,
            rising downwards.
        normalized: divides the filters by 8, so that the derivatives are per pixel. Default False: Sobel's
            own weights, as in OpenCV.
        border: "zero", "replicate", "reflect" or "wrap". Default "replicate", which adds no edges.
        algorithm: as in filter2d. Default "auto".

    Input (..., height, width) of every dtype of filter2d; the image is read once for both derivatives. For
    uint8 images the magnitude is computed in float32, rounded to nearest even and limited to 0 ... 255;
    derivatives, which may be negative, are given in float32. convx.explain and convx.tune take this layer as
    they take Filter2d.

    >>> import torch, convx
    >>> ramp = torch.arange(5.0).expand(5, 5)
    >>> convx.nn.Sobel2d(magnitude=False, normalized=True)(ramp)[:, 2, 2]
    tensor([1., 0.])
    """

    filter: Tensor

    def __init__(
        self,
        magnitude: bool = True,
        *,
        normalized: bool = False,
        border: str = "replicate",
        algorithm: str = "auto",
    ) -> None:
        super().__init__()
        self.magnitude, self.normalized = magnitude, normalized
        self.border = require_border(border)
        self.algorithm = algorithm
        across = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
        bank = torch.stack([across, across.t()]) / (8 if normalized else 1)
        self.register_buffer("filter", bank, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        (images,) = autocast(images)
        values = images.float() if images.dtype == torch.uint8 else images
        with without_autocast(images):
            filter = functional.converted("filter", self.filter, functional.filter_dtype(values))
            both = functional.filter2d(values, filter, self.border, algorithm=self.algorithm)
        if not self.magnitude:
            return both
        length = _length(*both.unbind(-3))
        if images.dtype == torch.uint8:
            return length.round().clamp(0, 255).to(torch.uint8)
        return length

    def passes(self, dtype: torch.dtype) -> list[tuple[torch.dtype, tuple[int, int, int]]]:
        return [(torch.float32 if dtype == torch.uint8 else dtype, (2, 3, 3))]

    def extra_repr(self) -> str:
        return f"magnitude={self.magnitude}, normalized={self.normalized}, border={self.border}"
