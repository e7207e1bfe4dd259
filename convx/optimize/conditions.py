"""For which inputs a graph does what its model does: what the model decided by sizes is taken out of the
graph, where it would come between layers, and looked at once for each kind of input."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from convx.optimize.branches import expect
from convx.optimize.graph import Reader

_MOST = 1024  # kinds that are remembered
_LOOKING = threading.Lock()  # one at a time: meanwhile the graph's layers have weights without numbers


class Conditions:
    """What has to hold, and for which kinds of input it is known to, or not to.

    Sizes inside are found by a run without numbers of all layers that they depend on.
    """

    def __init__(self, graph: fx.GraphModule, example: Sequence[Tensor]) -> None:
        self._graph = graph  # of layers without numbers
        self._known: dict[Any, bool] = {_kind(example): True}

    def hold(self, tensors: Sequence[Tensor]) -> bool:
        kind = _kind(tensors)
        sizes = [each[0] for each in kind]
        if any(isinstance(size, torch.SymInt) for own in sizes for size in own):
            return False  # of an export for any size: what runs otherwise is slower, and right
        if torch.compiler.is_compiling():
            return any(holds and [each[0] for each in known] == sizes for known, holds in self._known.items())
        found = self._known.get(kind)
        if found is None:
            if len(self._known) == _MOST:
                self._known.clear()
            found = self._known[kind] = self._looked_at(tensors)
        return found

    def _looked_at(self, tensors: Sequence[Tensor]) -> bool:
        every = (self._graph.named_parameters, self._graph.named_buffers)
        own = chain.from_iterable(each(remove_duplicate=False) for each in every)
        with _LOOKING, FakeTensorMode(), torch.no_grad():
            device = tensors[0].device
            held = {name: _without_numbers(each, device) for name, each in own}
            given = tuple(_without_numbers(each, each.device) for each in tensors)
            try:
                torch.func.functional_call(self._graph, held, given)
            except Exception:  # OtherBranch, or what the model raises for such sizes, and will again
                return False
        return True


def _kind(tensors: Sequence[Tensor]) -> Any:
    return tuple((tuple(each.shape), each.stride(), each.dtype, each.device) for each in tensors)


def _without_numbers(tensor: Tensor, device: torch.device) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


def take_conditions(module: fx.GraphModule, example: Sequence[Tensor]) -> Conditions | None:
    """Takes them out of a graph that was just traced for the example; None where it has none."""
    if not _checks(module):
        return None
    apart = copy.deepcopy(module, _on_meta(module))
    for node in reversed(list(apart.graph.nodes)):
        if node.op == "output":
            node.args = (None,)
        elif node.op != "placeholder" and node.target is not expect and not node.users:
            apart.graph.erase_node(node)
    apart.delete_all_unused_submodules()
    apart.recompile()
    drop_checks(module)
    return Conditions(apart, example)


def drop_checks(module: fx.GraphModule) -> None:
    """Of a graph that is called where its conditions are known to hold."""
    Reader(module).erase(_checks(module))
    module.recompile()


def _checks(module: fx.GraphModule) -> Sequence[fx.Node]:
    return module.graph.find_nodes(op="call_function", target=expect)


def _on_meta(module: nn.Module) -> dict[int, Any]:
    """What copy.deepcopy is to take for copies of a module's tensors."""
    found: dict[int, Any] = {}
    for each in chain(module.parameters(), module.buffers()):
        made = _without_numbers(each, torch.device("meta"))
        found[id(each)] = nn.Parameter(made, requires_grad=False) if isinstance(each, nn.Parameter) else made
    return found
