"""What a network does beside its convolutions, for the report: who runs it, and why convx does not."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from convx._blocks import Block
from convx.optimize.graph import Reader
from convx.optimize.layers import ChannelNorm, FusedConv2d, MovedChannels, PlaneMeans, PooledPlanes
from convx.optimize.nodes import shape_of
from convx.optimize.pools import KERNEL_DTYPES
from convx.optimize.report import Operation

# Of layers that convx.optimize makes: their kinds, and what is before the name that a node had.
_MADE: dict[type[nn.Module], tuple[str, str]] = {
    PooledPlanes: ("pooling", "pooled_"),
    PlaneMeans: ("mean of planes", "plane_means_"),
    MovedChannels: ("move of channels", "moved_"),
    ChannelNorm: ("layer norm", ""),
}
_LAYERS: tuple[tuple[tuple[type[nn.Module], ...], str], ...] = (
    ((_BatchNorm,), "batch norm"),
    ((nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool2d), "pooling"),
    ((nn.Linear,), "linear layer"),
    ((nn.LayerNorm,), "layer norm"),
    ((nn.ChannelShuffle,), "shuffle"),
)
_FUNCTIONS: dict[Any, str] = {
    F.batch_norm: "batch norm",
    **dict.fromkeys((F.max_pool2d, F.avg_pool2d, F.adaptive_max_pool2d, F.adaptive_avg_pool2d), "pooling"),
    F.linear: "linear layer",
    F.layer_norm: "layer norm",
    **dict.fromkeys((torch.cat, torch.concat), "concatenation"),
    **dict.fromkeys((torch.channel_shuffle, F.channel_shuffle), "shuffle"),
}
_MOVES = ("concatenation", "shuffle", "move of channels")
_REASONS = {
    "pooling": "no kernel of convx takes it",
    "mean of planes": "no kernel of convx takes it",
    "linear layer": "convx takes those of pixels and, on GPUs, small classifiers",
    "layer norm": "convx takes those of the channels of images, on CPUs",
}


def operations_of(network: fx.GraphModule, device: str, why: str) -> list[Operation]:
    """In order. why: nothing is fused; empty where that was done."""
    reader, found = Reader(network), []
    of_moves = _reason_of_moves(reader, device)
    for place, node in enumerate(network.graph.nodes):
        kind = _kind(reader, node)
        if kind:
            left = of_moves if kind in _MOVES else _reason(reader, node, kind)
            reason = "" if _is_convxs(reader, node, device) else why or left
            found.append(Operation(_name(reader, node), kind, place, reason))
    return found


def places_of(network: fx.GraphModule) -> dict[str, int]:
    """Of the first call of each layer, by its name."""
    found: dict[str, int] = {}
    for place, node in enumerate(network.graph.nodes):
        if node.op == "call_module":
            found.setdefault(str(node.target), place)
    return found


def _kind(reader: Reader, node: fx.Node) -> str:
    """Empty of convolutions, and of what costs next to nothing or is of no kind that convx knows."""
    layer = reader.layer(node)
    if layer is not None and type(layer) in _MADE:
        return _MADE[type(layer)][0]
    for kinds, name in _LAYERS:
        if isinstance(layer, kinds):
            return name
    if node.op == "call_function" and node.target in _FUNCTIONS:
        return _FUNCTIONS[node.target]
    if reader.plane_means(node) is not None:
        return "mean of planes"
    if reader.activation(node) is not None:
        return "activation"
    return "sum" if shape_of(node) and reader.sum(node) is not None else ""


def _name(reader: Reader, node: fx.Node) -> str:
    layer = reader.layer(node)
    if layer is None:
        return node.name
    return str(node.target).removeprefix(_MADE.get(type(layer), ("", ""))[1])


def _is_convxs(reader: Reader, node: fx.Node, device: str) -> bool:
    meta = node.meta.get("tensor_meta")
    is_taken = meta is not None and meta.dtype in KERNEL_DTYPES.get(device, ())
    return is_taken and type(reader.layer(node)) in _MADE


def _reason_of_moves(reader: Reader, device: str) -> str:
    if device != "cpu":
        return "convx moves channels on CPUs alone"
    if any(map(reader.writes, reader.module.graph.nodes)):
        return "the network writes to tensors in place, which others may have by another name"
    return "convx moves channels of one or two float32 images"


def _reason(reader: Reader, node: fx.Node, kind: str) -> str:
    """Why convx left it, or, of what the kernels of convolutions can do, why none does."""
    if kind in _REASONS:
        return _REASONS[kind]
    sources = [each for each in node.all_input_nodes if each.op != "get_attr"]
    layers = {each: reader.layer(each) for each in sources}
    fused = [each for each, layer in layers.items() if isinstance(layer, (FusedConv2d, Block))]
    if not fused:
        behind = f"behind {_described(reader, sources[0])}" if sources else "of no images"
        return behind + (_ahead(reader, node) if kind == "batch norm" else "")
    if all(len(each.users) > 1 for each in fused):
        return "others read the convolution's result too"
    activation = getattr(layers[fused[0]], "activation", "none")
    if kind != "sum" and activation != "none":
        return f"behind the convolution's {activation}"
    return "the convolution's kernel can't do it"


def _described(reader: Reader, source: fx.Node) -> str:
    if source.op == "placeholder":
        return "the input"
    if isinstance(reader.layer(source), nn.Conv2d):
        return "a convolution that was left"
    kind = _kind(reader, source)
    if not kind:
        return "what is no convolution"
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _ahead(reader: Reader, norm: fx.Node) -> str:
    """What keeps it from the convolution that reads it."""
    users = list(norm.users)
    if users and all(isinstance(reader.layer(each), nn.Conv2d) for each in users):
        return ", ahead of a convolution"
    behind = [reader.layer(each) for user in users for each in user.users]
    is_activated = bool(users) and all(reader.activation(each) is not None for each in users)
    if is_activated and any(isinstance(each, (nn.Conv2d, Block)) for each in behind):
        return ", an activation between it and the next convolution"
    return ""
