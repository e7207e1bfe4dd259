"""Inverted residual blocks in one kernel, on the host executor: every candidate, exactly."""

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

pytestmark = [needs_compiler, pytest.mark.slow("inverted_residual")]

DEVICES = ("h200", "a100")  # of AMD's GPUs none has such plans
COUNTS = {"h200": 24, "a100": 6}  # the kernels are those of the first device
DTYPES = ["bfloat16", "float16", "float32"]
# Channels that fill no product, and several; maps smaller than a tile, ragged, of one row.
CHANNELS = [8, 16, 24, 40]
EXPANDED = [8, 20, 48, 72]
OUT = [8, 16, 24, 48, 168]
SIZES = [(1, 1), (7, 7), (9, 14), (1, 19), (17, 3)]
ACTIVATIONS = ["relu6", "relu", "hardswish"]


def line(row: dict[str, Any], device: str, orders: str) -> str:
    """The block as the driver reads it."""
    items = {**row, "device": device, "orders": orders, "size": "{},{}".format(*row["size"])}
    return " ".join(f"{name}={value}" for name, value in items.items())


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    take = random.Random(seed).choice
    found = []
    for _ in range(count):
        is_first = take([False, False, True])  # its 1x1 filters are a network's first ones instead
        channels, stride = take([1, 2, 3] if is_first else CHANNELS), take([1, 2])
        residual = int(stride == 1 and not is_first and take([True, False]))
        found.append(
            {
                "dtype": take(DTYPES),
                "batch": take([1, 2]),
                "channels": channels,
                "expanded": take(EXPANDED),
                "out": channels if residual else take(OUT),
                "size": take(SIZES),
                "expand_filter": take([3, 5] if channels == 1 else [3]) if is_first else 1,
                "expand_stride": take([1, 2, 2, 3]) if is_first else 1,
                "layout": take(["nchw", "channels_last"]) if is_first else "channels_last",
                "filter": take([3, 5]),
                "stride": stride,
                "residual": residual,
                "activation": take(ACTIVATIONS),
                "output_activation": "none" if residual else take(["none", "relu", "relu6"]),
                "bias": take([0, 1, 1]),
                "infinite": take([0, 0, 1]),
            }
        )
    return found


# Stride, channels, out: each fits no other shape than one of its own, but for wider ones.
BANDED = [
    (1, 24, 24),
    (1, 40, 48),
    (1, 64, 96),
    (1, 96, 96),
    (2, 16, 24),
    (2, 32, 32),
    (2, 32, 64),
    (2, 96, 168),
]


def _is_of(kind: tuple[int, int, int], text: str) -> bool:
    stride, channels, out = kind
    return all(
        f" {item} " in f" {text} " for item in (f"stride={stride}", f"channels={channels}", f"out={out}")
    )


def banded_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """So many of each kind, and of networks' first convolutions."""
    take = random.Random(seed).choice
    found = []
    for stride, channels, out in BANDED * count:
        found.append(
            {
                "dtype": take(["bfloat16", "float16"]),
                "batch": take([1, 2]),
                "channels": channels,
                "expanded": take([20, 48, 72]),
                "out": out,
                "size": take([(1, 19), (9, 14), (15, 17), (17, 3)]),
                # Small images with much to expand are not filtered by 5x5 so.
                "filter": 3 if channels > 40 else take([3, 5]),
                "stride": stride,
                "residual": int(stride == 1 and channels == out and take([True, False])),
                "activation": take(ACTIVATIONS),
                "bias": take([0, 1, 1]),
                "infinite": take([0, 0, 1]),
            }
        )
    for channels, first_filter, first_stride in [(3, 3, 2), (1, 5, 2), (2, 3, 1)] * count:
        found.append(
            {
                "dtype": take(["bfloat16", "float16"]),
                "channels": channels,
                "expanded": take([20, 48]),
                "out": 24,
                "size": (take([19, 30]), 32),
                "expand_filter": first_filter,
                "expand_stride": first_stride,
                "activation": take(ACTIVATIONS),
                "output_activation": take(["none", "relu6"]),
                "infinite": take([0, 1]),
            }
        )
    return found


# Stride, channels (3: a network's first convolution), filter: each fits another of the shapes, or two.
EXCITED = [(1, 3, 3), (1, 24, 3), (1, 40, 5), (2, 16, 3), (2, 24, 5), (2, 40, 3)]


def excited_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """So many of each kind."""
    take = random.Random(seed).choice
    found = []
    for stride, channels, filter in EXCITED * count:
        is_first = channels == 3
        residual = int(stride == 1 and not is_first and take([True, False]))
        found.append(
            {
                "dtype": take(["bfloat16", "float16"]),
                "batch": take([1, 3]),
                "channels": channels,
                "expanded": take([40, 72, 144]),
                "out": channels if residual else take([8, 24, 72]),
                "size": (take([19, 30]), 32) if is_first else take([(1, 19), (9, 14), (15, 17), (17, 3)]),
                "expand_filter": 3 if is_first else 1,
                "expand_stride": 2 if is_first else 1,
                "filter": filter,
                "stride": stride,
                "residual": residual,
                "activation": take(["silu", "silu", "hardswish", "relu6", "relu"]),
                "squeezed": take([1, 6, 10]),
                "squeeze_activation": take(["silu", "relu"]),
                "gate": take(["sigmoid", "hardsigmoid"]),
                "output_activation": "none" if residual else take(["none", "relu6"]),
                "bias": take([0, 1, 1]),
                "infinite": take([0, 0, 1]),
            }
        )
    return found


@pytest.fixture(scope="session")
def driver() -> Path:
    return programs.build(["blocks"]) / "blocks"


@pytest.mark.parametrize("device", DEVICES)
def test_blocks_are_exact(driver: Path, device: str) -> None:
    """On sm_80 filters come by other copies than on later GPUs."""
    lines = [line(row, device, ORDERS[index % 3]) for index, row in enumerate(rows(COUNTS[device], seed=11))]
    output = run_all(driver, lines)
    for shape in range(6):
        ran = output.count(f"inverted_residual shape={shape} ")
        assert ran > COUNTS[device] // 2, f"shape {shape} ran few problems"
    ranks = {int(each) for each in re.findall(r" ranks=(\d)", output)}
    assert 1 in ranks and (len(ranks) > 2) == (device == "h200"), "clusters, of several sizes, on sm_90 alone"


@pytest.mark.parametrize("device", DEVICES)
def test_bands_are_exact(driver: Path, device: str) -> None:
    """Whose depthwise filters are products: of every shape, value by value where not all is finite."""
    lines = [
        line({**row, "only": "banded"}, device, ORDERS[index % 3])
        for index, row in enumerate(banded_rows(1 if device == "a100" else 3, seed=23))
    ]
    output = run_all(driver, lines)
    for kind in BANDED:
        ran = [text for text in output.split("CASE ")[1:] if _is_of(kind, text)]
        has_room = device == "h200" or kind != (1, 96, 96)  # an A100's blocks have 163 KB
        assert ran and all(("banded shape=" in text) == has_room for text in ran), kind
    shapes = set(re.findall(r"banded shape=(\d)", output))
    assert shapes == {"0", "1", "2", "3"}
    ranks = {int(each) for each in re.findall(r" ranks=(\d)", output)}
    assert 1 in ranks and (len(ranks) > 1) == (device == "h200")


@pytest.mark.parametrize("device", DEVICES)
def test_excited_blocks_agree(driver: Path, device: str) -> None:
    """Three kernels, by what those before them left: of every shape, and of images that pixels share a warp
    with."""
    lines = [
        line(row, device, ORDERS[index % 3])
        for index, row in enumerate(excited_rows(1 if device == "a100" else 3, seed=31))
    ]
    output = run_all(driver, lines)
    assert output.count("CASE ") == len(lines)
    assert set(re.findall(r"excited shape=(\d)", output)) == {"0", "1", "3"}
    splits = set(re.findall(r" block_pairs=(\d)", output))
    assert "1" in splits and (len(splits) > 1 or device == "a100")  # of which there are fewer


def test_order_of_threads_does_not_matter(driver: Path) -> None:
    """Several tiles, chunks and images, in every order of lanes, warps and blocks."""
    row = {"batch": 2, "channels": 24, "expanded": 100, "out": 24, "size": (9, 11), "residual": 1}
    assert "\nRUN " in run(driver, [line(row, "h200", ",".join(ORDERS))])


@st.composite
def any_block(draw: st.DrawFn) -> str:
    """A line for the driver."""
    is_first = draw(st.booleans())
    channels = draw(st.integers(1, 3)) if is_first else 8 * draw(st.integers(1, 6))
    stride = draw(st.sampled_from([1, 2]))
    residual = stride == 1 and not is_first and draw(st.booleans())
    row = {
        "dtype": draw(st.sampled_from(DTYPES)),
        "batch": draw(st.integers(1, 2)),
        "channels": channels,
        "expanded": 2 * draw(st.integers(1, 36)),
        "out": channels if residual else 8 * draw(st.integers(1, 24)),
        "size": (draw(st.integers(1, 12)), draw(st.integers(1, 12))),
        "expand_filter": 3 if is_first else 1,
        "expand_stride": draw(st.integers(1, 4)) if is_first else 1,
        "layout": draw(st.sampled_from(["nchw", "channels_last"])) if is_first else "channels_last",
        "filter": draw(st.sampled_from([3, 5])),
        "stride": stride,
        "residual": int(residual),
        "activation": draw(st.sampled_from(ACTIVATIONS)),
    }
    return line(row, draw(st.sampled_from(DEVICES)), "shuffled")


@settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(lines=st.lists(any_block(), min_size=1, max_size=3))
def test_any_block(driver: Path, lines: list[str]) -> None:
    """Blocks that nobody thought of."""
    run(driver, lines)
