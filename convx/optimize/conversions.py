"""What it takes to give images the other layout, measured as layers are."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from convx.optimize.model import FORMATS
from convx.tune.profiler import profile

_ROUNDS = 5
_COLD_BYTES = 16 << 20  # of operands that take turns on a CPU, whose caches hold fewer
_MOST_SETS = 32


class Conversions:
    """Microseconds on a device, of images of each shape and dtype once. Those that are not measured yet take
    nothing, which is the least that they may."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._us: dict[Any, float] = {}

    def known(self, image: Any, layout: str) -> float:
        """image: a tensor in the other layout, or what is known of one."""
        return self._us.get(_kind(image, layout), 0.0)

    def measured(self, image: Any, layout: str) -> float:
        if not self.is_measured(image, layout):
            self._us[_kind(image, layout)] = self._measure(image, layout)
        return self.known(image, layout)

    def is_measured(self, image: Any, layout: str) -> bool:
        return _kind(image, layout) in self._us

    def _measure(self, image: Any, layout: str) -> float:
        (other,) = (format for name, format in FORMATS.items() if name != layout)
        bytes = math.prod(image.shape) * image.dtype.itemsize
        is_cpu = self._device.type == "cpu"
        sets = min(_MOST_SETS, 1 + math.ceil(_COLD_BYTES / max(bytes, 1))) if is_cpu else 1
        own = {"dtype": image.dtype, "device": self._device}
        images = [torch.zeros(image.shape, **own).contiguous(memory_format=other) for _ in range(sets)]

        def call(index: int) -> Tensor:
            return images[index].contiguous(memory_format=FORMATS[layout])

        # Beside another kernel, a short one's may be below zero.
        return max(0.0, profile({layout: call}, self._device, sets, _ROUNDS)[layout].us)


def _kind(image: Any, layout: str) -> Any:
    return tuple(image.shape), image.dtype, layout
