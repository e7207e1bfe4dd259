"""Pooling of planes on the host executor."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from simt import build as programs
from test_simt import DEVICES, ORDERS, needs_compiler, run_all

pytestmark = [needs_compiler, pytest.mark.slow("pooling")]
# The squares that kernels know, and what the others are for.
WINDOWS = [
    "filter=3,3 stride=2,2 padding=1,1",
    "filter=3,3 stride=2,2 padding=0,0 ceil=1",
    "filter=3,3 stride=1,1 padding=1,1",
    "filter=2,2 stride=2,2 padding=0,0",
    "filter=2,2 stride=2,2 padding=1,1 ceil=1",
    "filter=3,2 stride=1,3 padding=1,0 ceil=1",
]
SQUARES = len(WINDOWS) - 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
def test_pooling(layout: str, device: str) -> None:
    """Planes of odd and even sizes, of one row; channels in whole vectors and not."""
    driver: Path = programs.build(["pools"]) / "pools"
    averages = ("average counts_padding=0", "average", "average divisor=3")
    cases = product(("float32", "float16", "bfloat16"), WINDOWS, ("max", "average"))
    lines = []
    for i, (dtype, window, kind) in enumerate(cases):
        if kind == "average":
            kind = averages[i // 2 % 3]
            window = WINDOWS[i // 2 % SQUARES]
        size, channels = ("9,12", "8,37", "2,5", "15,7")[i % 4], (16, 7, 24)[i % 3]
        lines.append(
            f"device={device} dtype={dtype} layout={layout} kind={kind} {window} size={size} "
            f"channels={channels} batch={1 + i % 2} orders={ORDERS[i % 3]} nan={i // 4 % 2}"
        )
    dilated = "dilation=2,3 filter=2,3 stride=1,2 padding=1,1 size=9,11"
    lines.append(f"device={device} layout={layout} {dilated}")
    # As many results as have whole vectors in channels_last.
    large = "size=61,131 batch=2 channels=36 filter=3,3 stride=1,1 padding=1,1 orders=shuffled"
    lines += [f"device={device} layout={layout} kind={kind} {large}" for kind in ("max", "average")]
    lines.append(f"device={device} layout={layout} filter=2,2 padding=1,1 dilation=3,3 size=3,3 stride=1,1")
    assert run_all(driver, lines).count("\nRUN ") >= len(lines)
