"""Convolutions of the same images whose results are added, and norms among them, as a graph has them: one
convolution, of the sum of their filters. For convx.optimize and the backend of torch.compile alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import fx

from convx._arguments import Pair
from convx.optimize.filters import Added, Filters, Normed, Ones, Own
from convx.optimize.graph import Reader
from convx.optimize.matching import can_be_one


@dataclass(frozen=True)
class Leaf:
    """A convolution of images by a centred filter, which activates nothing."""

    source: Any
    """What the graph's owner knows it by."""
    node: fx.Node
    input: fx.Node
    filters: Own
    size: Pair
    stride: Pair
    channels: int
    groups: int


@dataclass(frozen=True)
class Branch:
    """What a node has computed of images: by a filter, centred, and a bias."""

    input: fx.Node
    filters: Filters
    size: Pair
    stride: Pair
    channels: int
    groups: int
    nodes: tuple[fx.Node, ...]
    """That do it, of which nobody else reads any but the last; of a sum that was found in order."""
    leaves: tuple[Leaf, ...]
    largest: Leaf | None
    """Of its filters; None of a norm alone."""


class Sums:
    """Finds them in one graph. channels: of a node that is images; None of others."""

    def __init__(
        self, reader: Reader, leaves: Mapping[fx.Node, Leaf], channels: Callable[[Any], int | None]
    ) -> None:
        self._reader = reader
        self._leaves = leaves
        self._channels = channels
        self._branches: dict[fx.Node, Branch] = {}

    def found(self) -> list[tuple[Branch, Leaf]]:
        """Sums that are as large as they get, with their largest convolution."""
        graph = self._reader.module.graph
        for node in graph.nodes:
            branch = self._branch(node)
            if branch is not None:
                self._branches[node] = branch
        branches = self._branches.values()
        inside = {each for branch in branches for each in branch.nodes[:-1]}
        order = {node: place for place, node in enumerate(graph.nodes)}
        found = []
        for node, branch in self._branches.items():
            if node in inside or branch.largest is None or not _is_sum(branch.filters):
                continue
            nodes = tuple(sorted(branch.nodes, key=order.__getitem__))
            if can_be_one(self._reader, nodes):
                found.append((replace(branch, nodes=nodes), branch.largest))
        return found

    def _branch(self, node: fx.Node) -> Branch | None:
        if node in self._leaves:
            return _of_leaf(self._leaves[node])
        if self._channels(node) is None:
            return None
        norm = self._reader.norm(node)
        if norm is not None:
            before = self._before(norm.input) or self._same(norm.input, norm.mean)
            if before is None:
                return None
            return replace(before, filters=Normed(before.filters, norm), nodes=(*before.nodes, node))
        terms = self._terms(node)
        parts = [each for term in terms if (each := self._part(term, node, terms)) is not None]
        if not parts or len(parts) < len(terms) or len(set(terms)) < len(terms):
            return None
        if len(parts) == 1:
            return replace(parts[0], nodes=(*parts[0].nodes, node))
        return _sum(parts[0], parts[1], node, -1 if self._reader.difference(node) else 1)

    def _before(self, node: fx.Node) -> Branch | None:
        """What it ends, if nobody else reads that."""
        return self._branches.get(node) if len(node.users) == 1 else None

    def _terms(self, node: fx.Node) -> Sequence[fx.Node]:
        """Whose sum or difference it is: of one, where it adds no more than 0."""
        reader = self._reader
        if reader.is_identity(node) or reader.adds_nothing(node):
            return node.all_input_nodes
        return reader.sum(node) or reader.difference(node) or ()

    def _part(self, term: fx.Node, node: fx.Node, terms: Sequence[fx.Node]) -> Branch | None:
        """The images themselves only where a norm is behind the sum: else kernels add them as they write."""
        found = self._before(term)
        if found is not None or len(terms) == 1 or len(node.users) > 1 or self._reader.writes(node):
            return found
        branches = self._branches
        is_input = any(branches[each].input is term for each in terms if each in branches)
        norms = [norm for user in node.users if (norm := self._reader.norm(user)) is not None]
        return self._same(term, norms[0].mean) if is_input and norms else None

    def _same(self, image: fx.Node, like: Any) -> Branch | None:
        """The image as it is: of a norm that has no convolution before it."""
        channels = self._channels(image)
        if channels is None:
            return None
        return Branch(image, Ones(channels, like), (1, 1), (1, 1), channels, channels, (), (), None)


def _of_leaf(leaf: Leaf) -> Branch:
    own = (leaf.channels, leaf.groups, (leaf.node,), (leaf,), leaf)
    return Branch(leaf.input, leaf.filters, leaf.size, leaf.stride, *own)


def _is_sum(filters: Filters) -> bool:
    if isinstance(filters, Normed):
        return _is_sum(filters.filters)
    return isinstance(filters, Added)


def _sum(first: Branch, second: Branch, node: fx.Node, sign: int) -> Branch | None:
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
        filters=Added(first.filters, second.filters, sign, size),
        nodes=(*first.nodes, *second.nodes, node),
        leaves=(*first.leaves, *second.leaves),
    )
