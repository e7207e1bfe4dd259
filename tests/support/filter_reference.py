"""References of filter2d: the definition in extended precision, and torch's own convolution."""

from __future__ import annotations

import zlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

BORDERS = ("zero", "replicate", "reflect", "wrap")
NUMPY_MODES = {"zero": "constant", "replicate": "edge", "reflect": "reflect", "wrap": "wrap"}


def padded(images: np.ndarray, extent: tuple[int, int], border: str) -> np.ndarray:
    """By numpy, whose borders reach any number of sizes outside."""
    sides = [((size - 1) // 2, size - 1 - (size - 1) // 2) for size in extent]
    if not images.size:
        return np.zeros(
            (*images.shape[:-2], *(n + sum(s) for n, s in zip(images.shape[-2:], sides, strict=True)))
        )
    return np.pad(images, [(0, 0)] * (images.ndim - 2) + sides, mode=NUMPY_MODES[border])  # type: ignore[call-overload]


def exact_filter2d(images: Tensor, filter: Tensor, border: str) -> Tensor:
    """The definition, in extended precision."""
    bank = filter.detach().cpu().double().numpy().astype(np.longdouble)
    bank = bank if filter.dim() == 3 else bank[None]
    height, width = images.shape[-2:]
    source = padded(images.detach().cpu().double().numpy().astype(np.longdouble), bank.shape[1:], border)
    result = np.zeros((*images.shape[:-2], len(bank), height, width), np.longdouble)
    for row, column in np.ndindex(*bank.shape[1:]):
        window = source[..., row : row + height, column : column + width]
        result += bank[:, row, column, None, None] * window[..., None, :, :]
    found = torch.from_numpy(result.astype(np.float64))
    return found if filter.dim() == 3 else found.squeeze(-3)


def torch_filter2d(images: Tensor, filter: Tensor, border: str) -> Tensor:
    """torch's own convolution in the images' dtype."""
    bank = filter if filter.dim() == 3 else filter.unsqueeze(0)
    height, width = images.shape[-2:]
    rows, columns = (
        padded(np.arange(n)[None, :, None], (k, 1), "replicate" if border == "zero" else border).ravel()
        for n, k in ((height, bank.size(1)), (width, bank.size(2)))
    )
    source = images.reshape(-1, 1, height, width)[:, :, rows.astype(int)][..., columns.astype(int)]
    if border == "zero":
        inside = padded(np.ones((1, height, width)), (bank.size(1), bank.size(2)), "zero")
        source = source * torch.from_numpy(inside).to(source)
    output = F.conv2d(source, bank.unsqueeze(1)).view(*images.shape[:-2], len(bank), height, width)
    return output if filter.dim() == 3 else output.squeeze(-3)


def random(*size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(str(size).encode()))
    return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)


def photo(*size: int) -> Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(str(size).encode()))
    return torch.randint(256, size, generator=generator, dtype=torch.uint8)
