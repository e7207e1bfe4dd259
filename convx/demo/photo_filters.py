"""Filters on the photo: convx's beside what torch has for the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import convx.nn
from convx.demo.timing import compare

Way = Callable[[Tensor], Tensor]
SHARPENING = [[0.0, -1, 0], [-1, 5, -1], [0, -1, 0]]
SIGMA = 3.0


@dataclass
class FilterResult:
    """One filter on the photo; its pictures are height x width (x 3) bytes."""

    name: str
    call: str
    native_call: str
    shape: str
    picture: Any
    native_us: float
    convx_us: float
    native_error: float
    convx_error: float

    @property
    def speedup(self) -> float:
        return self.native_us / self.convx_us

    @property
    def agrees(self) -> bool:
        """At most twice torch's error against float64, or rounding where torch's is nearly none."""
        return self.convx_error <= max(2 * self.native_error, 1e-6)


def _correlate(images: Tensor, bank: Tensor, border: str) -> Tensor:
    """(images, filters, height, width), by torch: pads by the border, then F.conv2d."""
    rows, columns = bank.shape[1] // 2, bank.shape[2] // 2
    padded = F.pad(images.unsqueeze(1), (columns, columns, rows, rows), mode=border)
    return F.conv2d(padded, bank.unsqueeze(1))


def _sharpen(bank: Tensor, images: Tensor) -> Tensor:
    return _correlate(images, bank.to(images.dtype), "replicate").squeeze(1)


def _edges(bank: Tensor, images: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(_correlate(images, bank.to(images.dtype), "replicate"), dim=1)
    return length


def _blur(column: Tensor, row: Tensor, images: Tensor) -> Tensor:
    between = _correlate(images, column.to(images.dtype).view(1, -1, 1), "reflect").squeeze(1)
    return _correlate(between, row.to(images.dtype).view(1, 1, -1), "reflect").squeeze(1)


def filter_photo(photo: Any, device: torch.device, rounds: int) -> list[FilterResult]:
    """Sharpens and blurs a photo (height x width x 3 bytes) and finds its edges, by convx and by torch."""
    colours = torch.from_numpy(photo.copy()).to(device).permute(2, 0, 1).contiguous().float()
    gray = colours.mean(0, keepdim=True)
    sharpen = convx.nn.Filter2d(SHARPENING, border="replicate").to(device)
    edges, blur = convx.nn.Sobel2d().to(device), convx.nn.GaussianBlur2d(SIGMA).to(device)
    taps = blur.size[0]
    with torch.inference_mode():
        return [
            _examine(
                "sharpened",
                "Filter2d([[0, -1, 0], [-1, 5, -1], [0, -1, 0]], border='replicate')",
                "F.pad, F.conv2d",
                colours,
                (partial(_sharpen, sharpen.filter.unsqueeze(0)), sharpen),
                rounds,
            ),
            _examine(
                "blurred",
                f"GaussianBlur2d({SIGMA:g})",
                f"F.pad, F.conv2d with {taps}x1, F.pad, F.conv2d with 1x{taps}",
                colours,
                (partial(_blur, blur.column, blur.row), blur),
                rounds,
            ),
            _examine(
                "edges",
                "Sobel2d()",
                "F.pad, F.conv2d with two filters, vector_norm",
                gray,
                (partial(_edges, edges.filter), edges),
                rounds,
            ),
        ]


def _examine(
    name: str, call: str, native_call: str, images: Tensor, ways: tuple[Way, Way], rounds: int
) -> FilterResult:
    """Times a filter's two ways on the same images and holds both against the first in float64."""
    exact = ways[0](images.double())
    errors = [float((way(images).double() - exact).abs().max() / exact.abs().max()) for way in ways]
    native_us, convx_us = compare([partial(way, images) for way in ways], images.device, rounds)
    pixels = ways[1](images).round().clamp(0, 255).to(torch.uint8)
    picture = pixels.permute(1, 2, 0).squeeze(2).contiguous().cpu().numpy()
    shape = "x".join(map(str, images.shape))
    return FilterResult(name, call, native_call, shape, picture, native_us, convx_us, *errors)
