"""Channel distribution and dynamic tiling, on and off: what the benchmarks time as which."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import ablations
from benchmarks.__main__ import main
from benchmarks.ablations import (
    CPU_FORMS,
    EXACT_FORMS,
    FORMS,
    PUBLISHED,
    REFERENCE,
    REUSE_FORMS,
    CpuAblations,
    GeneratedAblations,
    ReuseAblations,
    favourite,
    run_ablations,
)
from benchmarks.convolution import Settings
from benchmarks.planner import Planner
from benchmarks.suites import Problem, depthwise_cases, pointwise_cases, problems
from convx import _core
from convx.tune import compiler, generated

pytest.importorskip("tqdm")
H200 = _core.Device.known_device("h200")
CPU = Planner(torch.device("cpu")).device


def some(layers: int) -> list[Problem]:
    cases = pointwise_cases()[:layers]
    return list(problems(cases, ("forward",), ("float32",), ("nchw",), (1,), on_gpu=True))


def test_fixed_tilings_are_two_by_two_and_allowed_everywhere() -> None:
    work = some(6)
    forms = GeneratedAblations(H200, work)
    fixed = forms.fixed(work[0])
    assert all(forms.fixed(problem) == fixed for problem in work)
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
    problem, both = work[2], GeneratedAblations(H200, work)
    found = both.contenders(problem)
    # 24 filters are not divided by the 32 lanes of the direct form.
    exact = {EXACT_FORMS["distributed", choice] for choice in ("fixed", "dynamic")}
    assert set(found) == {*FORMS.values(), PUBLISHED, *exact}
    published = found[PUBLISHED]
    assert len(published) == (2 if all("group_c=1 " not in name for name in published) else 4)
    for name in published:  # whole tiles of 56x56 pixels and 24 filters, and buffers of Group_C channels
        tiling = {part: int(size) for part, size in (each.split("=") for each in name.split()[1:])}
        assert tiling["stage_c"] == tiling["group_c"]
        assert 56 * 56 % (tiling["wave_w"] * tiling["repeat_w"]) == 0
        assert 24 % (tiling["wave_c"] * tiling["repeat_c"]) == 0
    for (distribution, choice), method in FORMS.items():
        for name in found[method]:
            assert name.startswith("pointwise/generated ")
            assert ("group_c=1 " in name) == (distribution == "direct")
            if choice == "fixed":
                assert both.fixed(problem)[distribution].describe().split(" block_n")[0] in name
        assert len(found[method]) == (1 if choice == "fixed" else 2)
    names = {plan.name for plan in _core.candidates("pointwise", ablations.core_problem(problem), H200)}
    assert {name for members in found.values() for name in members} <= names


def offered(core: object, device: object, text: str, wanted: list[Any]) -> dict[str, dict[str, int]]:
    """As if each had been compiled."""
    assert len({generated.kernel_of(tiling) for tiling in wanted}) == len(wanted)
    return {
        f"pointwise/generated {tiling.describe()}": {
            size: getattr(tiling, size) for size in (*generated.SIZES, "block_n")
        }
        for tiling in wanted
    }


def sizes(name: str) -> dict[str, int]:
    return {key: int(size) for key, size in (part.split("=") for part in name.split()[1:])}


def test_the_papers_own_tilings_are_ablated_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without dynamic tiling, with and without channel distribution."""
    monkeypatch.setattr(generated, "offer", offered)
    cases = [case for case in pointwise_cases() if case.name in ("P2", "P4", "P7", "P24", "P44", "P45")]
    work = list(problems(cases, ("forward",), ("float32",), ("nchw",), (16, 32), on_gpu=True))
    forms = GeneratedAblations(H200, work)
    for problem in work:
        found, shape = forms.contenders(problem), problem.shape
        published = set(found[PUBLISHED])
        dynamic = [found.get(EXACT_FORMS[kind, "dynamic"], []) for kind in ("direct", "distributed")]
        assert published == set(dynamic[0]) | set(dynamic[1])
        for (kind, choice), form in EXACT_FORMS.items():
            for name in found.get(form, []):
                tiling = sizes(name)
                assert tiling["stage_c"] == tiling["group_c"] and (tiling["group_c"] == 1) == (
                    kind == "direct"
                )
                assert shape.size**2 % (tiling["wave_w"] * tiling["repeat_w"]) == 0
                assert shape.out_channels % (tiling["wave_c"] * tiling["repeat_c"]) == 0
                assert shape.in_channels % tiling["group_c"] == 0
                assert choice == "dynamic" or (tiling["repeat_w"], tiling["repeat_c"]) == (2, 2)
            if choice == "fixed":
                # None of 7x7 pixels, which are odd.
                assert len(found.get(form, [])) <= (0 if shape.size == 7 else 1)
    by_layer = [forms.fixed(problem, exact=True) for problem in work if problem.case.name in ("P4", "P7")]
    assert all("distributed" in each for each in by_layer)


def test_fixed_tilings_are_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever batches a run has."""
    cases = pointwise_cases()[:3]
    both = list(problems(cases, ("forward",), ("float32",), ("nchw",), (1, 64), on_gpu=True))
    alone = [problem for problem in both if problem.batch == 64]
    for exact in (False, True):
        found = GeneratedAblations(H200, both).fixed(alone[0], exact)
        assert found == GeneratedAblations(H200, alone).fixed(alone[0], exact)


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
    both = GeneratedAblations(H200, [problem])
    monkeypatch.setattr(both, "contenders", lambda _: forms)
    ceiling = {"copy_GBps": 1.0, "fma_fp32_TFLOPs": 1.0}
    settings = Settings(torch.device("cpu"), ceiling, (), "auto", False, 3, 0, False)
    records = list(run_ablations(problem, settings, both, print))
    assert measured == [[REFERENCE, "native", "cuconv"]]
    assert [(r["method"], r["convx_us"], r.get("plan")) for r in records] == [
        (REFERENCE, 3.0, None),
        (FORMS["direct", "fixed"], 2.0, "native"),
        (FORMS["direct", "dynamic"], 1.0, "cuconv"),
    ]
    assert all(record["chosen_by"] == "forced" for record in records)


def plan(candidate: str, wave_w: int, block: int) -> SimpleNamespace:
    tiling = {"wave_w": wave_w, "wave_c": 4, "repeat_w": block}
    return SimpleNamespace(candidate=candidate, tiling=tiling, name=f"{candidate} {wave_w} {block}")


def test_forms_on_a_cpu_are_its_register_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    work = some(3)
    plans = dict(
        zip(work, ([plan("a", 8, 1), plan("b", 4, 1)], [plan("b", 4, 2)], [plan("a", 8, 3)]), strict=True)
    )
    plans[work[2]].append(plan("b", 4, 3))
    monkeypatch.setattr(ablations, "plans_of", lambda method, problem, _: plans[problem])
    both = CpuAblations(None, work)
    assert both.contenders(work[0]) == {
        CPU_FORMS["fixed"]: ["b 4 1"],
        CPU_FORMS["dynamic"]: ["a 8 1", "b 4 1"],
    }
    assert both.contenders(work[2]) == {
        CPU_FORMS["fixed"]: ["b 4 3"],
        CPU_FORMS["dynamic"]: ["a 8 3", "b 4 3"],
    }
    plans[work[1]] = []
    with pytest.raises(ValueError, match="pointwise has no kernel for P2 on this device"):
        CpuAblations(None, work)


def test_forms_of_reuse_are_told_apart() -> None:
    cases = depthwise_cases()[:1]
    (problem,) = problems(cases, ("forward",), ("float32",), ("nchw",), None, on_gpu=True)
    found = ReuseAblations(H200, [problem]).contenders(problem)
    assert set(found) == set(REUSE_FORMS.values())
    assert [name.split()[0] for name in found[REUSE_FORMS["row_reuse"]]] == ["depthwise/row_reuse"]
    assert {name.split()[0] for name in found[REUSE_FORMS["strip"]]} == {"depthwise/strip"}
    (none,), (columns,) = found[REUSE_FORMS["no_reuse"]], found[REUSE_FORMS["column_reuse"]]
    assert none.startswith("depthwise/no_reuse ") and "rows=1 " in none
    same = ("threads", "rows", "columns", "segment")  # reuse is all in which they differ
    assert [part for part in none.split() if part.split("=")[0] in same] == [
        part for part in columns.split() if part.split("=")[0] in same
    ]


def test_the_favourite_has_the_best_places() -> None:
    assert favourite([["a", "b"], ["c", "b"], ["b", "a", "c"]]) == "b"
    assert favourite([["a", "a", "b"], ["b"]]) == "b" and favourite([]) == ""


def test_what_has_no_forms_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = ["--case", "P1", "--device", "cpu", "--quick", "--ablations", "--output", str(tmp_path)]
    with pytest.raises(SystemExit):
        main([*part, "--suite", "small_batch"])
    assert "--ablations belongs to the suites depthwise and pointwise" in capsys.readouterr().err
    (problem,) = problems(depthwise_cases()[:1], ("forward",), ("float32",), ("nchw",), (1,), on_gpu=True)
    with pytest.raises(ValueError, match="depthwise has no forms with and without reuse on this device"):
        ReuseAblations(CPU, [problem])
    with pytest.raises(ValueError, match="no kernel is generated for CONV1-3x3: the filter is 3x3"):
        GeneratedAblations(H200, [problem])


@pytest.mark.skipif(
    not ablations.plans_of("pointwise", some(1)[0], CPU), reason="no pointwise kernels on CPUs"
)
def test_ablations_on_a_cpu(tmp_path: Path) -> None:
    part = ["--suite", "pointwise", "--case", "P24,P25", "--batch", "1", "--ablations", "--quick"]
    assert main([*part, "--device", "cpu", "--output", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*/pointwise_ablations.json")
    assert all(method in path.read_text() for method in CPU_FORMS.values())


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs CUDA's compiler")
def test_ablations_on_a_gpu(tmp_path: Path) -> None:
    part = ["--suite", "pointwise", "--case", "P24", "--batch", "1", "--ablations", "--quick"]
    assert main([*part, "--device", "cuda", "--output", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*/pointwise_ablations.json")
    # 7x7 pixels and 160 filters: no fixed tiling by exact divisors.
    exact = [form for (_, choice), form in EXACT_FORMS.items() if choice == "dynamic"]
    text = path.read_text()
    assert all(f'"{method}"' in text for method in (REFERENCE, *FORMS.values(), PUBLISHED, *exact))
    assert not any(form in text for form in EXACT_FORMS.values() if form not in exact)
