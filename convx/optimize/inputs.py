"""Calls of a model as lists of tensors: what torch.fx and CUDA graphs deal in."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from convx._errors import InvalidArgument


def tensors_in(args: Any, kwargs: Any) -> list[Tensor]:
    """All that a call is given, in tuples and dicts too."""
    return [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]


class _Open:
    """Where a call has a tensor."""


class Inputs:
    """The kind of a model's call: its arguments with defaults filled in, tensors left open.

    A graph follows what the model does for this kind; with other constants, or tensors in other places, the
    model may do something else.
    """

    _ranks: list[int] | None = None  # that tensors have to have

    def __init__(self, model: nn.Module, args: Any, kwargs: Any) -> None:
        self._signature = inspect.signature(model.forward)
        bound = self._bound(args, kwargs)
        self._pattern = tree_map(lambda leaf: _Open if isinstance(leaf, Tensor) else leaf, bound)
        self._count = tree_flatten(self._pattern)[0].count(_Open)
        # Calls like this one by position need not be bound.
        self._is_plain = bound[0] == args and all(isinstance(each, Tensor) for each in args) and not kwargs

    def __len__(self) -> int:
        return self._count

    def _bound(self, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def tensors(self, args: Any, kwargs: Any) -> list[Tensor]:
        """Of a call of this kind; InvalidArgument for another, TypeError for none that the model takes."""
        is_short = self._is_plain and not kwargs and len(args) == self._count
        if is_short and all(isinstance(each, Tensor) for each in args):
            return self._of_ranks(list(args))
        leaves, structure = tree_flatten(self._bound(args, kwargs))
        pattern, own_structure = tree_flatten(self._pattern)
        if structure != own_structure or not all(map(_is_like, leaves, pattern)):
            raise InvalidArgument(
                "the model was optimized for calls with other arguments: tensors in the places where "
                "example_input has them, and the same values everywhere else; optimize it once more with "
                "arguments as given here as example_input"
            )
        return self._of_ranks([leaf for leaf in leaves if isinstance(leaf, Tensor)])

    def require_ranks(self, example: Sequence[Tensor]) -> None:
        """Takes tensors of the example's numbers of dimensions alone, as the model asserts."""
        self._ranks = [each.dim() for each in example]

    def _of_ranks(self, tensors: list[Tensor]) -> list[Tensor]:
        if self._ranks is not None:
            given = [each.dim() for each in tensors]
            if given != self._ranks:
                raise InvalidArgument(
                    f"the model asserts how many dimensions tensors have, and was optimized for inputs of "
                    f"{_listed(self._ranks)}; got {_listed(given)}; optimize it once more with an "
                    f"example_input like that, or give it a batch"
                )
        return tensors

    def arguments(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the model is called with."""
        rest = iter(tensors)
        args, kwargs = tree_map(lambda leaf: next(rest) if leaf is _Open else leaf, self._pattern)
        return args, kwargs


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))


def _is_like(leaf: Any, pattern: Any) -> bool:
    if pattern is _Open or isinstance(leaf, Tensor):
        return pattern is _Open and isinstance(leaf, Tensor)
    return type(leaf) is type(pattern) and bool(leaf == pattern)
