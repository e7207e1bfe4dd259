"""Enormous strides, paddings and dilations for the GPU kernels, which count places in 32 bits: right on the
host executor, or refused by the plan."""

from __future__ import annotations

import pytest
from simt import build as programs
from simt.covering import LAYOUTS, OPERATIONS
from test_simt import FAMILIES, needs_compiler, run_all

pytestmark = [needs_compiler, pytest.mark.slow(by="name")]

# (stride, padding, dilation): few outputs of 6x7 pixels by 3x3 filters, without a dilation also by 1x1.
ARGUMENTS = [
    (9, 9, 1),
    (1, 40, 40),
    (1000, 1000, 1),
    (20000, 20000, 1),
    (3, 5000, 5000),
    (2**24, 2**24, 1),
    (2**24 + 1, 2**24, 2**23),
    (1, 2**26, 2**26),
    (2**30, 2**30, 1),
    (2**31 - 1, 2**31 - 1, 2**30),
    (2**32, 2**32, 1),
    (1, 2**33, 2**33),
    (2**62, 2**61, 2**61),
    (2**63 - 1, 0, 1),
]
LAYERS = {"depthwise": "channels=3", "dense": "channels=4 groups=1 out_channels=6", "images": "channels=1"}


@pytest.mark.parametrize("name", [*FAMILIES, *programs.methods()])
def test_enormous_arguments(name: str) -> None:
    """Of every plan that takes them."""
    lines = [
        f"device={device} operation={operation} layout={layout} {layer} size=6,7 filter={taps} "
        f"stride={stride} padding={padding} dilation={dilation} orders=shuffled"
        for device in ("h200", "mi250")
        for operation in OPERATIONS
        for layout in LAYOUTS
        for layer in LAYERS.values()
        for stride, padding, dilation in ARGUMENTS
        for taps in ((1, 3) if dilation == 1 else (3,))
    ]
    output = run_all(programs.build([name]) / name, lines)
    assert name != "direct" or "\nRUN " in output, "the family for any depthwise problem ran none"
