"""A network in each layout that it may have throughout."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils._pytree import tree_map

from convx.optimize.check import copied
from convx.optimize.inputs import tensors_in
from convx.optimize.model import FORMATS, OptimizedModel, is_channels_last_image
from convx.optimize.rows import Network, given


def _names_of(layout: str, args: Any, kwargs: Any) -> list[str]:
    """Of the layouts that are asked for."""
    if layout != "auto":
        return [layout]
    images = [each for each in tensors_in(args, kwargs) if each.dim() == 4]
    if not images:
        return ["as given"]
    return ["as given", "nchw" if any(map(is_channels_last_image, images)) else "channels_last"]


def candidates_of(
    network: Network,
    layout: str,
    graphs: int,
    make: Callable[..., OptimizedModel],
    args: Any,
    kwargs: Any,
) -> dict[str, OptimizedModel]:
    """By the names of their layouts, of those that the network can be run in; of batches on CPUs also image
    by image, where layers can be measured so."""
    module, inputs = network.module, network.inputs
    first, *others = _names_of(layout, args, kwargs)
    found = {first: make(moved(module, first), inputs, first, graphs)}
    for name in others:
        other = make(moved(module, name), inputs, name, graphs)
        if _runs(other, args, kwargs):  # not where images of it are viewed as rows, which they are no longer
            found[name] = other
    if inputs is None or not _is_batch_on_cpu(args, kwargs):
        return found
    by_image = {
        f"{name} by image": make(each.network, inputs, name, graphs, by_image=True)
        for name, each in found.items()
    }
    # A model with the batch in its code does not.
    return found | by_image if _runs(next(iter(by_image.values())), args, kwargs) else found


def moved(module: nn.Module, layout: str) -> nn.Module:
    """With filters in the layout."""
    if layout not in FORMATS:
        return module
    made = copy.deepcopy(module)
    for each in made.parameters():
        move(each, layout)
    return made


def move(parameter: nn.Parameter, layout: str) -> None:
    """Gives a filter the layout."""
    if parameter.dim() == 4:  # torch's own `to` refuses layers of volumes
        # A copy: filters of 1x1, or of one channel, are contiguous in both layouts; their strides tell of
        # which one a convolution's result is to be.
        parameter.data = parameter.data.clone(memory_format=FORMATS[layout])


def _is_batch_on_cpu(args: Any, kwargs: Any) -> bool:
    tensors = tensors_in(args, kwargs)
    images = [each for each in tensors if each.dim() == 4]
    return bool(images) and len(images[0]) > 1 and all(each.device.type == "cpu" for each in tensors)


def _runs(optimized: OptimizedModel, args: Any, kwargs: Any) -> bool:
    """In a call as layers are measured in."""
    positional, named = tree_map(copied, given(optimized, args, kwargs))
    try:
        optimized.network.forward(*positional, **named)  # a graph's call would print what it raises
    except Exception:  # whatever a model's own code raises
        return False
    return True
