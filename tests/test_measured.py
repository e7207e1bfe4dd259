"""Measured times: what the planner reads from them, and how they are made from results."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from convx import _core

# Last, so that an installed convx comes before the checkout's.
sys.path.append(str(Path(__file__).resolve().parent.parent))

from benchmarks import choices, fit
from benchmarks.curves import WIDEST, Point, bucket
from benchmarks.curves import fit as fit_curve
from benchmarks.suites import Case, Problem, Shape

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "csrc/select/measured"
H200 = _core.Device.known_device("h200")
OPERATIONS = ("forward", "input_grad", "weight_grad")


def problem(**changes: Any) -> _core.Problem:
    fields = {
        "batch": 16,
        "in_channels": 96,
        "in_height": 40,
        "in_width": 40,
        "out_channels": 96,
        "filter_height": 3,
        "filter_width": 3,
        "padding": (1, 1, 1, 1),
        "groups": 96,
    }
    return _core.Problem(**{**fields, **changes})


def best(candidate: str, device: _core.Device = H200, **changes: Any) -> _core.Plan:
    """The first plan of a kernel, by the name that algorithm takes."""
    return _core.select(problem(**changes), device, candidate).plan


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("filter_size", [3, 5])
def test_networks_layers_have_measured_times(
    operation: str, layout: str, dtype: str, stride: int, filter_size: int
) -> None:
    side = filter_size // 2
    common: dict[str, Any] = {
        "operation": operation,
        "layout": layout,
        "dtype": dtype,
        "stride": (stride, stride),
        "filter_height": filter_size,
        "filter_width": filter_size,
        "padding": (side,) * 4,
    }
    for algorithm in ("native", "depthwise/direct"):
        times = []
        for batch in (1, 3, 16, 50, 200, 512, 4096):
            plan = best(algorithm, batch=batch, **common)
            assert plan.source == "measured on NVIDIA H200"
            times.append(plan.predicted_us)
        assert times == sorted(times)  # more images never take less time
        assert times[0] > 1 and times[-1] > 4 * times[2]


def test_what_was_not_measured_is_estimated() -> None:
    unlike: list[dict[str, Any]] = [
        {"filter_height": 1, "padding": (0, 0, 1, 1)},
        {"filter_height": 9, "filter_width": 9, "padding": (4, 4, 4, 4)},
        {"stride": (3, 3)},
        {"dilation": (2, 2)},
        {"out_channels": 192},
        {"in_height": 1, "padding": (1, 1, 1, 1)},
        {"dtype": "float64"},
    ]
    for changes in unlike:
        for row in _core.explain(problem(**changes), H200):
            assert all(plan.source == "estimated" for plan in row.plans), changes
    for device in (_core.Device.host_cpu(2), _core.Device.known_device("mi300")):
        assert best("native", device).source == "estimated"


def test_float16_has_the_times_of_bfloat16() -> None:
    half, brain = best("native", dtype="float16"), best("native", dtype="bfloat16")
    assert half.predicted_us == brain.predicted_us


def test_another_gpu_has_them_in_the_ratio_of_bandwidths() -> None:
    a100 = _core.Device.known_device("a100")
    here, there = best("native", batch=512), best("native", a100, batch=512)
    assert there.source == "scaled from NVIDIA H200"
    ratio = H200.bandwidth_GBps / a100.bandwidth_GBps
    assert there.predicted_us - 2 == pytest.approx((here.predicted_us - 2) * ratio)


def test_an_activation_costs_native_a_pass() -> None:
    assert best("native", activation="relu").predicted_us > best("native").predicted_us + 1
    assert best("native", bias=True).predicted_us == best("native").predicted_us


def test_the_best_tiling_has_the_measured_time() -> None:
    plans = [p for p in _core.candidates("depthwise", problem(), H200) if p.candidate == "direct"]
    assert [plan.source for plan in plans] == ["measured on NVIDIA H200"] + ["estimated"] * (len(plans) - 1)
    assert plans[0].describe().endswith("us, measured on NVIDIA H200")


def test_files_are_in_the_order_that_the_planner_searches() -> None:
    for path in MEASURED.glob("*_dense.inc"):
        assert path.read_text().startswith("// Written by python -m benchmarks.fit from ")
        assert f"measured/{path.name}" in (MEASURED.parent / "measured_dense.cpp").read_text()
    paths = [path for path in MEASURED.glob("*.inc") if not path.stem.endswith("_dense")]
    assert paths
    order = {
        name: index
        for names in (OPERATIONS, ("float32", "float64", "float16", "bfloat16"), ("nchw", "nhwc"))
        for index, name in enumerate(names)
    }
    for path in paths:
        text = path.read_text()
        assert text.startswith("// Written by python -m benchmarks.fit from ")
        assert f"measured/{path.name}" in (ROOT / "csrc/select/measured.cpp").read_text()
        pattern = r'^\{"([a-z_/]+)", Operation::(\w+), DType::(\w+), Layout::(\w+), (\d+), (\d+), (\d+), '
        found = re.findall(pattern, text, re.M)
        keys = [(row[0], *(order[name] for name in row[1:4]), *map(int, row[4:])) for row in found]
        assert len(keys) == text.count('{"') and keys == sorted(keys)


def test_a_curve_goes_through_its_points_and_interpolates() -> None:
    points = [Point(28, 1 << octave, 2 + 2**octave / 1e6) for octave in range(14, 30, 2)]
    curve = fit_curve(points, bucket(28), 0.6)
    assert list(curve.us) == sorted(curve.us)
    for point in points:
        assert curve.at(point.bytes) == pytest.approx(point.us, rel=0.05)
    assert curve.at(3 << 22) == pytest.approx(2 + (3 << 22) / 1e6, rel=0.1)
    assert curve.at(1) == curve.us[0]
    assert curve.at(1 << 32) == pytest.approx(8 * curve.at(1 << 29))


def test_another_width_counts_where_there_is_nothing_else() -> None:
    wide = [Point(56, 1 << octave, 10.0 * 2 ** (octave - 20)) for octave in (26, 27, 28)]
    narrow = [Point(14, 1 << octave, 5.0 * 2 ** (octave - 20)) for octave in range(20, 29)]
    curve = fit_curve([*wide, *narrow], bucket(56), 0.6)
    assert curve.at(1 << 27) == pytest.approx(1280, rel=0.1)
    assert curve.at(1 << 21) == pytest.approx(10, rel=0.2)
    assert bucket(8) == 0 and bucket(9) == 1 and bucket(1000) == len(WIDEST) - 1


def record(size: int, batch: int, method: str, us: float, native_us: float) -> dict[str, Any]:
    shape = {"in_channels": 64, "size": size, "out_channels": 64, "filter": 3, "stride": 1, "groups": 64}
    return {
        "case": f"S{size}",
        "operation": "forward",
        "dtype": "float32",
        "layout": "nchw",
        "batch": batch,
        "warm": False,
        "shape": shape,
        "convx_us": us,
        "method": method,
        "chosen_by": "auto" if method.endswith("slow") else "forced",
        "peers_us": {"torch": native_us},
    }


def records() -> list[dict[str, Any]]:
    """The fast kernel wins on large problems, torch on small ones; auto took the slow one."""
    rows = []
    for size in (24, 28, 30):
        for batch in (1, 4, 16, 64):
            work = size**2 * batch / 1000
            for method, us in (("depthwise/fast", 5 + work), ("depthwise/slow", 9 + 2 * work)):
                rows.append(record(size, batch, method, us, 2 + 3 * work))
    return rows


def depthwise_times(some: list[dict[str, Any]], on_gpu: bool = True) -> choices.Times:
    return choices.measured_times(some, on_gpu, choices.is_depthwise)


def test_times_are_taken_from_records() -> None:
    times = depthwise_times(records())
    shape = Shape(64, 28, 64, 3, 1, 64)
    measured = times[Problem(Case("", "", shape, (), ()), "forward", "float32", "nchw", 16)]
    assert measured == pytest.approx({"depthwise/fast": 17.544, "depthwise/slow": 34.088, "native": 39.632})
    warm = [each | {"warm": True} for each in records()]
    assert depthwise_times(warm) == {}
    assert len(depthwise_times(warm, on_gpu=False)) == len(times)
    assert choices.measured_times(records(), True, choices.is_dense) == {}


def test_curves_choose_the_fastest_for_layers_that_they_have_not_seen() -> None:
    times = depthwise_times(records())
    made = fit.choices(times, 0.6, leave_one_out=True)
    assert len(made) == len(times)
    assert all(choice.regret < 1.05 for choice in made)
    assert {choice.algorithm for choice in made} == {"native", "depthwise/fast"}
    before = choices.recorded(times, records())
    assert all(choice.algorithm == "depthwise/slow" and choice.regret > 1.5 for choice in before)
    assert "batch   64" in choices.report(made, made, 3)
