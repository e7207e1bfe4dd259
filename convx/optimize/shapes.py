"""Runs of a graph node by node, as its code runs."""

from __future__ import annotations

from typing import Any

from torch import fx
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.fx.passes.shape_prop import ShapeProp


class Steps(fx.Interpreter):
    """Functions get lists and dicts of their own, as from the graph's code: what torch.fx keeps arguments in
    refuses to be written to."""

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        return tuple(map(_own, args)), {name: _own(value) for name, value in kwargs.items()}


class Shapes(Steps, ShapeProp):
    """Leaves in every node what sizes its result has."""


def _own(value: Any) -> Any:
    if isinstance(value, immutable_list):
        return [_own(each) for each in value]
    if isinstance(value, immutable_dict):
        return {name: _own(each) for name, each in value.items()}
    return tuple(map(_own, value)) if type(value) is tuple else value
