"""Puts convx's convolutions into a recorded graph, with what follows them fused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import fx

from convx import operators
from convx.compile import planning
from convx.compile.folding import Recipe
from convx.compile.graph import Call, RecordedReader, value
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

    def __str__(self) -> str:
        return f"{self.name}: {' + '.join((self.plan, *self.fused))}"


@dataclass(frozen=True)
class Rewritten:
    rows: tuple[Row, ...]
    recipes: tuple[Recipe, ...]
    further_inputs: tuple[Any, ...]
    """That the graph has behind its own, fake: a weight and a bias of each recipe."""
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
    """Changes the graph."""
    reader = RecordedReader(module)
    calls = list(reader.convolutions()) if operators.available else []
    choices = [each for call in calls if (each := planning.choice(_chain(reader, call))) is not None]
    is_convxs = planning.are_faster(choices)
    rewriting, rows = _Rewriting(module.graph), []
    for call in calls:
        chain = _chain(reader, call)
        chosen = planning.choice(chain) if is_convxs else None
        if chosen is not None and not chosen.is_torchs:
            rows.append(Row(call.node.name, chosen.plan, tuple(chain.fused)))
            rewriting.put_operator(chain)
        else:
            rows.append(Row(call.node.name, "torch", () if chain.norm is None else ("batch norm",)))
            rewriting.fold_norm(chain)
    module.graph.lint()
    module.recompile()
    keeps_layout = is_convxs and not any(each.channels_last for each in choices)
    further = [value(node) for nodes in rewriting.folded.values() for node in nodes]
    return Rewritten(tuple(rows), tuple(rewriting.folded), tuple(further), keeps_layout)


def _chain(reader: RecordedReader, call: Call) -> Chain[Call, fx.Node]:
    return grow(reader, call)


class _Rewriting:
    """Of one graph; folded: the weights that it has as further inputs."""

    def __init__(self, graph: fx.Graph) -> None:
        self.folded: dict[Recipe, list[fx.Node]] = {}
        self._graph = graph
        self._inputs = [node for node in graph.nodes if node.op == "placeholder"]

    def put_operator(self, chain: Chain[Call, fx.Node]) -> None:
        """In the place of the whole chain."""
        call = chain.convolution
        weight, bias = self._weights(chain)
        with self._graph.inserting_before(chain.last.next):
            images = (call.input, weight, chain.residual)
            input, filters, residual = map(self._with_height, images) if call.has_rows else images
            arguments = operators.DECLARED["conv2d"].arguments(
                input,
                filters,
                bias,
                list(call.stride),
                list(call.padding),
                list(call.dilation),
                call.groups,
                chain.activation,
                "auto",
                tf32_of(Situation.RECORDED, value(call.node)),
                residual=residual,
                residual_after_activation=chain.residual_after_activation,
            )
            made = self._graph.call_function(operators.conv2d, tuple(arguments))
            made.meta = dict(chain.last.meta)
            if call.has_rows:
                made.meta["example_value"] = value(chain.last).unsqueeze(-2)
                made = self._view(made, "squeeze")
        self._replace(chain.nodes, made)

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
        call, norm = chain.convolution, chain.norm
        if norm is None:
            return [call.weight, call.bias]
        statistics = self._place(norm.mean), self._place(norm.variance)
        places = Norm(None, *statistics, self._place(norm.weight), self._place(norm.bias), norm.eps)
        weight, bias = self._place(call.weight), self._place(call.bias)
        recipe = Recipe(weight, bias, places, value(call.node).dtype)
        if recipe not in self.folded:
            self.folded[recipe] = self._further_inputs(recipe, value(call.weight))
        return [*self.folded[recipe]]

    def _place(self, node: fx.Node | None) -> Any:
        return None if node is None else self._inputs.index(node)

    def _further_inputs(self, recipe: Recipe, weight: Any) -> list[fx.Node]:
        """Placeholders as torch.compile makes them of a layer's parameters: CUDA graphs read those where they
        are."""
        with weight.fake_mode:
            examples = recipe.room(weight)
        made: list[fx.Node] = []
        for example in examples:
            last = [node for node in self._graph.nodes if node.op == "placeholder"][-1]
            with self._graph.inserting_after(last):
                node = self._graph.placeholder(f"convx_folded_{2 * len(self.folded) + len(made)}")
            node.meta = {"example_value": example, "tensor_dict": {"_dynamo_static_input_type": "unguarded"}}
            node._dynamo_source = None  # none that guards could look at
            made.append(node)
        return made
