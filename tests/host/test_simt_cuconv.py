"""cuconv on the host executor: every candidate, both feeds, at 32 and 64 lanes, under sanitizers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from simt import build as programs
from simt import covering as problems
from test_simt import DEVICES, ORDERS, needs_compiler, run_all

pytestmark = [needs_compiler, pytest.mark.slow("cuconv")]

CANDIDATES = {"fused", "split", "two_stage", "two_stage_blocked"}
# What else there is where there are matrix units, but for float64.
MATRIX = {"h200": {"tensor", "deep"}, "mi250": {"deep"}, "rx7900": set[str]()}

# What the covering problems seldom meet: tiles of several strips a row, windows of taps, chunks of channels
# with a rest, pieces of 16 bytes that begin anywhere, planes of partial sums.
PROBLEMS = {
    "flat, pieces begin anywhere": "channels=27 out_channels=40 size=7,7 batch=3 filter=1 bias=1",
    "flat, a tile and a pixel": "channels=16 out_channels=9 size=1,57 filter=1",
    "flat, groups of odd channels": "channels=18 groups=2 out_channels=22 size=5,13 filter=1 batch=2",
    "flat, many channels": "channels=200 out_channels=24 size=4,7 filter=1 bias=1",
    "flat, sums in parts": "channels=1100 out_channels=9 size=2,5 filter=1",
    "sums in parts": "channels=42 out_channels=9 size=5,6 filter=5 padding=2 bias=1",
    "sums in parts, several windows": "channels=7 out_channels=9 size=12,11 filter=11 padding=5",
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
    assert candidates(output) == CANDIDATES | MATRIX[device]


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_types_are_exact(driver: Path, dtype: str) -> None:
    chosen = list(PROBLEMS.values())
    lines = [
        problems.chosen_line(problem, DEVICES[i % 2], ORDERS[i % 3], dtype=dtype)
        for i, problem in enumerate(
            {"float64": chosen[::2], "bfloat16": chosen[1::5]}.get(dtype, chosen[::5])
        )
    ]
    gradients = list(GRADIENTS.values())
    lines += [
        problems.chosen_line(problem, "mi250", "reverse", dtype=dtype, operation="input_grad")
        for problem in gradients[:2]
    ]
    output = run_all(driver, lines)
    assert "\nNONE " not in output, "a problem was left out"
    assert candidates(output) == (CANDIDATES if dtype == "float64" else CANDIDATES | MATRIX["h200"])


# Of the tensor kernel: residues of the stride in rows and columns, several images a tile, padding that rows
# and images share, more of it than the filter takes, results that are written one, four and eight at once.
WINDOWS = {
    "49 pixels": "channels=40 out_channels=70 size=7,7 batch=9 filter=3 padding=1 bias=1",
    "rows of 8 and 4 neighbours": "channels=33 out_channels=64 size=12,28 batch=2 filter=3 padding=1",
    "four neighbours": "channels=20 out_channels=9 size=6,14 batch=3 filter=5 padding=2 activation=silu",
    "residues": "channels=36 out_channels=20 size=15,17 batch=2 filter=3 stride=2 padding=1",
    "residues that no tap meets": "channels=18 out_channels=20 size=15,14 batch=2 filter=1 stride=3",
    "uneven strides": "channels=5 out_channels=8 size=14,19 filter=3,2 stride=3,2 padding=2,0,1,1",
    "no padding": "channels=16 out_channels=24 size=9,31 batch=2 filter=3",
    "padding of one side": "channels=16 out_channels=24 size=9,8 batch=2 filter=3 padding=0,2,2,0 bias=1",
    "padding beyond the filter": "channels=16 out_channels=24 size=5,4 batch=2 filter=3 padding=4,3,5,4",
    "dilation": "channels=34 out_channels=24 size=11,12 batch=2 filter=3 dilation=3,2 padding=3,3,2,2",
    "25 taps": "channels=32 out_channels=130 size=9,9 batch=2 filter=5 padding=2",
    "two taps": "channels=100 out_channels=24 size=8,8 batch=2 filter=2,1 padding=1,0,0,0",
    "groups": "channels=66 groups=3 out_channels=30 size=9,8 batch=2 filter=3 padding=1 bias=1",
    "channels of several planes": "channels=300 out_channels=65 size=7,8 filter=3 padding=1 bias=1",
    "one channel, one pixel": "channels=1 out_channels=1 size=1,1 filter=3 padding=1",
    "several steps a stage": "channels=330 out_channels=136 size=7,7 batch=3 filter=1 bias=1",
    "steps of an even plane": "channels=100 out_channels=70 size=14,14 batch=2 filter=1 activation=silu",
}
# Which float32 alone has there.
FINISHED = {
    "four neighbours": "channels=20 out_channels=70 size=12,28 batch=2 filter=3 padding=1 residual=before",
    "one by one": "channels=33 out_channels=40 size=7,7 batch=5 filter=3 padding=1 scale=1 residual=after",
    "in planes": "channels=300 out_channels=65 size=7,8 filter=3 padding=1 scale=1 bias=1 residual=before",
}
CROPPED = {
    "no padding": "channels=24 out_channels=40 size=12,9 batch=2 filter=3",
    "padding beyond the filter": "channels=4 out_channels=10 size=5,6 filter=3 padding=4,3,5,3",
    "1x1": "channels=70 out_channels=136 size=13,13 batch=2 filter=1",
    "dilation": "channels=20 groups=2 out_channels=34 size=9,9 batch=2 filter=2,3 dilation=2 padding=1",
}


@pytest.mark.slow("cuconv windows")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "tf32", "float32"])
def test_windows_of_the_tensor_kernel_are_exact(driver: Path, dtype: str) -> None:
    kind = {"dtype": "float32", "tf32": "1"} if dtype == "tf32" else {"dtype": dtype}
    more = kind | {"only": "tensor", "max_plans": "40"}
    lines = [
        problems.chosen_line(problem, "h200", ORDERS[i % 3], **more)
        for i, problem in enumerate(WINDOWS.values())
    ]
    lines += [
        problems.chosen_line(problem, "h200", ORDERS[i % 3], operation="input_grad", **more)
        for i, problem in enumerate(CROPPED.values())
    ]
    # Types differ in little but rounding.
    lines = lines[:: {"bfloat16": 1, "float32": 3, "tf32": 5, "float16": 5}[dtype]]
    if dtype == "float32":
        lines += [
            problems.chosen_line(f"{problem} activation=relu6", "h200", ORDERS[i % 3], **more)
            for i, problem in enumerate(FINISHED.values())
        ]
    output = run_all(driver, lines)
    assert output.count("CASE ") == len(lines) and candidates(output) == {"tensor"}
    for case in re.split(r"^CASE ", output, flags=re.MULTILINE)[1:]:
        assert "RUN " in case, "a problem was left out: " + case.splitlines()[0]


# Of the deep kernel: rows and images within a tile, taps beside the source, a tap's channels with a rest,
# warps without any depth.
FEW_PIXELS = {
    "work for four fragments": "channels=8 out_channels=256 size=39,39 filter=1 stride=2 bias=1",
    "49 pixels": "channels=72 out_channels=68 size=7,7 filter=3 padding=1 bias=1 activation=relu",
    "rows and images": "channels=8 out_channels=36 size=5,6 batch=7 filter=3 padding=1 residual=after",
    "residues": "channels=24 out_channels=40 size=15,13 batch=2 filter=3 stride=2 padding=1 bias=1",
    "a stride and one tap": "channels=160 out_channels=32 size=9,8 filter=1 stride=2 activation=silu",
    "uneven": "channels=16 out_channels=8 size=14,9 filter=3,2 stride=3,2 dilation=1,3 padding=2,0,1,1",
    "padding beyond the filter": "channels=16 out_channels=24 size=5,4 filter=3 padding=4,3,5,4",
    "25 taps": "channels=40 out_channels=12 size=6,6 filter=5 padding=2 scale=1 residual=before",
    "one pixel": "channels=264 out_channels=36 size=1,1 filter=3 padding=1 bias=1",
    "one pixel of a large filter": "channels=48 out_channels=100 size=5,7 filter=5,7 activation=gelu",
}
ANY_CHANNELS = {
    "one channel, one pixel": "channels=1 out_channels=1 size=2,1 filter=3 padding=1",
    "three channels": "channels=3 out_channels=33 size=13,12 filter=5 stride=2 padding=2 bias=1",
    "a rest of channels": "channels=45 out_channels=7 size=7,7 filter=3 padding=1 residual=before",
}


@pytest.mark.parametrize("layout", problems.LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "tf32", "float16", "bfloat16"])
@pytest.mark.parametrize("device", ["h200", "a100", "mi250"])
def test_few_pixels_are_exact(driver: Path, device: str, dtype: str, layout: str) -> None:
    kind = {"dtype": "float32", "tf32": "1"} if dtype == "tf32" else {"dtype": dtype}
    more = kind | {"only": "deep", "layout": layout, "max_plans": "12"}
    forward = FEW_PIXELS | (ANY_CHANNELS if layout == "nchw" else {})
    chosen = [(problem, "forward") for problem in forward.values()]
    chosen += [
        (problem, "input_grad")
        for name, problem in CROPPED.items()
        if "groups" not in problem and (layout == "nchw" or name == "no padding")
    ]
    if device == "mi250":
        chosen = [(text, kind) for text, kind in chosen if "residual" not in text and "scale" not in text]
    if dtype in ("tf32", "float16"):  # types differ in little but rounding
        chosen = chosen[::3]
    lines = [
        problems.chosen_line(text, device, ORDERS[i % 3], operation=operation, **more)
        for i, (text, operation) in enumerate(chosen)
    ]
    output = run_all(driver, lines)
    assert "NONE" not in output and candidates(output) == {"deep"}
    fragments = {"1", "2", "3"} | (set() if device == "mi250" else {"4"})  # whose sums take 74 KB there
    assert set(re.findall(r" fragments=(\d+)", output)) == fragments
    ranks = set(re.findall(r" ranks=(\d+)", output))
    assert ranks == {"1"} if device != "h200" else len(ranks) > 1


@pytest.mark.parametrize(("dtype", "count"), [("bfloat16", 7), ("float32", 5)])
def test_every_tile_of_the_tensor_kernel_ran(driver: Path, dtype: str, count: int) -> None:
    """Layers of which the planner shares out the taps in different ways."""
    more = {"only": "tensor", "max_plans": "40", "dtype": dtype, "batch": "1"}
    layers = (
        "channels=32 out_channels=128 size=11,11 filter=5 padding=2",
        "channels=160 out_channels=64 size=7,7 filter=3 padding=1",
        "channels=64 out_channels=128 size=11,16 filter=1",
    )
    output = run_all(driver, [problems.chosen_line(layer, "h200", "shuffled", **more) for layer in layers])
    tiles = {int(tile) for tile in re.findall(r" tensor .*?tile=(\d+) ", output)}
    taps = {int(count) for count in re.findall(r" segment_taps=(\d+) ", output)}
    depths = {int(count) for count in re.findall(r" depth=(\d+) ", output)}
    assert tiles == set(range(count)) and {1, 3} <= taps and {1, 2} <= depths, (tiles, taps, depths)
    assert dtype == "float32" or 5 in taps


@pytest.mark.slow("cuconv windows")
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
    assert candidates(output) == CANDIDATES | MATRIX[device]


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
