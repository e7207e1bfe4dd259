"""Zeros around images, which TensorFlow's padding has apart: into the convolutions behind them."""

from __future__ import annotations

import copy
from typing import Any

import torch.nn.functional as F
from torch import fx, nn

from convx._arguments import padding_2d, pair
from convx.optimize.branches import SIDES, expect
from convx.optimize.graph import Convolution, Reader, bound, has_hooks
from convx.optimize.naming import free_name
from convx.optimize.nodes import is_image


def decide_pads(module: fx.GraphModule) -> None:
    """What is computed of sizes, as TensorFlow's padding for strides is, becomes the numbers that it is for
    the example input, where convolutions alone read what is padded: they may have those. For sizes that want
    other ones the graph does not hold."""
    reader = Reader(module)
    for node in module.graph.find_nodes(op="call_function", target=F.pad):
        computed, sides = node.args[1:2], node.meta.get(SIDES)
        if not computed or not all(isinstance(each, (tuple, list)) for each in (*computed, sides)):
            continue
        is_known = all(isinstance(each, int) for each in sides)
        if not is_known or not all(_is_convolution(reader, each) for each in node.users):
            continue
        for found, side in zip(*computed, sides, strict=True):
            if isinstance(found, fx.Node):
                with module.graph.inserting_before(node):
                    module.graph.call_function(expect, (found, side)).meta["is_wrapped"] = True
        node.update_arg(1, tuple(sides))
    module.recompile()


def _is_convolution(reader: Reader, node: fx.Node) -> bool:
    return isinstance(reader.layer(node), nn.Conv2d) or node.target is F.conv2d


def take_pads(module: fx.GraphModule) -> None:
    """convx's kernels pad each side by itself; torch's layers, that the graph has still, can't be run any
    more then."""
    reader = Reader(module)
    for convolution in list(reader.convolutions()):
        pad = convolution.input
        sides = _sides(reader, pad) if len(pad.users) == 1 else None
        if sides is None:
            continue
        name = free_name(module, convolution.name, [convolution.node])
        module.add_submodule(name, _padded(convolution, *sides))
        convolution.node.target = name
        pad.replace_all_uses_with(pad.all_input_nodes[0])
        module.graph.erase_node(pad)
    module.delete_all_unused_submodules()
    module.recompile()


def _padded(convolution: Convolution, left: int, right: int, above: int, below: int) -> nn.Conv2d:
    layer: Any = copy.copy(convolution.layer)
    stride, dilation = pair("stride", layer.stride), pair("dilation", layer.dilation)
    own = padding_2d(layer.padding, layer.weight.shape, stride, dilation)
    layer.padding = ((own[0] + above, own[1] + below), (own[2] + left, own[3] + right))
    return layer  # type: ignore[no-any-return]


def _sides(reader: Reader, node: fx.Node) -> list[int] | None:
    """How many zeros it puts left, right, above and below."""
    if not is_image(node):
        return None
    layer: Any = reader.layer(node)
    if type(layer) in (nn.ZeroPad2d, nn.ConstantPad2d):
        value, given = layer.value, layer.padding
        if has_hooks(layer):
            return None
    elif node.op == "call_function" and node.target is F.pad:
        of = bound(node, "input pad mode value")
        value, given = of.get("value"), of["pad"]
        if of.get("mode", "constant") != "constant" or not isinstance(given, (tuple, list)):
            return None
    else:
        return None
    sides = [*given, 0, 0][:4]
    is_plain = len(given) in (2, 4) and all(isinstance(each, int) and each >= 0 for each in sides)
    return sides if is_plain and value in (None, 0) and len(node.all_input_nodes) == 1 else None
