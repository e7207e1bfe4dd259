"""convx.tune: profiling, records that nothing can break, and that the choice reaches dispatch."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import convx
from convx import _core, _planning
from convx.tune import compiler, folder, generated, kernels, profiler, records
from convx.tune import tuning as tuning_module
from convx.tune.cli import main as tune_command

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder for each test; what it has tuned is forgotten afterwards."""
    monkeypatch.setenv("CONVX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(folder, "_warned", set())
    yield tmp_path / "cache"
    records.forget()


def depthwise(**changes: Any) -> _core.Problem:
    fields = {"batch": 1, "in_channels": 8, "in_height": 10, "in_width": 12, "out_channels": 8, "groups": 8}
    return _core.Problem(**{**fields, "filter_height": 3, "filter_width": 3, **changes})


def here() -> Any:
    return _planning.device(CPU)


def record(
    problem: _core.Problem | None = None, algorithm: str = "native", us: float = 3.5
) -> records.Record:
    problem = depthwise() if problem is None else problem
    fields = records.problem_fields(problem)
    return records.Record(records.environment_of(here()), fields, algorithm, us, {algorithm: us})


def plans(problem: _core.Problem) -> list[str]:
    return [plan.name for row in _core.explain(problem, here()) for plan in row.plans]


class Samples:
    """A sampler whose contenders take known times, and which counts what is sampled."""

    def __init__(self, times: dict[str, list[float]]) -> None:
        self.times = {name: iter(values) for name, values in times.items()}
        self.counts = dict.fromkeys(times, 0)

    def contenders(self) -> dict[str, profiler.Call]:
        return {name: (lambda index, name=name: name) for name in self.times}

    def __call__(self, call: profiler.Call, sets: int, device: torch.device) -> Any:
        name = call(0)

        def timer() -> float:
            self.counts[name] += 1
            return next(self.times[name])

        return timer


def test_the_median_wins_and_losers_are_stopped_early() -> None:
    samples = Samples(
        {
            "spiky": [90.0, 10.0, 10.0, 95.0, 10.0],  # its median is the least
            "steady": [12.0] * 5,
            "near": [13.0] * 5,
            "far": [50.0] * 5,
            "hopeless": [1000.0] * 5,
        }
    )
    done: list[int] = []
    timings = profiler.profile(
        samples.contenders(), CPU, 1, rounds=5, advance=lambda: done.append(1), sampler=samples
    )
    assert profiler.fastest(timings) == "spiky"
    assert samples.counts == {"spiky": 5, "steady": 5, "near": 5, "far": 2, "hopeless": 1}
    assert {name for name, timing in timings.items() if timing.stopped} == {"far", "hopeless"}
    assert timings["near"].us == 13 and len(done) == 5


def test_native_must_be_ahead_by_two_percent() -> None:
    for native, winner in ((10.0, "native"), (10.15, "native"), (10.3, "depthwise/rows")):
        timings = {"native": profiler.Timing([native]), "depthwise/rows": profiler.Timing([10.4])}
        assert profiler.fastest(timings) == winner


def test_a_contender_that_fails_is_left_out() -> None:
    def fails(index: int) -> None:
        raise RuntimeError("no such kernel\nand more")

    timings = profiler.profile({"bad": fails, "good": lambda index: None}, CPU, 1, rounds=2)
    assert timings["bad"].failure == "RuntimeError: no such kernel"
    assert profiler.fastest(timings) == "good"
    assert profiler.fastest({"bad": timings["bad"]}) is None


def test_every_plan_is_an_algorithm() -> None:
    """A row of explain names its plan, tiling included, and runs."""
    x, w = torch.randn(2, 8, 10, 12, dtype=torch.float64), torch.randn(8, 1, 3, 3, dtype=torch.float64)
    expected = nn.functional.conv2d(x, w, groups=8)
    rows = [row for row in convx.explain(x, w, groups=8).rows if row.can_run]
    assert len({row.plan for row in rows}) == len(rows) > 1
    for row in rows:
        torch.testing.assert_close(convx.functional.conv2d(x, w, groups=8, algorithm=row.plan), expected)
    chosen = convx.explain(x, w, groups=8, algorithm=rows[0].plan).chosen
    assert chosen.plan == rows[0].plan
    with pytest.raises((RuntimeError, ValueError), match="has no such tiling"):
        convx.functional.conv2d(x, w, groups=8, algorithm=f"{rows[0].algorithm} rows=1234567")


def runs_native(x: torch.Tensor, w: torch.Tensor) -> bool:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        convx.functional.conv2d(x, w, groups=8)
    return any(event.key == "aten::convolution" for event in seen.key_averages())


def test_the_choice_reaches_dispatch_and_explain() -> None:
    x, w = torch.randn(1, 8, 10, 12), torch.randn(8, 1, 3, 3)
    names = [name for name in plans(depthwise()) if name.startswith("depthwise")]
    for algorithm in ("native", names[-1], "native"):
        records.remember(record(algorithm=algorithm, us=3.5))
        assert runs_native(x, w) == (algorithm == "native")
        explanation = convx.explain(x, w, groups=8)
        chosen = explanation.chosen
        assert (chosen.plan, chosen.predicted_us, chosen.source) == (algorithm, 3.5, "tuned")
        assert "convx.tune measured" in explanation.why
        assert sum(row.source == "tuned" for row in explanation.rows) == 1
    assert convx.explain(x, w, groups=8, algorithm="depthwise").chosen.method == "depthwise"
    assert convx.explain(x[:, :, :9], w, groups=8).chosen.source != "tuned"
    records.forget()
    assert not runs_native(x, w)
    assert convx.explain(x, w, groups=8).chosen.source != "tuned"


def test_layers_follow_a_choice_made_after_their_first_call() -> None:
    layer = convx.nn.Conv2d(8, 8, 3, groups=8)
    x = torch.randn(1, 8, 10, 12)
    with torch.no_grad():
        before = layer(x)
        for name in plans(depthwise(bias=True)):
            records.remember(record(depthwise(bias=True), name))
            torch.testing.assert_close(layer(x), before)


def test_a_choice_that_no_longer_exists_is_passed_over() -> None:
    x, w = torch.randn(1, 8, 10, 12), torch.randn(8, 1, 3, 3)
    for algorithm in ("depthwise/gone rows=4", "vanished", "depthwise"):
        records.remember(record(algorithm=algorithm))
        assert convx.explain(x, w, groups=8).chosen.source != "tuned"
        assert not runs_native(x, w)


def test_other_devices_are_not_affected() -> None:
    records.remember(record(algorithm="native"))
    device = _core.Device.known_device("h200")
    assert _core.select(depthwise(), device).plan.source != "tuned"
    assert _core.tuning_key(device) == "NVIDIA H200"
    assert _core.tuning_key(_core.Device.host_cpu(3)).endswith("threads=3")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("us = 3.5\nus = 4", "'us' is given twice"),
        ("us = fast", "'us' takes 1 numbers, got 'fast'"),
        ("us = -1", "us must be above 0"),
        ("us = nan", "us"),
        ("us = 3\ncolour = red", "no field is called 'colour'"),
        ("us = 3\nnonsense", "no '=' in the line 'nonsense'"),
        ("", "'us' is missing"),
    ],
)
def test_records_in_text_are_checked(line: str, message: str) -> None:
    text = "\n".join(each for each in records._text(record()).splitlines() if not each.startswith("us "))
    with pytest.raises(ValueError, match=message):
        _core.remember_tuned(f"{text}\n{line}")
    with pytest.raises((ValueError, RuntimeError), match=message):
        torch.ops.convx.remember_tuned_cpu(f"{text}\n{line}")
    assert _core.select(depthwise(), here()).plan.source != "tuned"


def test_a_record_is_found_again() -> None:
    problem = depthwise(stride=(2, 1), padding=(1, 2, 0, 1), bias=True, activation="relu6")
    written = record(problem, plans(problem)[0])
    assert records.find(problem, here()) is None
    assert records.save(written)
    assert records.find(problem, here()) == written
    assert records.find(depthwise(), here()) is None
    assert records.load() == 1
    assert _core.select(problem, here()).plan.source == "tuned"


def damage(path: Path, kind: str) -> None:
    data = json.loads(path.read_text())
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "cut":
        path.write_text(path.read_text()[:100])
    elif kind == "binary":
        path.write_bytes(bytes(range(256)))
    elif kind == "huge":
        path.write_bytes(b" " * (2 << 20))
    elif kind == "a list":
        path.write_text("[1, 2]")
    elif kind == "another format":
        path.write_text(json.dumps({**data, "format": "other"}))
    elif kind == "a field too many":
        path.write_text(json.dumps({**data, "extra": 1}))
    elif kind == "no time":
        path.write_text(json.dumps({**data, "us": None}))
    elif kind == "a negative time":
        path.write_text(json.dumps({**data, "us": -3}))
    elif kind == "no channels":
        del data["problem"]["in_channels"]
        path.write_text(json.dumps(data))
    elif kind == "no kernel":
        path.write_text(json.dumps({**data, "kernel": 3}))
    elif kind == "another name":
        path.rename(path.with_name("0" * 32 + ".json"))
    elif kind == "a folder":
        path.unlink()
        path.mkdir()


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


DAMAGES = ("empty", "cut", "binary", "huge", "a list", "another format", "a field too many", "no time")
DAMAGES += ("no kernel", "a negative time", "no channels", "another name", "a folder")


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_records_warn_once_and_are_written_anew(kind: str) -> None:
    good, bad = record(depthwise(batch=2)), record()
    assert records.save(good) and records.save(bad)
    damage(bad.path, kind)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert records.load() == 1
        assert records.load() == 1
        assert records.find(depthwise(), here()) is None
    assert len(seen) == 1 and "passes over the tuning record" in str(seen[0].message)
    if kind != "a folder":
        assert records.save(bad)
        assert records.find(depthwise(), here()) == bad


@pytest.mark.parametrize("key", ["convx", "torch", "gpu_runtime", "deterministic", "processor"])
def test_foreign_records_are_passed_over(key: str) -> None:
    mine = record()
    foreign = replace(mine, environment={**mine.environment, key: "another"})
    assert records.save(foreign)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert records.load() == 0
        assert records.find(depthwise(), here()) is None
    assert records.save(mine)
    assert records.load() == 1


def test_a_folder_that_cannot_be_written_warns_once(own_folder: Path) -> None:
    own_folder.write_text("a file where the folder should be")
    with pytest.warns(RuntimeWarning, match="CONVX_CACHE_DIR names another folder") as seen:
        assert not records.save(record())
        assert not records.save(record())
    assert len(seen) == 1
    assert records.load() == 0
    report = convx.tune(nn.Conv2d(8, 8, 3, groups=8), torch.randn(1, 8, 9, 9), rounds=1, progress=False)
    assert report.rows[0].is_new


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(own_folder: Path) -> None:
    assert records.save(record())
    records.folder().chmod(0o500)
    try:
        with pytest.warns(RuntimeWarning, match="can't write"):
            assert not records.save(record(depthwise(batch=3)))
        assert records.load() == 1
    finally:
        records.folder().chmod(0o700)


def test_writers_at_the_same_time_lose_nothing(own_folder: Path) -> None:
    """Threads write the same and different records over each other while others read."""
    failures: list[BaseException] = []

    def write(worker: int) -> None:
        try:
            for step in range(20):
                assert records.save(record(depthwise(batch=1 + step), us=1.0 + worker))
                found = records.find(depthwise(batch=1 + step), here())
                assert found is not None and found.us in (1.0, 2.0, 3.0, 4.0)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert records.load() == 20
    assert len(list(records.folder().iterdir())) == 20  # nothing half-written is left


def test_dispatch_while_choices_change() -> None:
    """Calls go on, with right results, while another thread tunes."""
    x, w = torch.randn(1, 8, 10, 12), torch.randn(8, 1, 3, 3)
    expected = nn.functional.conv2d(x, w, groups=8)
    names = plans(depthwise())
    stop = threading.Event()

    def tune() -> None:
        while not stop.is_set():
            for name in names:
                records.remember(record(algorithm=name))

    thread = threading.Thread(target=tune)
    thread.start()
    try:
        for _ in range(300):
            torch.testing.assert_close(convx.functional.conv2d(x, w, groups=8), expected)
    finally:
        stop.set()
        thread.join()


def model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 8, 1),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect", groups=8),
        nn.Flatten(2),
        nn.Conv1d(8, 8, 5, groups=8, bias=False),
    )


def test_tune_is_resumable(monkeypatch: pytest.MonkeyPatch) -> None:
    image = torch.randn(1, 4, 9, 9)
    first = tuning_module._measure
    calls: list[str] = []

    def stops(problem: Any, *rest: Any) -> Any:
        calls.append(problem.describe())
        if len(calls) == 2:
            raise KeyboardInterrupt
        return first(problem, *rest)

    monkeypatch.setattr(tuning_module, "_measure", stops)
    with pytest.raises(KeyboardInterrupt):
        convx.tune(model(), image, rounds=2, progress=False)
    report = convx.tune(model(), image, rounds=2, progress=False)
    assert [row.is_new for row in report.rows] == [False, True, True, True]
    assert [row.layers for row in report.rows] == ["0", "1, 2", "3", "5"]
    assert len(set(calls)) == 4
    again = convx.tune(model(), image, rounds=2, progress=False)
    assert not any(row.is_new for row in again.rows)
    forced = convx.tune(model(), image, rounds=2, progress=False, force=True)
    assert all(row.is_new for row in forced.rows)
    assert "4 problems, 4 measured now" in str(forced) and "1 and 1 more" in str(forced)


def test_tune_takes_the_fastest_of_every_plan() -> None:
    report = convx.tune(
        model(), torch.randn(1, 4, 9, 9), operations=("forward", "weight_grad"), rounds=2, progress=False
    )
    assert len(report.rows) == 8
    for row in report.rows:
        assert row.winner in row.candidates and row.before in row.candidates
        assert row.us == row.candidates[row.winner] > 0
        assert row.before_us == row.candidates[row.before]
    assert all("native" in row.candidates for row in report.rows)
    # The layers, once converted, take what was measured.
    network = model()
    image = torch.randn(1, 4, 9, 9)
    expected = network(image)
    taken = convx.convert_(network, example_input=image)
    torch.testing.assert_close(network(image), expected, rtol=1e-4, atol=1e-5)
    winners = {
        row.layers: row.winner.split(" ")[0] for row in report.rows if row.problem.startswith("forward")
    }
    assert {row.name: row.method for row in taken.converted}["1"] == winners["1, 2"]


def test_the_table_tells_plans_of_one_name_apart_by_what_differs() -> None:
    def row(winner: str, before: str) -> tuning_module.TunedProblem:
        return tuning_module.TunedProblem("0", "forward", before, 20.0, winner, 10.0, {}, True)

    tile, other = (f"pointwise/pixels wave_w={pixels} wave_c=8 lanes=16" for pixels in (16, 48))
    report = tuning_module.TuningReport((row(tile, other), row(tile, "native"), row(tile, tile)))
    first, second, third, *_ = str(report).splitlines()[1:]
    assert "pointwise/pixels wave_w=16 " in first and "pointwise/pixels wave_w=48 " in first
    assert "wave_c" not in first and "wave_" not in second + third


def test_records_are_read_by_the_next_process(own_folder: Path) -> None:
    damaged = record(depthwise(batch=2))
    assert records.save(record(algorithm="native")) and records.save(damaged)
    damage(damaged.path, "cut")
    code = (
        "import torch, convx\n"
        f"torch.set_num_threads({torch.get_num_threads()})\n"
        "x, w = torch.randn(1, 8, 10, 12), torch.randn(8, 1, 3, 3)\n"
        "print(convx.explain(x, w, groups=8).chosen.source)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(convx.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["tuned"], done.stderr
    assert done.stderr.count("RuntimeWarning") == 1


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert folder.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("CONVX_CACHE_DIR")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folder.cache_folder() == tmp_path / "xdg" / "convx"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert folder.cache_folder() == Path.home() / ".cache" / "convx"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"layer_or_model": "resnet18"}, TypeError, "must be a torch.nn.Module, got str"),
        ({"layer_or_model": nn.Linear(2, 2)}, ValueError, "reaches no Conv1d or Conv2d"),
        ({"operations": ("backward",)}, ValueError, "forward, input_grad, weight_grad, got 'backward'"),
        ({"rounds": 0}, ValueError, "rounds must be at least 1, got 0"),
    ],
)
def test_bad_input(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    example = (
        torch.randn(3, 2)
        if isinstance(arguments.get("layer_or_model"), nn.Linear)
        else torch.randn(1, 4, 5, 5)
    )
    options = {"layer_or_model": model(), "example_input": example, "progress": False, **arguments}
    with pytest.raises(error, match=message):
        convx.tune(**options)


def test_tune_needs_no_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str, *rest: Any, real: Any = builtins.__import__) -> Any:
        if name == "tqdm":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", fails)
    report = convx.tune(nn.Conv2d(8, 8, 3, groups=8), torch.randn(1, 8, 9, 9), rounds=1)
    assert report.rows[0].is_new


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_networks.py").write_text(
        "from torch import nn\n"
        "def small(): return nn.Sequential(nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 3, groups=6))\n"
        "def wrong(): return 5\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ["my_networks:small", "--size", "10", "--device", "cpu", "--rounds", "1", "--quiet"]
    assert tune_command([*arguments, "--training", "--channels-last"]) == 0
    assert "6 problems, 6 measured now" in capsys.readouterr().out
    assert tune_command([*arguments, "--channels-last"]) == 0
    assert "2 problems, 0 measured now" in capsys.readouterr().out
    from convx.__main__ import main

    assert main(["tune", *arguments]) == 0
    for wrong in (
        ["my_networks:wrong"],
        ["my_networks:none"],
        ["no_such_network"],
        [*arguments, "--batch", "0"],
    ):
        with pytest.raises(SystemExit):
            tune_command(wrong)
    errors = capsys.readouterr().err
    assert "makes a int" in errors and "no model 'no_such_network'" in errors and "--batch must be" in errors


@pytest.mark.gpu
def test_tune_on_a_gpu() -> None:
    layer = convx.nn.Conv2d(32, 32, 3, padding=1, groups=32, device="cuda")
    image = torch.randn(4, 32, 28, 28, device="cuda")
    (row,) = convx.tune(layer, image, progress=False).rows
    chosen = convx.explain(layer, image).chosen
    assert (chosen.plan, chosen.source) == (row.winner, "tuned")
    with torch.no_grad():
        expected = nn.functional.conv2d(image, layer.weight, layer.bias, padding=1, groups=32)
        torch.testing.assert_close(layer(image), expected, rtol=1e-3, atol=1e-3)
