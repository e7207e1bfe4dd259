"""Finds what follows each convolution of a graph and puts it into the convolution's layer."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import fx

from convx.optimize.graph import Convolution, Norm, Reader
from convx.optimize.layers import FusedConv2d


@dataclass
class Chain:
    """A convolution and the nodes behind it that its kernel can do."""

    convolution: Convolution
    nodes: list[fx.Node]
    norm: Norm | None = None
    activation: str = "none"
    residual: fx.Node | None = None
    residual_after_activation: bool = False
    fused: list[str] = field(default_factory=list)

    @property
    def last(self) -> fx.Node:
        return self.nodes[-1]


def fuse(module: fx.GraphModule) -> dict[str, tuple[str, ...]]:
    """Rewrites the graph; what was fused into each convolution layer, by the name that its new layer has."""
    reader, found = Reader(module), {}
    for convolution in list(reader.convolutions()):
        chain = _chain(reader, convolution)
        found[_replace(module, chain)] = tuple(chain.fused)
    module.delete_all_unused_submodules()
    module.recompile()
    return found


def _chain(reader: Reader, convolution: Convolution) -> Chain:
    """Grown node by node, as long as nobody else sees what is in between."""
    own = getattr(convolution.layer, "activation", "none")
    chain = Chain(convolution, [convolution.node], activation=own)
    for user in list(convolution.node.users):
        if reader.reads_rank(user):  # the input's, by which the result has not to be there
            user.replace_input_with(convolution.node, convolution.input)
    while len(chain.last.users) == 1:
        node = next(iter(chain.last.users))
        if not (reader.is_identity(node) or _take(reader, chain, node)):
            break
        chain.nodes.append(node)
        if not _can_move(reader, chain):
            _give_back(reader, chain)
            break
    return chain


def _take(reader: Reader, chain: Chain, node: fx.Node) -> bool:
    """Whether the node can be done behind what the chain has; the chain has it then."""
    is_plain = chain.activation == "none" and chain.residual is None
    norm = reader.norm(node)
    if norm is not None and norm.input is chain.last and is_plain and chain.norm is None:
        chain.norm = norm
        chain.fused.append("batch norm")
        return True
    activation = reader.activation(node)
    if activation is not None and chain.activation == "none":
        chain.activation = activation
        chain.fused.append(activation)
        return True
    terms = reader.sum(node)
    if terms is None or chain.residual is not None or terms[0] is terms[1]:
        return False
    residual = terms[1] if terms[0] is chain.last else terms[0]
    if reader.writes(node) and terms[0] is not chain.last:  # what it writes to is not the chain's own
        return False
    if not _has_same_shape(residual, chain.last):
        return False
    chain.residual, chain.residual_after_activation = residual, chain.activation != "none"
    chain.fused.append("residual")
    return True


def _has_same_shape(one: fx.Node, other: fx.Node) -> bool:
    """With the example input."""
    shapes = [getattr(node.meta.get("tensor_meta"), "shape", None) for node in (one, other)]
    return shapes[0] is not None and shapes[0] == shapes[1]


def _can_move(reader: Reader, chain: Chain) -> bool:
    """Whether the convolution can be done where the chain ends: nothing in between may write to what it
    reads."""
    reads = [chain.convolution.input] + ([chain.residual] if chain.residual is not None else [])
    node = chain.convolution.node.next
    while node is not chain.last:
        if node not in chain.nodes and reader.writes(node):
            written = reader.written(node)
            if written is None or not reader.is_fresh(written):
                return False
            if any(each is written or not _is_apart(reader, each) for each in reads):
                return False
        node = node.next
    return True


def _is_apart(reader: Reader, node: fx.Node) -> bool:
    """Whether its memory is not that of a node that is_fresh is said of."""
    return node.op == "placeholder" or reader.is_fresh(node)


def _give_back(reader: Reader, chain: Chain) -> None:
    """The last node, which was one too many."""
    node = chain.nodes.pop()
    if reader.is_identity(node):
        return
    chain.fused.pop()
    if reader.sum(node) is not None:
        chain.residual, chain.residual_after_activation = None, False
    elif reader.norm(node) is not None:
        chain.norm = None
    else:
        chain.activation = "none"


def _replace(module: fx.GraphModule, chain: Chain) -> str:
    convolution = chain.convolution
    with torch.no_grad():
        layer = FusedConv2d.of(
            convolution.layer,
            chain.norm,
            chain.activation,
            chain.residual is not None,
            chain.residual_after_activation,
        )
    name = _free_name(module, convolution)
    module.add_submodule(name, layer)
    arguments = (convolution.input,) if chain.residual is None else (convolution.input, chain.residual)
    with module.graph.inserting_after(chain.last):
        made = module.graph.call_module(name, arguments)
    made.meta = dict(chain.last.meta)
    chain.last.replace_all_uses_with(made)
    for node in reversed(chain.nodes):
        module.graph.erase_node(node)
    return name


def _free_name(module: fx.GraphModule, convolution: Convolution) -> str:
    """The layer's own, unless the layer is called elsewhere too, or something of it is read."""
    uses = [
        node
        for node in module.graph.nodes
        if node.op in ("call_module", "get_attr") and f"{node.target}.".startswith(f"{convolution.name}.")
    ]
    if uses == [convolution.node]:
        return convolution.name
    names = {name for name, _ in module.named_modules()}
    return next(
        name for number in range(len(names) + 1) if (name := f"{convolution.name}_{number}") not in names
    )
