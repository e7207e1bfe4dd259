"""CUDA graphs that read inputs where callers have them, and leave results in new memory: without copies.

Addresses that kernels of a graph are given are found in its nodes, and set before each launch. Copies to and
from memory of the graph's own take 4 us of 98 of a small network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from convx import _planning
from convx.optimize.check import copied
from convx.tune.replays import Captured

if TYPE_CHECKING:
    from convx._core import MovableGraph

_ALIGNMENT = 256  # of addresses that kernels were chosen for


class PlacedGraph:
    """A captured graph. What moves is where a call has it; else it is copied to and from the graph's own."""

    def __init__(
        self,
        captured: Captured,
        inputs: Sequence[Tensor],
        moves: Sequence[bool],
        movable: MovableGraph | None,
    ) -> None:
        """inputs: what it was captured with. moves: of each of them and of each result."""
        results, self._structure = tree_flatten(captured.result)
        self.inputs = [None if moving else own for own, moving in zip(inputs, moves, strict=False)]
        self._results = list(zip(results, moves[len(inputs) :], strict=True))
        self._graph = captured.graph
        self._movable = movable if any(moves) else None

    def replay(self, tensors: Sequence[Tensor]) -> Any:
        results = [torch.empty_like(own) if moving else own for own, moving in self._results]
        self.replay_into(tensors, results)
        for index, (own, moving) in enumerate(self._results):
            if not moving:
                results[index] = copied(own)
        return tree_unflatten(results, self._structure)

    def replay_into(self, tensors: Sequence[Tensor], results: Sequence[Any]) -> None:
        """results: of those that don't move the graph's own."""
        read = []
        for own, given in zip(self.inputs, tensors, strict=True):
            if own is not None:
                read.append(own.copy_(given))
            else:
                read.append(given if given.data_ptr() % _ALIGNMENT == 0 else given.clone())
        if self._movable is not None:
            self._movable.move([each.data_ptr() for each in (*read, *results)])
        self._graph.replay()


def placed(captured: Captured, inputs: Sequence[Tensor], given: Sequence[Tensor]) -> PlacedGraph:
    """The graph, with as many inputs and results where callers have them as can be.

    Each is tried: with NaN in the memory that nobody should use any more, and in new results, these come out
    as they did without. inputs: what the graph was captured with, with given's values; anything after.
    """
    results, _ = tree_flatten(captured.result)
    own, count = [*inputs, *results], len(inputs)
    unmoved = PlacedGraph(captured, inputs, [False] * len(own), None)
    if torch.version.hip is not None or not all(map(_can_be_nan, own)):
        return unmoved
    captured()
    expected = [each.clone() for each in results]
    if not all(bool(each.isfinite().all()) for each in expected):
        return unmoved
    core = _planning.core()
    movable = core.movable_graph(
        captured.graph.raw_cuda_graph(),
        captured.graph.raw_cuda_graph_exec(),
        [core.GraphTensor(each.data_ptr(), each.nbytes, index >= count) for index, each in enumerate(own)],
    )
    if movable is None:
        return unmoved
    places = [each.data_ptr() for each in own]
    # Not such as share memory with another, and inputs that are copied into another layout.
    could = [
        uses > 0 and _is_dense(each) and places.count(place) == 1
        for each, place, uses in zip(own, places, movable.uses, strict=True)
    ]
    for index, each in enumerate(given):
        could[index] &= each.stride() == inputs[index].stride()
    moves = [False] * len(own)
    for index in range(len(own)):
        if could[index]:
            tried = [moving or each == index for each, moving in enumerate(moves)]
            if _agrees(PlacedGraph(captured, inputs, tried, movable), own, tried, given, expected):
                moves = tried
    movable.move(places)
    return PlacedGraph(captured, inputs, moves, movable)


def _agrees(
    graph: PlacedGraph,
    own: Sequence[Tensor],
    moves: Sequence[bool],
    given: Sequence[Tensor],
    expected: Sequence[Tensor],
) -> bool:
    for each, moving in zip(own, moves, strict=True):
        if moving:
            each.fill_(math.nan)
    results = [
        torch.full_like(each, math.nan) if moving else each
        for each, moving in zip(own[len(given) :], moves[len(given) :], strict=True)
    ]
    graph.replay_into(given, results)
    return all(map(torch.equal, results, expected))


def _can_be_nan(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _is_dense(tensor: Tensor) -> bool:
    """Whether its elements, in some order, are all that lies between the first and the last."""
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()
