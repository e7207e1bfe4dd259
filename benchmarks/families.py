"""What convx.optimize fuses of small networks of all families, and what it leaves: `python -m
benchmarks.families` writes benchmarks/families.md (--check only compares, all but the errors).

Nothing is measured: the table is of what is fused, whether or not that is the fastest on this machine.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from benchmarks.family_networks import FamilyNetwork, networks
from convx._blocks import Block, SqueezeExcite
from convx._progress import progress_bar
from convx.optimize.check import Reference
from convx.optimize.graph import Reader
from convx.optimize.model import OptimizedModel
from convx.optimize.optimizing import followed
from convx.optimize.rows import rows_of

TABLE = Path(__file__).resolve().parent / "families.md"
_HEAD = """# What is fused of which network

Written by `python -m benchmarks.families`: small members of every family of torchvision's classification
networks, of timm's and of transformers' vision models, with random weights and batch norms that were
calibrated, on a CPU in float32. *Fused*: what the kernels of convolutions do beside them, and the blocks and
squeeze-and-excitations that one call may do. *Left*: convolutions that are torch's own, and batch norms that
are behind no convolution alone: behind sums, concatenations, linear layers, or before a convolution. *Error*:
against float64, in the norm over all results, in units of the network's own; 1 is as exact as that.

| library | network | convolutions | fused | left, and why | error |
|---|---|---:|---|---|---:|
"""


@dataclass(frozen=True)
class Row:
    """One network."""

    network: FamilyNetwork
    convolutions: int
    fused: str
    left: str
    error: float

    @property
    def known(self) -> str:
        """What is the same on all machines."""
        name = f"| {self.network.library} | {self.network.name} |"
        return f"{name} {self.convolutions} | {self.fused} | {self.left} |"

    def __str__(self) -> str:
        return f"{self.known} {self.error:.2f} |"


def look(network: FamilyNetwork) -> Row:
    """Optimizes a network, but for the choice by measured times."""
    model, images = network.made()
    model.requires_grad_(False)
    with torch.no_grad():
        reference = Reference(model, (images,), {})
        found = followed(model, reference, (images,), {})
        optimized = OptimizedModel(found.module, found.inputs, "as given", 0, otherwise=found.otherwise)
        error = reference.error_of(optimized)
        rows = rows_of(optimized, found, (images,), {})
    fused = Counter(each for row in rows for each in row.fused)
    left = [f"{reason} ({count})" for reason, count in Counter(row.reason for row in rows).items() if reason]
    if found.reason:
        left.append(found.reason)
    elif norms := norms_of(optimized.network):
        left.append(f"batch norms ({norms})")
    return Row(network, len(rows), _counts(fused + _blocks(optimized)), _cell(left), error / reference.error)


def norms_of(network: Any) -> int:
    """How many a graph computes."""
    reader = Reader(network)
    return sum(
        isinstance(reader.layer(each), _BatchNorm) or each.target is F.batch_norm
        for each in network.graph.nodes
    )


def _blocks(optimized: OptimizedModel) -> Counter[str]:
    blocks = [each for each in optimized.network.modules() if isinstance(each, Block)]
    inner = {each for block in blocks for each in block.modules() if each is not block}
    names = ("squeeze-and-excitation" if isinstance(each, SqueezeExcite) else "block" for each in blocks)
    return Counter(name for name, each in zip(names, blocks, strict=True) if each not in inner)


def _counts(fused: Counter[str]) -> str:
    return _cell(f"{name} ({count})" for name, count in fused.items())


def _cell(parts: Iterable[str]) -> str:
    return "; ".join(parts).replace("|", "\\|") or "-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.families", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the file, and write nothing")
    parser.add_argument("--network", help="this one alone, which is printed")
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # of the libraries' constructors
    chosen = [each for each in networks() if asked.network in (None, each.name)]
    rows = []
    with progress_bar(len(chosen), "network", sys.stderr.isatty()) as bar:
        for each in chosen:
            rows.append(look(each))
            if bar is not None:
                bar.update()
    if asked.network is not None:
        print(*rows, sep="\n")
        return 0
    if not asked.check:
        TABLE.write_text(_HEAD + "".join(f"{row}\n" for row in rows))
        return 0
    written = TABLE.read_text()
    changed = [row.known for row in rows if row.known not in written]
    print(*changed, f"{len(changed)} of {len(rows)} networks are not as in {TABLE.name}", sep="\n")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
