"""torch.compile(model, backend="convx"): convolutions by convx, everything else by inductor.

backend.py is what torch.compile calls with each graph that it records. calls.py and graph.py say what the
graph's nodes are; merging.py makes one convolution of those whose results are added, blocks.py finds blocks
that kernels are faster for, and planning.py says which of the other convolutions are convx's: rewriting.py
has the order of these, putting.py puts operators there with what follows them fused. further.py gives the
graph inputs for what is made of weights (makings.py): with batch norms folded in, packed; kept.py keeps that
beside it. watch.py tells convx.optimize what became of its network.
"""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points

ENTRY = EntryPoint("convx", "convx.compile.backend:convx", "torch_dynamo_backends")


def register() -> None:
    """Makes the backend known, which is loaded when it is asked for: as the entry point of pyproject.toml
    does, which a checkout on the path does not have. Kept as torch keeps those, which registers what it loads
    and is to meet the name once. Not imported for an installed convx, which torch finds itself: its compiler
    takes a second."""
    if "torch._dynamo" not in sys.modules and ENTRY in entry_points(group=ENTRY.group):
        return
    from torch._dynamo.backends import registry

    registry._BACKENDS.setdefault(ENTRY.name, ENTRY)
