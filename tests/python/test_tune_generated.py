"""Generated kernels as candidates, and as winners that come back with their records."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from typing import Any

import pytest
from tuned import CPU, depthwise, own_folder

from convx import _core, _planning
from convx.tune import compiler, generated, kernels, measuring, profiler, records
from convx.tune import tuning as tuning_module

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


def pointwise(in_channels: int) -> _core.Problem:
    sizes = {"batch": 2, "in_channels": in_channels, "out_channels": 24, "in_height": 9, "in_width": 9}
    fields: dict[str, Any] = {**sizes, "filter_height": 1, "filter_width": 1}
    return _core.Problem(**fields)


def generated_record(
    monkeypatch: pytest.MonkeyPatch, in_channels: int
) -> tuple[records.Record, dict[str, dict[str, Any]]]:
    """A record whose winner was generated, and all that were offered."""
    monkeypatch.setattr(compiler, "find", lambda backend: Compiles())
    device = _core.Device.known_device("h200")
    problem = pointwise(in_channels)
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


@pytest.mark.filterwarnings("ignore:convx.tune leaves out")
def test_only_the_kernels_of_the_call_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others of the process, made for an earlier call, would win without being in the record."""

    def generated_ones_win(problem: Any, plans: list[str], *rest: Any) -> dict[str, profiler.Timing]:
        seen.append(sum("generated" in plan for plan in plans))
        return {plan: profiler.Timing([1.0 if "generated" in plan else 5.0]) for plan in plans}

    seen: list[int] = []
    monkeypatch.setattr(compiler, "find", lambda backend: Compiles())
    monkeypatch.setattr(_planning, "device", lambda where: _core.Device.known_device("h200"))
    monkeypatch.setattr(measuring, "_timings", generated_ones_win)
    problem = pointwise(in_channels=37)
    assert "generated" in tuning_module.tune_problem(problem, CPU).winner
    assert "generated" not in tuning_module.tune_problem(problem, CPU, force=True, generate=False).winner
    monkeypatch.setattr(generated, "_BEST", 1)
    assert "generated" in tuning_module.tune_problem(problem, CPU, force=True).winner
    assert seen[0] > seen[2] > seen[1] == 0
    kept = records.find(problem, _core.Device.known_device("h200"))
    assert kept is not None and kept.kernel is not None


@pytest.mark.filterwarnings("ignore:convx.tune leaves out")
def test_tuning_goes_on_where_there_is_room_for_no_more_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def has_room_for_one(kernel: dict[str, Any], *rest: Any) -> None:
        if remembered:
            raise ValueError("there are 1 generated kernels already")
        remembered.append(kernel)
        remember(kernel, *rest)

    remembered: list[dict[str, Any]] = []
    remember = generated.remember
    monkeypatch.setattr(compiler, "find", lambda backend: Compiles())
    monkeypatch.setattr(generated, "remember", has_room_for_one)
    problem, device = pointwise(in_channels=38), _core.Device.known_device("h200")
    text = records.fields_text(records.problem_fields(problem))
    with pytest.warns(RuntimeWarning, match="there are 1 generated kernels already") as seen:
        assert list(generated.offer(problem, device, text).values()) == remembered
        assert not generated.offer(pointwise(in_channels=39), device, text)
    assert len(seen) == 1


def test_what_others_write_is_not_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.folder().mkdir(parents=True)
    part = kernels.folder() / ".another.part"
    part.write_bytes(bytes(1000))
    monkeypatch.setattr(kernels, "MOST_BYTES", 500)
    assert kernels.write("abc", b"an image")
    assert part.exists() and kernels.read("abc") == b"an image"


def test_a_pipe_is_no_kernel() -> None:
    kernels.folder().mkdir(parents=True)
    os.mkfifo(kernels.folder() / "abc.bin")
    assert kernels.read("abc") is None


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
        remember_kernel(text, b"")
    tiling = dict.fromkeys(("wave_w", "wave_c", "wave_n", "repeat_w", "repeat_c", "block_n", "group_c"), 1)
    rest = records.fields_text({**tiling, "stage_c": 1, "architecture": 90, "name": "k", "colour": "red"})
    with pytest.raises(ValueError, match="no field is called 'colour'"):
        remember_kernel(text + "\n" + rest, b"")
