"""What becomes of the convolutions of a recorded graph: which are one, in blocks, convx's or torch's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import fx

from convx import _libraries
from convx.compile import planning
from convx.compile.blocks import ChosenBlock, chosen_blocks
from convx.compile.calls import Call, Origin, value
from convx.compile.further import FurtherInputs
from convx.compile.graph import RecordedReader
from convx.compile.makings import Making
from convx.compile.merging import merge
from convx.compile.putting import Putting
from convx.optimize.chains import Chain, grow

_TORCH = "torch"
_MERGED = "parallel layers"


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
    within: str = ""
    """The block that it is run in, or the convolution that it is one with."""

    def __str__(self) -> str:
        place = f", within {self.within}" if self.within else ""
        return f"{self.name}: {' + '.join((self.plan, *self.fused))}{place}"


@dataclass(frozen=True)
class BlockRow:
    """Layers that one operator does."""

    name: str
    plan: str
    parts: tuple[str, ...]
    shape: str
    problem: Any
    """The planner's."""

    @classmethod
    def of(cls, block: ChosenBlock) -> BlockRow:
        kind, size = block.match.kind, tuple(value(block.match.input).shape)
        return cls(_name(block), block.plan, kind.parts, kind.shape(size), block.problem)

    def __str__(self) -> str:
        return f"{self.name}: {self.plan} of {' + '.join(self.parts)}, {self.shape}"


@dataclass(frozen=True)
class Rewritten:
    rows: tuple[Row, ...]
    makings: tuple[Making, ...]
    further_inputs: tuple[Any, ...]
    """What is made by these, fake: inputs that the graph has behind its own."""
    keeps_layout: bool
    """Whether torch's convolutions beside convx's were chosen in the layout that they are given."""
    blocks: tuple[BlockRow, ...] = ()

    def __str__(self) -> str:
        by_convx = sum(row.plan != _TORCH for row in self.rows)
        first = f"{by_convx} of {len(self.rows)} convolutions by convx"
        return "\n  ".join([first, *map(str, self.rows), *map(str, self.blocks)])


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
    for device_type in {value(call.input).device.type for call in reader.convolutions()}:
        _libraries.require(device_type)
        _libraries.core()
    further = FurtherInputs(module.graph)
    merged = merge(reader, further)
    calls = list(reader.convolutions())
    origins = {call.node: merged.get(call.node) or [Origin.of(call)] for call in calls}
    chains = {call.node: grow(reader, call) for call in calls}
    blocks = chosen_blocks(reader, list(chains.values()))
    inside = {layer.nodes[0]: each for each in blocks for layer in each.match.layers.values()}
    choices = {node: planning.choice(chain) for node, chain in chains.items()}
    alone = [each for node, each in choices.items() if each is not None and node not in inside]
    is_convxs = planning.are_faster([*alone, *blocks])
    if not is_convxs:
        blocks, inside = [], {}
    block_rows = tuple(map(BlockRow.of, blocks))
    putting = Putting(module.graph, further)
    for each in blocks:
        putting.put_block(each)
    rows: list[Row] = []
    for call in calls:
        node, block, within = call.node, inside.get(call.node), ""
        if block is None:
            done = _put(reader, putting, call, is_convxs)
        else:
            done, within = _in_block(block, chains[node], choices[node]), _name(block)
        rows += _rows(origins[node], done, within, is_sum=node in merged)
    module.graph.lint()
    module.recompile()
    has_operators = any(row.plan != _TORCH for row in rows)
    is_last = any(each.channels_last for each in choices.values() if each is not None)
    made = [value(node) for nodes in further.made.values() for node in nodes]
    return Rewritten(tuple(rows), tuple(further.made), tuple(made), has_operators and not is_last, block_rows)


class _Done(NamedTuple):
    """With a convolution."""

    plan: str
    fused: Sequence[str]
    problem: Any


def _put(reader: RecordedReader, putting: Putting, call: Call, by_convx: bool) -> _Done:
    chain = grow(reader, call)
    chosen = planning.choice(chain) if by_convx else None
    if chosen is not None and not chosen.is_torchs:
        putting.put_operator(chain, chosen)
        return _Done(chosen.plan, chain.fused, chosen.problem)
    putting.fold_norm(chain)
    return _Done(_TORCH, () if chain.norm is None else ("batch norm",), None)


def _in_block(block: ChosenBlock, chain: Chain[Call, fx.Node], choice: planning.Choice | None) -> _Done:
    return _Done(block.plan, chain.fused, block.problem if choice is None else choice.problem)


def _rows(origins: Sequence[Origin], done: _Done, within: str, is_sum: bool) -> Iterator[Row]:
    """Of what has become one convolution."""
    merged = (_MERGED,) if is_sum else ()
    first, *others = origins
    yield Row(first.name, done.plan, (*merged, *done.fused), first.weight, done.problem, within)
    for each in others:
        yield Row(each.name, done.plan, merged, each.weight, done.problem, first.name)


def _name(block: ChosenBlock) -> str:
    return block.match.nodes[-1].name
