"""Measured times: what the planner reads from them, and how they are made from results."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measured_files import MeasuredFile, algorithm_of, plan_of

from benchmarks import choices, fit, fit_depthwise, trials
from benchmarks.choices import Times
from benchmarks.curves import WIDEST, Curve, Point, bucket
from benchmarks.curves import fit as fit_curve
from benchmarks.depthwise_model import Model, Samples, Series
from benchmarks.planner import unfitted
from benchmarks.results import RESULTS, Results, load
from benchmarks.suites import Case, Problem, Shape
from convx import _core

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "csrc/choose/measured"
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


def test_forms_that_run_by_name_alone_have_no_say() -> None:
    results = load(RESULTS / "nvidia-h200" / "pointwise_candidates.json")
    names = fit.by_name_alone(results.records.values(), H200)
    assert "cuconv/two_stage" in names and "pointwise/tensor" not in names
    files = sorted(MEASURED.glob("nvidia_h200*.inc"))
    assert files and not any(f'"{name}"' in path.read_text() for path in files for name in names)


# In nchw a layer may be too far from those that were measured.
SOURCES = {
    "nchw": ("measured on NVIDIA H200", "extrapolated from NVIDIA H200"),
    "channels_last": ("measured on NVIDIA H200",),
}


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
            plans = unfitted(problem(batch=batch, **common), H200)
            plan = next(plan for plan in plans if algorithm_of(plan) == algorithm)
            assert plan.source in SOURCES[layout]
            times.append(plan.predicted_us)
        # More images hardly ever take less time; measured times are not monotone either.
        assert all(0.97 * fewer < more for fewer, more in pairwise(times))
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
        plans = unfitted(problem(**changes), H200)
        assert plans and all(plan.source == "estimated" for plan in plans), changes
    assert best("native", _core.Device.known_device("mi300")).source == "estimated"


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
    paths = [path for path in MEASURED.glob("*.inc") if not path.stem.endswith(("_dense", "_random"))]
    assert len(paths) > 1
    order = {
        name: index
        for names in (OPERATIONS, ("float32", "float64", "float16", "bfloat16"), ("nchw", "nhwc"))
        for index, name in enumerate(names)
    }
    for path in paths:
        text = path.read_text()
        assert text.startswith("// Written by python -m benchmarks.fit from ")
        assert f"measured/{path.name}" in (ROOT / "csrc/choose/measured.cpp").read_text()
        pattern = r'^\{"([a-z_/0-9]+)", Operation::(\w+), DType::(\w+), Layout::(\w+), (\d+), (\d+), (\d+), '
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
    assert choices.measured_times(records(), True, choices.is_dense) == {}


@pytest.mark.parametrize(("device", "refused"), [("NVIDIA H200", True), ("cpu 2 cores avx2", False)])
def test_times_of_warm_operands_are_not_fitted(tmp_path: Path, device: str, refused: bool) -> None:
    """Of GPUs: a CPU's operands are always warm."""
    path = tmp_path / "depthwise_candidates_warm.json"
    Results("depthwise", {"device": device, "torch": "2.11.0"}, "python -m benchmarks --warm", {}).write(path)
    with pytest.raises(ValueError, match="--warm") if refused else nullcontext():
        fit.load_all([path])


def test_torchs_product_has_the_time_of_the_peer_where_it_was_not_measured() -> None:
    first, second = records()[:2]
    peers = [{"torch": 90.0, "matmul": us} for us in (40.0, 50.0)]
    rows = [first | {"peers_us": peers[0]}, second | {"peers_us": peers[1]}]
    (measured,) = depthwise_times(rows).values()
    assert measured["native/matmul"] == pytest.approx(2000**0.5)
    (measured,) = depthwise_times([*rows, rows[0] | {"method": "native/matmul", "convx_us": 30.0}]).values()
    assert measured["native/matmul"] == pytest.approx(30)
    (measured,) = depthwise_times(rows, on_gpu=False).values()
    assert "native/matmul" not in measured


@pytest.mark.parametrize(("operation", "call_us"), [("forward", 20), ("input_grad", 50)])
def test_a_product_takes_no_less_than_its_call_on_a_gpus_host(operation: str, call_us: float) -> None:
    (row,) = (each | {"operation": operation} for each in records()[:1])
    rows = [row, row | {"method": "native/matmul", "convx_us": 3.0}]
    (measured,) = depthwise_times(rows).values()
    assert measured["native/matmul"] == call_us
    (measured,) = depthwise_times(rows, on_gpu=False).values()
    assert measured["native/matmul"] == pytest.approx(3)


def samples(some: Times, smoothing: float) -> Iterable[tuple[str, Samples]]:
    return ((series.algorithm, each) for series, each in fit_depthwise.samples_of(some, smoothing).items())


def test_models_choose_the_fastest_for_layers_that_they_have_not_seen() -> None:
    times = depthwise_times(records())
    for reach in (None, 4):
        made = trials.left_out(times, samples(times, 0.6), reach, 0.02)
        assert len(made) == len(times)
        assert all(choice.regret < 1.05 for choice in made)
        assert {choice.algorithm for choice in made} == {"native", "depthwise/fast"}
    before = choices.recorded(times, records())
    assert all(choice.algorithm == "depthwise/slow" and choice.regret > 1.5 for choice in before)
    assert "batch   64" in choices.report(made, made, 3)


def test_settings_that_go_through_the_measured_times_cost_nothing_there() -> None:
    """The fast kernel takes twice as long on one layer: no smooth curve has that, a correction does."""
    some = records()
    for row in some:
        if row["shape"]["size"] == 24 and row["method"] == "depthwise/fast":
            row["convx_us"] *= 2
    times = depthwise_times(some)
    made = trials.run(times, samples(times, 1.5), "")
    best = min(made, key=lambda trial: trial.regret)
    assert choices.mean_regret(best.seen) == 1 < choices.mean_regret(best.unseen)
    assert best.regret == min(
        choices.mean_regret(trial.seen) * choices.mean_regret(trial.unseen) for trial in made
    )


def layer(channels: int, size: int, batch: int) -> Problem:
    shape = Shape(channels, size, channels, 3, 1, channels)
    return Problem(Case("", "", shape, (), ()), "forward", "float32", "nchw", batch)


LAYERS = [
    layer(channels, size, batch)
    for channels, size in ((960, 7), (96, 7), (576, 14), (48, 14), (240, 28), (24, 56), (32, 112))
    for batch in (1, 16, 64)
]


def uneven_times() -> dict[Problem, float]:
    random = np.random.default_rng(1)
    return {each: (2 + each.bytes / 3e6) * float(random.uniform(0.5, 2)) for each in LAYERS}


def test_the_correction_goes_through_what_was_measured_and_ends_far_away() -> None:
    times = uneven_times()
    own = Samples(times, 1.5)
    assert own.base(np.ones(len(times), dtype=bool)) != pytest.approx(own.us, rel=0.2)
    model = own.fit(2, 1e-4)
    assert model.at(own.problems) == pytest.approx(own.us, rel=1e-3)
    far = layer(1 << 14, 56, 1 << 14)
    plain = model.curves[bucket(56)].at(far.bytes)
    assert model.at([far]) == pytest.approx([plain], rel=0.02)


def test_a_layer_left_out_is_predicted_as_if_it_had_not_been_measured() -> None:
    times = uneven_times()
    predicted = Samples(times, 0.8).left_out(4, 0.1)
    assert len(predicted) == len(times)
    for left_out in (LAYERS[0].shape, LAYERS[6].shape, LAYERS[-1].shape):
        others = {each: us for each, us in times.items() if each.shape != left_out}
        unseen = [each for each in times if each.shape == left_out]
        model = Samples(others, 0.8).fit(4, 0.1)
        assert [predicted[each] for each in unseen] == pytest.approx(model.at(unseen))


def read_models(path: Path) -> dict[Series, Model]:
    """What was written for the planner."""
    file = MeasuredFile(path)
    curves: dict[Series, dict[int, Curve]] = {}
    corrections = {}
    pattern = (
        r'\{"([^"]+)", Operation::(\w+), DType::(\w+), Layout::(\w+), (\d+), (\d+), '
        r"(\d+), (\d+), (\d+), (\d+), \d+, \{(.*?)\}\}"
    )
    for name, operation, dtype, layout, side, stride, widest, *points, octave, times in re.findall(
        pattern, file.series
    ):
        key = Series(name, operation, dtype, layout.replace("nhwc", "channels_last"), int(side), int(stride))
        us = tuple(float(time) for time in times.split(","))
        curves.setdefault(key, {})[WIDEST.index(int(widest))] = Curve(int(octave), us)
        corrections[key] = file.correction(*points, True, operation, dtype, key.layout, False)
    return {key: Model(own, corrections[key]) for key, own in curves.items()}


H200_MODELS = read_models(MEASURED / "nvidia_h200.inc")


def test_the_planner_computes_what_the_models_say() -> None:
    compared: dict[str, int] = {}
    corrected = 0
    for key, model in H200_MODELS.items():
        for measured in model.correction.problems[::9]:
            shape = measured.shape
            odd = replace(shape, in_channels=shape.in_channels + 3, size=shape.size + 1)
            odd = replace(odd, out_channels=odd.in_channels, groups=odd.in_channels)
            for each in (measured, replace(measured, case=replace(measured.case, shape=odd), batch=3)):
                plan = plan_of(key.algorithm, each, H200)
                expected = model.at([each])[0]
                if plan and not np.isnan(expected):
                    assert plan.source in SOURCES[each.layout]
                    assert np.isfinite(plan.doubt) == (plan.source == SOURCES[each.layout][0])
                    assert plan.predicted_us == pytest.approx(expected, rel=1e-4), (key, each)
                    compared[key.algorithm] = compared.get(key.algorithm, 0) + 1
                    corrected += not 0.97 < model.correction.factors([each])[0] < 1.03
    assert {"native", "depthwise/strip", "depthwise/channels_weight", "cuconv/fused"} <= compared.keys()
    assert corrected > 100 and sum(compared.values()) > 1000


def test_the_planner_has_the_times_of_measured_layers() -> None:
    """Torch's; without a correction they are 3 % off."""
    results = load(fit.RESULTS / "nvidia-h200" / "depthwise_candidates_in_network.json")
    times = depthwise_times(list(results.records.values()))
    assert len(times) > 1000
    errors = []
    for each, measured in times.items():
        plan = plan_of("native", each, H200)
        assert plan is not None
        errors.append(abs(np.log(plan.predicted_us / measured["native"])))
    assert np.median(errors) < 0.005
    assert np.quantile(errors, 0.95) < 0.02


def test_planes_far_from_all_that_were_measured_are_torchs_or_fitted() -> None:
    """Of 67 pixels a row none begins at a multiple of 16 bytes; pixels of channels_last do."""
    far: dict[str, Any] = {
        "in_height": 67,
        "in_width": 67,
        "stride": (2, 2),
        "operation": "weight_grad",
        "dtype": "float16",
    }
    sources = {
        plan.source for plan in unfitted(problem(**far), H200) if plan.method in ("native", "depthwise")
    }
    assert sources == {SOURCES["nchw"][1]}
    chosen = _core.select(problem(**far), H200).plan
    assert chosen.method == "native" or chosen.source == "fitted on NVIDIA H200"
    near = _core.select(problem(**far, layout="channels_last"), H200).plan
    assert near.source == SOURCES["channels_last"][0] and near.method == "depthwise"


def test_far_from_all_measured_layers_the_curve_is_what_counts() -> None:
    model = H200_MODELS[Series("native", "forward", "float32", "nchw", 3, 1)]
    factors = [
        abs(np.log(model.correction.factors([layer(size, 56, size)])[0]))
        for size in (1 << 12, 1 << 20, 1 << 28)
    ]
    assert factors == sorted(factors, reverse=True) and factors[-1] < 0.01
