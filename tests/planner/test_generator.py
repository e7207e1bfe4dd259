"""The tiling generator of the pointwise pipeline, every constraint against a second, plain reckoning."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convx import _core

generator = _core.generator
DEVICES = {name: _core.Device.known_device(name) for name in ("h200", "a100", "mi250", "rx7900", "dcu-z100")}
NAMES = ("wave_w", "wave_c", "wave_n", "repeat_w", "repeat_c", "block_n", "group_c", "stage_c")
BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
CONSTRAINTS = (
    "parameters",
    *("Wave_W", "Wave_C", "Wave_N", "Block_N", "Group_C", "Stage_C"),
    *(f"Eq. {number}" for number in range(1, 8)),
)


def pointwise(**changes: Any) -> _core.Problem:
    fields = {"batch": 1, "in_channels": 96, "in_height": 14, "in_width": 14, "out_channels": 64}
    return _core.Problem(**{**fields, "filter_height": 1, "filter_width": 1, **changes})


def pitch(elements: int, bytes_each: int) -> int:
    """The least odd number of 16-byte pieces that holds a row, in elements."""
    pieces = 1
    while pieces * 16 < elements * bytes_each:
        pieces += 2
    return pieces * 16 // bytes_each


def reckon(problem: _core.Problem, device: _core.Device, tiling: dict[str, int], exact: bool) -> set[str]:
    """The names of the constraints that fail, from the paper's text, in exact integers."""
    t, lanes = tiling, device.lanes
    if min(t.values()) < 1:
        return {"parameters"}
    pixels = problem.out_height * problem.out_width
    in_channels = problem.in_channels // problem.groups
    out_channels = problem.out_channels // problem.groups
    tile_w, tile_c = t["wave_w"] * t["repeat_w"], t["wave_c"] * t["repeat_c"]
    threads, each = t["wave_n"] * lanes, BYTES[problem.dtype]
    registers = 2 if problem.dtype == "float64" else 1
    failed = set()
    if exact and pixels % tile_w:
        failed.add("Wave_W")
    if exact and out_channels % tile_c:
        failed.add("Wave_C")
    if t["wave_n"] != t["repeat_w"] * t["repeat_c"] or threads > 1024:
        failed.add("Wave_N")
    if t["block_n"] * threads > device.threads_per_multiprocessor:
        failed.add("Block_N")
    if t["group_c"] not in [2**power for power in range(10) if 2**power <= lanes]:
        return failed | {"Group_C"}
    if t["wave_c"] % (lanes // t["group_c"]):
        return failed | {"Group_C"}
    thread_c = t["wave_c"] // (lanes // t["group_c"])
    if t["stage_c"] % t["group_c"] or (exact and in_channels % t["stage_c"]):
        failed.add("Stage_C")
    reserve = 1024 if device.backend == "cuda" else 0
    limit_s = min(
        device.shared_bytes_per_multiprocessor // t["block_n"] - reserve, device.shared_bytes_per_block
    )
    limit_r = device.registers_per_multiprocessor // (t["block_n"] * threads)
    limit_r = min(limit_r, 255 if device.backend == "cuda" else 256)
    used_s = each * (pitch(tile_w, each) + pitch(tile_c, each)) * t["stage_c"] * 2
    temp_r = math.ceil(tile_w * t["stage_c"] / threads) + math.ceil(tile_c * t["stage_c"] / threads)
    used_r = (t["wave_w"] * thread_c + t["wave_w"] + thread_c + temp_r) * registers + 30
    failed |= {"Eq. 1"} if limit_s <= 0 else set()
    failed |= {"Eq. 2"} if limit_r <= 30 else set()
    failed |= {"Eq. 4"} if used_s > limit_s else set()
    failed |= {"Eq. 5"} if temp_r * registers > 64 else set()
    return failed | ({"Eq. 7"} if used_r > limit_r else set())


def agrees(problem: _core.Problem, device: _core.Device, fields: dict[str, int], exact: bool) -> set[str]:
    """Asserts that the generator says the same as reckon, and returns what fails."""
    tiling = generator.Tiling(**fields)
    checks = generator.check(problem, device, tiling, exact=exact)
    failed = {check.constraint for check in checks if not check.holds}
    expected = reckon(problem, device, fields, exact)
    assert failed == expected, (fields, checks)
    assert generator.is_allowed(problem, device, tiling, exact=exact) == (not expected)
    assert all(check.reason for check in checks)
    return failed


PROBLEMS = [
    pointwise(),
    pointwise(in_channels=17, out_channels=7, in_height=7, in_width=7, dtype="float64"),
    pointwise(in_channels=64, out_channels=128, groups=4, in_height=56, in_width=3, dtype="bfloat16"),
    pointwise(in_channels=320, out_channels=1280, in_height=15, stride=(2, 2), dtype="float16"),
]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_every_constraint_is_the_papers(device: str, exact: bool) -> None:
    """A grid around every limit; each constraint that can fail must have failed and have held."""
    choice = random.Random(7)
    values = {
        "wave_w": (0, 1, 3, 4, 7, 8, 14, 16, 49),
        "wave_c": (1, 2, 4, 8, 32, 64, 96, 128, 256),
        "wave_n": (1, 2, 4, 8, 16, 32),
        "repeat_w": (1, 2, 3, 4, 8),
        "repeat_c": (1, 2, 4, 8),
        "block_n": (1, 2, 5, 16, 100, 70000),
        "group_c": (1, 2, 3, 8, 32, 64),
        "stage_c": (0, 1, 4, 8, 12, 32, 64),
    }
    failures: dict[str, int] = dict.fromkeys(CONSTRAINTS, 0)
    allowed = 0
    for problem, _ in itertools.product(PROBLEMS, range(1500)):
        fields = {name: choice.choice(options) for name, options in values.items()}
        if choice.random() < 0.7:
            fields["wave_n"] = fields["repeat_w"] * fields["repeat_c"]
        if fields["stage_c"] == 0:  # the paper's: a buffer holds Group_C channels
            fields["stage_c"] = fields["group_c"]
        failed = agrees(problem, DEVICES[device], fields, exact)
        allowed += not failed
        for name in failed:
            failures[name] += 1
    assert allowed > 0
    always = {"Eq. 3", "Eq. 6"}  # definitions, whose limits are Eq. 4 and Eq. 7
    never = {"Wave_W", "Wave_C"} if not exact else set()
    assert {name for name, count in failures.items() if count == 0} == always | never


def test_the_example_of_the_paper() -> None:
    """Section 5.1.2: 8 x 64 outputs of a wave of 64 lanes, Group_C = 8, so Thread_C = 8."""
    device = DEVICES["dcu-z100"]
    problem = pointwise(in_channels=56, in_height=16, in_width=16)
    tiling = generator.Tiling(wave_w=8, wave_c=64, wave_n=4, repeat_w=4, repeat_c=1, block_n=2, group_c=8)
    assert tiling.stage_c == 8
    assert generator.is_allowed(problem, device, tiling, exact=True)
    resources = generator.resources(problem, device, tiling)
    assert resources["shared_limit"] == 65536 // 2
    assert resources["register_limit"] == 65536 // (2 * 4 * 64)
    assert resources["temporary_registers"] == 1 + 2
    assert resources["used_registers"] == 64 + (8 + 8) + (1 + 2) + 30
    # Eq. 3 without the padding of rows: 4 x (4 x 8 x 8 + 64 x 8) x 2.
    assert resources["used_shared"] == 4 * (4 * (8 + 1) * 8 + (64 + 4) * 8) * 2


@settings(max_examples=25, deadline=None)
@given(
    channels=st.tuples(st.integers(1, 700), st.integers(1, 700)),
    size=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    batch=st.sampled_from((1, 8, 64)),
    dtype=st.sampled_from(tuple(BYTES)),
    device=st.sampled_from(tuple(DEVICES)),
)
def test_whatever_is_offered_is_allowed(
    channels: tuple[int, int], size: tuple[int, int], batch: int, dtype: str, device: str
) -> None:
    """Any shape has candidates, ragged ones where need be, ranked by predicted time."""
    problem = pointwise(
        batch=batch,
        in_channels=channels[0],
        out_channels=channels[1],
        in_height=size[0],
        in_width=size[1],
        dtype=dtype,
    )
    found = generator.tilings(problem, DEVICES[device], most=40)
    assert found
    times = [generator.resources(problem, DEVICES[device], each)["predicted_us"] for each in found]
    assert times == sorted(times)
    for tiling in found:
        fields = {name: getattr(tiling, name) for name in NAMES}
        assert not agrees(problem, DEVICES[device], fields, False)


def test_search_misses_nothing_that_is_exact() -> None:
    """All exact tilings of a small problem within the search's ranges, found by trying every one."""
    problem, device = pointwise(in_channels=12, out_channels=64, in_height=4, in_width=6), DEVICES["dcu-z100"]
    found = {
        tuple(getattr(each, name) for name in NAMES)
        for each in generator.tilings(problem, device, exact=True, most=10**6)
    }
    powers = [2**power for power in range(7)]
    expected = set()
    for wave_w, thread_c, repeat_w, repeat_c, block_n, group_c, stages in itertools.product(
        range(1, 17), powers[:5], powers[:5], powers[:5], powers[:5], powers, powers
    ):
        stage_c = group_c * stages
        if repeat_w * repeat_c > 16 or stage_c > 64 or (stages > 1 and stage_c >= 24) or group_c >= 24:
            continue
        fields = {
            "wave_w": wave_w,
            "wave_c": thread_c * (64 // group_c),
            "wave_n": repeat_w * repeat_c,
            "repeat_w": repeat_w,
            "repeat_c": repeat_c,
            "block_n": block_n,
            "group_c": group_c,
            "stage_c": stage_c,
        }
        if not reckon(problem, device, fields, True):
            expected.add(tuple(fields.values()))
    assert found == expected
    assert len(found) > 50


def test_exact_tilings_may_not_exist() -> None:
    prime = pointwise(in_channels=13, out_channels=29, in_height=7, in_width=7)
    assert generator.tilings(prime, DEVICES["mi250"], exact=True) == []
    assert generator.tilings(prime, DEVICES["mi250"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"filter_height": 3}, "the filter is 3x1, not 1x1"),
        ({"padding": (0, 1, 0, 0)}, "padding is not 0"),
        ({"operation": "weight_grad"}, "forward alone"),
        ({"batch": 0}, "the batch is empty"),
    ],
)
def test_what_is_not_generated_says_why(changes: dict[str, Any], reason: str) -> None:
    supported, said = generator.supports(pointwise(**changes), DEVICES["h200"])
    assert not supported and reason in said
    with pytest.raises(ValueError, match=reason):
        generator.tilings(pointwise(**changes), DEVICES["h200"])


def test_a_cpu_has_tilings_but_no_sources() -> None:
    problem, cpu = pointwise(), _core.Device.host_cpu(1)
    assert generator.supports(problem, cpu) == (True, "")
    generated, said = generator.has_source(problem, cpu)
    assert not generated and "GPUs alone" in said
    with pytest.raises(ValueError, match="GPUs alone"):
        generator.source(problem, cpu, generator.tilings(problem, cpu)[0])
    assert generator.has_source(problem, DEVICES["h200"]) == (True, "")


@pytest.mark.parametrize("device", [DEVICES["h200"], _core.Device.host_cpu(1)], ids=["gpu", "cpu"])
@pytest.mark.parametrize(
    "large", [("wave_w", "repeat_w"), ("wave_c", "repeat_c"), ("wave_n", "wave_w")], ids=str
)
@pytest.mark.parametrize("value", [65536, 2**30])
def test_parameters_whose_products_no_int_holds(device: Any, large: tuple[str, ...], value: int) -> None:
    tiling = dict.fromkeys(NAMES, 1) | dict.fromkeys(large, value)
    failed = [
        each for each in generator.check(pointwise(), device, generator.Tiling(**tiling)) if not each.holds
    ]
    assert [each.constraint for each in failed] == ["parameters"] and "1 to 1024" in failed[0].reason


def test_lanes_along_pixels_are_for_cpus() -> None:
    tiling = generator.Tiling(
        wave_w=8, wave_c=64, wave_n=4, repeat_w=4, repeat_c=1, block_n=2, group_c=1, pixel_lanes=True
    )
    (check,) = generator.check(pointwise(), DEVICES["h200"], tiling)
    assert check.constraint == "parameters" and not check.holds and "CPUs" in check.reason
