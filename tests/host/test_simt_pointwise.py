"""Pointwise kernels as plain C++ under sanitizers, at 32 and 64 lanes, against the float64 reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from simt import build as programs
from simt import covering as problems
from test_simt import DEVICES, ORDERS, needs_compiler, run_all

pytestmark = [needs_compiler, pytest.mark.slow("pointwise")]

# Channels and pixels around the tiles' edges; planes that allow pieces of 16 and of 8 bytes and none.
PRODUCTS: problems.Values = {
    "dtype": ["float32", "bfloat16", "float16", "float64"],
    "tf32": [0, 1],
    "filter": [(1, 1)],
    "stride": [(1, 1)],
    "padding": ["none"],
    "size": [(1, 1), (5, 3), (7, 7), (8, 8), (14, 14), (12, 17), (3, 4), (16, 24), (9, 14), (13, 15)],
    "channels": [1, 3, 8, 16, 34, 48, 136],
    "out_channels": [1, 6, 16, 24, 40, 130],
    "groups": [1, 2],
    "batch": [1, 2, 5],
    "epilogue": ["", "bias", "bias relu", "relu6", "bias silu", "hardswish", "bias gelu"],
}

# The small planes of a network's last layers, which are copied as they lie where images are whole pieces.
PLANES: problems.Values = {
    "dtype": ["float32", "bfloat16", "float16"],
    "tf32": [0, 1],
    "filter": [(1, 1)],
    "stride": [(1, 1)],
    "padding": ["none"],
    "size": [(7, 7), (5, 11), (5, 10)],
    "channels": [8, 16, 40, 136],
    "out_channels": [8, 24, 80],
    "groups": [1],
    "batch": [1, 2, 5],
    "epilogue": ["", "bias", "bias relu6", "bias silu"],
}

# What a 1x1 filter may have beside: strides, and padding, where outputs see nothing but zeros.
GENERAL: problems.Values = {
    "dtype": ["float32", "bfloat16", "float64"],
    "tf32": [0, 1],
    "filter": [(1, 1)],
    "stride": [(1, 1), (2, 2), (3, 1), (1, 4)],
    "padding": ["none", "ragged"],
    "size": [(1, 1), (5, 7), (14, 14), (9, 16)],
    "channels": [6, 24, 33],
    "out_channels": [6, 15, 33],
    "groups": [1, 3],
    "batch": [1, 3],
    "epilogue": ["", "bias", "bias relu6"],
}


@pytest.fixture(scope="session")
def pointwise() -> Path:
    """The driver of the whole method."""
    return programs.build(["pointwise"]) / "pointwise"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("operation", problems.OPERATIONS)
def test_kernels_are_exact(pointwise: Path, device: str, operation: str) -> None:
    """Every candidate of every covering problem gives the float64 reference's result."""
    lines: list[str] = []
    for values in (PRODUCTS, PLANES, GENERAL):
        for layout in problems.LAYOUTS:
            rows = problems.covering(values, seed=len(lines))
            lines += [
                problems.line(row, operation, layout, device, ORDERS[index % len(ORDERS)])
                for index, row in enumerate(rows)
            ]
    if device != DEVICES[0]:
        lines = lines[::3]  # most of the kernels are those of the first device
    output = run_all(pointwise, lines)
    assert "NONE" not in output
    assert output.count("\nRUN ") >= 2 * len(lines)


@pytest.mark.parametrize("device", DEVICES)
def test_order_of_threads_does_not_matter(pointwise: Path, device: str) -> None:
    """One problem of each operation, layout and precision, in every order of lanes, warps and blocks."""
    row = {"filter": (1, 1), "stride": (1, 1), "padding": "none", "channels": 72, "out_channels": 40}
    row |= {"batch": 3, "groups": 1, "epilogue": "bias"}
    lines = [
        problems.line(
            row | {"size": size, "dtype": dtype, "tf32": tf32}, operation, layout, device, ",".join(ORDERS)
        )
        for size, dtype, tf32 in (((7, 7), "float32", 0), ((14, 14), "bfloat16", 0), ((8, 8), "float32", 1))
        for operation in problems.OPERATIONS
        for layout in problems.LAYOUTS
    ]
    assert "\nRUN " in run_all(pointwise, lines)


def test_blocks_go_from_tile_to_tile(pointwise: Path) -> None:
    """More column tiles than a multiprocessor's blocks, with filters that stay in shared memory or do not."""
    types = (("float32", 0), ("float32", 1), ("bfloat16", 0))
    shapes = (
        ("channels=20 out_channels=24 batch=2 size=24,24", "forward"),
        ("channels=34 out_channels=20 groups=2 batch=3 size=18,18", "input_grad"),
    )
    cases = [
        (shape, dtype, tf32, operation, "tensor") for shape, operation in shapes for dtype, tf32 in types
    ]
    cases += [("channels=460 out_channels=4 batch=3 size=24,24", "float32", 0, "forward", "tile=1")]
    lines = [
        problems.chosen_line(f"{shape} filter=1,1 bias=1 dtype={dtype} tf32={tf32}", "h200", "shuffled")
        + f" multiprocessors=1 only={only} operation={operation}"
        for shape, dtype, tf32, operation, only in cases
    ]
    output = run_all(pointwise, lines)
    assert re.search(r"rounds=[2-9] filters_stay=1", output)
    assert re.search(r"rounds=[2-9] filters_stay=0", output)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("device", ["h200", "a100", "mi250"])
def test_few_channels(pointwise: Path, device: str, dtype: str) -> None:
    """Every depth of the shallow family, filters of a block and of several, pixels of no whole group."""
    more = f"device={device} dtype={dtype} layout=channels_last only=shallow"
    cases = (
        "channels=8 out_channels=24 batch=3 size=9,7 bias=1 activation=silu",
        "channels=32 out_channels=72 batch=2 size=5,11 bias=1 activation=relu6",
        "channels=40 out_channels=240 size=6,6 activation=hardswish",
        "channels=72 out_channels=40 batch=5 size=3,3 bias=1",
        "channels=128 out_channels=264 size=1,1 batch=3 bias=1 activation=relu",
        "channels=24 out_channels=112 batch=2 size=7,7 operation=input_grad",
        "channels=136 out_channels=40 batch=2 size=5,5 bias=1 activation=gelu",
        "channels=184 out_channels=64 batch=1 size=4,9 bias=1",
        "channels=200 out_channels=32 batch=1 size=3,7 bias=1 activation=silu",
        "channels=256 out_channels=48 batch=1 size=3,7 bias=1",
    )
    lines = [f"{text} groups=1 filter=1 {more} orders={ORDERS[i % 3]}" for i, text in enumerate(cases)]
    output = run_all(pointwise, lines)
    assert "NONE" not in output
    assert {"1", "2"} <= set(re.findall(r" block_pairs=(\d+)", output))


@pytest.mark.parametrize("layout", problems.LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("device", ["h200", "a100", "mi250"])
def test_few_pixels(pointwise: Path, device: str, dtype: str, layout: str) -> None:
    """The deep family: warps and clusters with channels for all or some, and more than at once."""
    more = f"device={device} dtype={dtype} layout={layout} only=deep"
    cases: tuple[str, ...] = (
        "channels=8 out_channels=4 batch=1 size=1,1 bias=1 tf32=1",
        "channels=136 out_channels=40 batch=2 size=3,3 bias=1 activation=relu6",
        "channels=264 out_channels=36 batch=1 size=7,7 residual=after activation=relu",
        "channels=1160 out_channels=72 batch=1 size=4,5 bias=1 residual=before",
        "channels=1280 out_channels=100 batch=3 size=1,1 bias=1",
        "channels=520 out_channels=12 batch=1 size=5,5 scale=1 activation=gelu",
        "channels=9216 out_channels=4 batch=1 size=1,1 bias=1",
        "channels=2056 out_channels=1000 batch=1 size=1,1",
        "channels=24 out_channels=112 batch=2 size=7,7 operation=input_grad",
        "channels=96 out_channels=240 batch=1 size=6,6 operation=input_grad tf32=1",
    )
    if layout == "nchw":  # any channels, and quads of pixels that go from image to image
        cases += (
            "channels=33 out_channels=7 batch=3 size=7,7 bias=1 activation=silu",
            "channels=1 out_channels=1 batch=2 size=5,6 residual=after",
            "channels=163 out_channels=45 batch=2 size=8,9 bias=1 residual=before activation=relu",
            "channels=301 out_channels=35 batch=5 size=3,3 operation=input_grad",
        )
    lines = [f"{text} groups=1 filter=1 {more} orders={ORDERS[i % 3]}" for i, text in enumerate(cases)]
    if device == "mi250":
        lines = [line for line in lines if "residual" not in line and "scale" not in line]
    output = run_all(pointwise, lines)
    assert "NONE" not in output
    ranks = {"1", "2", "4", "8"} if device == "h200" else {"1"}
    assert set(re.findall(r" ranks=(\d+)", output)) == ranks
