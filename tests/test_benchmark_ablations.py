"""Channel distribution and dynamic tiling, on and off: what the benchmarks time as which."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parent.parent))

from benchmarks import ablations
from benchmarks.__main__ import main
from benchmarks.ablations import FORMS, REFERENCE, Ablations, run_ablations
from benchmarks.convolution import Settings
from benchmarks.suites import Problem, pointwise_cases, problems
from convx import _core
from convx.tune import compiler, generated

pytest.importorskip("tqdm")
H200 = _core.Device.known_device("h200")


def some(layers: int) -> list[Problem]:
    cases = pointwise_cases()[:layers]
    return list(problems(cases, ("forward",), ("float32",), ("nchw",), (1,), on_gpu=True))


def test_fixed_tilings_are_two_by_two_and_allowed_everywhere() -> None:
    work = some(6)
    fixed = Ablations(H200, work).fixed
    assert fixed["direct"].group_c == 1 < fixed["distributed"].group_c
    for tiling in fixed.values():
        assert (tiling.wave_n, tiling.repeat_w, tiling.repeat_c) == (4, 2, 2)
        for problem in work:
            assert _core.generator.is_allowed(ablations.core_problem(problem), H200, tiling)


def test_forms_are_told_apart_by_their_tilings(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        compiler.find(H200.backend)
    except compiler.CompilerMissing as error:
        pytest.skip(str(error))
    monkeypatch.setattr(generated, "_BEST", 2)  # to compile few
    work = some(6)
    problem, both = work[2], Ablations(H200, work)
    found = both.contenders(problem)
    assert set(found) == set(FORMS.values())
    for (distribution, choice), method in FORMS.items():
        for name in found[method]:
            assert name.startswith("pointwise/generated ")
            assert ("group_c=1 " in name) == (distribution == "direct")
            if choice == "fixed":
                assert both.fixed[distribution].describe().split(" block_n")[0] in name
        assert len(found[method]) == (1 if choice == "fixed" else 2)
    names = {plan.name for plan in _core.candidates("pointwise", ablations.core_problem(problem), H200)}
    assert {name for members in found.values() for name in members} <= names


def test_a_record_has_the_fastest_of_a_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, with kernels of its own in the generated ones' places."""
    (problem,) = some(1)
    forms = {FORMS["direct", "fixed"]: ["native"], FORMS["direct", "dynamic"]: ["native", "cuconv"]}
    measured: list[list[str]] = []

    def measure(problem: Problem, algorithms: list[str], settings: Settings, report: object) -> object:
        from benchmarks.convolution import Measured

        measured.append(algorithms)
        times = {"convx": 3.0, "native": 2.0, "cuconv": 1.0}
        return Measured(problem, settings, times, dict.fromkeys([*times, "torch"], 1e-7), {"torch": 4.0})

    monkeypatch.setattr(ablations, "measure_problem", measure)
    both = Ablations(H200, [problem])
    monkeypatch.setattr(both, "contenders", lambda _: forms)
    ceiling = {"copy_GBps": 1.0, "fma_fp32_TFLOPs": 1.0}
    settings = Settings(torch.device("cpu"), ceiling, (), "auto", False, 3, 0)
    records = list(run_ablations(problem, settings, both, print))
    assert measured == [[REFERENCE, "native", "cuconv"]]
    assert [(r["method"], r["convx_us"], r.get("plan")) for r in records] == [
        (REFERENCE, 3.0, None),
        (FORMS["direct", "fixed"], 2.0, "native"),
        (FORMS["direct", "dynamic"], 1.0, "cuconv"),
    ]
    assert all(record["chosen_by"] == "forced" for record in records)


def test_what_has_no_generated_kernels_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = ["--case", "P1", "--device", "cpu", "--quick", "--ablations", "--output", str(tmp_path)]
    for suite, reason in (("pointwise", "P1 can have none"), ("small_batch", "belongs to --suite pointwise")):
        with pytest.raises(SystemExit):
            main([*part, "--suite", suite])
        assert reason in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs CUDA's compiler")
def test_ablations_on_a_gpu(tmp_path: Path) -> None:
    part = ["--suite", "pointwise", "--case", "P24", "--batch", "1", "--ablations", "--quick"]
    assert main([*part, "--device", "cuda", "--output", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*/pointwise_ablations.json")
    assert all(method in path.read_text() for method in (REFERENCE, *FORMS.values()))
