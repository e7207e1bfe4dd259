"""Nodes of a graph that only move channels of images: concatenations, slices, shuffles."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn

from convx.optimize.graph import Reader, bound, has_hooks
from convx.optimize.nodes import is_image, shape_of

Channel = tuple[fx.Node, int]
_VIEWS = ("view", "reshape")
_PIECES: dict[Any, str] = {torch.chunk: "chunk", torch.split: "split", "chunk": "chunk", "split": "split"}
_GROUPS: tuple[Any, ...] = (torch.channel_shuffle, nn.functional.channel_shuffle)
_TURNS: tuple[Any, ...] = (torch.transpose, "transpose")
# What shuffles and slices are written with.
_HELPERS: tuple[Any, ...] = (*_VIEWS, *_TURNS, *_PIECES, "size", "contiguous", getattr, operator.floordiv)


def is_helper(node: fx.Node) -> bool:
    """Whether what it gives may be no more than a part of a move."""
    return node.target in _HELPERS or (node.target is operator.getitem and not is_image(node))


def channels_of(node: fx.Node) -> list[Channel]:
    return [(node, channel) for channel in range(shape_of(node)[1])]


def moved(reader: Reader, node: fx.Node) -> Iterator[Channel] | None:
    """What each channel of an image is, if the node does nothing else."""
    if not is_image(node):
        return None
    inputs = _concatenated(node)
    if inputs is not None:
        return (channel for each in inputs for channel in channels_of(each))
    if is_slice(node):
        source, channels = _slice(node)  # type: ignore[misc]
        return iter(channels_of(source)[channels])
    shuffled = _shuffle(reader, node)
    if shuffled is None:
        return None
    source, groups = shuffled
    size = shape_of(source)[1] // groups
    return ((source, group * size + channel) for channel in range(size) for group in range(groups))


def is_slice(node: fx.Node) -> bool:
    return is_image(node) and _slice(node) is not None


def _concatenated(node: fx.Node) -> list[fx.Node] | None:
    if node.op != "call_function" or node.target not in (torch.cat, torch.concat):
        return None
    of = bound(node, "tensors dim")
    inputs = of["tensors"]
    is_of_channels = of.get("dim", 0) in (1, -3) and isinstance(inputs, (tuple, list))
    return [*inputs] if is_of_channels and all(map(is_image, inputs)) else None


def _slice(node: fx.Node) -> tuple[fx.Node, slice] | None:
    """Neighbours of a source."""
    if node.op != "call_function" or node.target is not operator.getitem:
        return None
    source: Any = node.args[0]
    which: Any = node.args[1]
    if isinstance(which, int):
        sizes = _sizes_of_pieces(source)
        if sizes is None or not 0 <= which < len(sizes):
            return None
        first = sum(sizes[:which])
        return source.args[0], slice(first, first + sizes[which])
    if not is_image(source) or not isinstance(which, tuple) or len(which) < 2:
        return None
    own = which[1]
    is_whole = [each in (slice(None), Ellipsis) for each in (which[0], *which[2:])]
    is_plain = isinstance(own, slice) and own.step in (None, 1) and which[0] is not Ellipsis and all(is_whole)
    if not is_plain or any(isinstance(each, fx.Node) for each in (own.start, own.stop)):
        return None
    return (source, own) if channels_of(source)[own] else None


def _sizes_of_pieces(node: Any) -> list[int] | None:
    """Of the channels of an image that is cut."""
    name = _PIECES.get(node.target) if isinstance(node, fx.Node) else None
    if name is None or not node.args or not is_image(node.args[0]):
        return None
    of = bound(node, "input given dim")
    given: Any = of.get("given", of.get("chunks", of.get("split_size_or_sections", of.get("split_size"))))
    if of.get("dim", 0) not in (1, -3):
        return None
    if isinstance(given, (tuple, list)):
        return [*given] if all(isinstance(each, int) for each in given) else None
    if not isinstance(given, int) or given < 1:
        return None
    channels = shape_of(node.args[0])[1]
    size = -(-channels // given) if name == "chunk" else given
    return [min(size, channels - first) for first in range(0, channels, size)]


def _shuffle(reader: Reader, node: fx.Node) -> tuple[fx.Node, int] | None:
    """A source whose groups of channels take turns, and how many there are."""
    layer: Any = reader.layer(node)
    source: Any = node.args[0] if node.args else None
    if layer is not None:
        is_shuffle = type(layer) is nn.ChannelShuffle and not has_hooks(layer) and is_image(source)
        return (source, layer.groups) if is_shuffle else None
    if node.op == "call_function" and node.target in _GROUPS:
        groups: Any = bound(node, "input groups").get("groups")
        return (source, groups) if is_image(source) and isinstance(groups, int) else None
    return _shuffle_by_views(node)


def _shuffle_by_views(node: fx.Node) -> tuple[fx.Node, int] | None:
    """As most networks write it: seen in groups, those turned, and seen as channels again."""
    found: list[Any] = [node]
    for targets in (_VIEWS, ("contiguous",), _TURNS, _VIEWS):
        if not isinstance(found[-1], fx.Node) or found[-1].target not in targets:
            return None
        found.append(found[-1].args[0] if found[-1].args else None)
    view, _, turned, grouped, source = found
    sizes = shape_of(grouped)
    if not is_image(source) or len(sizes) != 5 or shape_of(source) != shape_of(node):
        return None
    is_turned = tuple(turned.args[1:]) in ((1, 2), (2, 1))
    keeps = _keeps(grouped, source, {0: 0, 3: 2, 4: 3}) and _keeps(view, source, {0: 0, 2: 2, 3: 3})
    return (source, sizes[1]) if is_turned and keeps else None


def _keeps(view: fx.Node, source: fx.Node, places: dict[int, int]) -> bool:
    """Whether these sizes of a view are those of the source, whatever they are."""
    given: Any = view.args[1:]
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = given[0]
    is_whole = len(given) == len(shape_of(view))
    return is_whole and all(_is_size(given[own], source, place) for own, place in places.items())


def _is_size(value: Any, source: fx.Node, place: int) -> bool:
    if not isinstance(value, fx.Node):
        return False
    if value.target == "size":
        return value.args == (source, place)
    if value.target is not operator.getitem or value.args[1] != place:
        return False
    sizes: Any = value.args[0]
    return sizes.args in ((source,), (source, "shape")) and sizes.target in ("size", getattr)
