"""What the attributes of a layer mean, for convx._front, which keeps what a layer's calls come down to."""

from __future__ import annotations

from typing import Any

from convx._arguments import Four, Pair, integer, padding_1d, padding_2d, pair, single

Meant = tuple[Pair, Four, Pair, int, str, str]


def arguments(layer: Any) -> Meant | None:
    """Stride, padding, dilation, groups, activation and algorithm; None where functional is to serve them.

    Raises what is wrong with them.
    """
    if layer.padding_mode != "zeros":
        return None
    taps = layer.weight.shape[2:]
    if len(taps) == 1:
        stride, dilation = (1, single("stride", layer.stride)), (1, single("dilation", layer.dilation))
        padding = padding_1d(layer.padding, taps, stride[1], dilation[1])
    else:
        stride, dilation = pair("stride", layer.stride), pair("dilation", layer.dilation)
        padding = padding_2d(layer.padding, layer.weight.shape, stride, dilation)
    return stride, padding, dilation, integer("groups", layer.groups), layer.activation, layer.algorithm
