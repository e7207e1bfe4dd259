"""A layer's filters in the orders that kernels read them, kept from call to call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from convx import ops

# Input sizes of which a layer keeps something; a network of changing sizes starts anew past that.
_MOST = 8

_generation = 0


class _Promise(threading.local):
    constant = False  # what this thread captures meets filters that nobody will change


_promise = _Promise()


@contextmanager
def constant_filters() -> Iterator[None]:
    """Lets CUDA graphs that are captured within use the filters that layers have packed before.

    A captured call packs its filters at every replay, so that it sees what the weight holds then: that
    takes 2 to 15 microseconds a layer. Who serves a trained network has no use for that. A capture within
    this context reads the packed copy that a call before it, outside of the graph, has left with the layer;
    replays do not see later changes of the weight. The layers have to live as long as the graph does, as
    their weights have to anyway. A layer that has no packed copy yet packs in the graph, as without this.
    Outside of captures nothing changes. It counts for the thread that enters it.

    >>> import torch, convx
    >>> layer, x = convx.nn.Conv2d(64, 64, 1).eval(), torch.randn(1, 64, 56, 56)
    >>> def capture():  # on a GPU
    ...     graph = torch.cuda.CUDAGraph()
    ...     with torch.no_grad(), convx.constant_filters():
    ...         layer(x)
    ...         with torch.cuda.graph(graph):
    ...             return graph, layer(x)
    """
    before, _promise.constant = _promise.constant, True
    try:
        yield
    finally:
        _promise.constant = before


def _in_graph(weight: Tensor) -> bool:
    return weight.is_cuda and torch.cuda.is_current_stream_capturing()


def generation() -> int:
    """Of the plans that were chosen: another number after forget_all."""
    return _generation


def forget_all() -> None:
    """Lets every layer pack anew: other plans may have been chosen."""
    global _generation
    _generation += 1


def keep(table: dict[Any, Any], key: Any, value: Any) -> None:
    """Adds what belongs to one more input size."""
    if len(table) >= _MOST:
        table.clear()
    table[key] = value


def _version_of(weight: Tensor) -> int | None:
    """The count of writes to a tensor; None where torch keeps none: is_inference() would not do, since a
    parameter made in inference mode has no count either once its data is another tensor's."""
    try:
        return weight._version
    except RuntimeError:
        return None


class PackedFilters:
    """Packed copies of one weight: valid as long as it is the same tensor, in the same memory, at the same
    version. They are no state: copies and pickles of a layer begin without any.
    """

    __slots__ = ("_captured", "_generation", "_kept", "_memory", "_owner", "_version", "choices")

    def __init__(self) -> None:
        self.choices: dict[Any, Any] = {}  # which calls are native's: convx._native
        self._kept: dict[Any, Tensor | None] = {}
        self._captured: list[Tensor] = []  # what graphs read, which nobody else may be given the memory of
        self._owner: Tensor | None = None
        self._memory: Tensor | None = None
        self._version = self._generation = -1

    def __reduce__(self) -> tuple[type[PackedFilters], tuple[()]]:
        return PackedFilters, ()

    def __deepcopy__(self, memo: dict[int, Any]) -> PackedFilters:
        return PackedFilters()

    def forget(self) -> None:
        """Lets the next call pack anew, after writes that a version counter does not see (weight.data)."""
        captured = self._captured
        self.__init__()  # type: ignore[misc]
        self._captured = captured

    def of(self, input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor | None:
        """What convx::conv2d takes as packed_weight with these arguments; None lets it pack by itself.

        A CUDA graph has to pack in the graph, so that replays see what the weight holds then, unless that is
        said not to change. Tensors made in inference mode have no version that would tell when they change.
        """
        version = _version_of(weight)
        if version is None:
            return None
        owner = weight if weight._base is None else weight._base  # conv1d's weight is a view of the layer's
        holds = self._holds(owner, weight, version)
        key = (
            weight.shape,
            weight.stride(),
            input.shape,
            input.stride(),
            bias is None,
            torch.get_num_threads(),
            *rest,
        )
        if _in_graph(weight):
            return self._for_graph(key) if _promise.constant and holds else None
        if not holds:
            self._kept.clear()
            # The alias keeps the memory from being given to another tensor at the same address.
            self._owner, self._memory = owner, weight.detach()
            self._version, self._generation = version, _generation
        if key not in self._kept:
            packed = ops.pack_weight(input, weight, bias, *rest)
            keep(self._kept, key, packed if packed.numel() > 0 else None)
        return self._kept[key]

    def _for_graph(self, key: Any) -> Tensor | None:
        """What is kept, from now on for good; None where nothing is: what a graph packs is the graph's."""
        kept = self._kept.get(key)
        if kept is not None and all(kept is not each for each in self._captured):
            self._captured.append(kept)
        return kept

    def _holds(self, owner: Tensor, weight: Tensor, version: int) -> bool:
        return (
            self._owner is owner
            and self._version == version
            and self._generation == _generation
            and self._memory is not None
            and self._memory.data_ptr() == weight.data_ptr()
            and self._memory.dtype == weight.dtype
        )
