"""What the nodes of a graph are that torch.compile has recorded: calls of torch's functions, with tensors
that know their shape, dtype and need of a gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.fx.experimental.symbolic_shapes import statically_known_true

from convx import operators
from convx._arguments import DTYPES, integer, padding_1d, padding_2d, pair, single
from convx.compile.calls import CONVOLUTION, RANKS, Call, is_plain, needs_gradient, sees_writes, value
from convx.dispatch import UNFUSED
from convx.optimize.folding import Norm
from convx.optimize.graph import BATCH_NORM, Reader, bound

_NOTE = torch._C._log_api_usage_once  # with which functions of torchvision begin
_OPERATORS = (operators.conv2d, operators.inverted_residual, operators.squeeze_excite)
# Functions that update statistics; where what says so is, and what it is where it is left out.
_STATISTICS: dict[Any, tuple[str, str, bool]] = {
    F.batch_norm: (BATCH_NORM, "training", False),
    F.instance_norm: ("input running_mean running_var weight bias use_input_stats", "use_input_stats", True),
}


class RecordedReader(Reader):
    """Says what nodes of a recorded graph are."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self._updated: set[Any] = set()
        for node in module.graph.nodes:
            self._updated |= self._statistics(node)
        # Of what is written to otherwise, another input may be a view.
        self._writes_weights = any(_may_be_weight(self.written(node)) for node in self.writes_outside())

    def convolutions(self) -> Iterator[Call]:  # type: ignore[override]
        """Those that convx has operators for."""
        for node in self.module.graph.nodes:
            if node.op == "call_function" and node.target in RANKS:
                call = self._call(node)
                if call is not None:
                    yield call

    def _call(self, node: fx.Node) -> Call | None:
        of = bound(node, CONVOLUTION)
        weight, bias, rank = of.get("weight"), of.get("bias"), RANKS[node.target]
        tensors = [value(of.get("input")), value(weight), *([] if bias is None else [value(bias)])]
        if not all(map(is_plain, (value(node), *tensors))) or value(node).dtype not in DTYPES:
            return None
        if tensors[0].dim() != rank or any(not isinstance(extent, int) for extent in tensors[1].shape):
            return None
        size = tensors[1].shape
        stride, dilation, padding = of.get("stride", 1), of.get("dilation", 1), of.get("padding", 0)
        try:
            if rank == 3:
                strides, dilations = (1, single("stride", stride)), (1, single("dilation", dilation))
                paddings = padding_1d(padding, size[2:], strides[1], dilations[1])
            else:
                strides, dilations = pair("stride", stride), pair("dilation", dilation)
                paddings = padding_2d(padding, size, strides, dilations)
            groups = integer("groups", of.get("groups", 1))
        except (TypeError, ValueError):  # computed by the graph
            return None
        keeps_weights = self.can_be_kept(weight) and self.can_be_kept(bias)
        return Call(node, strides, paddings, dilations, groups, keeps_weights)

    def is_fresh(self, node: fx.Node) -> bool:
        return node.target in _OPERATORS or super().is_fresh(node)

    def can_be_kept(self, node: fx.Node | None) -> bool:
        """Whether it is a parameter or buffer that stays as it is while the graph runs: what is computed of
        it can be kept until the next write to it, where somebody counts those."""
        if node is None:
            return True
        is_static = node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None
        is_fixed = not self._writes_weights and node not in self._updated and sees_writes(node)
        return node.op == "placeholder" and is_static and is_fixed and is_plain(value(node))

    def norm(self, node: fx.Node) -> Norm[fx.Node] | None:  # type: ignore[override]
        """One that can be folded."""
        if node.op != "call_function" or node.target is not F.batch_norm or needs_gradient(node):
            return None
        of = bound(node, BATCH_NORM)
        names = ("running_mean", "running_var", "weight", "bias")
        mean, variance, weight, bias = (of.get(name) for name in names)
        if of.get("training", False) is not False or mean is None or variance is None:
            return None
        if not all(map(self.can_be_kept, (mean, variance, weight, bias))):
            return None
        return Norm(of["input"], mean, variance, weight, bias, self.number(of.get("eps", 1e-5)))  # type: ignore[arg-type]

    def activation(self, node: fx.Node) -> str | None:
        if node.op == "call_function" and node.target is F.hardtanh:
            of = bound(node, "input min_val max_val inplace")
            bounds = (self.number(of.get("min_val", -1)), self.number(of.get("max_val", 1)))
            found = "relu6" if bounds == (0, 6) else None
        else:
            found = super().activation(node)
        return None if found in UNFUSED and needs_gradient(node) else found

    def gate(self, node: fx.Node) -> str | None:
        if node.op == "call_function" and node.target is F.hardsigmoid and not self.writes(node):
            return "hardsigmoid"  # as its layer calls it, which says that it writes to nothing
        return super().gate(node)

    @staticmethod
    def number(given: Any) -> float | None:
        """An attribute of a layer, which torch.compile may have taken for something that changes: the graph
        is held to it then."""
        found = value(given)
        return float(found) if isinstance(found, (int, float, torch.SymFloat, torch.SymInt)) else None

    def can_be_added(self, residual: fx.Node, node: fx.Node) -> bool:
        return is_plain(value(residual)) and self.is_like(residual, node)

    def can_add_after_activation(self, node: fx.Node) -> bool:
        """Gradients of that compute the convolution again."""
        return not needs_gradient(node)

    def is_like(self, node: fx.Node, convolution: fx.Node) -> bool:
        """Of one shape, dtype and device, whatever sizes there are."""
        one, other = value(node), value(convolution)
        if not isinstance(one, Tensor) or one.dim() != other.dim():
            return False
        sizes = zip(one.shape, other.shape, strict=True)
        is_one_kind = one.dtype == other.dtype and one.device == other.device
        return is_one_kind and all(statically_known_true(a == b) for a, b in sizes)

    def is_barrier(self, node: fx.Node) -> bool:
        """What gives nothing changes modes (autocast, gradients) or is a check, unless it notes a call."""
        if node.op not in ("call_function", "call_method", "call_module") or node.target is _NOTE:
            return False
        return value(node) is None or bool(self._statistics(node))

    @staticmethod
    def _statistics(node: fx.Node) -> set[Any]:
        """Those that a norm updates as it is computed."""
        if node.op != "call_function" or node.target not in _STATISTICS:
            return set()
        names, flag, default = _STATISTICS[node.target]
        of = bound(node, names)
        if of.get(flag, default) is False:
            return set()
        return {of.get("running_mean"), of.get("running_var")} - {None}

    def writes(self, node: fx.Node) -> bool:
        if node.op == "call_function":
            if isinstance(node.target, HigherOrderOperator):  # which has graphs of its own
                return True
            if isinstance(node.target, (OpOverload, OpOverloadPacket)):
                return _is_mutable(node.target)
        return super().writes(node)

    @staticmethod
    def written(node: fx.Node) -> fx.Node | None:
        is_known = not isinstance(node.target, (HigherOrderOperator, OpOverload, OpOverloadPacket))
        return Reader.written(node) if is_known else None


def _may_be_weight(written: fx.Node | None) -> bool:
    return not isinstance(value(written), Tensor) or value(written).is_floating_point()


def _is_mutable(operator: OpOverload | OpOverloadPacket) -> bool:
    if isinstance(operator, OpOverload):
        return operator._schema.is_mutable
    return any(getattr(operator, name)._schema.is_mutable for name in operator.overloads())
