"""Batch norms of volumes in the filters of torch's own Conv3d, which convx has no method for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from convx.optimize.constants import parameter
from convx.optimize.folding import Norm, folded
from convx.optimize.graph import Reader, has_hooks
from convx.optimize.naming import free_name
from convx.optimize.nodes import put


def fold_volumes(module: fx.GraphModule) -> dict[str, tuple[str, ...]]:
    """What is done by each layer beside the convolution, by its name; in evaluation."""
    reader = Reader(module)
    fused: dict[str, tuple[str, ...]] = {}
    for node in list(module.graph.nodes):
        layer: Any = reader.layer(node)
        if type(layer) is not nn.Conv3d or has_hooks(layer) or len(node.users) != 1:
            continue
        (user,) = node.users
        norm = _norm(reader.layer(user), node)
        if norm is None:
            continue
        name = free_name(module, str(node.target), [node])
        (input,) = node.all_input_nodes
        put(module, name, _with(layer, norm), [input], user)
        reader.erase([user])
        fused[name] = ("batch norm",)
    module.delete_all_unused_submodules()
    module.recompile()
    return fused


def _norm(layer: Any, input: fx.Node) -> Norm[Tensor] | None:
    if type(layer) is not nn.BatchNorm3d or has_hooks(layer) or layer.training or layer.running_mean is None:
        return None
    return Norm(input, layer.running_mean, layer.running_var, layer.weight, layer.bias, layer.eps)  # type: ignore[arg-type]


def _with(layer: nn.Conv3d, norm: Norm[Tensor]) -> nn.Conv3d:
    weight, bias = folded(layer.weight, layer.bias, norm)
    names = ("stride", "padding", "dilation", "groups", "padding_mode")
    options: dict[str, Any] = {name: getattr(layer, name) for name in names}
    with torch.device("meta"):
        made = nn.Conv3d(layer.in_channels, layer.out_channels, layer.kernel_size, **options)  # type: ignore[arg-type]
    made.weight = parameter(weight.to(layer.weight))
    made.bias = parameter(bias.to(layer.weight))
    return made.eval()
