"""Squeeze-and-excitation in one kernel, on the host executor: every candidate."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simt import build as programs
from test_simt import ORDERS, needs_compiler, run, run_all

pytestmark = [needs_compiler, pytest.mark.slow("squeeze_excite")]

DEVICES = ("h200", "a100", "mi300", "rx7900")
# Planes of one pixel, of no whole vectors, of several for each thread's turn.
SIZES = [(1, 1), (7, 7), (9, 14), (1, 19), (16, 8), (33, 20)]
# As many as a vector has, more than a block's threads have groups for.
CHANNELS = [8, 16, 24, 72, 400, 1160]
SQUEEZED = [1, 3, 8, 19, 70]
ACTIVATIONS = ["none", "relu", "relu6", "silu", "hardswish", "gelu"]


def line(row: dict[str, Any], device: str, orders: str) -> str:
    """The problem as the driver reads it."""
    items = {**row, "device": device, "orders": orders, "size": "{},{}".format(*row["size"])}
    return " ".join(f"{name}={value}" for name, value in items.items())


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    take = random.Random(seed).choice
    return [
        {
            "dtype": take(["float32", "bfloat16", "float16"]),
            "layout": take(["nchw", "channels_last"]),
            "batch": take([1, 2, 3]),
            "channels": take(CHANNELS[:-1]),
            "squeezed": take(SQUEEZED),
            "size": take(SIZES),
            "activation": take(ACTIVATIONS),
            "gate": take(["sigmoid", "hardsigmoid"]),
            "bias": take([0, 1, 1]),
            "infinite": take([0, 0, 1]),
        }
        for _ in range(count)
    ]


@pytest.fixture(scope="session")
def driver() -> Path:
    return programs.build(["excite"]) / "excite"


@pytest.mark.parametrize("device", DEVICES)
def test_results(driver: Path, device: str) -> None:
    """At 32 and 64 lanes; clusters, of several sizes, on sm_90 alone."""
    lines = [line(row, device, ORDERS[index % 3]) for index, row in enumerate(rows(12, seed=5))]
    output = run_all(driver, lines)
    ranks = {int(each) for each in re.findall(r" ranks=(\d+)", output)}
    assert ranks == ({1, 2, 4, 8, 16} if device == "h200" else {1})
    assert all(f" {what}={how}" in output for what in ("image", "matrices") for how in (0, 1))
    assert set(re.findall(r" pixels=(\d)", output)) == ({"0", "1"} if device == "h200" else {"0"})
    assert set(re.findall(r" lanes=(\d+)", output)) == {"64" if device == "mi300" else "32"}


@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
def test_order_of_threads_does_not_matter(driver: Path, layout: str) -> None:
    row = {"layout": layout, "batch": 2, "channels": 72, "squeezed": 19, "size": (9, 11)}
    assert "\nRUN " in run(driver, [line(row, "h200", ",".join(ORDERS))])


@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
def test_many_channels(driver: Path, layout: str) -> None:
    """More than a block's threads have vectors for twice; those of most blocks are no whole turn."""
    row = {"layout": layout, "batch": 1, "channels": CHANNELS[-1], "squeezed": 48, "size": (3, 3)}
    assert "\nRUN " in run(driver, [line(row, "h200", ORDERS[2])])


@st.composite
def any_problem(draw: st.DrawFn) -> str:
    row = {
        "dtype": draw(st.sampled_from(["float32", "bfloat16", "float16"])),
        "layout": draw(st.sampled_from(["nchw", "channels_last"])),
        "batch": draw(st.integers(1, 3)),
        "channels": 8 * draw(st.integers(1, 24)),
        "squeezed": draw(st.integers(1, 40)),
        "size": (draw(st.integers(1, 20)), draw(st.integers(1, 20))),
        "activation": draw(st.sampled_from(ACTIVATIONS)),
        "gate": draw(st.sampled_from(["sigmoid", "hardsigmoid"])),
        "bias": draw(st.integers(0, 1)),
        "seed": draw(st.integers(1, 1000)),
    }
    return line(row, draw(st.sampled_from(DEVICES)), ORDERS[draw(st.integers(0, 2))])


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(lines=st.lists(any_problem(), min_size=1, max_size=3))
def test_any_problem(driver: Path, lines: list[str]) -> None:
    run(driver, lines)
