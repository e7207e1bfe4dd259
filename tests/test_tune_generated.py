"""Generated kernels as candidates, and as winners that come back with their records."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
from tuned import depthwise, own_folder

from convx import _core
from convx.tune import compiler, generated, kernels, records

__all__ = ["own_folder"]


class Compiles:
    """A run-time compiler that makes up binaries."""

    kind, version = "nvrtc", "1.0"

    def options(self, target: str) -> list[str]:
        return [target]

    def compile(self, text: str, target: str) -> bytes:
        if "group_c=2 " in text:
            raise compiler.CompileError("no such luck")
        return f"binary of {text}".encode()


def generated_record(
    monkeypatch: pytest.MonkeyPatch, in_channels: int
) -> tuple[records.Record, dict[str, dict[str, Any]]]:
    """A record whose winner was generated, and all that were offered."""
    monkeypatch.setattr(compiler, "find", lambda backend: Compiles())
    device = _core.Device.known_device("h200")
    fields = {"batch": 2, "in_channels": in_channels, "out_channels": 24, "in_height": 9, "in_width": 9}
    problem = _core.Problem(**fields, filter_height=1, filter_width=1)
    text = records.fields_text(records.problem_fields(problem))
    offered = generated.offer(problem, device, text)
    winner = list(offered)[-1]
    environment = records.environment_of(device)
    problem_fields = records.problem_fields(problem)
    return records.Record(environment, problem_fields, winner, 2.5, {winner: 2.5}, offered[winner]), offered


@pytest.mark.filterwarnings("ignore:convx.tune leaves out")
def test_generated_kernels_become_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned, offered = generated_record(monkeypatch, in_channels=35)
    device = _core.Device.known_device("h200")
    problem = _core.Problem(**tuned.problem)
    kinds = {kernel["group_c"] > 1 for kernel in offered.values()}
    assert kinds == {False, True} and len({kernel["key"] for kernel in offered.values()}) == len(offered)
    assert not any(kernel["group_c"] == 2 for kernel in offered.values())
    rows = {plan.name: plan for row in _core.explain(problem, device) for plan in row.plans}
    assert set(offered) == {name for name in rows if name.startswith("pointwise/generated")}
    plan = _core.select(problem, device, tuned.algorithm).plan
    assert plan.name == tuned.algorithm and plan.tiling["architecture"] == 90 and plan.tiling["lanes"] == 32
    assert plan.tiling["blocks"] <= 132 * plan.tiling["block_n"]
    assert _core.select(problem, device).plan.source != "tuned"
    records.remember(tuned)
    assert _core.select(problem, device).plan.name == tuned.algorithm
    assert _core.select(problem, device).plan.source == "tuned"
    alone = _core.Problem(**tuned.problem, packs_each_call=True)  # as the operator is called without a layer
    assert _core.select(alone, device, tuned.algorithm).plan.name == tuned.algorithm
    assert _core.select(alone, device).plan.source == "tuned"
    other = _core.Problem(**{**tuned.problem, "batch": 3})
    assert not any("generated" in plan.name for row in _core.explain(other, device) for plan in row.plans)
    a100 = _core.Device.known_device("a100")
    assert not any("generated" in plan.name for row in _core.explain(problem, a100) for plan in row.plans)


@pytest.mark.filterwarnings("ignore:convx.tune leaves out")
def test_a_generated_winner_comes_back_with_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned, _ = generated_record(monkeypatch, in_channels=36)
    device = _core.Device.known_device("h200")
    problem = _core.Problem(**tuned.problem)
    assert records.save(tuned)
    assert records.find(problem, device) == tuned
    assert records.load() == 1
    assert _core.select(problem, device).plan.name == tuned.algorithm
    records.forget()
    assert tuned.kernel is not None
    (kernels.folder() / f"{tuned.kernel['key']}.bin").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an evicted kernel is no damage
        assert records.load() == 0
    assert not records.restore(tuned)
    assert not records.restore(replace(tuned, kernel={**tuned.kernel, "key": "../records/x"}))
    assert _core.select(problem, device).plan.source != "tuned"


def test_nothing_is_generated_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(backend: str) -> None:
        raise compiler.CompilerMissing("no nvrtc found")

    monkeypatch.setattr(compiler, "find", missing)
    device = _core.Device.known_device("h200")
    problem = _core.Problem(
        batch=1, in_channels=8, out_channels=8, in_height=5, in_width=5, filter_height=1, filter_width=1
    )
    text = records.fields_text(records.problem_fields(problem))
    with pytest.warns(RuntimeWarning, match="no nvrtc found") as seen:
        assert generated.offer(problem, device, text) == generated.offer(problem, device, text) == {}
    assert len(seen) == 1
    assert generated.offer(depthwise(), device, text) == {}


def test_generated_kernels_are_told_apart_from_broken_records() -> None:
    remember_kernel = _core.generator.remember_kernel
    text = records.fields_text(records.problem_fields(depthwise()))
    with pytest.raises(ValueError, match="'wave_w' is missing"):
        remember_kernel(text)
    tiling = dict.fromkeys(("wave_w", "wave_c", "wave_n", "repeat_w", "repeat_c", "block_n", "group_c"), 1)
    rest = records.fields_text({**tiling, "stage_c": 1, "architecture": 90, "name": "k", "colour": "red"})
    with pytest.raises(ValueError, match="no field is called 'colour'"):
        remember_kernel(text + "\n" + rest)
