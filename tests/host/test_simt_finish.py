"""The pass over sums that torch's convolutions have left, on the host executor."""

from __future__ import annotations

from pathlib import Path

import pytest
from simt import build as programs
from simt import covering
from test_simt import DEVICES, ORDERS, needs_compiler, run_all

pytestmark = [needs_compiler, pytest.mark.slow("finish")]

# Planes and channels that are less than 16 bytes, that vectors straddle, that end within one.
SUMS: covering.Values = {
    "dtype": ["float32", "bfloat16", "float16", "float64"],
    "filter": [(1, 1)],
    "stride": [(1, 1)],
    "padding": ["none"],
    "size": [(1, 1), (1, 3), (7, 7), (8, 16), (13, 17), (1, 530)],
    "channels": [1, 3, 8, 20, 33],
    "batch": [1, 2, 5],
    "epilogue": [
        *("", "bias", "bias relu", "relu6", "bias silu", "hardswish", "bias gelu"),
        *("scale bias residual relu", "residual silu", "scale relu6 residual", "bias gelu residual"),
    ],
}


@pytest.mark.parametrize("device", DEVICES)
def test_sums_are_finished_in_place(device: str) -> None:
    driver: Path = programs.build([programs.FINISH]) / programs.FINISH
    lines = [
        covering.line(row, "forward", layout, device, ORDERS[index % len(ORDERS)])
        for layout in covering.LAYOUTS
        for index, row in enumerate(covering.covering(SUMS, seed=7))
    ]
    output = run_all(driver, lines)
    assert output.count(" usual\n") > 40 and output.count(" large\n") > 40
