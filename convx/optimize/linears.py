"""Linear layers of matrices as 1x1 convolutions of images of one pixel, of which GPUs have kernels that share
out the channels: a classifier has too few results for others."""

from __future__ import annotations

import torch
from torch import fx, nn

from convx import _planning
from convx.optimize.constants import parameter
from convx.optimize.graph import Reader
from convx.optimize.layers import FusedConv2d
from convx.optimize.naming import free_name
from convx.optimize.nodes import put, shape_of

# Of weights. Larger ones come from memory as fast by torch, and filters in another order are a copy.
_MOST_BYTES = 1 << 25


def take_linears(module: fx.GraphModule) -> None:
    """Of those that are not convolutions already (permutes.py)."""
    reader = Reader(module)
    for node in list(module.graph.nodes):
        linear = reader.linear(node)
        if linear is None or len(shape_of(node)) != 2 or not _has_kernel(linear, shape_of(node)[0]):
            continue
        (image,) = node.all_input_nodes
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


def _has_kernel(linear: nn.Linear, rows: int) -> bool:
    weight = linear.weight
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    if weight.dtype not in dtypes or weight.nbytes > _MOST_BYTES or rows == 0:
        return False
    sizes = (rows, linear.in_features, 1, 1), (linear.out_features, linear.in_features, 1, 1)
    problem = _planning.problem("forward", weight.dtype, False, *sizes, (1, 1), (0, 0, 0, 0), (1, 1), 1)
    plans = _planning.core().candidates("pointwise", problem, _planning.device(weight.device))
    return any(plan.candidate == "deep" for plan in plans)


def convolution_of(linear: nn.Linear) -> nn.Conv2d:
    """The same of each pixel of images."""
    with torch.device("meta"):
        made = nn.Conv2d(linear.in_features, linear.out_features, 1, bias=False)
    made.weight, made.bias = parameter(linear.weight.detach()[:, :, None, None]), linear.bias
    return made.eval()
