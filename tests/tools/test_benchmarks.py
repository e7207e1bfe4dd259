"""The benchmark program: what it measures is what it says, and its files are sound."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import convolution, host, summary
from benchmarks.__main__ import main
from benchmarks.ceilings import floor_us
from benchmarks.choices import problem_of
from benchmarks.environment import comparable, device_slug
from benchmarks.fit import planned_device
from benchmarks.operands import in_layout, operands, sets_for
from benchmarks.peers import CPU_PEERS, contenders
from benchmarks.planner import plan_of
from benchmarks.refcheck import Reference, error_ratio
from benchmarks.results import RESULTS, best_peer, geomean, is_slower, load, over_peers, summarize
from benchmarks.suites import (
    LAYOUTS,
    OPERATIONS,
    Case,
    Problem,
    Shape,
    depthwise_cases,
    problems,
    select_cases,
)

pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")
CPU = torch.device("cpu")
SMALL = Case("S", "small", Shape(6, 9, 6, 3, 2, 6), (3,), (3,))


def run(folder: Path, *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--device", "cpu", "--quick", "--output", str(folder)]) == 0
    suite = "depthwise_candidates" if "--all-candidates" in arguments else "depthwise"
    data: dict[str, Any] = json.loads((folder / device_slug(CPU) / f"{suite}.json").read_text())
    repeats = ["python", "-m", "benchmarks", *arguments, "--device", "cpu", "--quick"]
    assert data["command"] == shlex.join(repeats)
    return data


def test_suite_has_the_papers_layers() -> None:
    cases = depthwise_cases()
    assert len(cases) == 13 * 2 + 30
    assert {case.batches for case in cases} == {(512,), (1, 16, 64)}
    assert all(case.shape.groups == case.shape.in_channels == case.shape.out_channels for case in cases)
    first = cases[0].shape
    assert first.input_size(2) == first.output_size(2) == (2, 32, 112, 112)
    assert next(case for case in cases if case.name == "D6").shape.output_size(1) == (1, 96, 56, 56)


def test_patterns_select_cases() -> None:
    cases = depthwise_cases()
    assert [case.name for case in select_cases(cases, "D2,CONV13-*")] == ["CONV13-3x3", "CONV13-5x5", "D2"]
    with pytest.raises(ValueError, match="D99"):
        select_cases(cases, "D99")


def test_bytes_and_floor() -> None:
    problem = Problem(SMALL, "forward", "bfloat16", "nchw", 3)
    assert problem.bytes == 2 * (3 * 6 * 81 + 3 * 6 * 25 + 6 * 9)
    assert problem.flops == 2 * 9 * 3 * 6 * 25
    assert floor_us(problem, {"copy_GBps": 1e-3, "fma_fp32_TFLOPs": 1.0}) == pytest.approx(problem.bytes)
    assert floor_us(problem, {"copy_GBps": 1e9, "fma_fp32_TFLOPs": 1e-6}) == pytest.approx(problem.flops)


def test_cold_operands_outgrow_the_cache() -> None:
    problem = Problem(SMALL, "forward", "float32", "nchw", 3)
    cache = 100 * problem.bytes
    assert problem.bytes * (sets_for(problem, cache) - 1) >= 2 * cache
    assert sets_for(problem, 0) == sets_for(problem, problem.bytes // 4) == 1


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_contenders_compute_the_same(operation: str, layout: str) -> None:
    problem = Problem(SMALL, operation, "float32", layout, 3)
    pairs = operands(problem, 2, CPU)
    assert not torch.equal(pairs[0][0], pairs[1][0])
    functions = contenders(problem, ["auto", "native"], (*CPU_PEERS, "onednn_off"), CPU)
    assert set(functions) >= {"convx", "native", "torch", "onednn_off"}
    reference = Reference(problem, pairs[1])
    for function, its_layout in functions.values():
        assert reference.error(function(*in_layout(pairs, its_layout)[1])) < 1e-6


@pytest.mark.parametrize("operation", OPERATIONS)
def test_refcheck_sees_errors(operation: str) -> None:
    problem = Problem(SMALL, operation, "float32", "nchw", 3)
    pair = operands(problem, 1, CPU)[0]
    result = contenders(problem, ["native"], (), CPU)["convx"][0](*pair)
    reference = Reference(problem, pair)
    wrong = result.clone()
    wrong.view(-1)[-1] += 0.5
    assert reference.error(wrong) > 1e-3
    assert reference.error(result * float("nan")) == float("inf")
    assert reference.error(result[:, :, :1]) == float("inf")
    assert error_ratio(1e-7, 1e-7, torch.float32) == pytest.approx(1.0)
    assert error_ratio(0.0, 0.0, torch.float32) == 0.0


def test_a_run_writes_sound_records(tmp_path: Path) -> None:
    data = run(tmp_path, "--case", "D24", "--batch", "1", "--layout", "nchw")
    assert data["suite"] == "depthwise" and data["ceilings"]["copy_GBps"] > 0
    assert data["environment"]["torch"] == torch.__version__
    assert [record["operation"] for record in data["records"]] == list(OPERATIONS)
    for record in data["records"]:
        assert record["case"] == "D24" and record["convx_us"] > 0 and record["floor_us"] > 0
        assert set(record["peers_us"]) == {"torch", "torch_channels_last"}
        assert record["method"] and record["chosen_by"] == "auto" and record["error_ratio"] <= 2
        lower, upper = record["spread_us"]
        assert 0 < lower <= record["convx_us"] <= upper and set(record["peers_spread_us"]) == {"torch"}


def test_parts_of_a_suite_are_joined(tmp_path: Path) -> None:
    run(tmp_path, "--case", "D24", "--operation", "forward", "--batch", "1", "--layout", "nchw")
    data = run(tmp_path, "--case", "D22", "--operation", "forward", "--batch", "1", "--layout", "nchw")
    assert {record["case"] for record in data["records"]} == {"D22", "D24"}


def test_resume_measures_only_what_is_missing(tmp_path: Path) -> None:
    part = ("--case", "D24", "--batch", "1", "--layout", "nchw", "--resume")
    before = run(tmp_path, *part, "--operation", "forward")["records"]
    after = run(tmp_path, *part)["records"]
    assert after[0] == before[0] and len(after) == 3


def test_resume_measures_again_what_auto_takes_another_kernel_for(tmp_path: Path) -> None:
    part = ("--case", "D24,D22", "--operation", "forward", "--batch", "1", "--layout", "nchw", "--resume")
    first, second = run(tmp_path, *part)["records"]
    path = tmp_path / device_slug(CPU) / "depthwise.json"
    path.write_text(
        path.read_text().replace(json.dumps(first), json.dumps(first | {"method": "depthwise/x"}))
    )
    again, kept = run(tmp_path, *part)["records"]
    assert again["method"] == first["method"] and again != first and kept == second


@pytest.mark.parametrize(("us", "rounds"), [(1.01, [3]), (1.03, [3, convolution.SURE_ROUNDS])])
def test_what_seems_slower_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, us: float, rounds: list[int]
) -> None:
    seen = []

    def measure(problem: Problem, algorithms: list[str], settings: Any, report: Any) -> Any:
        seen.append(settings.rounds)
        return convolution.Measured(problem, settings, {"convx": us}, {}, {"torch": 1.0, "torch_nchw": 0.5})

    monkeypatch.setattr(convolution, "measure_problem", measure)
    settings = convolution.Settings(CPU, {}, ("torch",), "auto", False, 3, 0, False)
    problem = Problem(SMALL, "forward", "float32", "channels_last", 1)
    assert convolution.measure_surely(problem, settings, print).times == {"convx": us}
    assert seen == rounds


def test_results_of_another_machine_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = ("--case", "D24", "--operation", "forward", "--batch", "1", "--layout", "nchw")
    run(tmp_path, *part)
    path = tmp_path / device_slug(CPU) / "depthwise.json"
    path.write_text(path.read_text().replace(torch.__version__, "0.0"))
    with pytest.raises(SystemExit):
        run(tmp_path, *part)
    assert "another machine" in capsys.readouterr().err


def test_threads_tell_machines_with_a_cpu_alone_apart() -> None:
    gpu, cpu = (
        dict[str, object](device=name, threads=8, date="1") for name in ("NVIDIA H200", "cpu 2 cores avx2")
    )
    later: dict[str, object] = {"threads": 16, "processor": "another", "date": "2"}
    assert comparable(gpu, gpu | later) and not comparable(cpu, cpu | later)
    assert comparable(cpu, cpu | {"date": "2"}) and not comparable(gpu, gpu | {"torch": "0.0"})


def test_candidates_are_timed_as_forced_records(tmp_path: Path) -> None:
    data = run(
        tmp_path,
        "--case",
        "D24",
        "--operation",
        "forward",
        "--batch",
        "1",
        "--layout",
        "nchw",
        "--all-candidates",
    )
    chosen = {(record["chosen_by"], record["method"].split("/")[0]) for record in data["records"]}
    assert ("forced", "depthwise") in chosen


@pytest.mark.gpu
@pytest.mark.parametrize("how", ["", "warm", "in-network"])
def test_a_run_on_a_gpu(tmp_path: Path, how: str) -> None:
    """What was measured otherwise goes into a file of its own."""
    arguments = ["--case", "D24", "--batch", "1", "--quick", "--all-candidates", "--device", "cuda"]
    assert main([*arguments, *([f"--{how}"] if how else []), "--output", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*/*.json")
    assert path.stem.split("candidates") == ["depthwise_", f"_{how}".replace("-", "_") if how else ""]
    records = list(load(path).records.values())
    chosen = [record for record in records if record["chosen_by"] == "auto"]
    assert len(chosen) == len(OPERATIONS) * len(LAYOUTS) * 2
    for record in records:
        assert record["error_ratio"] <= 2 and record["convx_us"] > 0.5 and record["warm"] == bool(how)
        cudnn = {"cudnn"} if record["operation"] != "weight_grad" else set()
        assert set(record["peers_us"]) >= {"torch", "native"} | cudnn


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_host_suite(tmp_path: Path, device: str) -> None:
    case = "pointwise float32 channels_last"
    arguments = ["--suite", "host", "--quick", "--rounds", "1", "--case", case, "--device", device]
    assert main([*arguments, "--output", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*/host.json")
    records = list(load(path).records.values())
    assert [record["operation"] for record in records] == list(host.KINDS)
    assert all(set(record["peers_us"]) == {"torch", "native"} for record in records)


def test_host_suite_has_networks(tmp_path: Path) -> None:
    case = "resnet18 b1 float32 nchw"
    arguments = ["--suite", "host", "--quick", "--rounds", "1", "--case", case, "--device", "cpu"]
    assert main([*arguments, "--output", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*/host.json")
    records = list(load(path).records.values())
    assert [record["operation"] for record in records] == list(host.NETWORK_KINDS)
    assert f"| {case} | train_step |" in host.table(records)


def test_summary_counts_what_is_slower() -> None:
    record = {
        "case": "D1",
        "group": "D1-30",
        "operation": "forward",
        "dtype": "float32",
        "layout": "nchw",
        "batch": 1,
        "chosen_by": "auto",
        "floor_us": 1.0,
        "convx_us": 2.0,
        "peers_us": {"torch": 4.0, "cudnn": 3.0, "torch_channels_last": 0.5},
    }
    slow = record | {"case": "D2", "convx_us": 8.0}
    assert best_peer(record) == ("cudnn", 3.0)
    assert not is_slower(record) and is_slower(slow)
    (row,) = summarize([record, slow])
    assert row.label == ("forward", "float32", "nchw", "D1-30, batch 1")
    assert row.count == 2 and row.slower == 1
    assert row.fraction_of_floor == pytest.approx(geomean([1 / 2, 1 / 8]))
    assert row.speedup == pytest.approx(geomean([3 / 2, 3 / 8]))
    forced = record | {"chosen_by": "forced", "convx_us": 1.0}
    alone = slow | {"peers_us": {"torch": 4.0}}
    (label,), (found,) = zip(*over_peers([record, alone, forced]).items(), strict=True)
    assert label == ("forward", "float32", "nchw")
    assert found == pytest.approx({"torch": 1.0, "cudnn": 1.5, "torch_channels_last": 0.25})


def test_plots_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run(tmp_path, "--case", "D24", "--batch", "1", "--layout", "nchw", "--plots")
    pictures = list((tmp_path / device_slug(CPU)).glob("*.png"))
    assert len(pictures) == len(OPERATIONS)


def test_readme_shows_the_committed_results() -> None:
    assert summary.main(["--check"]) == 0


def test_rows_of_an_older_choice_are_counted() -> None:
    results = load(RESULTS / "nvidia-h200" / "depthwise.json")
    results.records = dict(list(results.records.items())[:5])
    for record in results.records.values():
        record["method"] = plan_of(problem_of(record), planned_device(results))
    assert summary._changed(results) == ""
    next(iter(results.records.values()))["method"] = "depthwise/none"
    assert summary._changed(results) == "1 of 5"
    results.environment["device"] = "cpu 2 cores avx512"
    assert summary._changed(results) == ""


def test_committed_results_load() -> None:
    for path in RESULTS.glob("*/*.json"):
        results = load(path)
        stem = path.stem.removesuffix("_in_network")
        for kind in ("_candidates", "_ablations", "_by_name"):
            stem = stem.removesuffix(kind)
        assert stem == results.suite
        assert results.records
        assert all(record["convx_us"] > 0 for record in results.records.values())


def test_every_default_problem_is_listed_once() -> None:
    cases = depthwise_cases()
    listed = list(problems(cases, OPERATIONS, ("float32", "bfloat16"), LAYOUTS, None, on_gpu=True))
    assert len(listed) == len(set(listed)) == (13 * 2 + 30 * 3) * 3 * 2 * 2
