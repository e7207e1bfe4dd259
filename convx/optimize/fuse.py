"""Puts what follows each convolution of a graph into the convolution's layer."""

from __future__ import annotations

import torch
from torch import Tensor, fx, nn

from convx.optimize.chains import Chain, grow
from convx.optimize.graph import Convolution, Reader
from convx.optimize.layers import FusedConv2d
from convx.optimize.naming import free_name
from convx.optimize.nodes import put
from convx.optimize.ranks import reads_rank


def fuse(module: fx.GraphModule) -> dict[str, tuple[str, ...]]:
    """Rewrites the graph; what was fused into each convolution layer, by the name that its new layer has.
    Calls of a layer with the same behind each have one new layer too, with filters that are packed once."""
    reader, found = Reader(module), {}
    known: list[tuple[Chain[Convolution, Tensor], str]] = []
    for convolution in list(reader.convolutions()):
        for user in list(convolution.node.users):
            if reads_rank(user):  # the input's, by which the result has not to be there
                user.replace_input_with(convolution.node, convolution.input)
        chain = grow(reader, convolution)
        same = next((name for other, name in known if _is_one_layer(chain, other)), None)
        name = free_name(module, convolution.name, [convolution.node]) if same is None else same
        _replace(module, chain, name, None if same is None else module.get_submodule(same))
        known.append((chain, name))
        found[name] = tuple(chain.fused)
    _drop_identities(module, reader)
    for node in module.graph.find_nodes(op="get_attr"):  # what was folded
        if not node.users:
            module.graph.erase_node(node)
    module.delete_all_unused_submodules()
    own = {name: chain.convolution.name for chain, name in known}
    found = {_with_own_name(module, name, own[name]): fused for name, fused in found.items()}
    module.recompile()
    return found


def _with_own_name(module: fx.GraphModule, name: str, own: str) -> str:
    """Gives a layer the model's name for it, which others may have had as long as there were more calls."""
    if name == own or free_name(module, own, []) != own:
        return name
    layer, calls = module.get_submodule(name), module.graph.find_nodes(op="call_module", target=name)
    module.delete_submodule(name)
    module.add_submodule(own, layer)
    for call in calls:
        call.target = own
    return own


def _drop_identities(module: fx.GraphModule, reader: Reader) -> None:
    """Dropout, in evaluation: each is a call of Python."""
    for node in list(module.graph.nodes):
        if node.op not in ("placeholder", "output", "get_attr") and reader.is_identity(node):
            node.replace_all_uses_with(node.all_input_nodes[0])
            module.graph.erase_node(node)


def _is_one_layer(chain: Chain[Convolution, Tensor], other: Chain[Convolution, Tensor]) -> bool:
    """Whether both compute the same of their inputs."""
    if chain.convolution.layer is not other.convolution.layer or chain.fused != other.fused:
        return False
    if chain.activation != other.activation:
        return False
    one, another = chain.norm, other.norm
    if one is None or another is None:
        return one is another
    operands = ("mean", "variance", "weight", "bias")
    return one.eps == another.eps and all(getattr(one, each) is getattr(another, each) for each in operands)


def _replace(
    module: fx.GraphModule, chain: Chain[Convolution, Tensor], name: str, layer: nn.Module | None
) -> None:
    """By this layer, or a new one."""
    convolution = chain.convolution
    if layer is None:
        with torch.no_grad():
            layer = FusedConv2d.of(
                convolution.layer,
                chain.norm,
                chain.activation,
                chain.residual is not None,
                chain.residual_after_activation,
            )
    inputs = [convolution.input] if chain.residual is None else [convolution.input, chain.residual]
    put(module, name, layer, inputs, chain.last)
    for node in reversed(chain.nodes):
        module.graph.erase_node(node)
