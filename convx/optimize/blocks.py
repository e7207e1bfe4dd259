"""Blocks in a graph whose layers are fused: inverted residuals, squeeze-and-excitations."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from torch import fx

from convx._arguments import pair
from convx._blocks import Block, InvertedResidual, SqueezeExcite
from convx.optimize.graph import Reader, is_centred
from convx.optimize.layers import FusedConv2d
from convx.optimize.matching import Layer, Layers, Match, matches
from convx.optimize.naming import first_free
from convx.optimize.nodes import put


def fuse_blocks(module: fx.GraphModule, is_wanted: Callable[[Block, Any], bool]) -> dict[str, str]:
    """Puts a block in the place of its layers where it is wanted, given its input's metadata. The names of
    the layers that are in blocks, with their blocks'."""
    reader = Reader(module)
    blocks: dict[fx.Node, Block] = {}

    def wanted(match: Match) -> bool:
        if not _has_one_layer_each(match):
            return False
        block = blocks[match.nodes[-1]] = _block(match).eval()
        return is_wanted(block, match.input.meta.get("tensor_meta"))

    found = matches(reader, Layers(_layers(reader)), wanted)
    made: dict[fx.Node, fx.Node] = {}  # what stands for the ends of blocks
    names: dict[str, str] = {}
    for match in found:
        end = match.nodes[-1]
        name = _free_name(module, [each.last for each in match.layers.values()], _word(match))
        put(module, name, blocks[end], [made.get(match.input, match.input)], end)
        made[end] = end.next
        for each in reversed(match.nodes):
            module.graph.erase_node(each)
        names |= {str(each.last.target): f"{name}.{part}" for part, each in match.layers.items()}
    module.delete_all_unused_submodules()
    module.recompile()
    return names


def _layers(reader: Reader) -> list[Layer]:
    return [each for node in reader.module.graph.nodes if (each := _layer(reader, node)) is not None]


def _layer(reader: Reader, node: fx.Node) -> Layer | None:
    layer = reader.layer(node)
    if not isinstance(layer, FusedConv2d) or node.kwargs:
        return None
    (height, width), (down, across) = layer.kernel_size, pair("stride", layer.stride)
    if not is_centred(layer) or height != width or down != across:
        return None
    input, residual = (*node.args, None)[:2]
    return Layer(
        layer,
        (node,),
        input,  # type: ignore[arg-type]
        residual,  # type: ignore[arg-type]
        layer.activation,
        layer.in_channels,
        layer.out_channels,
        layer.groups,
        height,
        down,
    )


def _has_one_layer_each(match: Match) -> bool:
    """Whether no module is called twice in it: a block has each of its own once."""
    return len({each.source for each in match.layers.values()}) == len(match.layers)


def _block(match: Match) -> Block:
    layers = {name: each.source for name, each in match.layers.items()}
    if "expand" not in layers:
        return SqueezeExcite(layers["squeeze"], layers["excite"], match.kind.gate)  # type: ignore[union-attr]
    inner: Any = None if match.excitation is None else _block(match.excitation)
    expand, depthwise, project = (layers[name] for name in ("expand", "depthwise", "project"))
    return InvertedResidual(expand, depthwise, project, match.kind.residual, inner)  # type: ignore[union-attr]


def _word(match: Match) -> str:
    """Behind what its layers' names have in common."""
    return "block" if "expand" in match.layers else "squeeze_excite"


def _free_name(module: fx.GraphModule, layers: list[fx.Node], word: str) -> str:
    """What the layers' names have in common, and a word behind."""
    parents = [str(node.target).split(".")[:-1] for node in layers]
    common = itertools.takewhile(lambda level: len(set(level)) == 1, zip(*parents, strict=False))
    return first_free(module, ".".join([*(level[0] for level in common), word]), first=1)
