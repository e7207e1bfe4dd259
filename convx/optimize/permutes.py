"""Work on images that were permuted to have their channels last: on the images as they are, where it is the
layers of convolutions. ConvNeXt's linear layers are 1x1 convolutions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from convx.optimize.constants import parameter
from convx.optimize.graph import Reader, bound, has_hooks
from convx.optimize.layers import ChannelNorm
from convx.optimize.linears import convolution_of
from convx.optimize.naming import first_free, free_name
from convx.optimize.nodes import is_image, shape_of

_LAST, _BACK = (0, 2, 3, 1), (0, 3, 1, 2)
_NORM = "input normalized_shape weight bias eps"


def take_permutes(module: fx.GraphModule) -> bool:
    """Whether the graph has changed: its nodes know no shapes then."""
    pass_ = _Pass(module)
    nodes = list(module.graph.nodes)
    for node in nodes:
        if _permutes(node, _BACK) and (image := pass_.image_of(node.args[0])) is not None:
            node.replace_all_uses_with(image)
        elif pass_.reader.linear(node) is not None:
            pass_.image_of(node)
    pass_.give_back()
    for node in reversed(nodes):
        if not node.users and (node in pass_.images or _permutes(node, _BACK)):
            module.graph.erase_node(node)
    module.delete_all_unused_submodules()
    module.recompile()
    return bool(pass_.images)


class _Pass:
    def __init__(self, module: fx.GraphModule) -> None:
        self.module, self.graph = module, module.graph
        self.reader = Reader(module)
        self.images: dict[fx.Node, fx.Node] = {}  # of nodes with their channels last

    def image_of(self, node: Any) -> fx.Node | None:
        """The same with its channels first; None where it is none, or nothing that is known makes it."""
        if node in self.images:
            return self.images[node]
        if not is_image(node) or not node.all_input_nodes:
            return None
        if _permutes(node, _LAST):
            found: fx.Node | None = node.args[0]
        else:
            make = self._maker(node)
            image = None if make is None else self.image_of(self._read(node))
            found = None
            if make is not None and image is not None:
                with self.graph.inserting_before(node.next):
                    found = make(image)
        if found is not None:
            self.images[node] = found
        return found

    def _maker(self, node: fx.Node) -> Callable[[fx.Node], fx.Node] | None:
        """Of an image, given the one that the node reads; None of a node that is not known."""
        reader = self.reader
        if reader.writes(node):
            return None
        if (linear := reader.linear(node)) is not None:
            return partial(self._convolved, node, linear)
        if (norm := self._norm(node)) is not None:
            return partial(self._normed, node, norm)
        if (factor := self._factor(node)) is not None:
            return partial(self._scaled, node, factor)
        if reader.activation(node) is not None or reader.is_identity(node):
            return lambda image: self.graph.node_copy(node, lambda _: image)
        return None

    def _read(self, node: fx.Node) -> fx.Node | None:
        """Which of what it reads is the image: the only thing that the graph computes."""
        return next((each for each in node.all_input_nodes if each.op != "get_attr"), None)

    def _factor(self, node: fx.Node) -> Tensor | None:
        """Of each channel, where it is a product with some."""
        for each in self.reader.product(node) or ():
            factor = self.reader.constant(each)
            if factor is not None and tuple(factor.shape) == shape_of(node)[-1:]:
                return factor
        return None

    def _convolved(self, node: fx.Node, linear: nn.Linear, image: fx.Node) -> fx.Node:
        made = self.graph.call_module(str(node.target), (image,))
        node.target = made.target = free_name(self.module, str(node.target), [node, made])
        self.module.add_submodule(str(made.target), convolution_of(linear))
        return made

    def _normed(self, node: fx.Node, norm: ChannelNorm, image: fx.Node) -> fx.Node:
        name = first_free(self.module, f"channel_norm_{node.name}")
        self.module.add_submodule(name, norm)
        return self.graph.call_module(name, (image,))

    def _scaled(self, node: fx.Node, factor: Tensor, image: fx.Node) -> fx.Node:
        name = first_free(self.module, f"factor_{node.name}")
        self.module.register_parameter(name, parameter(factor.detach()[:, None, None]))
        return self.graph.call_function(torch.mul, (image, self.graph.get_attr(name)))

    def _norm(self, node: fx.Node) -> ChannelNorm | None:
        """Of each pixel's channels."""
        layer: Any = self.reader.layer(node)
        weight: Any
        bias: Any
        if type(layer) is nn.LayerNorm and not has_hooks(layer):
            shape, weight, bias, eps = layer.normalized_shape, layer.weight, layer.bias, layer.eps
        elif node.op == "call_function" and node.target is F.layer_norm:
            of = bound(node, _NORM)
            shape, eps = of["normalized_shape"], of.get("eps", 1e-5)
            weight, bias = (self.reader.constant(of.get(name)) for name in ("weight", "bias"))
            if (weight is None) != (of.get("weight") is None) or (bias is None) != (of.get("bias") is None):
                return None
        else:
            return None
        is_of_channels = tuple(shape) == shape_of(node)[-1:]
        if not is_of_channels:
            return None
        weight, bias = (None if each is None else parameter(each) for each in (weight, bias))
        return ChannelNorm(weight, bias, eps).eval()

    def give_back(self) -> None:
        """To those who read them with their channels last."""
        for node, image in self.images.items():
            if _permutes(node, _LAST):
                continue
            others = [user for user in node.users if user not in self.images and not _permutes(user, _BACK)]
            if others:
                with self.graph.inserting_after(image):
                    permuted = self.graph.call_function(torch.permute, (image, _LAST))
                for user in others:
                    user.replace_input_with(node, permuted)


def _permutes(node: Any, order: tuple[int, ...]) -> bool:
    calls = (("call_function", torch.permute), ("call_method", "permute"))
    if not isinstance(node, fx.Node) or (node.op, node.target) not in calls or node.kwargs:
        return False
    dims = node.args[1:]
    if len(dims) == 1 and isinstance(dims[0], (tuple, list)):
        dims = tuple(dims[0])
    return tuple(each % 4 if isinstance(each, int) else None for each in dims) == order
