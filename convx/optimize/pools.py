"""Pooling of planes in a graph, means with the flattening behind them among them, and flattening alone, as
layers of convx."""

from __future__ import annotations

import torch
from torch import fx

from convx.optimize.graph import Reader
from convx.optimize.layers import FlatPixels, PlaneMeans, PooledPlanes
from convx.optimize.naming import first_free
from convx.optimize.nodes import is_image, put, shape_of

KERNEL_DTYPES = {"cpu": (torch.float32,), "cuda": (torch.float32, torch.bfloat16, torch.float16)}


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
            put(module, name, PlaneMeans(keeps_planes=flat is None), [input], node)
        module.graph.erase_node(node)
    module.delete_all_unused_submodules()
    module.recompile()


def fuse_pools(module: fx.GraphModule, device: str) -> None:
    """Puts PooledPlanes in the place of pooling of images of what the device's kernels take."""
    reader = Reader(module)
    for node in list(module.graph.nodes):
        found = reader.pooling(node)
        if found is None or not is_image(node) or node.meta["tensor_meta"].dtype not in KERNEL_DTYPES[device]:
            continue
        input, pooling = found
        put(module, first_free(module, f"pooled_{node.name}"), PooledPlanes(pooling).eval(), [input], node)
        module.graph.erase_node(node)
    module.delete_all_unused_submodules()
    module.recompile()


def fuse_flattening(module: fx.GraphModule) -> None:
    """Puts FlatPixels behind layers that give images of one pixel, which nobody else reads: it may be a
    copy."""
    reader = Reader(module)
    for node in list(module.graph.nodes):
        source = reader.flattened(node)
        if source is None or shape_of(source)[2:] != (1, 1) or len(source.users) > 1:
            continue
        if reader.layer(source) is None or not reader.is_fresh(source):
            continue
        put(module, first_free(module, f"flat_{node.name}"), FlatPixels().eval(), [source], node)
        module.graph.erase_node(node)
    module.delete_all_unused_submodules()
    module.recompile()
