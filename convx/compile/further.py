"""Inputs that a recorded graph gets behind its own: what is made of these (convx.compile.makings)."""

from __future__ import annotations

from typing import Any

from torch import fx

from convx.compile.calls import Call, value
from convx.compile.makings import Folding, Making, Part, Source
from convx.optimize.chains import Chain
from convx.optimize.filters import Filters, Normed, Own, mapped


class FurtherInputs:
    """Of one graph; made: the nodes of what is made, in their order."""

    def __init__(self, graph: fx.Graph) -> None:
        self.made: dict[Making, list[fx.Node]] = {}
        self._graph = graph
        self._inputs: list[fx.Node] = [node for node in graph.nodes if node.op == "placeholder"]
        self._sources: dict[fx.Node, Source] = {node: place for place, node in enumerate(self._inputs)}

    def source(self, node: fx.Node) -> Source:
        return self._sources[node]

    def nodes(self, making: Making) -> list[fx.Node]:
        """Placeholders as torch.compile makes them of a layer's parameters: CUDA graphs read those where they
        are."""
        if making in self.made:
            return self.made[making]
        like = value(self._node(making.like))
        with like.fake_mode:
            examples = making.room(like)
        made = self.made.setdefault(making, [])
        for index, example in enumerate(examples):
            last = [node for node in self._graph.nodes if node.op == "placeholder"][-1]
            with self._graph.inserting_after(last):
                node = self._graph.placeholder(f"convx_{sum(map(len, self.made.values()))}")
            node.meta = {"example_value": example, "tensor_dict": {"_dynamo_static_input_type": "unguarded"}}
            node._dynamo_source = None  # none that guards could look at
            made.append(node)
            self._sources[node] = Part(making, index)
        return made

    def filters(self, like: fx.Node, filters: Filters, dtype: Any) -> list[fx.Node]:
        """A weight like this one, and a bias if there is one, of filters whose operands are nodes."""
        return self.nodes(Folding(self.source(like), mapped(filters, self.source), dtype))

    def weights(self, chain: Chain[Call, fx.Node], casts: bool = False) -> list[fx.Node | None]:
        """Of a convolution with what is fused into it, and the bias. casts: to its own dtype, where autocast
        would do that."""
        call = chain.convolution
        own = Own(call.weight, call.bias)
        dtype = value(call.node).dtype
        is_of_dtype = all(value(each).dtype == dtype for each in (own.weight, own.bias) if each is not None)
        if chain.norm is None and (is_of_dtype or not casts):
            return [own.weight, own.bias]
        filters = own if chain.norm is None else Normed(own, chain.norm)
        weight, *bias = self.filters(call.weight, filters, dtype)
        return [weight, *bias] if bias else [weight, None]

    def _node(self, source: Source) -> fx.Node:
        return self._inputs[source] if isinstance(source, int) else self.made[source.making][source.index]
