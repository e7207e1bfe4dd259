"""What a model decides by sizes, while torch.fx follows it: as it decides for the example input, for which
conditions.py looks at inputs of other sizes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx._symbolic_trace import _maybe_revert_all_patches
from torch.fx.proxy import Attribute
from torch.utils._pytree import tree_leaves, tree_map_only

from convx.optimize.nodes import computed

SIDES = "sides"  # in the metadata of nodes that pad
_UNKNOWN = object()


class OtherBranch(Exception):
    """For these sizes the model does something else than its graph."""


def expect(value: Any, decided: Any) -> None:
    """A node of a graph: a size, or what was found by it, is to be as for the example input."""
    if type(decided)(value) != decided:
        raise OtherBranch(f"{value} where the graph is for {decided}")


def length(value: Any) -> int:
    """A node of a graph: builtin functions are followed by no tracer."""
    return len(value)


def tensor_of(data: Any, **options: Any) -> Tensor:
    """A node of a graph: torch.tensor is no function that torch.fx knows again when it loads a pickle. On a
    GPU it is filled there number by number, as a CUDA graph can be: sizes are few."""
    device = torch.device(options.pop("device", None) or torch.get_default_device())
    made = torch.tensor(data, device="cpu", **options)
    if device.type != "cuda" or made.numel() == 0:
        return made.to(device)
    numbers = [torch.full((), number, dtype=made.dtype, device=device) for number in made.flatten().tolist()]
    return torch.stack(numbers).view(made.shape)


fx.node.has_side_effect(expect)


class _Asked(fx.Proxy):
    """May be made a number of Python's, where it is a size."""

    def __getattr__(self, name: str) -> Any:
        found = _AskedAttribute(self, name)
        return self.tracer.device_type(found) if name == "type" else found  # type: ignore[attr-defined]

    def __int__(self) -> int:
        return self.tracer.decided(self, int)  # type: ignore[attr-defined,no-any-return]

    __index__ = __int__

    def __float__(self) -> float:
        return self.tracer.decided(self, float)  # type: ignore[attr-defined,no-any-return]

    def __len__(self) -> int:
        return self.tracer.length(self)  # type: ignore[attr-defined,no-any-return]


class _AskedAttribute(_Asked, Attribute):
    """As torch.fx's own: a node where it is not called."""


class BranchTracer(fx.Tracer):
    """A tracer that knows all sizes for the example input, and no number of a tensor: nobody can follow what
    depends on that. Sizes are found when they are asked for: most models ask for none.
    """

    def __init__(self, example: Sequence[Tensor] = ()) -> None:
        super().__init__()
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._example = [self._mode.from_tensor(each) for each in example]
        self._values: dict[fx.Node, Any] = {}
        self._of_input: set[fx.Node] = set()

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Asked(node, self)

    def create_proxy(
        self, kind: str, target: Any, args: Any, kwargs: Any, *rest: Any, **named: Any
    ) -> fx.Proxy:
        """Of padding, what it is for these sizes, is in the node's metadata."""
        made: fx.Proxy = super().create_proxy(kind, target, args, kwargs, *rest, **named)
        if target is F.pad and len(args) > 1:
            sides = tree_map_only(fx.Proxy, lambda each: self._value(each.node), args[1])
            made.node.meta[SIDES] = sides
        return made

    @contextmanager
    def following_tensors(self) -> Iterator[None]:
        """Tensors that this thread makes of sizes, which torch.fx is told of by no function of torch's."""
        make, thread = torch.tensor, threading.get_ident()
        torch.overrides.get_overridable_functions()  # it keeps all functions as they are when first asked
        tracer: BranchTracer | None = self

        def tensor(data: Any, **options: Any) -> Any:
            is_traced = any(isinstance(each, fx.Proxy) for each in tree_leaves((data, options)))
            if tracer is None or not is_traced or threading.get_ident() != thread:
                return make(data, **options)
            return tracer._call(tensor_of, data, **options)

        torch.tensor = tensor  # type: ignore[assignment]
        try:
            yield
        finally:
            torch.tensor = make
            tracer = None  # a module that was imported meanwhile may have the function: not the network too

    def to_bool(self, obj: fx.Proxy) -> bool:
        found = self._value(obj.node)
        return super().to_bool(obj) if found is _UNKNOWN else self._decide(obj, bool(found))

    def iter(self, obj: Any) -> Iterator[Any]:
        return iter([obj[place] for place in range(self.length(obj))])

    def decided(self, obj: fx.Proxy, kind: type) -> Any:
        found = self._value(obj.node)
        if found is _UNKNOWN or not isinstance(found, (bool, int, float)):
            raise fx.proxy.TraceError(f"{kind.__name__} of a number that depends on the input's values")
        return self._decide(obj, kind(found))

    def length(self, obj: fx.Proxy) -> int:
        found = self._value(obj.node, or_tensor=True)
        if not hasattr(found, "__len__"):
            raise fx.proxy.TraceError("the length of something that depends on the input's values")
        return self._decide(self._call(length, obj), len(found))  # type: ignore[no-any-return]

    def device_type(self, obj: _AskedAttribute) -> Any:
        """Of an attribute "type": the name, where a device has it. torch.autocast takes no proxy."""
        device = self._value(obj.root.node)
        return self._decide(obj, device.type) if isinstance(device, torch.device) else obj

    def _decide(self, obj: fx.Proxy, decided: Any) -> Any:
        self._value(obj.node)
        if obj.node in self._of_input:  # what depends on weights alone stays
            self._call(expect, obj, decided)
        return decided

    def _call(self, function: Any, *args: Any, **kwargs: Any) -> fx.Proxy:
        made = self.create_proxy("call_function", function, args, kwargs)
        made.node.meta["is_wrapped"] = True  # a pickle is traced once more when it is loaded
        return made

    def _value(self, wanted: fx.Node, or_tensor: bool = False) -> Any:
        """Of a node for the example input: what it is where no tensor is in it, and _UNKNOWN else."""
        if not self._example:
            return _UNKNOWN
        inputs = iter(self._example)
        with _maybe_revert_all_patches(), self._mode:
            for node in self.graph.nodes:
                given = next(inputs) if node.op == "placeholder" else None
                if node not in self._values:
                    self._values[node] = self._computed(node, given)
                    if given is not None or not self._of_input.isdisjoint(node.all_input_nodes):
                        self._of_input.add(node)
        found = self._values[wanted]
        is_known = or_tensor or not any(isinstance(each, Tensor) for each in tree_leaves(found))
        return found if is_known else _UNKNOWN

    def _computed(self, node: fx.Node, given: Any) -> Any:
        if node.op == "placeholder":
            return given
        if any(self._values[each] is _UNKNOWN for each in node.all_input_nodes):
            return _UNKNOWN
        try:
            return computed(self.root, node, self._values)
        except Exception:  # of fake tensors, whose numbers nobody knows
            return _UNKNOWN
