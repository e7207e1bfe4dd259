"""convx.tune: profiling, that the choice reaches dispatch."""

from __future__ import annotations

import builtins
import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from tuned import CPU, depthwise, here, own_folder, plans, record

import convx
from convx import _core
from convx.tune import measuring, profiler, records
from convx.tune import tuning as tuning_module
from convx.tune.replays import Call

__all__ = ["own_folder"]


class Samples:
    """A sampler whose contenders take known times, and which counts what is sampled."""

    def __init__(self, times: dict[str, list[float]]) -> None:
        self.times = {name: iter(values) for name, values in times.items()}
        self.counts = dict.fromkeys(times, 0)

    def contenders(self) -> dict[str, Call]:
        return {name: (lambda index, name=name: name) for name in self.times}

    def __call__(self, call: Call) -> Any:
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


def test_times_below_zero_have_a_winner_too() -> None:
    """As they are in a network whose other kernel was timed while another process had the GPU."""
    samples = Samples({"last": [-20.0] * 5, "first": [-31.0, -29.0, -30.0, -30.0, -30.0]})
    timings = profiler.profile(samples.contenders(), CPU, 1, rounds=5, sampler=samples)
    assert profiler.fastest(timings) == "first" and not timings["first"].stopped


def test_native_is_kept_within_two_percent() -> None:
    for native, winner in ((10.0, "native"), (10.5, "native"), (10.7, "depthwise/rows")):
        timings = {"native": profiler.Timing([native]), "depthwise/rows": profiler.Timing([10.4])}
        assert profiler.fastest(timings) == winner
        assert profiler.fastest(timings, native_is=1.2) == "depthwise/rows"
    timings = {"native": profiler.Timing([8.7]), "depthwise/rows": profiler.Timing([10.4])}
    assert profiler.fastest(timings, native_is=1.2) == "native"


def test_a_contender_that_fails_is_left_out() -> None:
    def fails(index: int) -> None:
        raise RuntimeError("no such kernel\nand more")

    timings = profiler.profile({"bad": fails, "good": lambda index: None}, CPU, 1, rounds=2)
    assert timings["bad"].failure == "RuntimeError: no such kernel"
    assert profiler.fastest(timings) == "good"
    assert profiler.fastest({"bad": timings["bad"]}) is None


class Clock:
    """Time that passes in calls alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, durations_us: Iterator[float]) -> None:
        self.us, self.durations = 0.0, durations_us
        self.indices: list[int] = []
        monkeypatch.setattr(time, "perf_counter", lambda: self.us / 1e6)

    def call(self, index: int) -> None:
        self.indices.append(index)
        self.us += next(self.durations)


def test_slow_calls_go_round_all_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, itertools.repeat(3000.0))  # one is a sample by itself
    profiler.profile({"slow": clock.call}, CPU, sets=5, rounds=7)
    assert clock.indices == [index % 5 for index in range(len(clock.indices))]
    assert len(clock.indices) >= 7


def test_one_interrupted_call_does_not_make_samples_short(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, itertools.chain([100.0, 20000.0], itertools.repeat(100.0)))
    timings = profiler.profile({"quick": clock.call}, CPU, sets=3, rounds=2)
    assert timings["quick"].us == pytest.approx(100)
    assert len(clock.indices) > 2 * 20  # 2 ms a sample


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
        chosen = convx.explain(x, w, groups=8).chosen
        assert chosen.source != "tuned"
        assert runs_native(x, w) == (chosen.algorithm == "native")


def test_other_devices_are_not_affected() -> None:
    records.remember(record(algorithm="native"))
    device = _core.Device.known_device("h200")
    assert _core.select(depthwise(), device).plan.source != "tuned"
    assert _core.tuning_key(device) == "NVIDIA H200"
    assert _core.tuning_key(_core.Device.host_cpu(3)).endswith("threads=3")


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
    first = measuring._timings
    calls: list[str] = []

    def stops(problem: Any, *rest: Any) -> Any:
        calls.append(problem.describe())
        if len(calls) == 2:
            raise KeyboardInterrupt
        return first(problem, *rest)

    monkeypatch.setattr(measuring, "_timings", stops)
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


@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
@pytest.mark.parametrize("filter", [3, 7])
def test_likely_plans_are_autos_and_the_best_of_each_kernel(layout: str, filter: int) -> None:
    device = _core.Device.known_device("h200")
    sizes: dict[str, Any] = {"dtype": "bfloat16", "layout": layout}
    sizes |= {"in_channels": 96, "out_channels": 96, "groups": 96}
    sizes |= {"batch": 8, "in_height": 56, "in_width": 56, "padding": [filter // 2] * 4}
    problem = depthwise(**sizes, filter_height=filter, filter_width=filter)
    offered = [plan for row in _core.explain(problem, device) for plan in row.plans]
    every, few = (measuring.plans_of(problem, device, most) for most in (None, 4))
    assert set(every) == {plan.name for plan in offered if not plan.by_name_only}
    assert few[0] == "native" and measuring.predicted(problem, device) in few[:2]
    assert len(few) == len(set(few)) == 5 and set(few) <= set(every)
    offered.sort(key=lambda plan: plan.predicted_us)
    near = [plan for plan in offered if plan.predicted_us < 3 * offered[0].predicted_us]
    kernels = {plan.candidate for plan in near if plan.name in every and plan.method != "native"}
    assert len(kernels) > 1 and kernels <= {name.split()[0].partition("/")[2] for name in few}


def test_autocast_decides_which_problem_is_tuned() -> None:
    layer, image = nn.Conv2d(8, 8, 3, groups=8, bias=False), torch.randn(1, 8, 10, 12)
    low = depthwise(dtype="bfloat16")
    with torch.autocast("cpu", torch.bfloat16):
        (row,) = convx.tune(layer, image, rounds=1, progress=False).rows
        double = convx.tune(layer.double(), image.double(), rounds=1, progress=False).rows[0]
    assert row.problem == low.describe() and "float64" in double.problem  # which autocast leaves alone
    assert set(row.candidates) == set(plans(low))
    assert records.find(depthwise(), here()) is None


def test_autocast_has_no_say_in_the_measurement() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        row = tuning_module.tune_problem(depthwise(), CPU, rounds=1)
    assert set(row.candidates) == set(plans(depthwise()))


def test_each_setting_of_determinism_has_its_records() -> None:
    layer, image = nn.Conv2d(8, 8, 3, groups=8), torch.randn(1, 8, 10, 12)
    was = torch.are_deterministic_algorithms_enabled()
    try:
        for setting, is_new in ((True, True), (False, True), (True, False)):
            torch.use_deterministic_algorithms(setting)
            (row,) = convx.tune(layer, image, rounds=1, progress=False).rows
            assert row.is_new == is_new
    finally:
        torch.use_deterministic_algorithms(was)


@pytest.mark.parametrize(
    ("layer", "image"),
    [
        (convx.nn.Conv2d(8, 1, 1), torch.randn(2, 8, 5, 5)),
        (convx.nn.Conv2d(8, 6, 5), torch.randn(2, 8, 5, 5)),
        (convx.nn.Conv2d(8, 6, 1), torch.randn(2, 8, 5, 5)),
    ],
    ids=["one channel out", "one pixel out", "neither"],
)
def test_the_choice_of_an_input_grad_reaches_dispatch(layer: convx.nn.Conv2d, image: torch.Tensor) -> None:
    """Also where the output's memory can be either layout, and the operator takes it for NCHW."""
    image = image.to(memory_format=torch.channels_last).requires_grad_()
    layer.weight.requires_grad_(False)
    convx.tune(layer, image, operations=("input_grad",), rounds=1, progress=False)
    (path,) = records.folder().glob("*.json")
    tuned = records._parse_file(path)
    for algorithm in ("native", next(name for name in tuned.candidates if "native" not in name)):
        records.remember(replace(tuned, algorithm=algorithm))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            layer(image).sum().backward()
        events = {event.key for event in seen.key_averages()}
        assert ("aten::convolution_backward" in events) == (algorithm == "native")


class Mixed(nn.Module):
    """Layers that convx can and can't plan, called by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.real = nn.Conv2d(4, 8, 1)
        self.complex = nn.Conv2d(8, 8, 1, dtype=torch.complex64)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        real: torch.Tensor = self.real(input=image)
        return self.complex(input=real.to(torch.complex64)).abs()  # type: ignore[no-any-return]


def test_layers_that_no_kernel_can_run_are_left() -> None:
    report = convx.tune(Mixed(), torch.randn(1, 4, 5, 5), rounds=1, progress=False)
    assert [row.layers for row in report.rows] == ["real"]
    assert list(report.left) == ["complex"]
    assert str(report).splitlines()[-1].startswith("left complex: dtype torch.complex64 is not supported")
    with pytest.raises(ValueError, match=r"none of .* can be tuned: \(model\): dtype torch.complex64"):
        convx.tune(Mixed().complex, torch.randn(1, 8, 5, 5, dtype=torch.complex64), progress=False)
    with pytest.raises(ValueError, match="nothing can be measured on device 'meta'"):
        convx.tune(nn.Conv2d(4, 8, 1, device="meta"), torch.randn(1, 4, 5, 5, device="meta"))


def test_the_table_tells_plans_of_one_name_apart_by_what_differs() -> None:
    def row(winner: str, before: str) -> tuning_module.TunedProblem:
        return tuning_module.TunedProblem("0", "forward", before, 20.0, winner, 10.0, {}, True)

    tile, other = (f"pointwise/pixels wave_w={pixels} wave_c=8 lanes=16" for pixels in (16, 48))
    report = tuning_module.TuningReport((row(tile, other), row(tile, "native"), row(tile, tile)))
    first, second, third, *_ = str(report).splitlines()[1:]
    assert "pointwise/pixels wave_w=16 " in first and "pointwise/pixels wave_w=48 " in first
    assert "wave_c" not in first and "wave_" not in second + third


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"layer_or_model": "resnet18"}, TypeError, "must be a torch.nn.Module, got str"),
        ({"layer_or_model": nn.Linear(2, 2)}, ValueError, "reaches no Conv1d or Conv2d"),
        ({"operations": ("backward",)}, ValueError, "forward, input_grad, weight_grad, got 'backward'"),
        ({"operations": ()}, ValueError, r"one or more of forward, input_grad, weight_grad, got \(\)"),
        ({"operations": "forward"}, TypeError, "operations must be a sequence, .*got 'forward'"),
        ({"operations": None}, TypeError, "operations must be a sequence, .*got None"),
        ({"operations": ["forward", None]}, ValueError, "forward, input_grad, weight_grad, got None"),
        ({"rounds": 0}, ValueError, "rounds must be at least 1, got 0"),
        ({"rounds": 2.5}, TypeError, r"rounds must be an int, got 2.5 \(float\)"),
        ({"rounds": "3"}, TypeError, r"rounds must be an int, got '3' \(str\)"),
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
