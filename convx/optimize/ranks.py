"""What a model asserts of its tensors' ranks: timm's layers do so at every call, and whoever reads a layer's
result keeps it from being a part of a block or chain."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

_COMPARISONS: frozenset[Any] = frozenset(
    (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
)
_CHANGE_RANKS_BY_SIZES: frozenset[Any] = frozenset((torch.squeeze, "squeeze", "squeeze_"))


def reads_rank(node: fx.Node) -> bool:
    """Whether it asks a tensor for its number of dimensions."""
    if node.op == "call_function" and node.target is getattr:
        return node.args[1] == "ndim"
    return node.op == "call_method" and node.target in ("dim", "ndimension")


def drop_asserts(module: fx.GraphModule) -> bool:
    """Takes out those that held for the example input and hold for all inputs of the same ranks. Whether
    there were any: then inputs are to have these ranks."""
    graph = module.graph
    if any(node.target in _CHANGE_RANKS_BY_SIZES for node in graph.nodes):
        return False
    found = [
        node for node in graph.find_nodes(op="call_function", target=torch._assert) if _is_of_ranks(node)
    ]
    for node in found:
        graph.erase_node(node)
    for node in reversed(list(graph.nodes)):
        # Of messages too, which no node has.
        if not node.users and (node.target in _COMPARISONS or reads_rank(node)):
            graph.erase_node(node)
    module.recompile()
    return bool(found)


def _is_of_ranks(check: fx.Node) -> bool:
    """Whether it compares ranks with numbers, or with one another."""
    condition = check.args[0]
    if not isinstance(condition, fx.Node) or condition.target not in _COMPARISONS:
        return False
    return bool(condition.all_input_nodes) and all(map(reads_rank, condition.all_input_nodes))
