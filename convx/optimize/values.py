"""Whether a model asks for the values of tensors, and decides by them which results there are."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

_ASKING = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)
_TAGGED = ("aten", "prims", "convx")  # whose operators say what they do
_INDEX = torch.ops.aten.index.Tensor


class Watch(TorchDispatchMode):
    """Knows whether any operator has given a number to Python, or a result whose size depends on values."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.has_asked = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.has_asked |= _asks(func, args)
        return func(*args, **(kwargs or {}))


def asks_values(model: nn.Module, args: Any, kwargs: Any) -> bool:
    """In such a call, as far as it can be watched: some of torch's operators refuse to be."""
    watch = Watch()
    with contextlib.suppress(Exception), torch.no_grad(), watch:
        model(*args, **kwargs)
    return watch.has_asked


def _asks(operator: Any, args: Any) -> bool:
    if operator.namespace not in _TAGGED:
        return True
    if operator is _INDEX:  # by numbers, or by what is true
        return any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in args[1])
    return any(tag in operator.tags for tag in _ASKING)
