"""Weights with batch norms in them, beside a compiled graph that reads them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

from convx.dispatch.packed import optimizer_steps, version_of
from convx.optimize.folding import Norm, folded

_version = attrgetter("_version")


@dataclass(frozen=True)
class Recipe:
    """Of what a folded weight and bias are made: places among the graph's inputs."""

    weight: int
    bias: int | None
    norm: Norm[int]
    dtype: torch.dtype  # of the convolution: autocast's, where it is on

    @property
    def places(self) -> tuple[int, ...]:
        norm = self.norm
        every = (self.weight, self.bias, norm.mean, norm.variance, norm.weight, norm.bias)
        return tuple(place for place in every if place is not None)

    def room(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """For a weight and a bias, in the layout of the weight that is folded."""
        options: Any = {"dtype": self.dtype, "device": weight.device}
        made = torch.empty_strided(tuple(weight.shape), weight.stride(), **options)
        return made, torch.empty(weight.shape[0], **options)


class FoldedWeights:
    """A compiled graph that takes, behind its own inputs, the weights that recipes make.

    They are made anew, in the memory where they are, when one of the tensors that they are made of is another
    one, has other memory or was written to: version counters and optimizer steps tell. Weights of which
    nobody counts writes are folded at each call: those made in inference mode, and those that processes
    share. A CUDA graph that captures the call folds in the graph, so that its replays see what weights hold
    then.
    """

    def __init__(self, recipes: Sequence[Recipe], examples: Sequence[Any]) -> None:
        """examples: the graph's inputs, real or fake."""
        self._recipes = recipes
        self._places = sorted({place for recipe in recipes for place in recipe.places})
        self._lock = threading.Lock()
        self._sources: list[Tensor] = []
        self._seen: Any = None  # of the sources when they were folded; None where that can't be relied on
        self._is_on_gpu = any(examples[place].is_cuda for place in self._places)
        with unset_fake_temporarily(), torch.inference_mode(False):
            self.made = [each for recipe in recipes for each in recipe.room(examples[recipe.weight])]

    def before(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The function of the graph's own inputs; run: of these and what is made."""

        def call(*args: Any) -> Any:
            self._refresh(args)
            return run(*args, *self.made)

        return call

    def _refresh(self, args: Sequence[Any]) -> None:
        sources = [args[place] for place in self._places]
        if self._is_current(sources):
            return
        with self._lock:
            if not self._is_current(sources):
                self._fold(args)
                self._sources, self._seen = sources, self._state(sources)

    def _is_current(self, sources: list[Tensor]) -> bool:
        if self._seen is None or self._is_captured():
            return False
        if not all(map(is_, sources, self._sources)):
            return False
        try:
            return bool(self._seen == _seen(sources))
        except RuntimeError:  # memory of another kind since
            return False

    def _state(self, sources: list[Tensor]) -> Any:
        if self._is_captured() or any(each.device.type == "cpu" and each.is_shared() for each in sources):
            return None
        return None if any(version_of(each) is None for each in sources) else _seen(sources)

    def _is_captured(self) -> bool:
        return self._is_on_gpu and torch.cuda.is_current_stream_capturing()

    def _fold(self, args: Sequence[Any]) -> None:
        rooms = iter(self.made)
        with torch.inference_mode(False), torch.no_grad():
            for recipe in self._recipes:
                for values in _folded(recipe, args):
                    next(rooms).copy_(values)
        if self._is_on_gpu and not self._is_captured():
            torch.cuda.synchronize()  # other streams may read them from now on


def _seen(sources: list[Tensor]) -> Any:
    """What a write changes, or another memory."""
    return optimizer_steps(), list(map(_version, sources)), list(map(Tensor.data_ptr, sources))


def _folded(recipe: Recipe, args: Sequence[Any]) -> tuple[Tensor, Tensor]:
    norm, bias = recipe.norm, recipe.bias
    scale, shift = (None if place is None else args[place] for place in (norm.weight, norm.bias))
    of_tensors = Norm(None, args[norm.mean], args[norm.variance], scale, shift, norm.eps)
    return folded(args[recipe.weight], None if bias is None else args[bias], of_tensors)
