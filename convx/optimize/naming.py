"""Names of the layers that a graph gets."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx


def free_name(module: fx.GraphModule, name: str, replaced: Sequence[fx.Node]) -> str:
    """The name itself, unless that layer is called by others than the nodes that are replaced, or something
    of it is read."""
    uses = [
        node
        for node in module.graph.nodes
        if node.op in ("call_module", "get_attr") and f"{node.target}.".startswith(f"{name}.")
    ]
    if uses == [*replaced]:
        return name
    names = {each for each, _ in module.named_modules()}
    return next(each for number in range(len(names) + 1) if (each := f"{name}_{number}") not in names)
