"""Every GPU kernel, run as plain C++ under sanitizers at 32 and 64 lanes, and proof that this can fail."""

from __future__ import annotations

import math
import os
import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simt import build as programs
from simt import covering as problems

needs_compiler = pytest.mark.skipif(
    platform.system() != "Linux" or not shutil.which(os.environ.get("CXX", "g++")),
    reason="the host executor needs g++ and Linux",
)
pytestmark = needs_compiler

# Warps of 32 on CUDA, of 64 and of 32 on HIP: planners and shared memory differ.
DEVICES = ("h200", "mi250", "rx7900")
ORDERS = ("forward", "reverse", "shuffled")
FAMILIES: list[str] = programs.families()


def run(program: Path, lines: list[str]) -> str:
    """The driver's output on these problems; fails with its end where it does."""
    done = subprocess.run(
        [program], input="\n".join(lines), capture_output=True, text=True, cwd=programs.ROOT
    )
    if done.returncode != 0:
        wrong = [text for text in done.stdout.splitlines() if text.startswith(("FAIL", "DONE"))]
        last = done.stdout.splitlines()[-2:]
        pytest.fail("\n".join([*wrong[:20], "last lines:", *last, done.stderr[-3000:]]), pytrace=False)
    return done.stdout


def run_all(program: Path, lines: list[str]) -> str:
    """As run, on all of this machine's cores."""
    cores = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(cores) as pool:
        return "".join(pool.map(lambda first: run(program, lines[first::cores]), range(cores)))


@pytest.fixture(scope="session")
def planted() -> Path:
    """The program of planted bugs."""
    return programs.build([programs.PLANTED]) / programs.PLANTED


@pytest.fixture(scope="session", params=FAMILIES)
def driver(request: pytest.FixtureRequest) -> Path:
    """The driver of one kernel family of depthwise."""
    return programs.build([request.param]) / str(request.param)


def skip_without_matrix_units(driver: Path, device: str) -> None:
    if driver.name == "banded" and device == "rx7900":
        pytest.skip("its kernels are for matrix units, which RDNA has not")


def covering_lines(
    tables: tuple[problems.Values, ...], device: str, most_common: float = math.inf
) -> list[str]:
    """Problems that cover the tables, for each operation and layout, in changing orders of threads. Of the
    common ones with so many products at most."""
    lines: list[str] = []
    for values in tables:
        most = math.inf if values in (problems.SMALL_PLANES, problems.GENERAL) else most_common
        for operation in problems.OPERATIONS:
            for layout in problems.LAYOUTS:
                rows = problems.covering(values, seed=len(lines), most_products=most)
                lines += [
                    problems.line(row, operation, layout, device, ORDERS[index % len(ORDERS)])
                    for index, row in enumerate(rows)
                ]
    return lines[::3] if device == DEVICES[-1] else lines  # its kernels are those of the first device


@pytest.mark.slow(by="driver")
@pytest.mark.parametrize("device", DEVICES)
def test_kernels_are_exact(driver: Path, device: str) -> None:
    """Every candidate of every covering problem gives the float64 reference's result."""
    skip_without_matrix_units(driver, device)
    # The family that runs them all spent half of its time on those where every property is large at once.
    most = problems.MOST_PRODUCTS if driver.name in ("direct", "banded") else math.inf
    lines = covering_lines((problems.COMMON, problems.SMALL_PLANES, problems.GENERAL), device, most)
    if driver.name == "banded":
        lines += covering_lines((problems.LARGE_FILTERS,), device, problems.MOST_PRODUCTS / 2)
    output = run_all(driver, lines)
    assert output.count("\nRUN ") >= 5, "this family ran hardly any of the problems"


@pytest.mark.slow(by="driver")
@pytest.mark.parametrize("device", DEVICES)
def test_order_of_threads_does_not_matter(driver: Path, device: str) -> None:
    """One problem of each operation and layout, in every order of lanes, warps and blocks."""
    skip_without_matrix_units(driver, device)
    dtype, channels, side = ("bfloat16", 9, 9) if driver.name == "banded" else ("float32", 24, 5)
    row = {"dtype": dtype, "filter": (side, side), "stride": (1, 1), "padding": "same"}
    row |= {"channels": channels, "batch": 3, "epilogue": "bias"}
    lines = [
        problems.line(row | {"size": size}, operation, layout, device, ",".join(ORDERS))
        for size in ((17, 40), (14, 14))
        for operation in problems.OPERATIONS
        for layout in problems.LAYOUTS
    ]
    assert "\nRUN " in run_all(driver, lines)


@st.composite
def any_problem(draw: st.DrawFn) -> str:
    """A line for a driver."""

    def pair(low: int, high: int) -> tuple[int, int]:
        values = draw(st.integers(low, high)), draw(st.integers(low, high))
        return values if draw(st.booleans()) else (values[0], values[0])

    row: dict[str, Any] = {
        "dtype": draw(st.sampled_from(["float32", "bfloat16", "float16", "float64"])),
        "filter": draw(st.sampled_from([(3, 3), (5, 5), (7, 7)])) if draw(st.booleans()) else pair(1, 6),
        "stride": draw(st.sampled_from([(1, 1), (2, 2)])) if draw(st.booleans()) else pair(1, 4),
        "dilation": (1, 1) if draw(st.booleans()) else pair(1, 3),
        "padding": draw(st.sampled_from(["same", "none", "ragged"])),
        "size": pair(1, 24) if draw(st.booleans()) else (draw(st.integers(1, 4)), draw(st.integers(60, 300))),
        "channels": draw(st.integers(1, 20)),
        "multiplier": draw(st.sampled_from([1, 1, 2, 3])),
        "batch": draw(st.integers(1, 4)),
        "epilogue": draw(
            st.sampled_from(["", "bias", "bias relu6", "silu", "scale bias residual relu", "relu residual"])
        ),
    }
    if not problems.is_valid(row):
        row["padding"] = "ragged"
    operation = draw(st.sampled_from(problems.OPERATIONS))
    layout = draw(st.sampled_from(problems.LAYOUTS))
    return problems.line(row, operation, layout, draw(st.sampled_from(DEVICES)), "shuffled")


@st.composite
def problem_of_its_own(draw: st.DrawFn, family: str) -> str:
    """A line for a driver, such as the family is there for."""
    size = draw(st.sampled_from([(7, 7), (14, 14)])) if family.startswith("plane") else (14, 16)
    rolling, published, banded = (family == name for name in ("channels_rolling", "shared_rows", "banded"))
    filter = draw(st.sampled_from([(7, 7) if rolling else (3, 3), (5, 5)]))
    dtypes = [*([] if banded else ["float32"]), *([] if published else ["bfloat16", "float16"])]
    row: dict[str, Any] = {
        "dtype": draw(st.sampled_from(dtypes)),
        "filter": (5, 5) if banded else filter,
        "stride": (1, 1),
        "padding": "same",
        "size": size,
        "channels": draw(st.integers(2, 20)),  # one channel counts as nchw
        "batch": draw(st.integers(1, 4)),
        "epilogue": draw(st.sampled_from(["", "bias relu6", *([] if rolling else ["silu"])])),
    }
    operations = ["weight_grad"] if family.endswith("_weight") else ["forward", "input_grad"]
    layout = "channels_last" if family.startswith("channels") else "nchw"
    operation = draw(st.sampled_from(operations[:1] if published else operations))
    return problems.line(row, operation, layout, "h200", "shuffled")


@pytest.mark.slow(by="driver")
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_problem(driver: Path, data: st.DataObject) -> None:
    """Problems that nobody thought of, beside one that the family runs."""
    lines = data.draw(st.lists(any_problem(), max_size=11))
    own = data.draw(problem_of_its_own(driver.name))
    assert "\nRUN " in run(driver, [*lines, own])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("lanes", (32, 64))
def test_planted_bugs_are_found(planted: Path, lanes: int, order: str) -> None:
    """Each kernel with one bug is stopped, in whatever order threads run, and those without run."""
    environment = {**os.environ, "ASAN_OPTIONS": "symbolize=0"}
    listed = subprocess.run([planted, "list"], capture_output=True, text=True, check=True, env=environment)
    missed = []
    for bug in listed.stdout.split():
        command = [str(planted), bug, str(lanes), order]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        found = "FOUND" in done.stdout or "Sanitizer" in done.stderr or "runtime error" in done.stderr
        if bug.startswith("none"):
            assert done.returncode == 0, done.stdout + done.stderr
        elif done.returncode == 0 or not found:
            missed.append(bug)
    assert not missed
    assert len(listed.stdout.split()) > 20


def test_every_other_method_has_tests_of_its_own() -> None:
    """This file runs depthwise; a method that moves in brings test_simt_<method>.py."""
    methods = programs.methods()
    assert methods
    assert [name for name in methods if not Path(__file__).with_name(f"test_simt_{name}.py").exists()] == []
