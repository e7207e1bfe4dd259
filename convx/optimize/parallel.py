"""Convolutions of the same images whose results are added, and norms among them: one convolution, of the sum
of their filters, as the authors of RepVGG (Ding et al., 2021) make it after training."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn

from convx._arguments import pair
from convx.optimize.constants import parameter
from convx.optimize.filters import Own, computed
from convx.optimize.graph import Convolution, Reader, is_centred
from convx.optimize.naming import free_name
from convx.optimize.nodes import is_image, put, shape_of
from convx.optimize.sums import Branch, Leaf, Sums


def merge(module: fx.GraphModule) -> list[str]:
    """Rewrites the graph; the names of the layers that stand for several."""
    reader = Reader(module)
    leaves = {each.node: leaf for each in reader.convolutions() if (leaf := _leaf(each)) is not None}
    with torch.no_grad():
        found = Sums(reader, leaves, _channels).found()
        names = [_put(module, branch, largest.source) for branch, largest in found]
    module.delete_all_unused_submodules()
    module.recompile()
    return names


def _leaf(convolution: Convolution) -> Leaf | None:
    layer, input = convolution.layer, convolution.input
    if not is_image(input) or not is_centred(layer) or convolution.activation != "none":
        return None
    size, stride = pair("kernel_size", layer.kernel_size), pair("stride", layer.stride)
    own = (Own(layer.weight, layer.bias), size, stride, layer.out_channels, layer.groups)
    return Leaf(convolution, convolution.node, input, *own)


def _channels(node: Any) -> int | None:
    return shape_of(node)[1] if is_image(node) else None


def _put(module: fx.GraphModule, branch: Branch, convolution: Convolution) -> str:
    own = convolution.layer
    padding = (branch.size[0] // 2, branch.size[1] // 2)
    with torch.device("meta"):
        made = nn.Conv2d(
            own.in_channels, own.out_channels, branch.size, branch.stride, padding, groups=branch.groups
        )
    weight, bias = computed(branch.filters, lambda tensor: tensor)
    made.weight = parameter(torch.empty_like(own.weight).copy_(weight))
    made.bias = None if bias is None else parameter(bias.to(own.weight.dtype))
    name = free_name(module, convolution.name, [convolution.node])
    put(module, name, made.eval(), [convolution.input], branch.nodes[-1])
    for node in reversed(branch.nodes):
        module.graph.erase_node(node)
    return name
