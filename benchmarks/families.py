"""What convx.optimize fuses of small networks of all families, and what it leaves: `python -m
benchmarks.families` writes benchmarks/families.md (--check only compares, all but the errors).

Nothing is measured: the table is of what is fused, whether or not that is the fastest on this machine.
With --device networks of the usual sizes are, on a CPU or GPU: benchmarks/whole/<device>.json, and
benchmarks/families_<device>.md of it.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from benchmarks import family_times
from benchmarks.family_looks import look
from benchmarks.family_networks import networks
from convx._progress import progress_bar

TABLE = Path(__file__).resolve().parent / "families.md"
_HEAD = """# What is fused of which network

Written by `python -m benchmarks.families`: small members of every family of torchvision's networks, of timm's
and of transformers' vision models, with random weights and batch norms that were calibrated, on a CPU in
float32. *Fused*: what the kernels of convolutions do beside them, and the blocks and squeeze-and-excitations
that one call may do. *Left*: convolutions that are torch's own, and batch norms that are behind no
convolution alone: behind sums, concatenations, linear layers, or before a convolution; and why torch.fx can't
follow a network, with the parts of it that it can. *Error*: against float64, in the norm over all results, in
units of the network's own; 1 is as exact as that. Of detectors it is that of their parts and layers, each
with what the network itself gives it, for which boxes there are, is chosen by values. How far results are
*apart* is told of networks that can't be run in float64.

| library | network | convolutions | fused | left, and why | error |
|---|---|---:|---|---|---:|
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.families", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the file, and write nothing")
    parser.add_argument("--network", help="this one alone, which is printed")
    parser.add_argument(
        "--device", help="measure the networks themselves there instead; the rest is for this"
    )
    family_times.add_options(parser)
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # of the libraries' constructors
    if asked.device is not None:
        return family_times.run(asked, sys.argv[1:] if arguments is None else arguments)
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
