"""cuconv on the host executor: every candidate, both feeds, at 32 and 64 lanes, under sanitizers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from simt import build as programs
from simt import covering as problems
from test_simt import DEVICES, ORDERS, pytestmark, run_all

__all__ = ["pytestmark"]

CANDIDATES = {"fused", "split", "two_stage", "two_stage_blocked"}

# What the covering problems seldom meet: tiles of several strips a row, windows of taps, chunks of channels
# with a rest, pieces of 16 bytes that begin anywhere, planes of partial sums.
PROBLEMS = {
    "flat, pieces begin anywhere": "channels=27 out_channels=40 size=7,7 batch=3 filter=1 bias=1",
    "flat, a tile and a pixel": "channels=16 out_channels=9 size=1,57 filter=1",
    "flat, groups of odd channels": "channels=18 groups=2 out_channels=22 size=5,13 filter=1 batch=2",
    "flat, many channels": "channels=200 out_channels=24 size=4,7 filter=1 bias=1",
    "1x1 with padding": "channels=8 out_channels=9 size=6,7 filter=1 padding=1,0,2,1",
    "1x1 with a stride": "channels=12 out_channels=20 size=15,14 filter=1 stride=2",
    "whole filters of four channels": "channels=21 out_channels=33 size=9,15 filter=3 padding=1 bias=1",
    "a rest of one channel, an even filter": "channels=5 out_channels=8 size=8,9 filter=2 padding=1,0,0,1",
    "several windows": "channels=6 out_channels=70 size=13,12 filter=11 padding=5 activation=relu6 bias=1",
    "windows of rows and columns": "channels=2 out_channels=9 size=3,130 filter=1,120 padding=0,0,60,59",
    "spread taps": "channels=4 out_channels=9 size=40,41 filter=3 dilation=19 padding=19",
    "stride beyond the filter": "channels=4 out_channels=9 size=17,23 filter=2,3 stride=3,5 padding=1",
    "uneven strides and dilation": "channels=5 out_channels=8 size=14,19 filter=3,2 stride=3,2 dilation=1,3",
    "one channel a group": "channels=6 groups=6 out_channels=12 size=9,8 filter=3 padding=1",
    "one pixel": "channels=70 out_channels=66 size=1,1 filter=3 padding=1",
}
GRADIENTS = {
    "3x3": "channels=12 groups=2 out_channels=20 size=9,10 filter=3 padding=1",
    "1x1": "channels=20 out_channels=12 size=7,7 filter=1",
    "more padding than filter": "channels=4 out_channels=6 size=5,6 filter=3 padding=4,3,5,3",
    "no padding": "channels=4 out_channels=6 size=7,6 filter=5,3",
    "dilation": "channels=4 out_channels=6 size=9,9 filter=2,3 dilation=2 padding=1",
}


@pytest.fixture(scope="session")
def driver() -> Path:
    """The method's driver."""
    return programs.build(["cuconv"]) / "cuconv"


def candidates(output: str) -> set[str]:
    """Those that ran."""
    return set(re.findall(r"^RUN +\w+ (\w+) ", output, re.MULTILINE))


@pytest.mark.parametrize("device", DEVICES)
def test_chosen_problems_are_exact(driver: Path, device: str) -> None:
    lines = [
        problems.chosen_line(problem, device, ORDERS[i % 3]) for i, problem in enumerate(PROBLEMS.values())
    ]
    lines += [
        problems.chosen_line(problem, device, "shuffled", operation="input_grad")
        for problem in GRADIENTS.values()
    ]
    output = run_all(driver, lines)
    assert "\nNONE " not in output, "a problem was left out"
    assert candidates(output) == CANDIDATES


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_types_are_exact(driver: Path, dtype: str) -> None:
    chosen = list(PROBLEMS.values())
    lines = [
        problems.chosen_line(problem, DEVICES[i % 2], ORDERS[i % 3], dtype=dtype)
        for i, problem in enumerate(chosen[::2])
    ]
    gradients = list(GRADIENTS.values())
    lines += [
        problems.chosen_line(problem, "mi250", "reverse", dtype=dtype, operation="input_grad")
        for problem in gradients[:2]
    ]
    output = run_all(driver, lines)
    assert "\nNONE " not in output, "a problem was left out"
    assert candidates(output) == CANDIDATES


@pytest.mark.parametrize("device", DEVICES)
def test_covering_problems_are_exact(driver: Path, device: str) -> None:
    """Every pair of two properties' values; the planner's best tilings of each candidate."""
    rows = [
        row
        for values in (problems.DENSE, problems.DENSE_COMMON)
        for row in problems.covering(values, seed=DEVICES.index(device))
    ]
    lines = [
        problems.line(row, operation, "nchw", device, ORDERS[i % 3])
        for i, row in enumerate(rows)
        for operation in ("forward", "input_grad")
        if operation == "forward" or (row["stride"] == (1, 1) and i % 4 == 0)
    ]
    output = run_all(driver, lines[:: 1 if device == DEVICES[0] else 3])
    assert "\nNONE " not in output, "a problem was left out"
    assert candidates(output) == CANDIDATES


def test_every_shape_of_tile_ran(driver: Path) -> None:
    """A layer large enough that the planner's best tilings differ, and one small enough; both feeds."""
    lines = [
        problems.chosen_line(problem, device, "forward", max_plans="12")
        for device in ("h200", "mi250")
        for problem in (
            "channels=16 out_channels=64 size=56,56 filter=1",
            "channels=8 out_channels=72 size=28,28 filter=3 padding=1",
            "channels=40 out_channels=16 size=7,7 filter=1",
            "channels=24 out_channels=24 size=7,7 filter=3 padding=1",
        )
    ]
    output = run_all(driver, lines)
    tiles = set(re.findall(r" filters=(\d+) pixels=(\d+) ", output))
    assert tiles == {("2", "7"), ("4", "7"), ("4", "14"), ("8", "7")}, tiles
