"""The model of random layers: how it is fitted, and that the planner computes what was fitted."""

from __future__ import annotations

import json
import math
import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import random_layers, random_model, wild
from benchmarks.planner import core_problem
from benchmarks.random_layers import FOLDER, Fitted
from benchmarks.random_model import Sample, series_of
from benchmarks.results import RESULTS, load
from benchmarks.suites import Problem
from convx import _core

H200 = _core.Device.known_device("h200")
CPU = _core.Device.host_cpu(2)
# As the planner names them in machines of two cores.
INSTRUCTIONS = {"avx2": "AVX2", "avx512": "AVX-512"}
MEASURED_CPU = pytest.mark.skipif(
    CPU.isa not in INSTRUCTIONS, reason="no random layers were measured by baseline's kernels"
)


def _committed() -> list[Any]:
    def marks(path: Path) -> list[Any]:
        isa = path.stem.rpartition("-")[2]
        reason = f"of the estimates for {isa}, which this CPU does not plan by"
        return [pytest.mark.skipif(CPU.isa != isa, reason=reason)] if isa in INSTRUCTIONS else []

    return [pytest.param(path, id=path.stem, marks=marks(path)) for path in sorted(FOLDER.glob("*.json"))]


@pytest.fixture(scope="module", params=_committed())
def committed(request: pytest.FixtureRequest) -> Fitted:
    return random_layers.fitted(request.param)


@pytest.fixture(scope="module")
def h200() -> Fitted:
    return random_layers.fitted(FOLDER / "nvidia-h200.json")


def drawn(seed: int, count: int) -> list[Problem]:
    return list(wild.problems(seed, count))


def fitted_plans(problem: Problem, device: Any = H200) -> list[Any]:
    rows = _core.explain(core_problem(problem), device)
    return [plan for row in rows for plan in row.plans if plan.source.startswith("fitted on ")]


def estimate_us(problem: Problem, wanted: Any) -> float:
    plans = _core.candidates(wanted.method, core_problem(problem), H200, fitted=False)
    return next(plan.predicted_us for plan in plans if plan.name == wanted.name)


def changed(problem: Problem, **sizes: Any) -> Problem:
    shape: Any = replace(problem.case.shape, **sizes)
    return replace(problem, case=replace(problem.case, shape=shape))


def test_the_planner_has_what_was_fitted(committed: Fitted) -> None:
    assert (random_layers.MEASURED / f"{committed.name}.inc").read_text() == committed.text


def test_the_planner_computes_the_model(h200: Fitted) -> None:
    models = random_layers.models_of(h200.layers, h200.margin)
    seen = set()
    for problem in drawn(31, 200):
        for plan in fitted_plans(problem):
            series = series_of(problem, plan.name.partition(" ")[0])
            model = models[series]
            assert model.has_seen(problem)
            expected_us = model.at(problem, estimate_us(problem, plan))
            assert plan.predicted_us == pytest.approx(expected_us, rel=1e-3)
            assert plan.doubt == pytest.approx(model.doubt, rel=1e-3) and plan.doubt >= 1
            seen.add(series)
    assert len(seen) > 60 and {series.kind for series in seen} == {"dense", "grouped", "depthwise"}


def test_choices_by_models_of_other_layers_win(committed: Fitted) -> None:
    without, by_others = (random_layers.judged(committed.layers, each) for each in (None, committed.margin))
    assert by_others.times_faster > 1.2 * without.times_faster > 1.2
    assert by_others.slower < 0.01 and by_others.much_slower < 0.004


def dilated_on_cpu() -> Problem:
    return next(each for each in wild.problems(31, 50, "cpu") if each.case.group == "depthwise dilated")


@MEASURED_CPU
def test_cpus_of_any_number_of_threads_have_a_models_times() -> None:
    problem = replace(dilated_on_cpu(), dtype="float32")
    two, four = (fitted_plans(problem, _core.Device.host_cpu(threads)) for threads in (2, 4))
    assert two and {plan.name.partition(" ")[0] for plan in four} <= {
        plan.name.partition(" ")[0] for plan in two
    }
    source = f"fitted on 2 cores with {INSTRUCTIONS[CPU.isa]}"
    assert all(plan.source == source and plan.doubt > 2 for plan in (*two, *four))
    native_two, native_four = (next(each for each in plans if each.name == "native") for plans in (two, four))
    assert native_four.predicted_us < 0.7 * native_two.predicted_us


@MEASURED_CPU
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_cpus_with_products_of_16_bits_go_by_no_others_times(dtype: str) -> None:
    flags = Path("/proc/cpuinfo").read_text().split()
    has_own = any(each in flags for each in ("avx512_bf16", "avx512_fp16", "amx_bf16", "avx_ne_convert"))
    assert bool(fitted_plans(replace(dilated_on_cpu(), dtype=dtype), CPU)) == (not has_own)


def test_layers_unlike_the_fitted_ones_keep_their_estimates() -> None:
    """Sizes, strides and dilations apart, other GPUs and float64."""
    problem = next(each for each in drawn(31, 50) if each.case.group == "depthwise dilated")
    assert fitted_plans(problem)
    assert not fitted_plans(replace(problem, dtype="float64"))
    assert not fitted_plans(replace(problem, batch=512))
    assert not fitted_plans(changed(problem, dilation=(2, 1)))
    assert not fitted_plans(changed(problem, stride=(1, 2)))
    assert not fitted_plans(problem, _core.Device.known_device("a100"))


def test_a_law_of_powers_is_found() -> None:
    """Also for problems that it was not fitted to, with a doubt that their errors keep to."""

    def us(problem: Problem) -> float:
        return 3 * problem.batch**0.5 * problem.shape.in_channels**0.25

    problems = drawn(77, 400)
    samples = [Sample(problem, 10.0, us(problem)) for problem in problems[:300]]
    model = random_model.fit(samples)
    for problem in problems[300:]:
        error = model.at(problem, 10.0) / us(problem)
        assert 1 / model.doubt / 1.02 < error < 1.02 * model.doubt
    assert model.doubt < 1.1
    draw = random.Random(3)
    noisy = [replace(each, us=each.us * math.exp(draw.choice((-0.3, 0.3)))) for each in samples]
    assert 1.7 < random_model.fit(noisy).doubt < 2.1


def test_few_samples_have_no_model() -> None:
    samples = [Sample(problem, 10.0, 20.0) for problem in drawn(5, 12)]
    series = series_of(samples[0].problem, "native")
    assert random_model.fit_all({series: samples}).keys() == {series}
    assert not random_model.fit_all({series: samples[:-1]})


def test_measured_layers_are_read_back(tmp_path: Path) -> None:
    arguments = f"--seed 12 --count 3 --seconds 60 --device cpu --output {tmp_path}".split()
    assert random_layers.main(arguments) == 0
    (path,) = tmp_path.glob("*.json")
    records = json.loads(path.read_text())["records"]
    expected = list(wild.problems(12, 3, "cpu"))
    assert len(records) == 3 and not torch.backends.cudnn.benchmark
    for record, problem in zip(records, expected, strict=True):
        assert random_layers.problem_of(record) == problem
        assert record["shape"] == json.loads(json.dumps(asdict(problem.shape)))
        assert "native" in record["us"] and all(us > 0 for us in record["us"].values())


def test_cpus_with_other_instructions_are_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "cpu-2-cores-sse.json").write_text((FOLDER / "cpu-2-cores-avx2.json").read_text())
    monkeypatch.setattr(random_layers, "MEASURED", tmp_path)
    assert random_layers.main(["--fit", "--output", str(tmp_path)]) == 0
    assert "cpu-2-cores-sse.json is of a CPU with other instructions" in capsys.readouterr().out
    assert not list(tmp_path.glob("*.inc"))


@pytest.mark.parametrize("arguments", [[], ["--fit", "--seed", "3"], ["--add", "wild.json", "--fit"]])
def test_measuring_and_fitting_are_asked_for_apart(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        random_layers.main(arguments)
    assert "one of --seed, to measure, --add and --fit" in capsys.readouterr().err


def test_rows_of_the_suite_wild_are_taken_over(tmp_path: Path) -> None:
    """Torch's time and that of the kernel which predictions took."""
    wilds = RESULTS / "nvidia-h200" / "wild.json"
    assert random_layers.main(["--add", str(wilds), "--output", str(tmp_path)]) == 0
    taken = load(tmp_path / "nvidia-h200.json")
    rows = list(load(wilds).records.values())
    assert "--add" in taken.command
    for record, row in zip(taken.records.values(), rows, strict=True):
        assert random_layers.problem_of(record) == random_layers.problem_of(row)
        own = {} if row["method"] == "native" else {row["method"]: row["convx_us"]}
        assert record["us"] == {"native": row["peers_us"]["torch"]} | own
    made = random_layers.fitted(tmp_path / "nvidia-h200.json")
    assert len(made.layers) == len(rows) and not any(layer.is_whole for layer in made.layers)


def test_no_time_is_predicted_below_all_that_were_measured(h200: Fitted) -> None:
    """A launch takes what it takes: smaller layers than those that were fitted do not end sooner."""
    models = random_layers.models_of(h200.layers, h200.margin)
    tiny = changed(drawn(31, 18)[17], in_channels=16, out_channels=16, height=7, width=7)
    for model in models.values():
        assert model.at(replace(tiny, batch=1), 1e-3) >= model.least_us > 1
