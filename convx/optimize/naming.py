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
    return name if uses == [*replaced] else first_free(module, name)


def first_free(module: fx.GraphModule, name: str, first: int = 0) -> str:
    """The name where no layer or tensor has it, else with the least number from the first one on."""
    every = (module.named_modules, module.named_parameters, module.named_buffers)
    names = {each for named in every for each, _ in named(remove_duplicate=False)}
    numbered = (f"{name}_{number}" for number in range(first, first + len(names)))
    return next(each for each in (name, *numbered) if each not in names)
