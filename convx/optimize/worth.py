"""Whether a network has anything to gain by a compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import fx, nn
from torch.nn.modules.conv import _ConvNd

from convx._blocks import Block
from convx.optimize.graph import Reader
from convx.optimize.layers import PlaneMeans, PooledPlanes
from convx.optimize.report import FusionReport

_LEAST_REST = 0.2  # of a call's time, that convolutions do not take
_PLAIN_LAYERS = (
    *(_ConvNd, Block, PlaneMeans, PooledPlanes, nn.Linear, nn.Flatten, nn.Identity),
    *(nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d),
)
_NOT_PLAIN = (nn.GELU, nn.Softmax, nn.LogSoftmax, nn.Softmax2d, nn.MultiheadAttention)
_PLAIN_NAMES = frozenset(
    (
        *("conv1d", "conv2d", "linear", "mean", "max_pool2d", "avg_pool2d"),
        *("adaptive_avg_pool2d", "adaptive_max_pool2d"),
        *("relu", "relu6", "silu", "hardswish", "sigmoid", "hardsigmoid", "hardtanh", "leaky_relu", "tanh"),
        *("flatten", "view", "reshape", "squeeze", "unsqueeze", "permute", "transpose", "expand", "chunk"),
        *("contiguous", "size", "dim", "getattr", "getitem", "eq", "_assert"),
    )
)


def could_gain(network: Any, rows: Sequence[FusionReport], us: float) -> bool:
    """Whether measured convolutions leave a part of a call's time that counts, and inductor has something to
    fuse. rows: of this network; us: of a call. It is compiled for seconds, which is to be worth a try."""
    measured = [row.us for row in rows if row.us is not None]
    if not measured or sum(measured) > (1 - _LEAST_REST) * us:
        return False
    reader = Reader(network)
    return any(not _is_plain(reader, node) for node in network.graph.nodes)


def _is_plain(reader: Reader, node: fx.Node) -> bool:
    """What has one kernel or none in either case."""
    if node.op in ("placeholder", "output", "get_attr") or reader.is_identity(node):
        return True
    layer = reader.layer(node)
    if layer is not None:
        is_activation = type(layer).__module__ == nn.ReLU.__module__
        return isinstance(layer, _PLAIN_LAYERS) or (is_activation and not isinstance(layer, _NOT_PLAIN))
    if reader.sum(node) is not None or node.target is F.max_pool2d:
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name.rstrip("_") in _PLAIN_NAMES if not name.startswith("_") else name in _PLAIN_NAMES
