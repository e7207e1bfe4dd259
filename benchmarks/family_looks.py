"""What convx.optimize fuses of a network, whether or not that is the fastest on this machine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from benchmarks.family_networks import FamilyNetwork
from convx import _layers
from convx._blocks import Block, SqueezeExcite
from convx.optimize.check import Reference
from convx.optimize.graph import Reader
from convx.optimize.model import OptimizedModel
from convx.optimize.optimizing import followed
from convx.optimize.parts import Part, parts_of, with_parts
from convx.optimize.report import FusionReport
from convx.optimize.rows import Network, rows_of


@dataclass(frozen=True)
class Row:
    """One network."""

    network: FamilyNetwork
    convolutions: int
    fused: str
    left: str
    own_error: float
    error: float

    @property
    def known(self) -> str:
        """What is the same on all machines."""
        name = f"| {self.network.library} | {self.network.name} |"
        return f"{name} {self.convolutions} | {self.fused} | {self.left} |"

    def __str__(self) -> str:
        return f"{self.known} {in_units(self.error, self.own_error)} |"


@dataclass(frozen=True)
class _Seen:
    """A model, and what is fused of it."""

    optimized: OptimizedModel
    rows: list[FusionReport]
    graphs: list[Any]
    reason: str = ""


def look(network: FamilyNetwork) -> Row:
    """Optimizes a network, but for the choice by measured times."""
    model, example = network.made()
    args, kwargs = _layers.arguments_of(example)
    model.requires_grad_(False)
    with torch.no_grad():
        reference = Reference(model, args, kwargs)
        seen = _seen(model, reference, args, kwargs)
        own_error, error = reference.errors_of(seen.optimized)
    fused = Counter(each for row in seen.rows for each in row.fused)
    for graph in seen.graphs:
        fused += _blocks(graph)
    reasons = Counter(row.reason for row in seen.rows if row.reason and row.reason != seen.reason)
    left = [f"{reason} ({count})" for reason, count in reasons.items()]
    if norms := sum(map(norms_of, seen.graphs)):
        left.append(f"batch norms ({norms})")
    if seen.reason:
        left.append(seen.reason)
    return Row(network, len(seen.rows), _counts(fused), cell(left), own_error, error)


def _seen(model: nn.Module, reference: Reference, args: Any, kwargs: Any) -> _Seen:
    found = followed(model, reference, args, kwargs)
    optimized = _model_of(found)
    rows = [*rows_of(optimized, found, args, kwargs)]
    if found.inputs is not None:
        return _Seen(optimized, rows, [optimized.network])
    parts = parts_of(model, args, kwargs, _followed)
    made = {part.name: _model_of(network) for part, network in parts}
    of_parts = [
        row for part, network in parts for row in rows_of(made[part.name], network, part.args, part.kwargs)
    ]
    rest = [row for row in rows if not row.name.startswith(tuple(f"{name}." for name in made))]
    whole = OptimizedModel(with_parts(found.module, made), None, "as given", 0)
    kind, _, why = found.reason.partition(": ")
    but = f" but for {', '.join(made)}" if made else ""
    return _Seen(whole, [*of_parts, *rest], [each.network for each in made.values()], f"{kind}{but}: {why}")


def _followed(part: Part) -> Network | None:
    call = part.args, part.kwargs
    found = followed(part.module, Reference(part.module, *call), *call)
    return None if found.inputs is None else found


def _model_of(found: Network) -> OptimizedModel:
    return OptimizedModel(found.module, found.inputs, "as given", 0, otherwise=found.otherwise)


def norms_of(network: Any) -> int:
    """How many a graph computes."""
    reader = Reader(network)
    return sum(
        isinstance(reader.layer(each), _BatchNorm) or each.target is F.batch_norm
        for each in network.graph.nodes
    )


def _blocks(network: nn.Module) -> Counter[str]:
    blocks = [each for each in network.modules() if isinstance(each, Block)]
    inner = {each for block in blocks for each in block.modules() if each is not block}
    names = ("squeeze-and-excitation" if isinstance(each, SqueezeExcite) else "block" for each in blocks)
    return Counter(name for name, each in zip(names, blocks, strict=True) if each not in inner)


def _counts(fused: Counter[str]) -> str:
    return cell(f"{name} ({count})" for name, count in fused.items())


def in_units(error: float, own_error: float) -> str:
    """Of the own one; or how far results are apart, where nobody knows what they should be."""
    if math.isnan(own_error):
        return f"{error:.0e} apart"
    return f"{error / own_error:.2f}" if own_error else f"{error:.0e}"


def cell(parts: Iterable[str]) -> str:
    """Of a table, with all of these."""
    return "; ".join(parts).replace("|", "\\|") or "-"
