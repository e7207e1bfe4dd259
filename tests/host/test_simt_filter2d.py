"""Image filters' GPU kernels as plain C++ under sanitizers: every candidate, border and type, exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simt import build as programs
from simt import covering as problems
from test_simt import DEVICES, ORDERS, needs_compiler, run, run_all

pytestmark = [needs_compiler, pytest.mark.slow("filter2d")]

DTYPES = ["float32", "bfloat16", "float16", "uint8", "float64"]
BORDERS = ["zero", "replicate", "reflect", "wrap"]

# What strip and the paper's own forms are compiled for; heights and widths around their tiles and warps.
SQUARE: problems.Values = {
    "dtype": DTYPES[:4],
    "border": BORDERS,
    "filter": [(3, 3), (5, 5), (7, 7), (9, 9)],
    "padding": ["same", "same", "none", "ragged"],
    "size": [(1, 1), (2, 3), (9, 8), (8, 16), (14, 40), (33, 24), (5, 129), (37, 264), (3, 530)],
    "images": [1, 2, 5],
    "filters": [1, 3, 9],
    "offset": [0, 0, 1],
    "epilogue": ["", "bias", "bias relu6"],
}

# Everything else that a filter may be.
GENERAL: problems.Values = {
    "dtype": DTYPES,
    "border": BORDERS,
    "filter": [(1, 1), (3, 3), (1, 5), (7, 1), (2, 4), (11, 6), (3, 40)],
    "stride": [(1, 1), (2, 2), (3, 1), (1, 5)],
    "dilation": [(1, 1), (2, 2), (1, 3), (3, 40)],
    "padding": ["same", "none", "ragged"],
    "size": [(1, 1), (4, 7), (13, 17), (12, 70), (2, 150)],
    "images": [1, 3],
    "filters": [1, 2],
    "epilogue": ["", "bias relu"],
}


def line(problem: problems.Problem, device: str, orders: str) -> str:
    """The problem as the driver reads it."""
    top, bottom, left, right = problems.padding_of(problem["padding"], problem)
    stride, dilation = problem.get("stride", (1, 1)), problems.dilation_of(problem)
    sizes = []
    for axis, padding in enumerate((top + bottom, left + right)):
        reach = (problem["filter"][axis] - 1) * dilation[axis] + 1
        sizes.append((problem["size"][axis] + padding - reach) // stride[axis] + 1)
    words = problem["epilogue"].split()
    items = {
        "device": device,
        "padding": f"{top},{left}",
        "output": f"{sizes[0]},{sizes[1]}",
        "bias": int("bias" in words),
        "activation": next((word for word in words if word != "bias"), "none"),
        "orders": orders,
        **{name: problem[name] for name in ("dtype", "border", "images", "filters")},
        **{name: "{},{}".format(*problem[name]) for name in ("size", "filter")},
        "stride": "{},{}".format(*stride),
        "dilation": "{},{}".format(*dilation),
        "offset": problem.get("offset", 0),
    }
    return " ".join(f"{name}={value}" for name, value in items.items())


@pytest.fixture(scope="session")
def driver() -> Path:
    """The driver for filterings."""
    return programs.build(["filter2d_borders"]) / "filter2d_borders"


@pytest.mark.parametrize("device", DEVICES)
def test_filters_are_exact(driver: Path, device: str) -> None:
    """Every candidate of every covering problem gives the float64 reference's result."""
    rows = problems.covering(SQUARE, seed=1) + problems.covering(GENERAL, seed=2)
    lines = [line(row, device, ORDERS[index % len(ORDERS)]) for index, row in enumerate(rows)]
    if device == DEVICES[-1]:
        lines = lines[::3]  # the kernels are those of the first device
    output = run_all(driver, lines)
    for candidate in ("strip", "rotation", "both", "row_reuse", "column_reuse", "direct"):
        assert f" filter2d/{candidate} " in output, f"{candidate} ran none of the problems"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_order_of_threads_does_not_matter(driver: Path, device: str, dtype: str) -> None:
    """One bank of filters on images of several tiles, in every order of lanes, warps and blocks."""
    row: problems.Problem = {
        "dtype": dtype,
        "border": "reflect",
        "filter": (5, 5),
        "padding": "same",
        "size": (41, 136),
    }
    row |= {"images": 2, "filters": 3, "epilogue": "bias"}
    assert "\nRUN " in run(driver, [line(row, device, ",".join(ORDERS))])


@pytest.mark.parametrize("rows", [1, 4, 8])
@pytest.mark.parametrize("columns", [True, False], ids=["column reuse", "no column reuse"])
def test_what_is_asked_of_memory(driver: Path, columns: bool, rows: int) -> None:
    """Loads and stores of warps, and the sectors that they touch: a lane loads the first and the last of a
    row's three pixels or all, a row once for `rows` results, and the taps for 16."""
    size, pixels = (64, 256), (0, 2) if columns else (0, 1, 2)
    form = {(True, 1): "column_reuse", (False, 1): "direct", (False, 4): "row_reuse", (False, 8): "row_reuse"}
    plan = f"{form.get((columns, rows), 'both')}+lanes=32+columns={columns:d}+rows={rows}+chunk_rows=16,"
    text = f"device=h200 size={size[0] + 2},{size[1] + 2} filter=3,3 orders=forward traffic=1"
    text += f" output={size[0]},{size[1]} only=filter2d/{plan}"
    (counted,) = (line for line in run(driver, [text]).splitlines() if line.startswith("TRAFFIC"))

    def sectors(element: int) -> int:
        return (4 * element + 32 * 4 - 1) // 32 - 4 * element // 32 + 1

    segments = range(0, size[1], 32)
    starts = [start + row for start in range(0, size[0], rows) for row in range(rows + 2)]
    loads = [row * (size[1] + 2) + column + j for row in starts for column in segments for j in pixels]
    taps = 9 * len(segments) * size[0] // 16  # at one place for all lanes
    stores = [row * size[1] + column for row in range(size[0]) for column in segments]
    assert counted == (
        f"TRAFFIC loads {len(loads) + taps} sectors {sum(map(sectors, loads)) + taps} "
        f"stores {len(stores)} sectors {sum(map(sectors, stores))}"
    )


def test_saturates_and_rounds_to_even(driver: Path) -> None:
    """Bytes: the driver's filters give results below 0, above 255 and halfway between integers."""
    row: problems.Problem = {
        "dtype": "uint8",
        "border": "zero",
        "filter": (3, 3),
        "padding": "same",
        "size": (64, 64),
    }
    row |= {"images": 1, "filters": 4, "epilogue": "bias"}
    assert "\nRUN " in run(driver, [line(row, "h200", "forward")])


@st.composite
def any_filtering(draw: st.DrawFn) -> str:
    """A line for the driver."""

    def pair(low: int, high: int) -> tuple[int, int]:
        values = draw(st.integers(low, high)), draw(st.integers(low, high))
        return values if draw(st.booleans()) else (values[0], values[0])

    square = draw(st.booleans())
    side = draw(st.sampled_from([3, 5, 7, 9]))
    row: dict[str, Any] = {
        "dtype": draw(st.sampled_from(DTYPES)),
        "border": draw(st.sampled_from(BORDERS)),
        "filter": (side, side) if square else pair(1, 8),
        "stride": (1, 1) if square else pair(1, 4),
        "dilation": (1, 1) if square else pair(1, 5),
        "padding": draw(st.sampled_from(["same", "none", "ragged"])),
        "size": pair(1, 40) if draw(st.booleans()) else (draw(st.integers(1, 9)), draw(st.integers(60, 400))),
        "images": draw(st.integers(1, 4)),
        "filters": draw(st.integers(1, 10)),
        "offset": draw(st.integers(0, 3)),
        "epilogue": draw(st.sampled_from(["", "bias", "bias relu6"])),
    }
    if not problems.is_valid(row):
        row["padding"] = "ragged"
    return line(row, draw(st.sampled_from(DEVICES)), "shuffled")


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(lines=st.lists(any_filtering(), min_size=1, max_size=8))
def test_any_filtering(driver: Path, lines: list[str]) -> None:
    """Filterings that nobody thought of."""
    run(driver, lines)
