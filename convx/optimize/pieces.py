"""Pieces of a model that is not followed as a whole: the layers and parts that something else serves, each
beside that with what the model itself gives it. All between them is the model's own code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx, nn

Look = Callable[[str, nn.Module, nn.Module, Any, Any], None]
"""Is told of a call: the piece's name, the piece, what serves it, and the arguments."""


def pieces_of(model: nn.Module, optimized: Any) -> dict[str, tuple[nn.Module, nn.Module]]:
    """By name, each with what serves it; none of what is served as a whole."""
    served = getattr(optimized, "network", optimized)
    if not isinstance(served, nn.Module) or isinstance(served, fx.GraphModule):
        return {}
    return dict(_replaced("", model, served))


def _replaced(
    prefix: str, model: nn.Module, served: nn.Module
) -> Iterator[tuple[str, tuple[nn.Module, nn.Module]]]:
    for name, own in model.named_children():
        other = served._modules.get(name)
        if other is None:
            continue
        if type(other) is not type(own):
            yield f"{prefix}{name}", (own, other)
        else:
            yield from _replaced(f"{prefix}{name}.", own, other)


def look_at_calls(
    model: nn.Module, pieces: dict[str, tuple[nn.Module, nn.Module]], args: Any, kwargs: Any, look: Look
) -> None:
    """Of all pieces, in one call of the model, one after the other."""
    is_looking = False  # which calls the piece once more

    def told(name: str, by: nn.Module) -> Any:
        def tell(piece: nn.Module, given: Any, named: Any) -> None:
            nonlocal is_looking
            if is_looking:
                return
            is_looking = True
            try:
                look(name, piece, by, given, named)
            finally:
                is_looking = False

        return tell

    handles = [
        own.register_forward_pre_hook(told(name, by), with_kwargs=True) for name, (own, by) in pieces.items()
    ]
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
