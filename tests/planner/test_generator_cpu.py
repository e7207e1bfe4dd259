"""The generator's tilings on CPUs, every constraint against a second, plain reckoning."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import ISAS, succeeds_on
from test_generator import BYTES, CONSTRAINTS, NAMES, pointwise

from convx import _core

generator = _core.generator
CPU = _core.Device.host_cpu(2)


def vectors_of(problem: _core.Problem) -> tuple[int, int, int]:
    """Lanes of an accumulator's vector, vector registers, and products that may be summed apart."""
    size = 8 if problem.dtype == "float64" else 4
    return {
        "avx512": (64 // size, 32, 128),
        "avx2": (32 // size, 16, 128),
        "baseline": (16 // size, 16, 48),
    }[CPU.isa]


def extents_of(problem: _core.Problem) -> tuple[int, int, int]:
    """Pixels that one product has, its depth, its rows of filters; for layers without stride and padding."""
    pixels = problem.out_height * problem.out_width
    if problem.layout == "channels_last":
        pixels *= problem.batch
    channels = problem.in_channels // problem.groups, problem.out_channels // problem.groups
    return (pixels, *(channels if problem.operation == "forward" else reversed(channels)))


def reckon(problem: _core.Problem, tiling: dict[str, Any], exact: bool) -> set[str]:
    """The names of the constraints that fail."""
    t = tiling
    if min(t[name] for name in NAMES) < 1:
        return {"parameters"}
    lanes, registers, apart = vectors_of(problem)
    pixels, depth, filters = extents_of(problem)
    failed = set()
    vector_name, extent = ("Wave_W", t["wave_w"]) if t["pixel_lanes"] else ("Wave_C", t["wave_c"])
    if extent not in (lanes, 2 * lanes, 3 * lanes, 4 * lanes):
        failed.add(vector_name)
    if t["pixel_lanes"] and problem.layout == "channels_last":
        failed.add("Wave_W")
    if exact and pixels % (t["wave_w"] * t["repeat_w"]):
        failed.add("Wave_W")
    if exact and filters % (t["wave_c"] * t["repeat_c"]):
        failed.add("Wave_C")
    if t["wave_n"] != t["repeat_w"] * t["repeat_c"]:
        failed.add("Wave_N")
    if t["block_n"] > 1:
        failed.add("Block_N")
    if t["group_c"] != 1:
        return failed | {"Group_C"}
    if t["stage_c"] > apart or (exact and depth % t["stage_c"]):
        failed.add("Stage_C")
    limit_s, limit_r = 32768 // t["block_n"], registers // t["block_n"]
    used_s = (8 if problem.dtype == "float64" else 4) * t["stage_c"] * (t["wave_w"] + t["wave_c"])
    rows = t["wave_c"] if t["pixel_lanes"] else t["wave_w"]
    temp_r = extent // lanes + (2 if CPU.isa == "baseline" else 1)
    used_r = rows * (extent // lanes) + temp_r
    failed |= {"Eq. 1"} if limit_s < 1 else set()
    failed |= {"Eq. 2"} if limit_r < 1 else set()
    failed |= {"Eq. 4"} if used_s > limit_s else set()
    failed |= {"Eq. 5"} if temp_r > limit_r else set()
    return failed | ({"Eq. 7"} if used_r > limit_r else set())


def agrees(problem: _core.Problem, fields: dict[str, Any], exact: bool) -> set[str]:
    """Asserts that the generator says the same as reckon, and returns what fails."""
    tiling = generator.Tiling(**fields)
    checks = generator.check(problem, CPU, tiling, exact=exact)
    failed = {check.constraint for check in checks if not check.holds}
    expected = reckon(problem, fields, exact)
    assert failed == expected, (fields, checks)
    assert generator.is_allowed(problem, CPU, tiling, exact=exact) == (not expected)
    assert all(check.reason for check in checks)
    return failed


PROBLEMS = [
    pointwise(),
    pointwise(batch=3, layout="channels_last"),
    pointwise(in_channels=17, out_channels=7, in_height=7, in_width=7, dtype="float64"),
    pointwise(in_channels=64, out_channels=128, groups=4, in_height=56, in_width=3, dtype="bfloat16"),
    pointwise(in_channels=320, out_channels=1280, in_height=15, operation="input_grad"),
]


@pytest.mark.parametrize("exact", [False, True])
def test_every_constraint_is_what_the_processor_has(exact: bool) -> None:
    """A grid around every limit; each constraint that can fail must have failed and have held."""
    choice = random.Random(5)
    values = {
        "wave_w": (0, 1, 2, 6, 7, 9, 13, 14, 28, 30, 31, 56),
        "wave_c": (1, 2, 6, 7, 9, 14, 24, 31),
        "wave_n": (1, 2, 4, 16),
        "repeat_w": (1, 2, 7),
        "repeat_c": (1, 2, 4),
        "block_n": (1, 1, 1, 2, 33, 40000),
        "group_c": (1, 1, 1, 1, 2, 16),
        "stage_c": (1, 8, 16, 32, 64, 128, 256),
    }
    failures: dict[str, int] = dict.fromkeys(CONSTRAINTS, 0)
    allowed = 0
    for problem, _ in itertools.product(PROBLEMS, range(2000)):
        fields: dict[str, Any] = {name: choice.choice(options) for name, options in values.items()}
        fields["pixel_lanes"] = choice.random() < 0.5
        if choice.random() < 0.8:
            vectors = choice.randrange(1, 5) * vectors_of(problem)[0]
            fields["wave_w" if fields["pixel_lanes"] else "wave_c"] = vectors
        if choice.random() < 0.8:
            fields["wave_n"] = fields["repeat_w"] * fields["repeat_c"]
        failed = agrees(problem, fields, exact)
        allowed += not failed
        for name in failed:
            failures[name] += 1
    assert allowed > 0
    always = {"Eq. 3", "Eq. 6"}  # definitions, whose limits are Eq. 4 and Eq. 7
    assert {name for name, count in failures.items() if count == 0} == always


@settings(max_examples=25, deadline=None)
@given(
    channels=st.tuples(st.integers(1, 700), st.integers(1, 700)),
    size=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    batch=st.sampled_from((1, 8)),
    dtype=st.sampled_from(tuple(BYTES)),
    layout=st.sampled_from(("nchw", "channels_last")),
    operation=st.sampled_from(("forward", "input_grad")),
)
def test_whatever_is_offered_is_allowed(
    channels: tuple[int, int], size: tuple[int, int], batch: int, dtype: str, layout: str, operation: str
) -> None:
    """Any shape has candidates, ranked by predicted time; lanes along pixels only in planes."""
    problem = pointwise(
        batch=batch,
        in_channels=channels[0],
        out_channels=channels[1],
        in_height=size[0],
        in_width=size[1],
        dtype=dtype,
        layout=layout,
        operation=operation,
    )
    found = generator.tilings(problem, CPU, most=40)
    assert found
    times = [generator.resources(problem, CPU, each)["predicted_us"] for each in found]
    assert times == sorted(times) and min(times) > 0
    for tiling in found:
        fields = {name: getattr(tiling, name) for name in (*NAMES, "pixel_lanes")}
        assert not agrees(problem, fields, False)


def halves(extent: int, wave: int) -> list[int]:
    """All tiles of an axis, half of them, a quarter, as long as a task takes so many."""
    tiles = [-(-extent // wave)]
    while tiles[-1] > 1:
        tiles.append(-(-tiles[-1] // 2))
    return [each for each in tiles if each <= 64]


def test_search_misses_nothing_that_is_exact() -> None:
    """All exact tilings of a small problem within the search's ranges, found by trying every one."""
    problem = pointwise(in_channels=24, out_channels=192, in_height=16, in_width=12)
    found = {
        tuple(getattr(each, name) for name in (*NAMES, "pixel_lanes"))
        for each in generator.tilings(problem, CPU, exact=True, most=10**6)
    }
    lanes, registers, _ = vectors_of(problem)
    pixels, _, filters = extents_of(problem)
    expected = set()
    for pixel_lanes, vectors, rows in itertools.product((False, True), range(1, 5), range(1, registers)):
        waves = (vectors * lanes, rows) if pixel_lanes else (rows, vectors * lanes)
        for repeat_w, repeat_c in itertools.product(halves(pixels, waves[0]), halves(filters, waves[1])):
            fields = dict(zip(NAMES, (*waves, repeat_w * repeat_c, repeat_w, repeat_c, 1, 1, 8), strict=True))
            if not reckon(problem, {**fields, "pixel_lanes": pixel_lanes}, True):
                expected.add((*fields.values(), pixel_lanes))
    assert found == expected
    assert len(found) > 50
    prime = pointwise(in_channels=13, out_channels=29, in_height=7, in_width=7)
    assert generator.tilings(prime, CPU, exact=True, most=10) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"filter_height": 3}, "the filter is 3x1, not 1x1"),
        ({"operation": "weight_grad"}, "weight_grad sums over pixels"),
        ({"batch": 0}, "the batch is empty"),
    ],
)
def test_what_has_no_tilings_says_why(changes: dict[str, Any], reason: str) -> None:
    supported, said = generator.supports(pointwise(**changes), CPU)
    assert not supported and reason in said
    with pytest.raises(ValueError, match=reason):
        generator.tilings(pointwise(**changes), CPU)


def test_a_reason_has_the_numbers() -> None:
    lanes, registers, _ = vectors_of(pointwise())
    tiling = generator.Tiling(
        wave_w=30, wave_c=2 * lanes, wave_n=1, repeat_w=1, repeat_c=1, block_n=1, group_c=1, stage_c=16
    )
    check = next(each for each in generator.check(pointwise(), CPU, tiling) if each.constraint == "Eq. 7")
    assert not check.holds and f"LimitR = {registers}" in check.reason
    distributed = generator.Tiling(
        wave_w=6, wave_c=lanes, wave_n=1, repeat_w=1, repeat_c=1, block_n=1, group_c=2, stage_c=16
    )
    assert "Group_C = 2 must be 1" in generator.check(pointwise(), CPU, distributed)[-1].reason


PROGRAM = """
import sys
from test_generator_cpu import CPU, test_every_constraint_is_what_the_processor_has as constraints
from test_generator_cpu import test_search_misses_nothing_that_is_exact as search

assert CPU.isa == sys.argv[1], CPU.isa
constraints(False)
constraints(True)
search()
"""


@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set(isa: str) -> None:
    succeeds_on(isa, PROGRAM)
