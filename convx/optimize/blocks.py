"""Blocks in a graph whose layers are fused: inverted residuals, squeeze-and-excitations."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx

from convx._arguments import pair
from convx._blocks import Block, InvertedResidual, SqueezeExcite
from convx.optimize.graph import Reader, is_centred
from convx.optimize.layers import FusedConv2d
from convx.optimize.naming import first_free
from convx.optimize.nodes import put


def fuse_blocks(module: fx.GraphModule, is_wanted: Callable[[Block, Any], bool]) -> dict[str, str]:
    """Puts a block in the place of its layers where it is wanted, given its input's metadata. The names of
    the layers that are in blocks, with their blocks'."""
    reader = Reader(module)
    found: dict[str, str] = {}
    for node in list(module.graph.nodes):
        match = _inverted_residual(reader, node) or _squeeze_excite(reader, node)
        if match is None or not is_wanted(match.block, match.input.meta.get("tensor_meta")):
            continue
        name = _free_name(module, list(match.layers.values()), match.word)
        put(module, name, match.block, [match.input], match.nodes[-1])
        for each in reversed(match.nodes):
            module.graph.erase_node(each)
        found |= {str(each.target): f"{name}.{part}" for part, each in match.layers.items()}
    module.delete_all_unused_submodules()
    module.recompile()
    return found


@dataclass(frozen=True)
class _Match:
    """A block that was found."""

    block: Block
    word: str
    """Behind what its layers' names have in common."""
    input: fx.Node
    layers: dict[str, fx.Node]
    """By their names in the block."""
    nodes: list[fx.Node]
    """All that it does, in order."""


def _inverted_residual(reader: Reader, expand: fx.Node) -> _Match | None:
    """One that begins there, with nobody else seeing what is in between."""
    if not (_is_pointwise(reader, expand) or _is_first(reader, expand)) or len(expand.args) != 1:
        return None
    depthwise = _only_user(expand)
    if depthwise is None or not _is_depthwise(reader, depthwise) or len(depthwise.args) != 1:
        return None
    excitation = _excitation_of(reader, depthwise)
    filtered = depthwise if excitation is None else excitation.nodes[-1]
    project = _only_user(filtered)
    if project is None or not _is_pointwise(reader, project) or project.args[0] is not filtered:
        return None
    parts = {"expand": expand, "depthwise": depthwise, "project": project}
    chain = [expand, depthwise, project]
    if excitation is not None:
        parts |= {f"excitation.{name}": node for name, node in excitation.layers.items()}
        chain[2:2] = excitation.nodes
    layers: Any = [reader.layer(node) for node in parts.values()]
    is_one_activation = layers[0].activation == layers[1].activation
    if len(set(layers)) < len(parts) or not is_one_activation:
        return None
    adds_input = len(project.args) == 2
    if adds_input:
        is_input = project.args[1] is expand.args[0]
        if not is_input or layers[2].activation != "none" or layers[0].kernel_size != (1, 1):
            return None
    if not reader.nothing_writes(chain):
        return None
    inner: Any = None if excitation is None else excitation.block
    block = InvertedResidual(layers[0], layers[1], layers[2], adds_input, inner).eval()
    return _Match(block, "block", expand.args[0], parts, chain)  # type: ignore[arg-type]


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _excitation_of(reader: Reader, node: fx.Node) -> _Match | None:
    """The squeeze-and-excitation that all users of a node are in."""
    for user in node.users:
        match = _squeeze_excite(reader, user)
        if match is not None and match.input is node and node.users.keys() <= set(match.nodes):
            return match
    return None


def _squeeze_excite(reader: Reader, product: fx.Node) -> _Match | None:
    """One that ends there, with nobody else seeing what is in between."""
    for input, gate in itertools.permutations(reader.product(product) or (), 2):
        kind = reader.gate(gate)
        if kind is None:
            continue
        chain = [product, gate]
        for _ in range(2):
            before = chain[-1].args[0] if chain[-1].args else None
            if not isinstance(before, fx.Node) or not _is_pointwise(reader, before) or len(before.args) != 1:
                break
            chain.append(before)
        means: Any = chain[-1].args[0] if len(chain) == 4 else None
        if not isinstance(means, fx.Node) or reader.plane_means(means) is not input:
            continue
        chain.append(means)
        squeeze, excite = (reader.layer(node) for node in (chain[3], chain[2]))
        is_one_chain = all(len(node.users) == 1 for node in chain[1:])
        if not is_one_chain or excite.activation != "none":  # type: ignore[union-attr]
            continue
        if excite.out_channels != squeeze.in_channels or not reader.nothing_writes(chain[::-1]):  # type: ignore[union-attr]
            continue
        block = SqueezeExcite(squeeze, excite, kind).eval()  # type: ignore[arg-type]
        layers = {"squeeze": chain[3], "excite": chain[2]}
        return _Match(block, "squeeze_excite", input, layers, chain[::-1])
    return None


def _convolution(reader: Reader, node: fx.Node) -> FusedConv2d | None:
    """One that is the same in both directions: of an odd filter, padded by half of it, without dilation."""
    layer = reader.layer(node)
    if not isinstance(layer, FusedConv2d) or node.kwargs:
        return None
    (height, width), stride = layer.kernel_size, pair("stride", layer.stride)
    return layer if is_centred(layer) and height == width and stride[0] == stride[1] else None


def _is_pointwise(reader: Reader, node: fx.Node) -> bool:
    layer = _convolution(reader, node)
    if layer is None or layer.groups != 1:
        return False
    return layer.kernel_size == (1, 1) and pair("stride", layer.stride) == (1, 1)


def _is_first(reader: Reader, node: fx.Node) -> bool:
    """Of a network: a convolution of so few channels that its products are of patches."""
    layer = _convolution(reader, node)
    return layer is not None and layer.groups == 1 and layer.in_channels <= 4 and layer.kernel_size != (1, 1)


def _is_depthwise(reader: Reader, node: fx.Node) -> bool:
    layer = _convolution(reader, node)
    return layer is not None and layer.groups == layer.in_channels == layer.out_channels


def _free_name(module: fx.GraphModule, layers: list[fx.Node], word: str) -> str:
    """What the layers' names have in common, and a word behind."""
    parents = [str(node.target).split(".")[:-1] for node in layers]
    common = itertools.takewhile(lambda level: len(set(level)) == 1, zip(*parents, strict=False))
    return first_free(module, ".".join([*(level[0] for level in common), word]), first=1)
