"""Convolutions and linear layers that a graph has as functions, of weights that stay: as layers, which the
other passes know."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from convx._arguments import pair
from convx.optimize.graph import BATCH_NORM, Reader, bound
from convx.optimize.naming import first_free, free_name
from convx.optimize.nodes import computed

_CONVOLUTION = "input weight bias stride padding dilation groups"
_KINDS = {4: nn.Conv2d, 5: nn.Conv3d}  # by the dimensions of weights
_RANDOM = ("rand", "drop", "bernoulli", "multinomial", "normal_", "uniform_")


def make_layers(module: fx.GraphModule) -> None:
    """Subclasses of torch's layers end in functions (padding as TensorFlow has it, standardized weights, an
    autocast of their own): what they compute of weights is computed here, once."""
    reader = Reader(module)
    kinds: dict[Any, Any] = {F.conv2d: _convolution, F.conv3d: _convolution, F.linear: _linear}
    for node in list(module.graph.nodes):
        make = kinds.get(node.target) if node.op == "call_function" else None
        layer = None if make is None else make(reader, node)
        if layer is None:
            continue
        of = bound(node, _CONVOLUTION)  # as linear layers begin too
        name = _owner(of["weight"])
        with module.graph.inserting_after(node):
            made = module.graph.call_module(name, (of["input"],))
        node.replace_all_uses_with(made)
        reader.erase([node])
        made.target = free_name(module, name, [made])
        module.add_submodule(made.target, layer)
    module.delete_all_unused_submodules()
    module.recompile()


def fold_factors(module: fx.GraphModule) -> None:
    """What products have as factors of the module's own tensors alone, as a tensor of the module's."""
    reader = Reader(module)
    for node in list(module.graph.nodes):
        for factor in reader.product(node) or ():
            value = None if factor.op == "get_attr" else constant_of(reader, factor)
            if value is None:
                continue
            name = first_free(module, f"factor_{node.name}")
            module.register_parameter(name, parameter(value.detach()))
            with module.graph.inserting_before(node):
                node.replace_input_with(factor, module.graph.get_attr(name))
            if not factor.users:
                reader.erase([factor])
    module.recompile()


def _convolution(reader: Reader, node: fx.Node) -> nn.Conv2d | nn.Conv3d | None:
    of = bound(node, _CONVOLUTION)
    weight = constant_of(reader, of.get("weight"))
    bias = constant_of(reader, of.get("bias"))
    rest: dict[str, Any] = {name: of[name] for name in _CONVOLUTION.split()[3:] if name in of}
    is_open = any(True for each in rest.values() if _nodes(each))
    kind: Any = None if weight is None else _KINDS.get(weight.dim())
    if weight is None or kind is None or is_open or (bias is None and of.get("bias") is not None):
        return None
    groups = rest.pop("groups", 1)
    for name, value in rest.items():
        if kind is nn.Conv2d and not isinstance(value, str):
            rest[name] = pair(name, value)
    out_channels, in_channels, *size = weight.shape
    with torch.device("meta"):
        made: Any = kind(in_channels * groups, out_channels, size, groups=groups, bias=False, **rest)
    made.weight, made.bias = parameter(weight), None if bias is None else parameter(bias)
    return made.eval()  # type: ignore[no-any-return]


def _linear(reader: Reader, node: fx.Node) -> nn.Linear | None:
    of = bound(node, _CONVOLUTION)
    weight = constant_of(reader, of.get("weight"))
    bias = constant_of(reader, of.get("bias"))
    if weight is None or weight.dim() != 2 or (bias is None and of.get("bias") is not None):
        return None
    with torch.device("meta"):
        made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    made.weight = parameter(weight)
    if bias is not None:
        made.bias = parameter(bias)
    return made.eval()


def _nodes(value: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.node.map_arg(value, found.append)
    return found


def constant_of(reader: Reader, value: Any) -> Tensor | None:
    """What is computed of the module's own tensors alone."""
    if not isinstance(value, fx.Node):
        return None
    needed = _needed(value)
    if not all(_stays(reader, node) for node in needed):
        return None
    values: dict[fx.Node, Any] = {}
    for node in reader.module.graph.nodes:
        if node in needed:
            values[node] = computed(reader.module, node, values)
    found = values[value]
    return found if isinstance(found, Tensor) else None


def _needed(node: fx.Node) -> set[fx.Node]:
    """What it is computed of, and itself."""
    found: set[fx.Node] = set()
    to_see = [node]
    while to_see:
        each = to_see.pop()
        if each not in found:
            found.add(each)
            to_see += each.all_input_nodes
    return found


def _stays(reader: Reader, node: fx.Node) -> bool:
    if node.op == "get_attr":
        return not any(reader.writes(user) for user in node.users)
    if node.op not in ("call_function", "call_method") or reader.writes(node):
        return False
    if node.target is F.batch_norm:
        of = bound(node, BATCH_NORM)
        if of.get("training") and of.get("running_mean") is not None:
            return False
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return not any(word in name for word in _RANDOM)


def parameter(value: Tensor) -> nn.Parameter:
    return value if isinstance(value, nn.Parameter) else nn.Parameter(value.detach(), requires_grad=False)


def _owner(weight: fx.Node) -> str:
    """The layer whose weight this is or is made of."""
    node = weight
    while node.op != "get_attr":
        node = node.all_input_nodes[0]
    return str(node.target).rpartition(".")[0]
