"""Blocks of layers among the convolutions of a graph: inverted residuals, squeeze-and-excitations. For
convx.optimize and the backend of torch.compile alike, whose graphs have them written in other ways."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from convx._block_kinds import Excitation, Inversion
from convx.optimize.graph import Reader


@dataclass(frozen=True)
class Layer:
    """A convolution with what its kernel does behind it: by an odd square filter, padded by half of it, with
    one stride and without dilation."""

    source: Any
    """What the graph's owner knows it by."""
    nodes: Sequence[fx.Node]
    """That do it, in order; others may read the last alone."""
    input: fx.Node
    residual: fx.Node | None
    activation: str
    in_channels: int
    out_channels: int
    groups: int
    filter: int
    stride: int

    @property
    def last(self) -> fx.Node:
        return self.nodes[-1]

    @property
    def is_pointwise(self) -> bool:
        return self.groups == 1 and (self.filter, self.stride) == (1, 1)

    @property
    def is_first(self) -> bool:
        """Of a network: of so few channels that its products are of patches."""
        return self.groups == 1 and self.in_channels <= 4 and self.filter != 1

    @property
    def is_depthwise(self) -> bool:
        return self.groups == self.in_channels == self.out_channels


class Layers:
    """Those of a graph, by the nodes that they begin and end with."""

    def __init__(self, layers: Iterable[Layer]) -> None:
        self._begins: dict[fx.Node, Layer] = {}
        self._ends: dict[fx.Node, Layer] = {}
        for each in layers:
            if each.last not in self._ends:  # a sum of two convolutions is the first one's
                self._begins[each.nodes[0]], self._ends[each.last] = each, each

    def ending_with(self, node: Any) -> Layer | None:
        return self._ends.get(node)

    def only_reader_of(self, node: fx.Node) -> Layer | None:
        """The layer whose input it is, if nobody else reads it."""
        if len(node.users) != 1:
            return None
        found = self._begins.get(next(iter(node.users)))
        return found if found is not None and found.input is node else None


@dataclass(frozen=True)
class Match:
    """A block that was found."""

    kind: Excitation | Inversion
    input: fx.Node
    layers: dict[str, Layer]
    """By their names in the block, in the order in which the operators take their weights."""
    nodes: list[fx.Node]
    """All that it does, in order."""
    excitation: Match | None = None
    """That it has inside."""


def matches(reader: Reader, layers: Layers, is_wanted: Callable[[Match], bool]) -> list[Match]:
    """Blocks that are wanted; no node is in two of them."""
    found: list[Match] = []
    taken: set[fx.Node] = set()
    for node in reader.module.graph.nodes:
        match = _inverted_residual(reader, layers, node) or _squeeze_excite(reader, layers, node)
        if match is not None and taken.isdisjoint(match.nodes) and is_wanted(match):
            found.append(match)
            taken.update(match.nodes)
    return found


def _inverted_residual(reader: Reader, layers: Layers, node: fx.Node) -> Match | None:
    """One whose first layer ends there, with nobody else seeing what is in between."""
    expand, depthwise = layers.ending_with(node), layers.only_reader_of(node)
    if expand is None or depthwise is None or not depthwise.is_depthwise:
        return None
    if not (expand.is_pointwise or expand.is_first) or expand.activation != depthwise.activation:
        return None
    excitation = _excitation_of(reader, layers, depthwise.last)
    project = layers.only_reader_of(depthwise.last if excitation is None else excitation.nodes[-1])
    if project is None or not project.is_pointwise:
        return None
    if expand.residual is not None or depthwise.residual is not None:
        return None
    adds_input = project.residual is not None
    if adds_input:
        is_input = project.residual is expand.input
        if not is_input or project.activation != "none" or expand.filter != 1:
            return None
    inner = () if excitation is None else excitation.nodes
    nodes = [*expand.nodes, *depthwise.nodes, *inner, *project.nodes]
    if not can_be_one(reader, nodes):
        return None
    kind = Inversion(
        expand.out_channels,
        project.out_channels,
        expand.filter,
        expand.stride,
        depthwise.filter,
        depthwise.stride,
        expand.activation,
        project.activation,
        adds_input,
        None if excitation is None else excitation.kind,  # type: ignore[arg-type]
    )
    parts = {"expand": expand, "depthwise": depthwise, "project": project}
    if excitation is not None:
        parts |= {f"excitation.{name}": each for name, each in excitation.layers.items()}
    return Match(kind, expand.input, parts, nodes, excitation)


def _excitation_of(reader: Reader, layers: Layers, node: fx.Node) -> Match | None:
    """The squeeze-and-excitation that all users of a node are in."""
    for user in node.users:
        match = _squeeze_excite(reader, layers, user)
        if match is not None and match.input is node and node.users.keys() <= set(match.nodes):
            return match
    return None


def _squeeze_excite(reader: Reader, layers: Layers, product: fx.Node) -> Match | None:
    """One that ends there, with nobody else seeing what is in between."""
    for input, gate in itertools.permutations(reader.product(product) or (), 2):
        kind = reader.gate(gate)
        excite = None if kind is None else layers.ending_with(gate.all_input_nodes[0])
        squeeze = None if excite is None else layers.ending_with(excite.input)
        if excite is None or squeeze is None or not (excite.is_pointwise and squeeze.is_pointwise):
            continue
        means = squeeze.input
        is_one_chain = all(len(each.users) == 1 for each in (means, squeeze.last, excite.last, gate))
        if not is_one_chain or reader.plane_means(means) is not input:
            continue
        adds = squeeze.residual is not None or excite.residual is not None
        if adds or excite.activation != "none":
            continue
        nodes = [means, *squeeze.nodes, *excite.nodes, gate, product]
        if excite.out_channels != squeeze.in_channels or not can_be_one(reader, nodes):
            continue
        of = Excitation(squeeze.out_channels, squeeze.activation, kind)  # type: ignore[arg-type]
        return Match(of, input, {"squeeze": squeeze, "excite": excite}, nodes)
    return None


def can_be_one(reader: Reader, nodes: Sequence[fx.Node]) -> bool:
    """Whether the last of these can do them all: nothing in between writes, or changes what they are."""
    node = nodes[0]
    while node is not nodes[-1]:
        if reader.is_barrier(node):
            return False
        node = node.next
    return reader.nothing_writes(nodes)
