"""Convolutions of the same images whose results are added, and norms among them: one convolution, of the sum
of their filters, as the authors of RepVGG (Ding et al., 2021) make it after training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from convx._arguments import Pair, pair
from convx.optimize.constants import parameter
from convx.optimize.folding import Norm, folded
from convx.optimize.graph import Convolution, Reader, is_centred
from convx.optimize.naming import free_name
from convx.optimize.nodes import is_image, put, shape_of

_Filters = tuple[Tensor, Tensor]  # float64: (out_channels, in_channels / groups, height, width), and a bias


@dataclass(frozen=True)
class _Branch:
    """What a node has computed of images: by a filter, centred, and a bias."""

    input: fx.Node
    filters: Callable[[], _Filters]  # computed for those alone that are taken
    size: Pair
    stride: Pair
    channels: int
    groups: int
    nodes: tuple[fx.Node, ...]  # that do it, of which nobody else reads any but the last
    largest: Convolution | None  # of its filters; None of a norm alone
    count: int = 1


def merge(module: fx.GraphModule) -> list[str]:
    """Rewrites the graph; the names of the layers that stand for several."""
    reader = Reader(module)
    convolutions = {each.node: each for each in reader.convolutions()}
    branches: dict[fx.Node, _Branch] = {}
    with torch.no_grad():
        for node in module.graph.nodes:
            found = _branch(reader, convolutions, branches, node)
            if found is not None:
                branches[node] = found
        inside = {each for branch in branches.values() for each in branch.nodes[:-1]}
        sums = [branch for node, branch in branches.items() if branch.count > 1 and node not in inside]
        order = {node: place for place, node in enumerate(module.graph.nodes)}
        names = []
        for branch in sums:
            nodes = sorted(branch.nodes, key=order.__getitem__)
            if branch.largest is not None and reader.nothing_writes(nodes):
                names.append(_put(module, branch, branch.largest, nodes))
    module.delete_all_unused_submodules()
    module.recompile()
    return names


def _branch(
    reader: Reader, convolutions: dict[fx.Node, Convolution], branches: dict[fx.Node, _Branch], node: fx.Node
) -> _Branch | None:
    if node in convolutions:
        return _of_convolution(convolutions[node])
    if not is_image(node):
        return None
    norm = reader.norm(node)
    if norm is not None:
        before = _before(branches, norm.input) or _same(norm.input, norm.mean.device)
        if before is None:
            return None
        normed = partial(_normed, before.filters, norm)
        return replace(before, filters=normed, nodes=(*before.nodes, node))
    terms = _terms(reader, node)
    parts = [each for term in terms if (each := _part(reader, branches, term, node, terms)) is not None]
    if not parts or len(parts) < len(terms) or len(set(terms)) < len(terms):
        return None
    if len(parts) == 1:
        return replace(parts[0], nodes=(*parts[0].nodes, node))
    return _sum(parts[0], parts[1], node, -1 if reader.difference(node) else 1)


def _before(branches: dict[fx.Node, _Branch], node: fx.Node) -> _Branch | None:
    """What it ends, if nobody else reads that."""
    return branches.get(node) if len(node.users) == 1 else None


def _terms(reader: Reader, node: fx.Node) -> Sequence[fx.Node]:
    """Whose sum or difference it is: of one, where it adds no more than 0."""
    if reader.is_identity(node) or reader.adds_nothing(node):
        return node.all_input_nodes
    return reader.sum(node) or reader.difference(node) or ()


def _part(
    reader: Reader, branches: dict[fx.Node, _Branch], term: fx.Node, node: fx.Node, terms: Sequence[fx.Node]
) -> _Branch | None:
    """The images themselves only where a norm is behind the sum: else kernels add them as they write."""
    found = _before(branches, term)
    if found is not None or len(terms) == 1 or len(node.users) > 1 or reader.writes(node):
        return found
    is_input = any(branches[each].input is term for each in terms if each in branches)
    norms = [norm for user in node.users if (norm := reader.norm(user)) is not None]
    return _same(term, norms[0].mean.device) if is_input and norms else None


def _of_convolution(convolution: Convolution) -> _Branch | None:
    layer, input = convolution.layer, convolution.input
    if not is_image(input) or not is_centred(layer) or convolution.activation != "none":
        return None
    filters = partial(_own, layer)
    size, stride = pair("kernel_size", layer.kernel_size), pair("stride", layer.stride)
    own = (layer.out_channels, layer.groups, (convolution.node,), convolution)
    return _Branch(input, filters, size, stride, *own)


def _same(image: fx.Node, device: torch.device) -> _Branch | None:
    """The image as it is: of a norm that has no convolution before it."""
    if not is_image(image):
        return None
    channels = shape_of(image)[1]
    return _Branch(image, partial(_ones, channels, device), (1, 1), (1, 1), channels, channels, (), None)


def _sum(first: _Branch, second: _Branch, node: fx.Node, sign: int) -> _Branch | None:
    """By the filter that is as large as both: two that cross would make a larger one."""
    both = (first, second)
    size = (max(each.size[0] for each in both), max(each.size[1] for each in both))
    large = next((each for each in both if each.size == size and each.largest is not None), None)
    groups = {each.groups for each in both if each.largest is not None}
    kinds = {(each.input, each.stride, each.channels) for each in both}
    if large is None or len(kinds) > 1 or len(groups) > 1:
        return None
    return replace(
        large,
        filters=partial(_added, first.filters, second.filters, sign, size),
        nodes=(*first.nodes, *second.nodes, node),
        count=first.count + second.count,
    )


def _own(layer: nn.Conv2d) -> _Filters:
    weight = layer.weight.double()
    return weight, weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.double()


def _ones(channels: int, device: torch.device) -> _Filters:
    """Each channel a group."""
    weight = torch.ones(channels, 1, 1, 1, dtype=torch.float64, device=device)
    return weight, weight.new_zeros(channels)


def _normed(filters: Callable[[], _Filters], norm: Norm[Tensor]) -> _Filters:
    return folded(*filters(), norm)


def _added(first: Callable[[], _Filters], second: Callable[[], _Filters], sign: int, size: Pair) -> _Filters:
    weights, biases = zip(first(), second(), strict=True)
    inside = max(each.shape[1] for each in weights)  # of a group
    grown = [_grown(each, size, inside) for each in weights]
    return grown[0] + sign * grown[1], biases[0] + sign * biases[1]


def _grown(weight: Tensor, size: Pair, inside: int) -> Tensor:
    """With zeros around, and in groups of so many channels, where each is its own."""
    if weight.shape[1] != inside:
        own = torch.arange(len(weight), device=weight.device)
        groups = weight.new_zeros(len(weight), inside, 1, 1)
        weight = groups.index_put((own, own % inside), weight[:, 0])
    above, before = ((size[place] - weight.shape[2 + place]) // 2 for place in (0, 1))
    return F.pad(weight, (before, before, above, above))


def _put(module: fx.GraphModule, branch: _Branch, convolution: Convolution, nodes: Sequence[fx.Node]) -> str:
    own = convolution.layer
    padding = (branch.size[0] // 2, branch.size[1] // 2)
    with torch.device("meta"):
        made = nn.Conv2d(
            own.in_channels, own.out_channels, branch.size, branch.stride, padding, groups=branch.groups
        )
    weight, bias = branch.filters()
    made.weight = parameter(torch.empty_like(own.weight).copy_(weight))
    made.bias = parameter(bias.to(own.weight.dtype))
    name = free_name(module, convolution.name, [convolution.node])
    put(module, name, made.eval(), [convolution.input], nodes[-1])
    for node in reversed(nodes):
        module.graph.erase_node(node)
    return name
