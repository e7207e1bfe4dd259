"""Means of planes on the host executor."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from simt import build as programs
from test_simt import DEVICES, ORDERS, needs_compiler, run_all

pytestmark = [needs_compiler, pytest.mark.slow("means")]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
def test_means(layout: str, device: str) -> None:
    """Planes of fewer pixels than threads, of no whole turn of them; channels of no whole block."""
    driver: Path = programs.build(["means"]) / "means"
    pixels, channels = (1, 7, 49, 210, 1024), (8, 72, 136)
    cases = product(("float32", "float16", "bfloat16"), pixels, channels, (0, 1))
    lines = [
        f"device={device} dtype={dtype} layout={layout} batch={1 + i % 3} pixels={count} channels={many} "
        f"orders={ORDERS[i % 3]} infinite={infinite}"
        for i, (dtype, count, many, infinite) in enumerate(cases)
    ]
    lines.append(f"device={device} layout={layout} channels=20 pixels=12")
    assert run_all(driver, lines).count("\nRUN ") >= len(lines)
