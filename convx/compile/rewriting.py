"""Puts convx's convolutions into a recorded graph, with what follows them fused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import fx

from convx import _libraries, operators
from convx.compile import planning
from convx.compile.graph import Call, RecordedReader, id_of, value
from convx.compile.kept import Folding, Packing
from convx.dispatch import tf32_of
from convx.dispatch.situation import Situation
from convx.optimize.chains import Chain, grow
from convx.optimize.folding import Norm


@dataclass(frozen=True)
class Row:
    """What became of one convolution."""

    name: str
    plan: str
    """Of the forward pass, for the sizes that the graph was recorded with; "torch" where it is left."""
    fused: tuple[str, ...]
    weight: int | None
    """The id of the tensor that is its weight, where it is an input of the graph."""
    problem: Any = None
    """The planner's, where it is run by convx."""

    def __str__(self) -> str:
        return f"{self.name}: {' + '.join((self.plan, *self.fused))}"


@dataclass(frozen=True)
class Rewritten:
    rows: tuple[Row, ...]
    makings: tuple[Folding | Packing, ...]
    further_inputs: tuple[Any, ...]
    """What is made by these, fake: inputs that the graph has behind its own."""
    keeps_layout: bool
    """Whether torch's convolutions beside convx's were chosen in the layout that they are given."""

    def __str__(self) -> str:
        by_convx = sum(row.plan != "torch" for row in self.rows)
        lines = [f"{by_convx} of {len(self.rows)} convolutions by convx", *map(str, self.rows)]
        return "\n  ".join(lines)


def copied(module: fx.GraphModule) -> fx.GraphModule:
    """With a graph of its own, for torch.compile goes on reading the one that it has given; and with what it
    has noted for AOTAutograd."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.output(graph.graph_copy(module.graph, copies))
    for node, copy in copies.items():
        if hasattr(node, "_dynamo_source"):
            copy._dynamo_source = node._dynamo_source
    made = fx.GraphModule(module, graph)
    made.meta = dict(module.meta)
    vars(made).update({name: each for name, each in vars(module).items() if name not in vars(made)})
    return made


def rewrite(module: fx.GraphModule) -> Rewritten:
    """Changes the graph. RuntimeError where convx has no operators for a convolution's device, ImportError
    where it has no planner: neither is left to inductor without a word."""
    reader = RecordedReader(module)
    calls = list(reader.convolutions())
    for device_type in {value(call.input).device.type for call in calls}:
        _libraries.require(device_type)
        _libraries.core()
    choices = [each for call in calls if (each := planning.choice(grow(reader, call))) is not None]
    is_convxs = planning.are_faster(choices)
    rewriting, rows = _Rewriting(module.graph), []
    for call in calls:
        chain = grow(reader, call)
        chosen = planning.choice(chain) if is_convxs else None
        if chosen is not None and not chosen.is_torchs:
            rows.append(
                Row(call.node.name, chosen.plan, tuple(chain.fused), id_of(call.weight), chosen.problem)
            )
            rewriting.put_operator(chain, chosen)
        else:
            fused = () if chain.norm is None else ("batch norm",)
            rows.append(Row(call.node.name, "torch", fused, id_of(call.weight)))
            rewriting.fold_norm(chain)
    module.graph.lint()
    module.recompile()
    has_operators = any(row.plan != "torch" for row in rows)
    keeps_layout = has_operators and not any(each.channels_last for each in choices)
    further = [value(node) for nodes in rewriting.made.values() for node in nodes]
    return Rewritten(tuple(rows), tuple(rewriting.made), tuple(further), keeps_layout)


class _Rewriting:
    """Of one graph; made: what is made of its inputs, as further inputs."""

    def __init__(self, graph: fx.Graph) -> None:
        self.made: dict[Folding | Packing, list[fx.Node]] = {}
        self._graph = graph
        self._inputs = [node for node in graph.nodes if node.op == "placeholder"]

    def put_operator(self, chain: Chain[Call, fx.Node], chosen: planning.Choice) -> None:
        """In the place of the whole chain."""
        call = chain.convolution
        weight, bias = self._weights(chain)
        geometry = (call.stride, call.padding, call.dilation, call.groups)
        rest = (*geometry, chain.activation, chosen.algorithm, tf32_of(Situation.RECORDED, value(call.node)))
        with self._graph.inserting_before(chain.last.next):
            images = (call.input, weight, chain.residual)
            input, filters, residual = map(self._with_height, images) if call.has_rows else images
            packed = self._packed(chain, chosen, (input, residual), rest)
            after = chain.residual_after_activation
            arguments = (input, filters, bias, *rest, packed, residual, None, after)
            made = self._graph.call_function(operators.conv2d, arguments)
            made.meta = dict(chain.last.meta)
            if call.has_rows:
                made.meta["example_value"] = value(chain.last).unsqueeze(-2)
                made = self._view(made, "squeeze")
        self._replace(chain.nodes, made)

    def _packed(self, chain: Chain[Call, fx.Node], chosen: planning.Choice, images: Any, rest: Any) -> Any:
        if chosen.packed_bytes == 0:
            return None
        call = chain.convolution
        packing = Packing(
            source=self._place(call.weight) if chain.norm is None else self._folding(chain),
            size=chosen.packed_bytes,
            has_bias=call.bias is not None or chain.norm is not None,
            images=tuple(
                None if each is None else (tuple(value(each).shape), value(each).stride()) for each in images
            ),
            rest=rest,
            residual_after_activation=chain.residual_after_activation,
        )
        return self._further_inputs(packing)[0]

    def fold_norm(self, chain: Chain[Call, fx.Node]) -> None:
        """Into torch's own convolution, where one follows it."""
        if chain.norm is None:
            return
        end = next(place for place, node in enumerate(chain.nodes) if node.target is F.batch_norm)
        nodes, call = chain.nodes[: end + 1], chain.convolution
        args = (call.input, *self._weights(chain), *call.node.args[3:])
        rest = {
            name: each for name, each in call.node.kwargs.items() if name not in ("input", "weight", "bias")
        }
        with self._graph.inserting_before(nodes[-1].next):
            made = self._graph.call_function(call.node.target, args, rest)  # type: ignore[arg-type]
        made.meta = dict(nodes[-1].meta)
        self._replace(nodes, made)

    def _replace(self, nodes: list[fx.Node], made: fx.Node) -> None:
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

    def _weights(self, chain: Chain[Call, fx.Node]) -> list[fx.Node | None]:
        """And the bias."""
        call = chain.convolution
        if chain.norm is None:
            return [call.weight, call.bias]
        return [*self._further_inputs(self._folding(chain))]

    def _folding(self, chain: Chain[Call, fx.Node]) -> Folding:
        call, norm = chain.convolution, chain.norm
        assert norm is not None
        statistics = self._place(norm.mean), self._place(norm.variance)
        places = Norm(None, *statistics, self._place(norm.weight), self._place(norm.bias), norm.eps)
        return Folding(self._place(call.weight), self._place(call.bias), places, value(call.node).dtype)

    def _place(self, node: fx.Node | None) -> Any:
        return None if node is None else self._inputs.index(node)

    def _further_inputs(self, making: Folding | Packing) -> list[fx.Node]:
        """Placeholders as torch.compile makes them of a layer's parameters: CUDA graphs read those where they
        are."""
        if making in self.made:
            return self.made[making]
        weight = value(self._inputs[making.weight])
        with weight.fake_mode:
            examples = making.room(weight)
        made = self.made.setdefault(making, [])
        for example in examples:
            last = [node for node in self._graph.nodes if node.op == "placeholder"][-1]
            with self._graph.inserting_after(last):
                node = self._graph.placeholder(f"convx_{sum(map(len, self.made.values()))}")
            node.meta = {"example_value": example, "tensor_dict": {"_dynamo_static_input_type": "unguarded"}}
            node._dynamo_source = None  # none that guards could look at
            made.append(node)
        return made
