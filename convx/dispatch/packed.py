"""A layer's filters in the orders that kernels read them, kept from call to call."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from convx import _libraries, operators

# Input sizes of which a layer keeps something; a network of changing sizes starts anew past that.
_MOST = 64

_front = _libraries.front()
_generation = 0
_optimizer_steps = 0


def _count_step(*_: Any) -> None:
    global _optimizer_steps
    _optimizer_steps += 1
    if _front is not None:
        _front.forget_weights()


# Fused optimizers write without counting a version.
register_optimizer_step_post_hook(_count_step)


_MISSING: Any = object()


class _Promise(threading.local):
    constant = False  # what this thread captures meets filters that nobody will change
    held: list[Tensor] | None = None  # the packed copies that it has met; None where layers hold them


_promise = _Promise()


@contextmanager
def constant_filters() -> Iterator[None]:
    """Lets CUDA graphs that are captured within use the filters that layers have packed before.

    A captured call packs its filters at every replay, so that it sees what the weight holds then: that
    takes 2 to 15 microseconds a layer. Who serves a trained network has no use for that. A capture within
    this context reads the packed copy that a call before it, outside of the graph, has left with the layer,
    which has to be in eval mode; replays do not see later changes of the weight. The layers have to live as
    long as the graph does, as their weights have to anyway. A layer that has no packed copy yet packs in the
    graph, as without this. What torch.compile(backend="convx") keeps of weights is used likewise where it is
    up to date; the compiled function has to live then. Outside of captures nothing changes. It counts for the
    thread that enters it.

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


@contextmanager
def filters_of_graph() -> Iterator[list[Tensor]]:
    """constant_filters() whose graph is to hold what it reads: the list gets the packed copies that a capture
    meets, which live as long as somebody has the list, and not as long as the layers."""
    held: list[Tensor] = []
    before, _promise.held = _promise.held, held
    try:
        with constant_filters():
            yield held
    finally:
        _promise.held = before


def are_filters_constant() -> bool:
    """Whether this thread has entered constant_filters()."""
    return _promise.constant


def _in_graph(weight: Tensor) -> bool:
    return weight.is_cuda and torch.cuda.is_current_stream_capturing()


def forget_all() -> None:
    """Lets every layer prepare its calls and pack anew: other plans may have been chosen."""
    global _generation
    _generation += 1
    if _front is not None:
        _front.forget_plans()


def generation() -> int:
    """Another one for every forget_all."""
    return _generation


def optimizer_steps() -> int:
    """Another number after every step of torch's optimizers."""
    return _optimizer_steps


def _no_calls(*_: Any) -> None:
    """A layer's calls without convx._front: functional serves them."""


def _keep(table: dict[Any, Any], key: Any, value: Any) -> None:
    """Adds what belongs to one more input size."""
    if len(table) >= _MOST:
        table.clear()
    table[key] = value


def version_of(weight: Tensor) -> int | None:
    """The count of writes to a tensor; None where torch keeps none: is_inference() would not do, since a
    parameter made in inference mode has no count either once its data is another tensor's."""
    try:
        return weight._version
    except RuntimeError:
        return None


def are_writes_counted(tensor: Tensor) -> bool:
    """Not those to tensors that were made in inference mode, or that processes share."""
    is_shared = tensor.device.type == "cpu" and tensor.is_shared()
    return not is_shared and version_of(tensor) is not None


def state_of(tensors: Sequence[Tensor | dict[str, Tensor | None]]) -> int:
    """Another number once one of them is written to, has other memory, is to have a gradient or is another
    tensor, as long as those live, and after steps of optimizers where one is to have a gradient: fused ones
    count no write. Of a module's _parameters, all that it has. RuntimeError where one counts no writes.

    >>> import torch
    >>> weight = torch.ones(3)
    >>> before = state_of([weight])
    >>> state_of([weight]) == before, state_of([weight.mul_(2)]) == before
    (True, False)
    """
    if _front is not None:
        return _front.state_of(tensors)  # type: ignore[no-any-return]
    every = [each for some in tensors for each in (some.values() if isinstance(some, dict) else (some,))]
    held = [each for each in every if each is not None]
    found = [(id(each), each.data_ptr(), each._version, each.requires_grad) for each in held]
    steps = _optimizer_steps if any(each.requires_grad for each in held) else 0
    return hash((len(tensors), steps, *found))


class _Snapshot:
    """One weight as it is now, and its packed copies, by what the call that they are for is like.

    It is never changed into another weight's, so that a thread that packs while another writes leaves what it
    has packed where nobody looks for it any more.
    """

    __slots__ = ("_address", "_alias", "_dtype", "_generation", "_owner", "_steps", "_version", "packed")

    def __init__(self, owner: Tensor, weight: Tensor, version: int) -> None:
        self.packed: dict[Any, Tensor | None] = {}
        self._owner, self._version, self._dtype = owner, version, weight.dtype
        self._generation, self._steps = _generation, _optimizer_steps
        # The alias keeps the memory from being given to another tensor at the same address.
        self._alias, self._address = weight.detach(), weight.data_ptr()

    def is_of(self, owner: Tensor, weight: Tensor, version: int) -> bool:
        return (
            self._owner is owner
            and self._version == version
            and self._generation == _generation
            and self._steps == _optimizer_steps
            and self._address == weight.data_ptr()
            and self._dtype == weight.dtype
        )

    def keep(self, key: Any, packed: Tensor | None) -> Tensor | None:
        """Input sizes whose kernels read the same order have one copy."""
        if packed is not None:
            kept = {id(each): each for each in list(self.packed.values()) if each is not None}
            same = (each for each in kept.values() if torch.equal(each, packed))
            packed = next(same, packed)
        _keep(self.packed, key, packed)
        return packed


class PackedFilters:
    """Packed copies of one weight: valid as long as it is the same tensor, in the same memory, at the same
    version. They are no state: copies and pickles of a layer begin without any.
    """

    __slots__ = ("_captured", "_snapshot", "calls", "keeps")

    def __init__(self) -> None:
        self.calls: Any = (
            _no_calls if _front is None else _front.LayerCalls()
        )  # of the layer: csrc/front/layer.h
        self.keeps = True  # else calls pack for themselves: a layer's in training mode
        self._snapshot: _Snapshot | None = None
        self._captured: list[Tensor] = []  # what graphs of others read, of which nobody knows when they end

    def __reduce__(self) -> tuple[type[PackedFilters], tuple[()]]:
        return PackedFilters, ()

    def __deepcopy__(self, memo: dict[int, Any]) -> PackedFilters:
        return PackedFilters()

    def forget(self) -> None:
        """Lets the next call be prepared and pack anew, after writes that a version counter may not see."""
        if _front is not None:
            self.calls.forget()
        self._snapshot = None

    def of(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *rest: Any,
        residual: Tensor | None = None,
        residual_after_activation: bool = False,
    ) -> Tensor | None:
        """What convx::conv2d takes as packed_weight with these arguments; None lets it pack by itself.

        A CUDA graph has to pack in the graph, so that replays see what the weight holds then, unless that is
        said not to change. Nothing is kept of weights whose writes nobody here counts: those made in
        inference mode, and those that other processes share; meta tensors hold nothing.
        """
        version = version_of(weight) if self.keeps else None
        if version is None:
            return None
        owner = weight if weight._base is None else weight._base  # conv1d's weight is a view of the layer's
        snapshot = self._snapshot
        if snapshot is not None and not snapshot.is_of(owner, weight, version):
            snapshot = None
        key = (
            weight.shape,
            weight.stride(),
            input.shape,
            input.stride(),
            bias is None,
            residual is None,
            residual_after_activation,
            torch.get_num_threads(),
            *rest,
        )
        if _in_graph(weight):
            return self._for_graph(snapshot, key) if are_filters_constant() else None
        if snapshot is None:
            if weight.is_meta or not are_writes_counted(weight):
                return None
            snapshot = self._snapshot = _Snapshot(owner, weight, version)
        packed: Tensor | None = snapshot.packed.get(key, _MISSING)
        if packed is _MISSING:
            behind = (residual, None, residual_after_activation)
            fresh = operators.pack_weight(input, weight, bias, *rest, *behind)
            packed = snapshot.keep(key, fresh if fresh.numel() > 0 else None)
        return packed

    def _for_graph(self, snapshot: _Snapshot | None, key: Any) -> Tensor | None:
        """What is kept, as long as the graph from now on; None where nothing is: what a graph packs is its
        own."""
        kept = None if snapshot is None else snapshot.packed.get(key)
        held = self._captured if _promise.held is None else _promise.held
        if kept is not None and all(kept is not each for each in held):
            held.append(kept)
        return kept
