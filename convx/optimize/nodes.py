"""What passes over a graph ask of its nodes, and do with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import fx, nn


def shape_of(node: Any) -> tuple[int, ...]:
    """Of a tensor, with the example input."""
    return tuple(getattr(node.meta.get("tensor_meta"), "shape", ())) if isinstance(node, fx.Node) else ()


def is_image(node: Any) -> bool:
    return len(shape_of(node)) == 4


def put(
    module: fx.GraphModule, name: str, layer: nn.Module, inputs: Sequence[fx.Node], last: fx.Node
) -> None:
    """Calls the layer, which gets the name, in the place of the last of the nodes that it stands for: its
    result is what their readers get."""
    module.add_submodule(name, layer)
    with module.graph.inserting_after(last):
        made = module.graph.call_module(name, tuple(inputs))
    made.meta = dict(last.meta)
    last.replace_all_uses_with(made)


def computed(root: nn.Module, node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    """What a node that is neither input nor output makes of the values there are."""
    target: Any = node.target
    if node.op == "get_attr":
        owner, _, name = target.rpartition(".")
        return getattr(root.get_submodule(owner), name)
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    if node.op == "call_method":
        return getattr(args[0], target)(*args[1:], **kwargs)
    function = root.get_submodule(target) if node.op == "call_module" else target
    return function(*args, **kwargs)
