"""The published forms as modules: which plans they are, and what the page says of tables 7 and 8."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from paper_records import everything, texts
from published_records import give_modules

from benchmarks import modules, published
from benchmarks.ablations import REUSE_FORMS
from benchmarks.environment import device_slug
from benchmarks.papers import depthwise_separable
from benchmarks.papers.measurements import machines
from benchmarks.papers.verdicts import in_short
from benchmarks.results import Results, load
from benchmarks.suites import Problem, depthwise_cases, pointwise_cases
from convx import _core
from convx.tune.turns import Compared

__all__ = ["everything"]  # a fixture

CPU = torch.device("cpu")
H200 = _core.Device.known_device("h200")
D1 = next(case for case in depthwise_cases() if case.name == "D1")
P1 = pointwise_cases()[0]


def problem(case: Any, batch: int = 1) -> Problem:
    return Problem(case, "forward", "float32", "nchw", batch)


def test_there_is_no_published_form_on_a_cpu() -> None:
    assert [published.fastest(problem(case), CPU) for case in (D1, P1)] == ["", ""]


def test_a_form_that_the_layer_has_not_is_not_timed_as_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "fastest", lambda *_: "depthwise/shared_rows lanes=32")
    with pytest.raises(RuntimeError, match=r"D7 b1: published would be torch's own: .*shared_rows"):
        modules.run("D7 b1", CPU, 2, ["forward"])


def test_rows_through_shared_memory_are_the_published_depthwise_form() -> None:
    names = published.plans(problem(D1), H200)
    assert names and all(name.startswith("depthwise/shared_rows ") for name in names)
    assert published.plans(problem(D1), H200, names[-1]) == names[-1:]
    assert published.plans(problem(D1), H200, "depthwise/shared_rows of older kernels") == names


def test_the_pipelines_kernels_are_the_published_pointwise_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the one that is known only that kernel is compiled."""
    offered: list[list[Any]] = []

    def offer(core: Any, device: Any, text: str, wanted: list[Any]) -> dict[str, Any]:
        offered.append(wanted)
        return {f"pointwise/generated {tiling.describe()} blocks=9 architecture=90": {} for tiling in wanted}

    monkeypatch.setattr(published.generated, "offer", offer)
    names = published.plans(problem(P1), H200)
    assert 1 < len(names) == len(offered[0]) <= 16
    for tiling in offered[0]:
        assert (
            tiling.stage_c == tiling.group_c
            and P1.shape.out_channels % (tiling.wave_c * tiling.repeat_c) == 0
        )
    assert published.plans(problem(P1), H200, names[3]) == names[3:4] and len(offered[1]) == 1
    other = "pointwise/generated wave_w=16 wave_c=999 wave_n=2"
    assert published.plans(problem(P1), H200, other) == names


def test_the_fastest_is_the_ablations_or_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = Results("depthwise", {}, "", {})
    fields = problem(D1).fields() | {"chosen_by": "forced", "plan": "b"}
    results.add(fields | {"method": REUSE_FORMS["shared_rows"]})
    results.add(fields | {"method": REUSE_FORMS["strip"], "plan": "c"})
    results.write(tmp_path / device_slug(CPU) / "depthwise_ablations.json")
    monkeypatch.setattr(published, "RESULTS", tmp_path)
    asked: list[str] = []
    monkeypatch.setattr(
        published, "plans", lambda _, device, known: asked.append(known) or ["a", known or "z"]
    )
    monkeypatch.setattr(
        published.measuring,
        "measured",
        lambda core, where, names, *_, **__: SimpleNamespace(algorithm=names[1]),
    )
    assert published.fastest(problem(D1), CPU) == "b" and published.fastest(problem(D1, 8), CPU) == "z"
    assert asked == ["b", ""]


def test_the_published_form_is_a_contender_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, with a plan of its own in the place."""
    monkeypatch.setattr(published, "fastest", lambda problem, device: "native")
    layers: list[Any] = []
    original = modules._call

    def call(kind: str, module: Any, x: torch.Tensor) -> Any:
        layers.append(module)
        return original(kind, module, x)

    def compared(calls: dict[str, Any], device: torch.device, rounds: int) -> Compared:
        first, *others = [each() for each in calls.values()]
        for result in others:
            torch.testing.assert_close(result, first)
        us = dict(zip(calls, (12.0, 4.0, 8.12345), strict=True))
        return Compared(us, {"convx": (0.3, 0.4)})

    monkeypatch.setattr(modules, "_call", call)
    monkeypatch.setattr(modules, "_compared", compared)
    (record,) = modules.run("D30 b2", CPU, 1, modules.KINDS["cpu"])
    assert [layer.algorithm for layer in layers[1:]] == ["auto", "native"]
    assert (record["published_us"], record["plan"], record["convx_us"]) == (8.123, "native", 4.0)
    assert record["peers_us"] == {"torch": 12.0}
    text = modules.table([record, record | {"case": "P1 b2", "group": "P1-45"}])
    assert "| D1-30 | 2 | forward | 12.0 | 4.0 | 3.00 | 3.00 | 0 of 1 | 8.1 | 1.48 |" in text
    older = {name: value for name, value in record.items() if name != "published_us"}
    assert "the paper's form" not in modules.table([older])
    assert "| - | - |" in modules.table([record, older | {"group": "P1-45"}])


def test_modules_of_the_published_form_are_judged_by_tables_7_and_8(everything: Path) -> None:
    before = texts(everything)["depthwise_separable"]
    missing = (
        "The published form as a module (table {}): not measured yet. `python -m benchmarks --suite modules`"
    )
    assert all(missing.format(number) in before for number in (7, 8))
    give_modules(everything, (1, 8))
    page = depthwise_separable.page(list(machines(everything)))
    # 3 us an image by torch, 1.73 and 2.92 in the paper; convx alone 0.875 and 1.75 times.
    assert "| 1 | 30 of 30 | 3.00 | 1.50 | 2.00 | 1.73 | 0.88 | 3.00 | 1.00 | 3.00 |" in page.text
    assert "| 8 | 45 of 45 | 24.0 | 12.0 | 2.00 | 1.33 |" in page.text
    line = "- `depthwise/shared_rows`, depthwise modules over torch's, batch 1: 2.00; the paper has 1.73: "
    assert f"{line}**reproduces**." in page.text
    line = "- `depthwise/shared_rows`, depthwise modules over torch's, batch 8: 2.00; the paper has 2.92: "
    assert f"{line}**weaker**. Why: torch's module takes 1/9.6 of its time in the paper, the " in page.text
    # Replays say nothing of tables 7 and 8 where modules do.
    assert "depthwise layers over torch's choice, batch 1:" not in page.text
    assert "depthwise layers over torch's choice, batch 16: 1.20; the paper has 3.70" in page.text
    assert "reproduces depthwise modules over torch's at batch 1 2.00 (1.73)" in in_short(page.text)
    (picture,) = (each for each in page.pictures if each.name == "depthwise-separable-test-gpu")
    series = picture.panels[2].series["published form over torch, alone"]
    assert series == [2.0, 2.0, None, None, None] and picture.panels[2].labels[1] == "batch 8"


def test_what_the_host_takes_is_a_reason(everything: Path) -> None:
    """Where replays of the same form take less than half of a module's call; and layers that a run did not
    come to are told."""
    give_modules(everything, (64,))
    path = everything / "test-gpu" / "modules.json"
    results = load(path)
    for record in results.records.values():
        if "published_us" in record and record["group"] == "P1-45":
            record["published_us"] *= 4
        if record["case"] == "P45 b64":
            del record["published_us"]
    results.write(path)
    text = texts(everything)["depthwise_separable"]
    line = "pointwise modules over torch's, 44 layers, batch 64, a loss as the paper's: 0.50"
    assert f"- `pointwise/generated`, {line}" in text
    assert "of a call's 384 us the kernel takes 2.50 by replays; the host's part" in text
    assert "| 64 | 44 of 45 |" in text
