"""Chains of a convolution and what follows it in a graph, which one kernel can do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from torch import fx

from convx.optimize.folding import Norm
from convx.optimize.graph import Reader

Convolution = TypeVar("Convolution")
Operand = TypeVar("Operand")


@dataclass
class Chain(Generic[Convolution, Operand]):
    """A convolution and the nodes behind it that its kernel can do."""

    convolution: Convolution
    nodes: list[fx.Node]
    norm: Norm[Operand] | None = None
    activation: str = "none"
    residual: fx.Node | None = None
    residual_after_activation: bool = False
    fused: list[str] = field(default_factory=list)

    @property
    def last(self) -> fx.Node:
        return self.nodes[-1]


def grow(reader: Reader, convolution: Any) -> Chain[Any, Any]:
    """Node by node, as long as nobody else sees what is in between."""
    chain: Chain[Any, Any] = Chain(convolution, [convolution.node], activation=convolution.activation)
    while len(chain.last.users) == 1:
        node = next(iter(chain.last.users))
        if not (reader.is_identity(node) or _take(reader, chain, node)):
            break
        chain.nodes.append(node)
        if not _can_move(reader, chain):
            _give_back(reader, chain)
            break
    return chain


def _take(reader: Reader, chain: Chain[Any, Any], node: fx.Node) -> bool:
    """Whether the node can be done behind what the chain has; the chain has it then."""
    if not reader.is_like(node, chain.convolution.node):
        return False
    is_plain = chain.activation == "none" and chain.residual is None and chain.norm is None
    norm = reader.norm(node) if is_plain and chain.convolution.keeps_weights else None
    if norm is not None and norm.input is chain.last:
        chain.norm = norm
        chain.fused.append(norm.name)
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
    if not reader.can_be_added(residual, chain.last):
        return False
    if chain.activation != "none" and not reader.can_add_after_activation(node):
        return False
    chain.residual, chain.residual_after_activation = residual, chain.activation != "none"
    chain.fused.append("residual")
    return True


def _can_move(reader: Reader, chain: Chain[Any, Any]) -> bool:
    """Whether the convolution can be done where the chain ends: nothing in between may write to what it
    reads."""
    reads = [*chain.convolution.operands] + ([chain.residual] if chain.residual is not None else [])
    node = chain.convolution.node.next
    while node is not chain.last:
        if reader.is_barrier(node):
            return False
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


def _give_back(reader: Reader, chain: Chain[Any, Any]) -> None:
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
