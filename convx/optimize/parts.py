"""Parts of a model that torch.fx can't follow as a whole: the largest submodules that it can follow."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from convx import _layers
from convx.operators import autocast
from convx.optimize.check import copied
from convx.optimize.values import Watch

Made = TypeVar("Made")


@dataclass(frozen=True)
class Part:
    """A submodule, and a call of it in the example call of the model."""

    name: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    has_one_size: bool
    """Whether it is called with tensors of the same sizes whenever the model is: once at least, and before
    anything that the model chooses by values, as detectors choose boxes."""


def parts_of(
    model: nn.Module, args: Any, kwargs: Any, follow: Callable[[Part], Made | None]
) -> list[tuple[Part, Made]]:
    """The largest submodules with convolutions that follow makes something of, and that: what it returns None
    for is looked into. Each is called in the model's call with tensors alone (None and flags beside them):
    numbers may be sizes, which are others with the next input; and without autocast, which would not be on
    where the part is by itself. None is in another. The model is in evaluation mode, and runs once for each
    level of modules that is looked at."""
    found = []
    level = list(_children("", model))
    while level:
        calls = _calls(model, [module for _, module in level], args, kwargs)
        below: list[tuple[str, nn.Module]] = []
        for name, module in level:
            seen = calls[module]
            part = Part(name, module, seen.args, seen.kwargs, seen.has_one_size)
            made = follow(part) if seen.of_tensors else None
            if made is None:
                below += _children(f"{name}.", module)
            else:
                found.append((part, made))
        level = below
    return found


def with_parts(model: nn.Module, made: Mapping[str, nn.Module]) -> nn.Module:
    """A copy of a model, which has in the place of each submodule by name what was made of it."""
    own = dict(model.named_modules(remove_duplicate=False))
    taken: dict[int, Any] = {id(own[name]): Served(own[name], module) for name, module in made.items()}
    return copy.deepcopy(model, taken)


class Served(nn.Module):
    """Stands where a part of a model was, with its plain attributes, which the model's code may read."""

    def __init__(self, part: nn.Module, by: nn.Module) -> None:
        super().__init__()
        own = {name: value for name, value in vars(part).items() if not name.startswith("_")}
        self.__dict__ |= own
        self.by = by

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.by(*args, **kwargs)


def in_parts(model: nn.Module) -> set[nn.Module]:
    """All modules of what serves parts of it."""
    return {each for served in model.modules() if isinstance(served, Served) for each in served.modules()}


@dataclass
class _Seen:
    """The calls of one module: the arguments of the largest."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    of_tensors: bool = False
    has_one_size: bool = True
    size: int = -1
    kinds: set[Any] = field(default_factory=set)


def _children(prefix: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """That have convolutions, and are none: one alone is swapped where it is."""
    for name, child in module.named_children():
        found = _layers.convolutions(child)
        if found and child not in found:
            yield f"{prefix}{name}", child


def _calls(model: nn.Module, modules: list[nn.Module], args: Any, kwargs: Any) -> dict[nn.Module, _Seen]:
    seen = {module: _Seen() for module in modules}
    watch = Watch()

    def record(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        own, leaves = seen[module], tree_leaves((given, named))
        tensors = [each for each in leaves if isinstance(each, Tensor)]
        are_tensors = bool(tensors) and all(_is_open_or_flag(each) for each in leaves)
        are_tensors &= not any(autocast.is_on(each.device.type) for each in tensors)
        own.of_tensors = are_tensors and (own.of_tensors or not own.kinds)
        own.kinds.add(tuple((each.shape, each.dtype, each.device) for each in tensors))
        own.has_one_size = len(own.kinds) == 1 and not watch.has_asked
        size = sum(each.numel() for each in tensors)
        if own.of_tensors and size > own.size:
            own.size, (own.args, own.kwargs) = size, tree_map(copied, (given, named))

    handles = [module.register_forward_pre_hook(record, with_kwargs=True) for module in modules]
    try:
        with torch.no_grad(), watch:
            given, named = tree_map(copied, (args, kwargs))  # a model may write to them
            model(*given, **named)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _is_open_or_flag(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, (Tensor, bool))
