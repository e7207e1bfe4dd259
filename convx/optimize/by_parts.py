"""A model that torch.fx can't follow, with the parts that are faster by themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from convx.optimize.parts import Part, parts_of, with_parts
from convx.optimize.report import FusionReport
from convx.optimize.rows import Network, rows_of


@dataclass(frozen=True)
class FoundPart:
    """What was found for a part: model, network, rows, us and native_us."""

    part: Part
    found: Any

    @property
    def rows(self) -> list[FusionReport]:
        """With the model's names of layers."""
        found, part = self.found, self.part
        rows = found.rows
        if rows is None:
            rows = rows_of(found.model, found.network, part.args, part.kwargs)
        return [replace(row, name=_within(part.name, row.name), place=0) for row in rows]


def _within(part: str, names: str) -> str:
    """Of a layer, or of one with several names."""
    return ", ".join(f"{part}.{name}" for name in names.split(", "))


def faster_parts(
    native: nn.Module, args: Any, kwargs: Any, find: Callable[[Part], Any | None]
) -> list[FoundPart]:
    """The largest that find finds something for, without those that it makes no faster."""
    try:
        every = [FoundPart(part, found) for part, found in parts_of(native, args, kwargs, find)]
    except Exception:  # of a model with operators that refuse to be watched
        return []
    return [each for each in every if each.found.us < each.found.native_us]


def by_parts(network: Network, parts: list[FoundPart]) -> Network:
    """A converted model that has them."""
    if not parts:
        return network
    module = with_parts(network.module, {each.part.name: each.found.model for each in parts})
    kind, _, why = network.reason.partition(": ")
    names = ", ".join(each.part.name for each in parts)
    return replace(network, module=module, reason=f"{kind} but for {names}: {why}")
