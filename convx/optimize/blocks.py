"""Inverted residual blocks in a graph whose layers are fused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from torch import fx

from convx._arguments import pair
from convx._blocks import InvertedResidual
from convx.optimize.graph import Reader
from convx.optimize.layers import FusedConv2d


def fuse_blocks(module: fx.GraphModule, is_wanted: Callable[[InvertedResidual, Any], bool]) -> dict[str, str]:
    """Puts a block in the place of its three layers where it is wanted, given its input's metadata. The names
    of the layers that are in blocks, with their blocks'."""
    reader, found = Reader(module), {}
    for node in list(module.graph.nodes):
        chain = _chain(reader, node)
        if chain is None:
            continue
        expand, depthwise, project = (reader.layer(each) for each in chain)
        adds_input = len(chain[2].args) == 2
        block = InvertedResidual(expand, depthwise, project, adds_input).eval()  # type: ignore[arg-type]
        if not is_wanted(block, node.args[0].meta.get("tensor_meta")):
            continue
        name = _free_name(module, chain)
        module.add_submodule(name, block)
        with module.graph.inserting_after(chain[2]):
            made = module.graph.call_module(name, (node.args[0],))
        made.meta = dict(chain[2].meta)
        chain[2].replace_all_uses_with(made)
        for each, part in zip(chain[::-1], ("project", "depthwise", "expand"), strict=True):
            module.graph.erase_node(each)
            found[str(each.target)] = f"{name}.{part}"
    module.delete_all_unused_submodules()
    module.recompile()
    return found


def read_in_any_layout(module: fx.GraphModule) -> frozenset[int]:
    """Places of inputs that are read by blocks alone whose first layer is a network's first convolution."""
    reader = Reader(module)

    def reads_any(node: fx.Node) -> bool:
        block = reader.layer(node)
        return isinstance(block, InvertedResidual) and block.expand.kernel_size != (1, 1)

    inputs = (node for node in module.graph.nodes if node.op == "placeholder")
    return frozenset(
        place for place, node in enumerate(inputs) if node.users and all(map(reads_any, node.users))
    )


def _chain(reader: Reader, expand: fx.Node) -> list[fx.Node] | None:
    """The nodes of a block that begins there, with nobody else seeing what is in between."""
    if not (_is_pointwise(reader, expand) or _is_first(reader, expand)) or len(expand.args) != 1:
        return None
    chain = [expand]
    for is_next in (_is_depthwise, _is_pointwise):
        users = list(chain[-1].users)
        if len(users) != 1 or not is_next(reader, users[0]) or users[0].args[0] is not chain[-1]:
            return None
        chain.append(users[0])
    layers: Any = [reader.layer(node) for node in chain]
    is_one_activation = layers[0].activation == layers[1].activation
    if len(set(layers)) < 3 or len(chain[1].args) != 1 or not is_one_activation:
        return None
    if len(chain[2].args) == 2:
        adds_input = chain[2].args[1] is expand.args[0]
        if not adds_input or layers[2].activation != "none" or layers[0].kernel_size != (1, 1):
            return None
    return chain if _nothing_writes(reader, chain) else None


def _convolution(reader: Reader, node: fx.Node) -> FusedConv2d | None:
    """One that is the same in both directions: of an odd filter, padded by half of it, without dilation."""
    layer = reader.layer(node)
    if not isinstance(layer, FusedConv2d) or node.kwargs:
        return None
    (height, width), stride = layer.kernel_size, pair("stride", layer.stride)
    given: Any = layer.padding
    if given in ("same", "valid"):
        given = height // 2 if given == "same" else 0
    is_padded = pair("padding", given) == (height // 2, height // 2)
    is_square = height == width and height % 2 == 1 and stride[0] == stride[1]
    return layer if is_square and is_padded and pair("dilation", layer.dilation) == (1, 1) else None


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


def _nothing_writes(reader: Reader, chain: list[fx.Node]) -> bool:
    """Between the first and the last: the block reads its input again at its end."""
    node = chain[0].next
    while node is not chain[2]:
        if node not in chain and reader.writes(node):
            return False
        node = node.next
    return True


def _free_name(module: fx.GraphModule, chain: list[fx.Node]) -> str:
    """What the layers' names have in common, and a word behind."""
    parents = [str(node.target).split(".")[:-1] for node in chain]
    common = itertools.takewhile(lambda level: len(set(level)) == 1, zip(*parents, strict=False))
    wanted = ".".join([*(level[0] for level in common), "block"])
    names = {name for name, _ in module.named_modules()}
    numbered = (wanted if number == 0 else f"{wanted}_{number}" for number in range(len(names) + 1))
    return next(name for name in numbered if name not in names)
