"""Convolutions that torch.compile has recorded, and what nodes of its graphs stand for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor

from convx._arguments import Four, Pair
from convx.dispatch.packed import are_writes_counted
from convx.optimize.graph import bound

CONVOLUTION = "input weight bias stride padding dilation groups"
RANKS: dict[Any, int] = {torch.conv1d: 3, torch.conv2d: 4}


def value(node: Any) -> Any:
    """What a node stood for while the graph was recorded: a fake tensor, a symbolic number, nothing."""
    return node.meta.get("example_value") if isinstance(node, fx.Node) else node


def _given(node: fx.Node) -> Tensor | None:
    """The tensor that an input of the graph stands for, while the graph is compiled."""
    given = node.meta.get("grapharg") if node.op == "placeholder" else None
    tensor = getattr(given, "example", None)
    return tensor if isinstance(tensor, Tensor) else None


def sees_writes(node: fx.Node) -> bool:
    given = _given(node)
    return given is None or are_writes_counted(given)


def id_of(node: fx.Node) -> int | None:
    tensor = _given(node)
    return None if tensor is None else id(tensor)


def needs_gradient(node: Any) -> bool:
    return isinstance(value(node), Tensor) and value(node).requires_grad


def is_plain(tensor: Any) -> bool:
    """A dense tensor of a device that convx has operators for, no subclass of it."""
    if type(tensor) is not FakeTensor:
        return False
    return tensor.layout is torch.strided and tensor.device.type in ("cpu", "cuda")


@dataclass(frozen=True)
class Call:
    """torch.conv2d, or conv1d as the operators take it: with a height of one."""

    node: fx.Node
    stride: Pair
    padding: Four
    dilation: Pair
    groups: int
    keeps_weights: bool
    activation: str = field(default="none", init=False)  # none of its own

    @property
    def input(self) -> fx.Node:
        """As the graph has it by now, and so the others."""
        return self._operand("input")  # type: ignore[return-value]

    @property
    def weight(self) -> fx.Node:
        return self._operand("weight")  # type: ignore[return-value]

    @property
    def bias(self) -> fx.Node | None:
        return self._operand("bias")

    def _operand(self, name: str) -> fx.Node | None:
        return bound(self.node, CONVOLUTION).get(name)

    @property
    def operands(self) -> tuple[fx.Node, ...]:
        every = (self.input, self.weight, self.bias)
        return tuple(each for each in every if each is not None)

    @property
    def centred_filter(self) -> Pair | None:
        """Its size, if it is odd, padded by half of it, and not dilated."""
        height, width = ([1] * self.has_rows + [int(each) for each in value(self.weight).shape[2:]])[:2]
        sides = (height // 2, height // 2, width // 2, width // 2)
        is_odd = height % 2 == 1 and width % 2 == 1
        is_centred = is_odd and self.dilation == (1, 1) and self.padding == sides
        return (height, width) if is_centred else None

    @property
    def sees_writes(self) -> bool:
        """Whether somebody counts writes to the weight, so that its filters can be kept packed."""
        return sees_writes(self.weight)

    @property
    def has_rows(self) -> bool:
        return RANKS[self.node.target] == 3


@dataclass(frozen=True)
class Origin:
    """A convolution of the graph as it was recorded."""

    name: str
    weight: int | None
    """The id of the tensor that is its weight, where it is an input of the graph."""

    @classmethod
    def of(cls, call: Call) -> Origin:
        return cls(call.node.name, id_of(call.weight))
