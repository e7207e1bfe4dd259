"""Whether a model asks for the values of tensors, and decides by them which results there are, or takes any
from one device to another: no CUDA graph can do either."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from convx.optimize.inputs import tensors_in

_ASKING = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)
_TAGGED = ("aten", "prims", "convx")  # whose operators say what they do
_INDEX = torch.ops.aten.index.Tensor
_COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class Watch(TorchDispatchMode):
    """Knows whether any operator has given a number to Python, or a result whose size depends on values, and
    whether any has copied between devices."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.has_asked = False
        self.has_copied = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.has_asked |= _asks(func, args)
        result = func(*args, **(kwargs or {}))
        self.has_copied |= func in _COPIES and len({each.device for each in tensors_in(args, result)}) > 1
        return result

    @property
    def why_not_replayed(self) -> str:
        """By a CUDA graph; empty where nothing that was seen speaks against it."""
        if self.has_asked:
            return "it asks for values of tensors"
        return "it copies tensors from one device to another" if self.has_copied else ""


def watched(model: nn.Module, args: Any, kwargs: Any) -> Watch:
    """What was seen of such a call, as far as it can be watched: some of torch's operators refuse to be."""
    watch = Watch()
    with contextlib.suppress(Exception), torch.no_grad(), watch:
        model(*args, **kwargs)
    return watch


def _asks(operator: Any, args: Any) -> bool:
    if operator.namespace not in _TAGGED:
        return True
    if operator is _INDEX:  # by numbers, or by what is true
        return any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in args[1])
    return any(tag in operator.tags for tag in _ASKING)
