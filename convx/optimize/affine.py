"""Frozen batch norms: a factor and a summand for each channel, computed of the module's own tensors, as batch
norms, which convolutions have in their filters."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from convx.optimize.constants import constant_of, parameter
from convx.optimize.graph import Reader
from convx.optimize.naming import first_free
from convx.optimize.nodes import is_image, shape_of


def take_affine(module: fx.GraphModule) -> None:
    """After fold_factors, which leaves factors as tensors of the module's, and where sizes are known."""
    reader = Reader(module)
    for node in list(module.graph.nodes):
        found = _scaled_and_shifted(reader, node)
        if found is None:
            continue
        image, scale, shift = found
        of_channels = {
            "mean": torch.zeros_like(scale),
            "variance": torch.ones_like(scale),
            "weight": scale,
            "bias": shift,
        }
        with module.graph.inserting_before(node):
            own = [_kept(module, f"{kind}_{node.name}", value) for kind, value in of_channels.items()]
            norm = module.graph.call_function(F.batch_norm, (image, *own), {"eps": 0.0})
        norm.meta = dict(node.meta)
        node.replace_all_uses_with(norm)
        reader.erase([node])
    module.recompile()


def _scaled_and_shifted(reader: Reader, node: fx.Node) -> tuple[fx.Node, Tensor, Tensor] | None:
    """What a sum of a product and a constant is of, and both constants."""
    terms = reader.sum(node)
    for product, summand in (terms, terms[::-1]) if terms is not None and not reader.writes(node) else ():
        factors = reader.product(product) if len(product.users) == 1 else None
        for image, factor in (factors, factors[::-1]) if factors is not None else ():
            scale, shift = reader.constant(factor), constant_of(reader, summand)
            if scale is not None and shift is not None and _are_of_channels(image, scale, shift):
                return image, scale.detach().flatten(), shift.detach().flatten()
    return None


def _are_of_channels(image: Any, scale: Tensor, shift: Tensor) -> bool:
    """Each a number for each, in the image's own dtype."""
    if not is_image(image) or {scale.dtype, shift.dtype} != {image.meta["tensor_meta"].dtype}:
        return False
    return scale.shape == shift.shape == (1, shape_of(image)[1], 1, 1)


def _kept(module: fx.GraphModule, name: str, value: Tensor) -> Any:
    name = first_free(module, name)
    module.register_parameter(name, parameter(value))
    return module.graph.get_attr(name)
