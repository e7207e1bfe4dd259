"""Puts convx's operators into a recorded graph, with what follows convolutions fused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import fx

from convx import operators
from convx._block_kinds import Inversion
from convx.compile import planning
from convx.compile.blocks import ChosenBlock
from convx.compile.calls import Call, value
from convx.compile.further import FurtherInputs
from convx.compile.makings import BlockPacking, Packing
from convx.dispatch import tf32_of
from convx.dispatch.situation import Situation
from convx.optimize.chains import Chain

_LAYERS_OF_BLOCK = 5  # with a squeeze-and-excitation inside


class Putting:
    """Into one graph."""

    def __init__(self, graph: fx.Graph, further: FurtherInputs) -> None:
        self._graph = graph
        self._further = further
        self._made: dict[fx.Node, fx.Node] = {}  # what stands for the ends of blocks

    def put_operator(self, chain: Chain[Call, fx.Node], chosen: planning.Choice) -> None:
        """In the place of the whole chain."""
        call = chain.convolution
        weight, bias = self._further.weights(chain)
        geometry = (call.stride, call.padding, call.dilation, call.groups)
        rest = (*geometry, chain.activation, chosen.algorithm, _tf32(call.node))
        with self._graph.inserting_before(chain.last.next):
            images = (call.input, weight, chain.residual)
            input, filters, residual = map(self._with_height, images) if call.has_rows else images
            packed = self._packed(chain, chosen, weight, (input, residual), rest)
            after = chain.residual_after_activation
            arguments = (input, filters, bias, *rest, packed, residual, None, after)
            made = self._graph.call_function(operators.conv2d, arguments)
            made.meta = dict(chain.last.meta)
            if call.has_rows:
                made.meta["example_value"] = value(chain.last).unsqueeze(-2)
                made = self._view(made, "squeeze")
        self._replace(chain.nodes, made)

    def put_block(self, block: ChosenBlock) -> None:
        """In the place of all its layers, of blocks in the graph's order."""
        match = block.match
        layers = [layer.source for layer in match.layers.values()]
        weights = [each for chain in layers for each in self._further.weights(chain, casts=True)]
        input = self._made.get(match.input, match.input)
        rest: tuple[Any, ...] = (*match.kind.options, block.algorithm)
        packed: tuple[fx.Node | None, ...] = ()
        if isinstance(match.kind, Inversion):
            weights += [None] * (2 * _LAYERS_OF_BLOCK - len(weights))
            operator, packed = operators.inverted_residual, (self._packed_block(block, weights, rest),)
        else:
            operator = operators.squeeze_excite
        last = match.nodes[-1]
        with self._graph.inserting_before(last.next):
            made = self._graph.call_function(operator, (input, *weights, *rest, _tf32(last), *packed))
        made.meta = dict(last.meta)
        self._made[last] = made
        self._replace(match.nodes, made)

    def fold_norm(self, chain: Chain[Call, fx.Node]) -> None:
        """Into torch's own convolution, where one follows it."""
        if chain.norm is None:
            return
        end = next(place for place, node in enumerate(chain.nodes) if node.target is F.batch_norm)
        nodes, call = chain.nodes[: end + 1], chain.convolution
        args = (call.input, *self._further.weights(chain), *call.node.args[3:])
        rest = {
            name: each for name, each in call.node.kwargs.items() if name not in ("input", "weight", "bias")
        }
        with self._graph.inserting_before(nodes[-1].next):
            made = self._graph.call_function(call.node.target, args, rest)  # type: ignore[arg-type]
        made.meta = dict(nodes[-1].meta)
        self._replace(nodes, made)

    def _packed(
        self, chain: Chain[Call, fx.Node], chosen: planning.Choice, weight: Any, images: Any, rest: Any
    ) -> fx.Node | None:
        if chosen.packed_bytes == 0:
            return None
        packing = Packing(
            like=self._further.source(weight),
            size=chosen.packed_bytes,
            has_bias=chain.convolution.bias is not None or chain.norm is not None,
            images=tuple(None if each is None else _layout(each) for each in images),
            rest=rest,
            residual_after_activation=chain.residual_after_activation,
        )
        return self._further.nodes(packing)[0]

    def _packed_block(self, block: ChosenBlock, weights: Sequence[Any], rest: Any) -> fx.Node | None:
        if block.packed_bytes == 0:
            return None
        sources = tuple(None if each is None else self._further.source(each) for each in weights)
        packing = BlockPacking(sources, block.packed_bytes, _layout(block.match.input), rest)
        return self._further.nodes(packing)[0]

    def _replace(self, nodes: Sequence[fx.Node], made: fx.Node) -> None:
        nodes[-1].replace_all_uses_with(made)
        for node in reversed(nodes):
            self._graph.erase_node(node)

    def _with_height(self, image: fx.Node | None) -> fx.Node | None:
        return None if image is None else self._view(image, "unsqueeze")

    def _view(self, image: fx.Node, method: str) -> fx.Node:
        """With a height of one, or without it."""
        made = self._graph.call_method(method, (image, -2))
        made.meta["example_value"] = getattr(value(image), method)(-2)
        return made


def _tf32(node: fx.Node) -> int:
    return tf32_of(Situation.RECORDED, value(node))


def _layout(image: fx.Node) -> tuple[Any, Any]:
    return tuple(value(image).shape), value(image).stride()
