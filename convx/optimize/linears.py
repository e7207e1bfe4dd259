"""Linear layers of matrices as 1x1 convolutions of images of one pixel, which are measured beside torch's."""

from __future__ import annotations

import torch
from torch import fx, nn

from convx.optimize.constants import parameter
from convx.optimize.graph import Reader
from convx.optimize.layers import FusedConv2d
from convx.optimize.naming import free_name
from convx.optimize.nodes import put, shape_of


def take_linears(module: fx.GraphModule) -> None:
    """Of those that are not convolutions already (permutes.py)."""
    reader = Reader(module)
    for node in list(module.graph.nodes):
        linear = reader.linear(node)
        if linear is None or len(shape_of(node)) != 2:
            continue
        image = node.args[0]
        with module.graph.inserting_before(node):
            for _ in range(2):
                image = module.graph.call_function(torch.unsqueeze, (image, -1))
        layer = FusedConv2d.of(convolution_of(linear), None, "none", False, False)
        put(module, free_name(module, str(node.target), [node]), layer, [image], node)
        made = node.next
        with module.graph.inserting_after(made):
            flat = module.graph.call_function(torch.flatten, (made, 1))
        made.replace_all_uses_with(flat, lambda user, flat=flat: user is not flat)
        module.graph.erase_node(node)
    module.delete_all_unused_submodules()
    module.recompile()


def convolution_of(linear: nn.Linear) -> nn.Conv2d:
    """The same of each pixel of images."""
    with torch.device("meta"):
        made = nn.Conv2d(linear.in_features, linear.out_features, 1, bias=False)
    made.weight, made.bias = parameter(linear.weight.detach()[:, :, None, None]), linear.bias
    return made.eval()
