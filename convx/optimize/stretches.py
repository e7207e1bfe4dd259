"""Networks in stretches, each in the layout that its layers are the fastest in, with conversions between:
where the layout may change, and whether that is to gain anything."""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from convx.optimize.assignment import Assignment, Both, cheapest
from convx.optimize.conversions import Conversions
from convx.optimize.cuts import cuts_of, filter_uses, has_two_layouts
from convx.optimize.layouts import move
from convx.optimize.model import FORMATS, OptimizedModel
from convx.optimize.nodes import is_image
from convx.optimize.report import FusionReport
from convx.optimize.rows import Network, rows_of


@dataclass(frozen=True)
class Mixture:
    """A network with conversions."""

    module: fx.GraphModule
    layout: str
    """In which it reads images."""
    told: str
    """In words."""
    by_image: bool
    """Between conversions, on CPUs."""


def mixture_of(
    network: Network, candidates: Sequence[OptimizedModel], args: Any, kwargs: Any, gain: float
) -> Mixture | None:
    """The fastest one, by measured times of layers and of conversions; None where there is none that is as
    many times as fast as the network in one layout.

    candidates: the network in the layout that is given, and in the other one, with measured layers; both as
    they are, or image by image too.
    """
    ways = [[each for each in candidates if each.programs.by_image == way] for way in (False, True)]
    ways = [way for way in ways if len(way) == 2]
    cuts = cuts_of(network.module) if ways else []
    if not cuts:
        return None
    conversions = Conversions(_tensors(candidates[0], args, kwargs)[0].device)
    chains = [_Chain(network, cuts, way, conversions, args, kwargs) for way in ways]
    bound = min(min(chain.whole) for chain in chains) / gain
    found = [(best, chain) for chain in chains if (best := chain.best(bound)) is not None]
    if not found:
        return None
    best, chain = min(found, key=lambda each: each[0].us)
    return chain.mixture(network.module, best)


class _Chain:
    """The stretches between cuts, of a network that is run in one of two layouts."""

    def __init__(
        self,
        network: Network,
        cuts: Sequence[int],
        way: Sequence[OptimizedModel],
        conversions: Conversions,
        args: Any,
        kwargs: Any,
    ) -> None:
        as_given, other = way
        (own,) = (layout for layout in FORMATS if layout != other.layout)
        self.layouts = (own, other.layout)
        self.by_image = other.programs.by_image
        nodes = list(network.module.graph.nodes)
        self._nodes, self._cuts, self._conversions = nodes, cuts, conversions
        self._images = [nodes[cut].meta["tensor_meta"] for cut in cuts]
        self._rows = [rows_of(each, network, args, kwargs) for each in (as_given, other)]
        tensors = _tensors(other, args, kwargs)
        outputs = [each.meta["tensor_meta"] for each in nodes[-1].all_input_nodes if is_image(each)]
        images = max((len(each) for each in tensors if each.dim() == 4), default=1) if self.by_image else 1
        self._costs = [(images * one, images * two) for one, two in self._layers()]
        if not other.graphs.can_serve(tensors):  # which have a copy of what they are given, in any layout
            moved, _ = other.in_own_layout(tensors, {})
            inputs = [one for one, two in zip(tensors, moved, strict=True) if one is not two]
            self._add(0, inputs, other.layout)
        self._add(-1, outputs, own)

    def _layers(self) -> list[Both]:
        """What the layers of each stretch take, of those that are measured in both layouts."""
        one, two = map(_us_by_place, self._rows)
        found = [(0.0, 0.0)] * (len(self._cuts) + 1)
        for place in one.keys() & two.keys():
            first, second = one[place], two[place]
            if first is not None and second is not None:
                stretch = bisect_left(self._cuts, place)
                found[stretch] = (found[stretch][0] + first, found[stretch][1] + second)
        return found

    def _add(self, stretch: int, images: Sequence[Any], layout: str) -> None:
        """Conversions at an end, which the layout that is not given has alone."""
        both = [each for each in images if has_two_layouts(each.shape)]
        own, other = self._costs[stretch]
        self._costs[stretch] = (own, other + sum(self._conversions.measured(each, layout) for each in both))

    @property
    def whole(self) -> Both:
        """In one layout throughout."""
        first, second = zip(*self._costs, strict=True)
        return sum(first), sum(second)

    def best(self, bound: float) -> Assignment | None:
        """The fastest with a conversion, where it is faster than this. What is measured are those conversions
        alone that would be in it if they took nothing."""
        while True:
            known, (own, other) = self._conversions.known, self.layouts
            found = cheapest(self._costs, [(known(each, other), known(each, own)) for each in self._images])
            if found.us > bound or not found.changes:
                return None
            made = [(self._images[cut], self.layouts[found.layouts[cut + 1]]) for cut in found.changes]
            if all(self._conversions.is_measured(*each) for each in made):
                return found
            for each in made:
                self._conversions.measured(*each)

    def mixture(self, module: fx.GraphModule, assignment: Assignment) -> Mixture:
        layouts = [self.layouts[which] for which in assignment.layouts]
        told = layouts[0]
        for cut in assignment.changes:
            name = self._first_behind(cut, assignment.layouts[cut + 1])
            told += f", {layouts[cut + 1]} from {name} on"
        return Mixture(_in_stretches(module, self._cuts, layouts), layouts[0], told, self.by_image)

    def _first_behind(self, cut: int, which: int) -> str:
        """What it is called, of the layers in this layout, if there is one."""
        place = self._cuts[cut]
        behind = [row for row in self._rows[which] if row.place > place]
        if not behind:
            return str(self._nodes[place + 1])
        first = min(behind, key=lambda row: row.place)
        return f"layer {first.name.split(', ')[0]}"


def _us_by_place(rows: Sequence[FusionReport]) -> dict[int, float | None]:
    """None where it was not measured; a block that is run by its layers has several rows."""
    found: dict[int, float | None] = {}
    for row in rows:
        before = found.get(row.place, 0.0)
        found[row.place] = None if row.us is None or before is None else before + row.us
    return found


def _in_stretches(module: fx.GraphModule, cuts: Sequence[int], layouts: Sequence[str]) -> fx.GraphModule:
    """A copy with each stretch in its layout."""
    made = copy.deepcopy(module)
    nodes = list(made.graph.nodes)
    for each, uses in filter_uses(made).items():
        move(each, layouts[bisect_left(cuts, min(uses))])
    for cut, before, after in zip(cuts, layouts, layouts[1:], strict=False):
        if before != after:
            _convert(made, nodes[cut], after)
    made.recompile()
    return made


def _convert(module: fx.GraphModule, node: fx.Node, layout: str) -> None:
    """For all who read it."""
    users = list(node.users)
    with module.graph.inserting_after(node):
        made = module.graph.call_method("contiguous", (node,), {"memory_format": FORMATS[layout]})
    made.meta = dict(node.meta)
    for user in users:
        user.replace_input_with(node, made)


def _tensors(optimized: OptimizedModel, args: Any, kwargs: Any) -> Any:
    tensors, _ = optimized.arguments(args, kwargs)
    return tensors
