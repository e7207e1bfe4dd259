"""Whether anything unusual is to see a call; csrc/front asks the same of torch's C++."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as functorch_active
from torch._C import _get_tracing_state as tracing_state
from torch._C import _len_torch_dispatch_stack as dispatch_modes
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.nn import Parameter

_PLAIN = frozenset((Tensor, Parameter, type(None)))


def is_recorded(*tensors: Tensor | None) -> bool:
    """Something looks at operators: torch.compile, tracing, a dispatch mode or a subclass of Tensor."""
    if is_compiling() or dispatch_modes() > 0 or tracing_state() is not None:
        return True
    return any(each.__class__ not in _PLAIN for each in tensors)


def is_transformed() -> bool:
    """Inside torch.func's transforms (grad, vmap, jvp, ...) or forward-mode differentiation."""
    return functorch_active() or forward_ad._current_level >= 0


def needs_grad(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in tensors)
