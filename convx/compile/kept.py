"""Keeps what is made of weights beside a compiled graph, and makes it anew when those change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

from convx.compile.makings import Making, Source, places
from convx.dispatch.packed import are_filters_constant, are_writes_counted, optimizer_steps, state_of


class KeptWeights:
    """A compiled graph that takes, behind its own inputs, what is made of some of them.

    That is made anew, in the memory where it is, when one of the tensors that it is made of is another one,
    has other memory or was written to: version counters and optimizer steps tell. Where weights have become
    such as nobody counts writes to since the graph was compiled, it is made at each call. A CUDA graph that
    captures the call makes it in the graph, so that its replays see what weights hold then; within
    convx.constant_filters it reads what a call before it has made, where that is up to date.
    """

    def __init__(self, makings: Sequence[Making], examples: Sequence[Any]) -> None:
        """makings: in the order of their inputs. examples: the graph's own, real or fake."""
        self._places = sorted(places(source for each in makings for source in each.sources))
        self._lock = threading.Lock()
        self._sources: list[Tensor] = []  # held: no other tensor takes the place of one
        self._seen: Any = None  # of the sources when it was made; None where that can't be relied on
        self._is_on_gpu = any(examples[place].is_cuda for place in self._places)
        with unset_fake_temporarily(), torch.inference_mode(False):
            self._kept: dict[Making, list[Tensor]] = {}
            for each in makings:
                self._kept[each] = each.room(self._tensor(each.like, examples))
        self._further = [tensor for made in self._kept.values() for tensor in made]

    def before(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The function of the graph's own inputs; run: of these and what is made."""

        def call(*args: Any) -> Any:
            self._refresh(args)
            return run(*args, *self._further)

        return call

    def _tensor(self, source: Source, args: Sequence[Any]) -> Tensor:
        """That there is in its place; args: the graph's own inputs."""
        if isinstance(source, int):
            return args[source]  # type: ignore[no-any-return]
        return self._kept[source.making][source.index]

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
                every = each.values(lambda source: self._tensor(source, args))
                for tensor, values in zip(made, every, strict=True):
                    tensor.copy_(values)
        if self._is_captured():
            # A kernel between: convx's may begin to read packed filters before the one ahead of them ends.
            torch.zeros(1, device=self._further[0].device)
            return
        for device in {each.device for each in self._further if each.is_cuda}:
            torch.cuda.synchronize(device)  # other streams may read them from now on


def _seen(sources: list[Tensor]) -> Any:
    return optimizer_steps(), state_of(sources)
