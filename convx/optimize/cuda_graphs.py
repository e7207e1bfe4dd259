"""CUDA graphs of a function of tensors, captured for each kind of input that it meets."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from convx._arguments import tf32_setting
from convx.dispatch.packed import state_of, version_of
from convx.dispatch.situation import Situation, situation
from convx.operators import autocast
from convx.optimize.check import copied
from convx.tune.replays import captured


@dataclass(frozen=True)
class Prepared:
    """What a graph is made of."""

    inputs: list[Tensor]
    """Memory that it reads, in the layouts that it reads best: inputs are copied into it anyway."""
    run: Callable[..., Any]
    """Makes results of that."""


class _Captured:
    """One graph, and the memory that it reads."""

    def __init__(self, prepared: Prepared, tensors: Sequence[Tensor], pool: Any) -> None:
        self._inputs = prepared.inputs
        self._copy(tensors)
        self._replay = captured(partial(prepared.run, *self._inputs), pool)

    def _copy(self, tensors: Sequence[Tensor]) -> None:
        for own, given in zip(self._inputs, tensors, strict=True):
            own.copy_(given)

    def replay(self, tensors: Sequence[Tensor]) -> Any:
        self._copy(tensors)
        outputs = self._replay()
        return outputs.clone() if isinstance(outputs, Tensor) else tree_map(copied, outputs)


class CudaGraphs:
    """The most recently used graphs of one model. Copies and pickles begin without any.

    Results are copies: the graph's own memory is written to at its next replay. Threads take turns, and
    streams wait for one another.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._begin()

    def forget(self) -> None:
        """After weights have been moved."""
        if self._captured:
            torch.cuda.synchronize()  # before memory of a graph that still runs is given back
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._captured: OrderedDict[Any, _Captured] = OrderedDict()
        self._pool: Any = None
        self._weights: _Weights | None = None  # when the graphs were captured
        self._stream: torch.cuda.Stream | None = None  # of the last call
        self._stream_key: tuple[int | None, int] | None = None

    def __len__(self) -> int:
        return len(self._captured)

    def __reduce__(self) -> tuple[type[CudaGraphs], tuple[int]]:
        return CudaGraphs, (self.most,)

    def can_serve(self, tensors: Sequence[Tensor]) -> bool:
        """All of one GPU, with nothing about that wants to see operators."""
        if self.most == 0 or not tensors:
            return False
        first = tensors[0].device
        if first.type != "cuda" or any(each.device != first for each in tensors):
            return False
        if situation(*tensors) is not Situation.PLAIN or autocast.is_on("cuda"):
            return False
        return not torch.cuda.is_current_stream_capturing()

    def call(
        self, model: nn.Module, prepare: Callable[[Sequence[Tensor]], Prepared], tensors: Sequence[Tensor]
    ) -> Any:
        """What is prepared for such tensors, by their graph. model: whose weights it reads."""
        device = tensors[0].device
        key = (device, _settings(), *[(each.shape, each.stride(), each.dtype) for each in tensors])
        with self._lock, _on(device):
            self._check_weights(model)
            self._follow_stream(device)
            graph = self._captured.get(key) or self._capture(key, prepare, tensors)
            self._captured.move_to_end(key)
            return graph.replay(tensors)

    def _follow_stream(self, device: torch.device) -> None:
        """The call before is to be done with what graphs read and write."""
        # torch.cuda.current_stream makes an object of it, which takes the host 10 us.
        key = device.index, torch._C._cuda_getCurrentRawStream(device.index)
        if key == self._stream_key:
            return
        stream = torch.cuda.current_stream(device)
        if self._stream is not None:
            stream.wait_stream(self._stream)
        self._stream, self._stream_key = stream, key

    def _capture(
        self, key: Any, prepare: Callable[[Sequence[Tensor]], Prepared], tensors: Sequence[Tensor]
    ) -> _Captured:
        while len(self._captured) >= self.most:
            torch.cuda.synchronize()  # as in forget
            self._captured.popitem(last=False)
        if not self._captured:  # a pool that no graph has any more can't be captured into
            self._pool = torch.cuda.graph_pool_handle()
        # What is kept from a call in inference mode is there for calls outside of it too.
        with torch.inference_mode(False), torch.no_grad():
            graph = self._captured[key] = _Captured(prepare(tensors), tensors, self._pool)
        return graph

    def _check_weights(self, model: nn.Module) -> None:
        """Graphs hold the filters that were packed for them: weights that were written to, or are others by
        now, need new ones."""
        if self._weights is not None and self._weights.are_as_they_were():
            return
        if self._captured:
            torch.cuda.synchronize()
            self._captured.clear()
        self._weights = _Weights(model)


_Table = dict[str, Tensor | None]


class _Weights:
    """What the modules of a model have, as it is now."""

    def __init__(self, model: nn.Module) -> None:
        of_modules = ((each._parameters, each._buffers) for each in model.modules())
        tables: list[_Table] = [table for pair in of_modules for table in pair if table]  # type: ignore[misc]
        self._held = [tensor for table in tables for tensor in table.values()]  # no other takes their places
        self._watched: list[Tensor | _Table] = []
        self._places: list[tuple[_Table, dict[str, Any]]] = []
        for table in tables:
            held = [each for each in table.values() if each is not None]
            counted = [each for each in held if version_of(each) is not None]
            if len(counted) == len(held):
                self._watched.append(table)
            else:  # nobody counts writes to what was made in inference mode
                self._watched += counted
                self._places.append((table, _places(table)))
        self._state = state_of(self._watched)

    def are_as_they_were(self) -> bool:
        try:
            if state_of(self._watched) != self._state:
                return False
        except RuntimeError:  # one of now was made in inference mode
            return False
        return all(_places(table) == before for table, before in self._places)


def _places(table: _Table) -> dict[str, Any]:
    return {
        name: each if each is None else (id(each), each.data_ptr(), each.requires_grad)
        for name, each in table.items()
    }


def _on(device: torch.device) -> AbstractContextManager[object]:
    return nullcontext() if torch.cuda.current_device() == device.index else torch.cuda.device(device)


def _settings() -> tuple[Any, ...]:
    deterministic = torch.backends.cudnn.deterministic, torch.are_deterministic_algorithms_enabled()
    return tf32_setting(True, torch.float32), *deterministic
