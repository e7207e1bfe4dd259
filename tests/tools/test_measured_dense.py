"""Times of dense layers: how they are fitted, and that the planner computes what was fitted."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measured_files import MeasuredFile, algorithm_of, plan_of

from benchmarks import choices, dense_model, fit
from benchmarks.measured_layers import places
from benchmarks.planner import core_problem, unfitted
from benchmarks.regression import distances, nonnegative_least_squares
from benchmarks.results import load
from benchmarks.suites import Case, Problem, Shape
from convx import _core

ROOT = Path(__file__).resolve().parents[2]
H200 = _core.Device.known_device("h200")
CPU = _core.Device.host_cpu(2)
needs_avx512 = pytest.mark.skipif(CPU.isa != "avx512", reason="times were measured on CPUs with AVX-512")


def dense(size: int, channels: int, filters: int, filter_size: int, batch: int, **changes: Any) -> Problem:
    """A dense layer's forward convolution in float32, or what changes say."""
    shape = Shape(channels, size, filters, filter_size, 1, 1)
    problem = Problem(Case("", "", shape, (), ()), "forward", "float32", "nchw", batch)
    return replace(problem, **changes)


RATES = dense_model.Rates(H200.bandwidth_GBps, H200.fp32_TFLOPs, H200.multiprocessors)
LAYERS = [
    dense(size, channels, filters, filter_size, batch)
    for size, channels, filters, filter_size in (
        (7, 960, 160, 1),
        (7, 192, 1152, 1),
        (14, 480, 80, 1),
        (14, 96, 576, 1),
        (28, 40, 240, 1),
        (28, 192, 32, 1),
        (56, 24, 144, 1),
        (112, 16, 96, 1),
        (7, 512, 512, 3),
        (14, 256, 256, 3),
        (28, 128, 128, 3),
        (56, 64, 64, 3),
        (14, 16, 48, 5),
        (28, 32, 96, 5),
    )
    for batch in (1, 8, 64)
]


def test_least_squares_without_negative_coefficients_are_the_best_there_are() -> None:
    random = np.random.default_rng(0)
    bound = 0
    for _ in range(20):
        matrix, target = random.normal(size=(30, 6)), random.normal(size=30)
        x = nonnegative_least_squares(matrix, target)
        descent = matrix.T @ (target - matrix @ x)
        assert (x >= 0).all()
        assert np.abs(descent[x > 0]).max(initial=0) < 1e-9  # nothing to gain from those that are free,
        assert descent[x == 0].max(initial=-1) < 1e-9  # and only negative ones would gain from the others
        bound += int((x == 0).sum())
    assert bound > 20
    truth = np.array([2.0, 0.0, 1e-6, 3e4])
    matrix = random.uniform(0.1, 1, size=(30, 4)) * [1, 1, 1e6, 1e-4]
    assert nonnegative_least_squares(matrix, matrix @ truth) == pytest.approx(truth, abs=1e-9)


def test_coefficients_of_synthetic_times_are_recovered() -> None:
    truth = np.array([2.5, 1.5, 0.75, 3.0, 1.25, 20.0, 0.0, 0.3, 0.0])
    times = {problem: float(truth @ dense_model.parts(problem, RATES)) for problem in LAYERS}
    samples = dense_model.Samples(times, RATES)
    assert samples.coefficients() == pytest.approx(truth, abs=1e-6)
    for predicted in (samples.left_out(None, 0), samples.left_out(4, 0.02)):
        assert predicted == pytest.approx(times, rel=1e-6)
    model = samples.fit(4, 0.02)
    unseen = dense(20, 300, 50, 3, 5)
    expected = float(truth @ dense_model.parts(unseen, RATES))
    assert model.at([unseen]) == pytest.approx([expected], rel=1e-6)


def uneven_times() -> dict[Problem, float]:
    random = np.random.default_rng(1)
    return {
        problem: float(sum(dense_model.parts(problem, RATES)) * random.uniform(0.5, 2)) for problem in LAYERS
    }


def test_a_layer_left_out_is_predicted_as_if_it_had_not_been_measured() -> None:
    times = uneven_times()
    predicted = dense_model.Samples(times, RATES).left_out(4, 0.1)
    for left_out in (LAYERS[0].shape, LAYERS[-1].shape):
        others = {problem: us for problem, us in times.items() if problem.shape != left_out}
        model = dense_model.Samples(others, RATES).fit(4, 0.1)
        unseen = [problem for problem in times if problem.shape == left_out]
        assert [predicted[problem] for problem in unseen] == pytest.approx(model.at(unseen))


def test_the_correction_goes_through_what_was_measured_and_ends_far_away() -> None:
    times = uneven_times()
    model = dense_model.Samples(times, RATES).fit(2, 1e-6)
    assert model.at(list(times)) == pytest.approx(np.array(list(times.values())), rel=1e-3)
    far = dense(1 << 12, 1 << 14, 1 << 14, 1, 1 << 14)
    plain = float(model.coefficients @ dense_model.parts(far, RATES))
    assert model.at([far]) == pytest.approx([plain], rel=0.01)


def read_models(path: Path, rates: dense_model.Rates = RATES) -> dict[dense_model.Series, dense_model.Model]:
    """What was written for the planner."""
    file = MeasuredFile(path)
    models = {}
    pattern = r'\{"([^"]+)", Operation::(\w+), DType::(\w+), (\w+), Layout::(\w+), \{(.*?)\}, (\d+), (\d+)\}'
    for name, operation, dtype, tf32, layout, values, *points in re.findall(pattern, file.series):
        algorithm, _, variant = name.partition(", ")
        key = dense_model.Series(
            algorithm, variant, operation, dtype, tf32 == "true", layout.replace("nhwc", "channels_last")
        )
        correction = file.correction(*points, False, operation, dtype, key.layout, key.tf32)
        coefficients = np.array([float(value) for value in values.split(",")])
        models[key] = dense_model.Model(coefficients, correction, rates)
    return models


def model_for(
    models: dict[dense_model.Series, dense_model.Model], key: dense_model.Series, problem: Problem
) -> tuple[dense_model.Model | None, float]:
    """What the planner reads for a problem of a series, and how far the nearest of its layers is: nothing
    where no layer like it was measured. A kernel that was measured without TF32 products has none where they
    are allowed either."""
    for series in (key, replace(key, tf32=False)):
        if model := models.get(series):
            known = model.correction.places
            farthest = 2.0 if len(known) < 30 else 3.5
            nearest = distances(places([problem]), known).min()
            if nearest <= farthest:
                return model, nearest
    return None, np.inf


H200_DENSE = ROOT / "csrc/choose/measured/nvidia_h200_dense.inc"
CPU_DENSE = ROOT / "csrc/choose/measured/cpu_2_cores_avx512_dense.inc"
CPU_RATES = dense_model.Rates(CPU.bandwidth_GBps, CPU.fp32_TFLOPs, CPU.threads)


@pytest.mark.parametrize(
    "path, rates, device, expected",
    [
        pytest.param(
            H200_DENSE,
            RATES,
            H200,
            {"native", "pointwise/fma", "pointwise/tensor3", "pointwise/tensor, elements"},
            id="h200",
        ),
        pytest.param(
            CPU_DENSE,
            CPU_RATES,
            CPU,
            {"native", "pointwise/filters", "hntmp/cpu"},
            id="cpu",
            marks=needs_avx512,
        ),
    ],
)
def test_the_planner_computes_what_the_model_says(
    path: Path, rates: dense_model.Rates, device: _core.Device, expected: set[str]
) -> None:
    models = read_models(path, rates)
    assert models and all(model.correction.problems for model in models.values())
    compared: dict[str, int] = {}
    for key, model in models.items():
        for problem in model.correction.problems[::21]:
            shape = problem.shape
            odd = Shape(shape.in_channels + 3, shape.size + 1, shape.out_channels + 5, shape.filter, 1, 1)
            for each in (problem, replace(problem, case=replace(problem.case, shape=odd), batch=3)):
                plan, (near, _) = plan_of(key.name, each, device), model_for(models, key, each)
                if plan and plan.source != "estimated":
                    assert near is not None, (key, each)
                    assert plan.predicted_us == pytest.approx(near.at([each])[0], rel=2e-3), (key, each)
                    compared[key.name] = compared.get(key.name, 0) + 1
    assert expected <= compared.keys()


# Their own estimates are held against torch's times.
MODELLED = ("cuconv/deep", "hntmp/stem_tensor", "pointwise/deep", "pointwise/shallow")


def test_what_is_far_from_all_layers_of_a_series_is_extrapolated_and_then_estimated() -> None:
    sources = []
    models = read_models(H200_DENSE)
    for key, model in models.items():
        for problem in model.correction.problems[::15]:
            for batches in (3, 5, 300):
                each = replace(problem, batch=batches * problem.batch)
                if plan := plan_of(key.name, each, H200):
                    _, nearest = model_for(models, key, each)
                    expected = (
                        "measured on NVIDIA H200" if nearest <= 1.0 else "extrapolated from NVIDIA H200"
                    )
                    modelled = key.name in MODELLED and key.operation == "forward" and nearest >= 9
                    far = "modelled on NVIDIA H200" if modelled else "estimated"
                    assert plan.source == (expected if nearest < 9 else far), (key, each)
                    if nearest <= 1.0:
                        assert plan.doubt == pytest.approx(1.02 + 0.375 * nearest)
                    else:
                        assert np.isfinite(plan.doubt) == modelled
                    sources.append("estimated" if modelled else plan.source)
    assert min(sources.count(each) for each in set(sources)) > 20 and len(set(sources)) == 3


def core_dense(**changes: Any) -> _core.Problem:
    fields = {
        "batch": 8,
        "in_channels": 192,
        "in_height": 28,
        "in_width": 28,
        "out_channels": 32,
        "filter_height": 1,
        "filter_width": 1,
    }
    return _core.Problem(**{**fields, **changes})


def dense_plan(algorithm: str, device: _core.Device = H200, **changes: Any) -> _core.Plan:
    """The first plan of a method."""
    return _core.select(core_dense(**changes), device, algorithm).plan


def test_dense_layers_of_networks_have_measured_times() -> None:
    for algorithm in ("native", "pointwise", "hntmp"):
        for batch in (1, 2, 8, 40, 64, 128):
            for channels, filters, size in ((32, 192, 28), (640, 200, 7), (100, 30, 60)):
                plan = dense_plan(
                    algorithm,
                    batch=batch,
                    in_channels=channels,
                    out_channels=filters,
                    in_height=size,
                    in_width=size + 1,
                )
                assert plan.source.endswith(" NVIDIA H200")
                assert 1 < plan.predicted_us < 2000
    half, brain = dense_plan("native", dtype="float16"), dense_plan("native", dtype="bfloat16")
    assert half.predicted_us == brain.predicted_us


def test_planes_that_are_read_by_elements_have_times_of_their_own() -> None:
    """An odd plane in 16 bits takes pointwise/tensor several times as long as the even one beside it."""
    for size in (9, 13, 15, 17):
        layer = {"in_channels": 640, "out_channels": 320, "dtype": "bfloat16"}
        odd, even = (
            dense_plan("pointwise/tensor", in_height=side, in_width=side, **layer)
            for side in (size, size + 1)
        )
        assert (odd.variant, even.variant) == ("elements", "")
        assert odd.source.endswith("NVIDIA H200") and even.source.endswith("NVIDIA H200")
        assert odd.predicted_us > 2 * even.predicted_us
        assert dense_plan("auto", in_height=size, in_width=size, **layer).method != "pointwise"


def test_dense_layers_unlike_the_measured_ones_are_estimated() -> None:
    assert dense_plan("native").source == "measured on NVIDIA H200"
    unlike: list[dict[str, Any]] = [
        {"batch": 1 << 14},
        {"in_channels": 1 << 14},
        {"in_channels": 1},
        {"out_channels": 1},
        {"groups": 2},
        {"dilation": (2, 2)},
        {"stride": (2, 1)},
        {"filter_height": 31, "filter_width": 31, "padding": (15, 15, 15, 15)},
        {"dtype": "float64"},
    ]
    for changes in unlike:
        plans = unfitted(core_dense(**changes), H200)
        of_others = [plan for plan in plans if algorithm_of(plan) not in MODELLED]
        assert of_others and all(plan.source == "estimated" for plan in of_others), changes
    assert dense_plan("native", _core.Device.known_device("mi300")).source == "estimated"
    plans = unfitted(core_dense(operation="input_grad"), CPU)
    assert {plan.source for plan in plans if plan.method == "native"} == {"estimated"}


@needs_avx512
def test_cpus_have_times_of_the_two_cores_that_were_measured() -> None:
    plan, more = dense_plan("native", CPU), dense_plan("native", _core.Device.host_cpu(4))
    assert plan.source == "measured on 2 cores with AVX-512"
    assert more.source == "scaled from 2 cores with AVX-512"
    assert plan.predicted_us / 3 < more.predicted_us < plan.predicted_us


def test_another_gpu_has_dense_times_by_its_own_rates() -> None:
    a100 = dense_plan("native", _core.Device.known_device("a100"), batch=64)
    h200 = dense_plan("native", batch=64)
    assert a100.source == "scaled from NVIDIA H200"
    assert 1.5 * h200.predicted_us < a100.predicted_us < 4 * h200.predicted_us


@pytest.mark.parametrize(
    "channels, size, exact_us, tf32_us, half_us",
    [(64, 56, 17, 12, 12), (128, 28, 29, 15, 15), (256, 14, 55, 20, 16), (512, 7, 108, 31, 28)],
)
def test_torchs_convolutions_take_as_long_as_they_do(
    channels: int, size: int, exact_us: float, tf32_us: float, half_us: float
) -> None:
    """As cuDNN was measured on an H200: one image takes long, since few units share the sums, and NCHW of 16
    bits is brought to another order first."""
    layer: dict[str, Any] = {
        "batch": 1,
        "in_channels": channels,
        "out_channels": channels,
        "in_height": size,
        "in_width": size,
        "filter_height": 3,
        "filter_width": 3,
        "padding": (1, 1, 1, 1),
    }
    exact = dense_plan("native", **layer).predicted_us
    assert exact_us / 1.4 < exact < 1.4 * exact_us
    half = dense_plan("native", dtype="bfloat16", **layer).predicted_us
    assert half_us / 1.4 < half < 1.4 * half_us
    tf32 = dense_plan("native", allow_tf32=True, **layer).predicted_us
    assert tf32_us / 1.4 < tf32 < 1.4 * tf32_us
    assert half / 1.1 < tf32 < exact


@pytest.mark.parametrize(
    "device, path",
    [
        pytest.param(device, path, marks=marks, id=f"{folder} {path.stem}")
        for folder, device, marks in (("nvidia-h200", H200, ()), ("cpu-2-cores-avx512", CPU, needs_avx512))
        for path in fit.committed()[fit.RESULTS / folder]
        if path.stem != "filter2d"
    ],
)
def test_the_planner_chooses_well_on_all_that_was_measured(device: _core.Device, path: Path) -> None:
    results = load(path)
    files = fit.committed()[path.parent]
    for earlier in map(load, files[: files.index(path)]):  # whose times count instead
        known = {choices.problem_of(record) for record in earlier.records.values()}
        records = results.records.items()
        results.records = {key: each for key, each in records if choices.problem_of(each) not in known}
    assert str(results.environment["device"]).startswith(device.name)
    made = []
    for wanted in (choices.is_depthwise, choices.is_dense):
        times = choices.measured_times(list(results.records.values()), device is H200, wanted)
        for each, measured in times.items():
            chosen = algorithm_of(_core.select(core_problem(each), device).plan)
            if chosen in measured:  # or else it is newer than the file
                made.append(choices.choice_of(each, measured, chosen))
    assert len(made) > 0.7 * len({choices.problem_of(record) for record in results.records.values()})
    if device is H200:
        assert choices.mean_regret(made) < 1.01
        assert sum(choice.regret > 1.05 for choice in made) <= 0.03 * len(made)
    else:  # any CPU: what is less than twice as fast is left
        assert max(choice.regret for choice in made) < 2.5
        assert sum(choice.over_torch > 1.02 for choice in made) <= 0.01 * len(made)
