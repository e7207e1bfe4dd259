"""hntmp's GPU kernels on the host executor: every tile, whole and split, at 32 and 64 lanes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from simt import build as programs
from simt.covering import LAYOUTS, chosen_line
from test_simt import DEVICES, ORDERS, needs_compiler, run_all

pytestmark = [needs_compiler, pytest.mark.slow("hntmp")]

# Sizes are around those of the tiles; channels around those of a warp's slots and of a block.
PROBLEMS = {
    "a whole image": "channels=12 out_channels=10 size=7,7 filter=3 padding=1 batch=2 bias=1 activation=relu",
    "a whole image, channels left over": "channels=36 out_channels=5 size=7,7 filter=3 padding=1",
    "whole rows, more than two tiles": "channels=9 out_channels=6 size=16,14 filter=3 padding=1",
    "whole rows of one tile": "channels=5 out_channels=9 size=5,14 filter=3 padding=1 batch=2 bias=1",
    "ragged both ways": "channels=7 out_channels=5 size=9,23 filter=3 padding=1 bias=1 activation=relu6",
    "no padding": "channels=4 out_channels=20 size=10,9 filter=3",
    "padding on some sides": "channels=3 out_channels=6 size=6,5 filter=3 padding=0,2,3,1",
    "more padding than filter": "channels=2 out_channels=6 size=4,3 filter=3 padding=5,4,3,6",
    "groups": "channels=18 groups=3 out_channels=12 size=8,8 filter=3 padding=1 bias=1",
    "one channel a group": "channels=6 groups=6 out_channels=6 size=9,8 filter=3 padding=1",
    "one pixel": "channels=70 out_channels=70 size=1,1 filter=3 padding=1",
    "pointwise": "channels=40 out_channels=33 size=7,8 filter=1 bias=1 activation=silu",
    "pointwise, rows of no seven": "channels=20 out_channels=9 size=5,5 filter=1",
    "pointwise with a stride": "channels=6 out_channels=9 size=9,15 filter=1 stride=2",
    "5x5": "channels=6 out_channels=9 size=9,10 filter=5 padding=2 bias=1",
    "7x7 with a stride": "channels=3 out_channels=18 size=15,17 filter=7 padding=3 stride=2",
    "3x3 with a stride": "channels=10 out_channels=7 size=12,13 filter=3 padding=1 stride=2 bias=1",
    "5x5 with a stride": "channels=3 out_channels=5 size=12,13 filter=5 padding=2 stride=2",
    "a row": "channels=6 out_channels=9 size=6,17 filter=1,7 padding=0,0,3,3",
    "a column": "channels=6 out_channels=9 size=17,6 filter=7,1 padding=3,3,0,0",
    "an even filter": "channels=6 out_channels=9 size=7,9 filter=2,4 padding=1 bias=1",
    "dilation": "channels=6 out_channels=9 size=13,12 filter=3 padding=2 dilation=2",
    "uneven strides and dilation": "channels=5 out_channels=8 size=14,19 filter=3,2 stride=3,2 dilation=1,3",
}
# Windows of 16-bit elements come in pairs from an even column on, images in pieces of eight.
HALF_PROBLEMS = {
    "a whole image": "channels=24 out_channels=10 size=7,7 filter=3 padding=1 batch=2 bias=1 activation=relu",
    "a whole image, split": "channels=64 out_channels=9 size=7,7 filter=3 padding=1 bias=1",
    "whole rows, more than two tiles": "channels=10 out_channels=6 size=16,14 filter=3 padding=1 batch=2",
    "ragged, from odd and even columns": "channels=8 out_channels=5 size=9,24 filter=3 padding=1 bias=1",
    "no padding": "channels=6 out_channels=20 size=10,10 filter=3",
    "more padding than filter": "channels=2 out_channels=6 size=4,6 filter=3 padding=5,4,3,6",
    "cropped result": "channels=4 out_channels=6 size=12,18 filter=3 padding=0,1,2,0 batch=2",
    "groups": "channels=24 groups=3 out_channels=12 size=8,16 filter=3 padding=1 bias=1",
}
GRADIENTS = {
    "3x3": "channels=12 groups=2 out_channels=20 size=9,10 filter=3 padding=1",
    "a whole image": "channels=10 out_channels=12 size=7,7 filter=3 padding=1",
    "whole rows": "channels=5 out_channels=9 size=6,14 filter=3 padding=1",
    "more padding than filter": "channels=4 out_channels=6 size=5,6 filter=3 padding=4,3,5,3",
    "no padding": "channels=4 out_channels=6 size=7,6 filter=5,3",
    "dilation": "channels=4 out_channels=6 size=9,9 filter=2,3 dilation=2 padding=1",
}
# First convolutions: tiles that the image ends within, blocks of fewer filters than there are, columns dealt
# out by strides of up to four, images whose rows begin at any address.
STEMS = {
    "ImageNet's": "channels=3 out_channels=16 size=18,60 filter=3 padding=1 stride=2 bias=1 activation=relu6",
    "ResNet's": "channels=3 out_channels=24 size=19,40 filter=7 padding=3 stride=2 batch=2 residual=before",
    "CIFAR's": "channels=3 out_channels=20 size=12,33 filter=3 padding=1 batch=2 bias=1 activation=silu",
    "more filters than a block": "channels=1 out_channels=75 size=9,9 filter=3 padding=1 scale=1 bias=1",
    "patches": "channels=3 out_channels=9 size=16,37 filter=4 stride=4 residual=after activation=relu",
    "large filters": "channels=2 out_channels=8 size=23,30 filter=11,9 padding=2 stride=4,3 batch=2",
    "uneven": "channels=4 out_channels=7 size=15,29 filter=2,5 padding=0,2,3,1 stride=1,2 dilation=3,2",
    "more padding than filter": "channels=2 out_channels=9 size=4,5 filter=3 padding=5,4,3,6 batch=3",
    "one pixel": "channels=3 out_channels=8 size=1,1 filter=1 batch=5",
}
# Those in channels_last that matrix units take: rows of whole pieces, runs from odd and from even values on.
TENSOR_STEMS = {
    "ImageNet's": "channels=3 out_channels=32 size=21,64 filter=3 padding=1 stride=2 bias=1 activation=relu6",
    "ResNet's": "channels=3 out_channels=64 size=17,40 filter=7 padding=3 stride=2 batch=2 activation=relu",
    "filters of no whole fragment": "channels=3 out_channels=20 size=9,32 filter=3 padding=1 stride=2 bias=1",
    "more filters than a block": "channels=3 out_channels=84 size=8,24 filter=3 stride=2 activation=silu",
    "patches": "channels=3 out_channels=40 size=16,40 filter=4 stride=4 bias=1 batch=2 activation=hardswish",
    "one channel": "channels=1 out_channels=8 size=9,16 filter=5,3 padding=2,0,1,3 stride=1,2 bias=1",
    "pairs": "channels=2 out_channels=16 size=7,12 filter=3 padding=1 batch=3 bias=1 activation=relu6",
    "four channels, rows apart": "channels=4 out_channels=12 size=9,18 filter=3 padding=2,1,1,0 dilation=2,1",
    "more padding than filter": "channels=4 out_channels=8 size=4,6 filter=3 padding=5,4,3,6 stride=2,3",
    "two tiles across": "channels=3 out_channels=8 size=3,272 filter=3 padding=1 stride=2 bias=1",
}
# The paper's own kernel and its rival: tiles that the image ends within, blocks with channels left over.
FORMS = {
    "ResNet's": "channels=9 out_channels=70 size=14,14 filter=3 padding=1 bias=1 activation=relu",
    "the image of one tile": "channels=5 out_channels=64 size=7,7 filter=3 padding=1 batch=2 residual=before",
    "no padding": "channels=3 out_channels=20 size=11,10 filter=3 scale=1 bias=1",
    "more padding than filter": "channels=2 out_channels=9 size=4,3 filter=3 padding=5,4,3,6 batch=3",
    "pointwise": "channels=21 out_channels=130 size=9,8 filter=1 bias=1 activation=silu",
    "several tiles": "channels=4 out_channels=33 size=17,9 filter=3 padding=2 residual=after activation=relu",
    "one pixel": "channels=30 out_channels=5 size=1,1 filter=3 padding=1",
}
SPLITS = "channels=64 out_channels=9 size=7,7 filter=3 padding=1 bias=1 activation=relu"


@pytest.fixture(scope="session")
def driver() -> Path:
    """The method's driver."""
    return programs.build(["hntmp"]) / "hntmp"


def tiles(output: str) -> set[str]:
    """The candidates that ran."""
    return set(re.findall(r"^RUN +\w+ (\w+) ", output, re.MULTILINE))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("device", DEVICES)
def test_float32_by_every_tile(driver: Path, device: str, layout: str) -> None:
    """Exact results in every order of lanes, warps and blocks, and every kernel took part."""
    lines = [chosen_line(problem, device, ORDERS[i % 3]) for i, problem in enumerate(PROBLEMS.values())]
    lines += [
        chosen_line(problem, device, "shuffled", operation="input_grad") for problem in GRADIENTS.values()
    ]
    if device == DEVICES[-1]:
        lines = [*lines[:3], *lines[3::3]]  # its kernels are those of the first device
    lines.append(chosen_line(SPLITS, device, ",".join(ORDERS)))
    output = run_all(driver, [f"{line} layout={layout}" for line in lines])
    assert "\nNONE " not in output, "a problem was left out"
    whole = {"tile", "small", "image", "rows", "taps", "general"}
    assert tiles(output) >= whole | {"tile_split", "small_split", "image_split", "taps_split"}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("device", ["h200", "mi250"])
def test_other_types(driver: Path, device: str, dtype: str, layout: str) -> None:
    """The kernels that the other element types have."""
    lines = [
        chosen_line(problem, device, "shuffled", dtype=dtype) for problem in list(PROBLEMS.values())[::3]
    ]
    whole = {"taps", "general", "taps_split"}
    if dtype != "float64":
        lines += [chosen_line(problem, device, "shuffled", dtype=dtype) for problem in HALF_PROBLEMS.values()]
        whole |= {"tile", "small", "image", "rows", "image_split"}
    gradients = list(GRADIENTS.values())[::2]
    lines += [
        chosen_line(problem, device, "reverse", dtype=dtype, operation="input_grad") for problem in gradients
    ]
    lines.append(chosen_line(SPLITS, device, "forward", dtype=dtype))
    output = run_all(driver, [f"{line} layout={layout}" for line in lines])
    assert "\nNONE " not in output, "a problem was left out"
    assert tiles(output) >= whole


def adding_biases_alone(problem: str) -> str:
    """As kernels for AMD take it."""
    return re.sub(" (scale|residual)=[a-z0-9]+", "", problem)


@pytest.mark.parametrize("device", DEVICES)
def test_published_forms(driver: Path, device: str) -> None:
    """Every tile of the paper's kernel, and the direct convolution with and without its cache of filters."""
    problems = [text if device == "h200" else adding_biases_alone(text) for text in FORMS.values()]
    lines = [
        f"{chosen_line(text, device, ORDERS[i % 3])} only={form}"
        for i, text in enumerate(problems)
        for form in ("published", "direct", "direct_cached")
    ]
    output = run_all(driver, lines)
    assert "\nNONE " not in output
    ran = set(
        re.findall(r"^RUN +\w+ (\w+) .*rows=(\d) columns=(\d) block_channels=(\d+)", output, re.MULTILINE)
    )
    tiles_of = {("published", rows, "7", "64") for rows in "247"}
    assert ran == tiles_of | {(form, "8", "8", "8") for form in ("direct", "direct_cached")}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("device", DEVICES)
def test_stems(driver: Path, device: str, dtype: str, layout: str) -> None:
    """Every tiling of the kernel for first convolutions."""
    problems = [text if device == "h200" else adding_biases_alone(text) for text in STEMS.values()]
    more = f"layout={layout} only=stem dtype={dtype}"
    lines = [f"{chosen_line(text, device, ORDERS[i % 3])} {more}" for i, text in enumerate(problems)]
    output = run_all(driver, lines)
    assert "\nNONE " not in output
    shapes = set(re.findall(r"^RUN .* lanes_across=(\d+) pixels=(\d+) ", output, re.MULTILINE))
    assert shapes == {("8", "4"), ("8", "7"), ("16", "7")}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("device", ["h200", "a100", "mi250"])
def test_stems_on_matrix_units(driver: Path, device: str, dtype: str) -> None:
    """Every tiling, by the fragments of both makers."""
    more = f"layout=channels_last only=stem_tensor dtype={dtype}"
    lines = [
        f"{chosen_line(text, device, ORDERS[i % 3])} {more}" for i, text in enumerate(TENSOR_STEMS.values())
    ]
    output = run_all(driver, lines)
    assert "\nNONE " not in output
    assert set(re.findall(r"^RUN .* block_channels=(\d+)", output, re.MULTILINE)) == {"32", "64"}


@pytest.mark.parametrize(
    "change",
    ["dtype=float32", "layout=nchw", "size=21,63", "stride=1", "dilation=1,2", "out_channels=30"],
)
def test_stems_that_matrix_units_do_not_take(driver: Path, change: str) -> None:
    items = dict(item.split("=") for item in TENSOR_STEMS["ImageNet's"].split())
    items |= {"layout": "channels_last", "dtype": "bfloat16"} | dict([change.split("=")])
    line = " ".join(f"{name}={value}" for name, value in items.items())
    assert "stem_tensor" not in run_all(driver, [chosen_line(line, "h200", "forward")])
