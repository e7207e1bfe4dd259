"""The operators convx::conv2d, conv2d_input_grad, conv2d_weight_grad, pack_weight, filter2d,
inverted_residual, pack_inverted_residual and squeeze_excite.

The libraries bring the kernels; what Python registers for each, its fake, the derivatives that torch.compile
and torch.export see, autocast, vmap and flops, is declared in a module of its own. Eager code has shorter
ways to the kernels: convx.dispatch.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from convx.operators import block, convolution, excite, image_filter, input_gradient, weight_gradient
from convx.operators.operator import Operator, available

__all__ = [
    "DECLARED",
    "conv2d",
    "conv2d_input_grad",
    "conv2d_weight_grad",
    "filter2d",
    "inverted_residual",
    "pack_inverted_residual",
    "pack_weight",
    "squeeze_excite",
]

DECLARED: dict[str, Operator] = {
    each.name: each
    for each in (
        convolution.conv2d,
        convolution.pack_weight,
        input_gradient.conv2d_input_grad,
        weight_gradient.conv2d_weight_grad,
        image_filter.filter2d,
        block.inverted_residual,
        block.pack_inverted_residual,
        excite.squeeze_excite,
    )
}
# By torch's dispatcher.
conv2d: Any = DECLARED["conv2d"].call
conv2d_input_grad: Any = DECLARED["conv2d_input_grad"].call
conv2d_weight_grad: Any = DECLARED["conv2d_weight_grad"].call
pack_weight: Any = DECLARED["pack_weight"].call
filter2d: Any = DECLARED["filter2d"].call
inverted_residual: Any = DECLARED["inverted_residual"].call
pack_inverted_residual: Any = DECLARED["pack_inverted_residual"].call
squeeze_excite: Any = DECLARED["squeeze_excite"].call


def _register() -> torch.library.Library:
    library = torch.library.Library("convx", "IMPL")
    for each in DECLARED.values():
        each.register(library, lambda: sys.modules[__name__])
    return library  # kept: its registrations end with it


_registrations = _register() if available else None
