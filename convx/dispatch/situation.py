"""What is to see a call; csrc/front asks the same of torch's C++."""

from __future__ import annotations

from enum import Enum, auto

from torch import Tensor, is_grad_enabled
from torch._C import _are_functorch_transforms_active as functorch_active
from torch._C import _get_tracing_state as tracing_state
from torch._C import _len_torch_dispatch_stack as dispatch_modes
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.nn import Parameter

_PLAIN = frozenset((Tensor, Parameter, type(None)))


class Situation(Enum):
    """The first of these that is so."""

    RECORDED = auto()  # torch.compile, tracing, a dispatch mode or a subclass of Tensor looks at operators
    TRANSFORMED = auto()  # inside torch.func's transforms (grad, vmap, jvp, ...) or forward mode
    DIFFERENTIATED = auto()  # autograd records it
    PLAIN = auto()


def is_transformed() -> bool:
    return functorch_active() or forward_ad._current_level >= 0


def situation(*tensors: Tensor | None) -> Situation:
    """Of a call with these tensors."""
    if is_compiling() or dispatch_modes() > 0 or tracing_state() is not None:
        return Situation.RECORDED
    for each in tensors:
        if each.__class__ not in _PLAIN:
            return Situation.RECORDED
    if functorch_active() or forward_ad._current_level >= 0:
        return Situation.TRANSFORMED
    if is_grad_enabled():
        for each in tensors:
            if each is not None and each.requires_grad:
                return Situation.DIFFERENTIATED
    return Situation.PLAIN
