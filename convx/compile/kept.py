"""What is made of weights beside a compiled graph, which reads it: norms folded in, filters packed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

from convx import operators
from convx.dispatch.packed import are_filters_constant, are_writes_counted, optimizer_steps, state_of
from convx.optimize.folding import Norm, folded


@dataclass(frozen=True)
class Folding:
    """A weight and a bias with a norm in them. Of what they are made: places among the graph's inputs."""

    weight: int
    bias: int | None
    norm: Norm[int]
    dtype: torch.dtype  # of the convolution: autocast's, where it is on

    @property
    def places(self) -> tuple[int, ...]:
        norm = self.norm
        every = (self.weight, self.bias, norm.mean, norm.variance, norm.weight, norm.bias)
        return tuple(place for place in every if place is not None)

    def room(self, weight: Tensor) -> list[Tensor]:
        """In the layout of the weight that is folded."""
        options: Any = {"dtype": self.dtype, "device": weight.device}
        made = torch.empty_strided(tuple(weight.shape), weight.stride(), **options)
        return [made, torch.empty(weight.shape[0], **options)]

    def values(self, args: Sequence[Any], kept: dict[Any, list[Tensor]]) -> Sequence[Tensor]:
        norm = self.norm
        scale, shift = (None if place is None else args[place] for place in (norm.weight, norm.bias))
        of_tensors = Norm(None, args[norm.mean], args[norm.variance], scale, shift, norm.eps)
        return folded(args[self.weight], None if self.bias is None else args[self.bias], of_tensors)


@dataclass(frozen=True)
class Packing:
    """Filters in the order that the kernel of one plan reads."""

    source: int | Folding  # the weight: a place among the graph's inputs, or one with a norm in it
    size: int  # in bytes
    has_bias: bool
    images: tuple[tuple[Any, Any] | None, ...]  # sizes and strides of the operator's input and residual
    rest: tuple[Any, ...]  # of the operator's arguments, from stride to tf32
    residual_after_activation: bool

    @property
    def weight(self) -> int:
        return self.source if isinstance(self.source, int) else self.source.weight

    @property
    def places(self) -> tuple[int, ...]:
        return (self.source,) if isinstance(self.source, int) else self.source.places

    def room(self, weight: Tensor) -> list[Tensor]:
        return [torch.empty(self.size, dtype=torch.uint8, device=weight.device)]

    def values(self, args: Sequence[Any], kept: dict[Any, list[Tensor]]) -> Sequence[Tensor]:
        weight = args[self.source] if isinstance(self.source, int) else kept[self.source][0]
        filters = weight.unsqueeze(-2) if weight.dim() == 3 else weight
        options: Any = {"dtype": weight.dtype, "device": weight.device}
        input, residual = (
            None if each is None else torch.empty_strided(*each, **options) for each in self.images
        )
        bias = torch.empty(weight.shape[0], **options) if self.has_bias else None
        behind = (residual, None, self.residual_after_activation)
        return [operators.pack_weight(input, filters, bias, *self.rest, *behind)]


class KeptWeights:
    """A compiled graph that takes, behind its own inputs, what is made of some of them.

    That is made anew, in the memory where it is, when one of the tensors that it is made of is another one,
    has other memory or was written to: version counters and optimizer steps tell. Where weights have become
    such as nobody counts writes to since the graph was compiled, it is made at each call. A CUDA graph that
    captures the call makes it in the graph, so that its replays see what weights hold then; within
    convx.constant_filters it reads what a call before it has made, where that is up to date.
    """

    def __init__(self, makings: Sequence[Folding | Packing], examples: Sequence[Any]) -> None:
        """makings: in the order of their inputs. examples: the graph's own, real or fake."""
        self._places = sorted({place for each in makings for place in each.places})
        self._lock = threading.Lock()
        self._sources: list[Tensor] = []  # held: no other tensor takes the place of one
        self._seen: Any = None  # of the sources when it was made; None where that can't be relied on
        self._is_on_gpu = any(examples[place].is_cuda for place in self._places)
        with unset_fake_temporarily(), torch.inference_mode(False):
            self._kept = {each: each.room(examples[each.weight]) for each in makings}
        self._further = [tensor for made in self._kept.values() for tensor in made]

    def before(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The function of the graph's own inputs; run: of these and what is made."""

        def call(*args: Any) -> Any:
            self._refresh(args)
            return run(*args, *self._further)

        return call

    def _refresh(self, args: Sequence[Any]) -> None:
        sources = [args[place] for place in self._places]
        if self._is_current(sources):
            return
        with self._lock:
            if not self._is_current(sources):
                self._make(args)
                self._sources, self._seen = sources, self._state(sources)

    def _is_current(self, sources: list[Tensor]) -> bool:
        if self._seen is None or (self._is_captured() and not are_filters_constant()):
            return False
        try:
            return bool(self._seen == _seen(sources))
        except RuntimeError:  # memory of another kind since
            return False

    def _state(self, sources: list[Tensor]) -> Any:
        is_known = not self._is_captured() and all(map(are_writes_counted, sources))
        return _seen(sources) if is_known else None

    def _is_captured(self) -> bool:
        return self._is_on_gpu and torch.cuda.is_current_stream_capturing()

    def _make(self, args: Sequence[Any]) -> None:
        with torch.inference_mode(False), torch.no_grad():
            for each, made in self._kept.items():
                for tensor, values in zip(made, each.values(args, self._kept), strict=True):
                    tensor.copy_(values)
        if self._is_captured():
            # A kernel between: convx's may begin to read packed filters before the one ahead of them ends.
            torch.zeros(1, device=self._further[0].device)
            return
        for device in {each.device for each in self._further if each.is_cuda}:
            torch.cuda.synchronize(device)  # other streams may read them from now on


def _seen(sources: list[Tensor]) -> Any:
    return optimizer_steps(), state_of(sources)
