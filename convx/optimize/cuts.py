"""Where a network may change its layout: behind nodes through which all goes that it computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from torch import fx, nn

from convx.optimize.nodes import is_image


def cuts_of(module: fx.GraphModule) -> list[int]:
    """Places of the nodes that give an image through which all goes that the network computes: behind them
    nobody reads anything that was before, and no filter is used on both sides."""
    nodes = list(module.graph.nodes)
    places = {node: place for place, node in enumerate(nodes)}
    spans: list[tuple[int, int]] = []
    computed: set[fx.Node] = set()  # tensors that depend on the input
    for place, node in enumerate(nodes):
        is_tensor = "tensor_meta" in node.meta or "type" not in node.meta
        if is_tensor and (node.op == "placeholder" or not computed.isdisjoint(node.all_input_nodes)):
            computed.add(node)
            spans.append((place, _last(node, places)))
    for uses in filter_uses(module).values():
        spans.append((min(uses), max(uses)))
    change = [0] * len(nodes)
    for first, last in spans:
        change[first] += 1
        change[last] -= 1
    across = list(accumulate(change))
    return [
        place
        for place, node in enumerate(nodes)
        if across[place] == 1 and node in computed and _last(node, places) > place and _can_convert(node)
    ]


def _last(node: fx.Node, places: dict[fx.Node, int]) -> int:
    """Where it is read."""
    return max((places[user] for user in node.users), default=places[node])


def filter_uses(module: fx.GraphModule) -> dict[nn.Parameter, list[int]]:
    """Of each filter, the places of the nodes that read it."""
    places = {node: place for place, node in enumerate(module.graph.nodes)}
    found: dict[nn.Parameter, list[int]] = {}
    for node in places:
        readers = [places[node]] if node.op == "call_module" else [places[user] for user in node.users]
        for each in _filters(module, node):
            found.setdefault(each, []).extend(readers)
    return {each: uses for each, uses in found.items() if uses}


def _filters(module: fx.GraphModule, node: fx.Node) -> Iterator[nn.Parameter]:
    """All that has a layout of what the node has."""
    found: Iterable[Any] = ()
    if node.op == "call_module":
        found = module.get_submodule(str(node.target)).parameters()
    elif node.op == "get_attr":
        owner, _, name = str(node.target).rpartition(".")
        found = [getattr(module.get_submodule(owner), name)]
    return (each for each in found if isinstance(each, nn.Parameter) and each.dim() == 4)


def _can_convert(node: fx.Node) -> bool:
    """Whether it gives images, in the network's midst, whose two layouts differ."""
    if node.op == "placeholder" or not is_image(node) or all(user.op == "output" for user in node.users):
        return False
    return has_two_layouts(node.meta["tensor_meta"].shape)


def has_two_layouts(shape: Sequence[int]) -> bool:
    _, channels, height, width = shape
    return channels > 1 and height * width > 1
