"""Convolutions of a recorded graph that are one: of the same images, their results added."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from convx.compile.calls import Call, Origin, is_plain, needs_gradient, value
from convx.compile.further import FurtherInputs
from convx.compile.graph import RecordedReader
from convx.optimize.filters import Own
from convx.optimize.sums import Branch, Leaf, Sums


def merge(reader: RecordedReader, further: FurtherInputs) -> dict[fx.Node, list[Origin]]:
    """Rewrites the graph, where no gradient is needed. What convolutions stand for: several, of which the one
    with the largest filter comes first."""
    leaves = {each.node: leaf for each in reader.convolutions() if (leaf := _leaf(each)) is not None}
    merged: dict[fx.Node, list[Origin]] = {}
    for branch, largest in Sums(reader, leaves, _channels).found():
        if len({value(node).dtype for node in branch.nodes}) > 1:  # norms may be of another under autocast
            continue
        calls = [largest.source, *(each.source for each in branch.leaves if each is not largest)]
        origins = [Origin.of(each) for each in calls]
        merged[_put(reader.module.graph, further, branch, largest.source)] = origins
    return merged


def _leaf(call: Call) -> Leaf | None:
    size = call.centred_filter
    if size is None or call.has_rows or not call.keeps_weights or needs_gradient(call.node):
        return None
    own = (size, call.stride, value(call.weight).shape[0], call.groups)
    return Leaf(call, call.node, call.input, Own(call.weight, call.bias), *own)


def _channels(node: Any) -> int | None:
    image = value(node)
    if not is_plain(image) or image.dim() != 4 or not isinstance(image.shape[1], int):
        return None
    return int(image.shape[1])


def _put(graph: fx.Graph, further: FurtherInputs, branch: Branch, call: Call) -> fx.Node:
    last = branch.nodes[-1]
    weights = further.filters(call.weight, branch.filters, value(call.node).dtype)
    weight, bias = (*weights, None)[:2]
    padding = (branch.size[0] // 2, branch.size[1] // 2)
    geometry = (branch.stride, padding, (1, 1), branch.groups)
    with graph.inserting_before(last.next):
        made = graph.call_function(torch.conv2d, (call.input, weight, bias, *geometry))
    made.meta = dict(last.meta)
    last.replace_all_uses_with(made)
    for node in reversed(branch.nodes):
        graph.erase_node(node)
    return made
