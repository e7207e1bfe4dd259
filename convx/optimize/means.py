"""Means of planes in a graph, with the flattening behind them, as one node."""

from __future__ import annotations

from torch import fx

from convx.optimize.graph import Reader
from convx.optimize.layers import PlaneMeans
from convx.optimize.naming import first_free
from convx.optimize.nodes import is_image


def fuse_means(module: fx.GraphModule) -> None:
    """Puts PlaneMeans in the place of what computes them."""
    reader = Reader(module)
    for node in reversed(list(module.graph.nodes)):  # what flattens means comes before them
        flat, planes = reader.flat_plane_means(node), reader.plane_means(node)
        input = flat or planes
        if input is None or not is_image(input):
            continue
        if node.users:
            name = first_free(module, f"plane_means_{node.name}")
            module.add_submodule(name, PlaneMeans(keeps_planes=flat is None))
            with module.graph.inserting_after(node):
                made = module.graph.call_module(name, (input,))
            made.meta = dict(node.meta)
            node.replace_all_uses_with(made)
        module.graph.erase_node(node)
    module.delete_all_unused_submodules()
    module.recompile()
