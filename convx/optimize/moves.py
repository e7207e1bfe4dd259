"""Moves of channels that follow one another, as one node for each result that something else reads."""

from __future__ import annotations

import torch
from torch import fx

from convx.optimize.channels import Channel, channels_of, is_helper, is_slice, moved
from convx.optimize.graph import Reader
from convx.optimize.layers import MovedChannels
from convx.optimize.naming import first_free
from convx.optimize.nodes import is_image, put, shape_of

_MOST_SOURCES = 2  # that one kernel reads


def fuse_moves(module: fx.GraphModule) -> None:
    """Puts MovedChannels in the place of moves of float32 images, of which each is a call and a copy."""
    reader = Reader(module)
    nodes = list(module.graph.nodes)
    if any(map(reader.writes, nodes)):
        return  # to what may be seen by another name
    found: dict[fx.Node, list[Channel]] = {}  # of what is moved and not yet made
    for node in nodes:
        channels = moved(reader, node)
        if channels is None and not is_helper(node):
            for each in [source for source in node.all_input_nodes if source in found]:
                _make(module, each, found)
        if channels is None or node.meta["tensor_meta"].dtype != torch.float32:
            continue
        if is_slice(node) and not any(_wants_copy(reader, user) for user in node.users):
            continue  # a view, which costs nothing
        found[node] = [found.get(source, channels_of(source))[place] for source, place in channels]
        if is_slice(node):  # of which the next moves begin: they would have more and more sources
            _make(module, node, found)
    for node in reversed(nodes):
        if not node.users and (is_helper(node) or moved(reader, node) is not None):
            module.graph.erase_node(node)
    module.delete_all_unused_submodules()
    module.recompile()


def _wants_copy(reader: Reader, node: fx.Node) -> bool:
    """Layers read dense images, and moves copy what they read."""
    return node.op == "call_module" or is_helper(node) or moved(reader, node) is not None


def _make(module: fx.GraphModule, node: fx.Node, found: dict[fx.Node, list[Channel]]) -> None:
    channels = found[node]
    sources = list(dict.fromkeys(source for source, _ in channels))
    if len(sources) > _MOST_SOURCES or not all(map(is_image, sources)):
        return
    first = {source: sum(shape_of(each)[1] for each in sources[:at]) for at, source in enumerate(sources)}
    name = first_free(module, f"moved_{node.name}")
    layer = MovedChannels([first[source] + place for source, place in channels]).eval()
    put(module, name, layer, sources, node)
    del found[node]
