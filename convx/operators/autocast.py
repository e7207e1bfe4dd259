"""torch.autocast, as it is for a convolution's arguments."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C import _is_any_autocast_enabled as autocast_active


def is_on(device_type: str) -> bool:
    """Whether torch.autocast is on for a device; torch raises for one that has none, as meta."""
    if not autocast_active():
        return False
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Floating point to dtype, float64 left alone."""
    if tensor.dtype == dtype or tensor.dtype == torch.float64 or not tensor.is_floating_point():
        return tensor
    return tensor.to(dtype)


def without(device_type: str) -> Any:
    """The dispatcher without autocast of that device."""
    keys = torch._C.DispatchKey
    return torch._C._ExcludeDispatchKeyGuard(
        torch._C.DispatchKeySet(keys.AutocastCPU if device_type == "cpu" else keys.AutocastCUDA)
    )


@contextmanager
def watched() -> Iterator[list[bool]]:
    """What this thread turns autocast to meanwhile, on or off."""
    kind, thread, turned = torch.autocast, threading.get_ident(), []
    enter = kind.__enter__

    def entered(self: Any) -> Any:
        if threading.get_ident() == thread:
            turned.append(bool(self._enabled))
        return enter(self)  # type: ignore[no-untyped-call]

    kind.__enter__ = entered  # type: ignore[method-assign]
    try:
        yield turned
    finally:
        kind.__enter__ = enter  # type: ignore[method-assign]
