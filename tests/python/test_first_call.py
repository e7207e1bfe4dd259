"""torch.backends.cudnn.benchmark: what auto takes is measured at the first call of a problem."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from tuned import own_folder

import convx
from convx.dispatch import packed
from convx.tune import first_call, records

__all__ = ["own_folder"]

_found = first_call.found
needs_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])


@pytest.fixture
def asked() -> Iterator[None]:
    """The setting, for a test."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    yield
    torch.backends.cudnn.benchmark = before


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those that are measured, as they are."""
    measured: list[Any] = []

    def found(problem: Any, where: torch.device) -> records.Record:
        measured.append(problem)
        return _found(problem, where)

    monkeypatch.setattr(first_call, "found", found)
    return measured


def operands(device: str = "cpu", **options: Any) -> tuple[Tensor, Tensor]:
    x = torch.randn(2, 8, 10, 12, device=device, **options)
    return x, torch.randn(8, 1, 3, 3, device=device, **options)


def call(x: Tensor, w: Tensor, **options: Any) -> Tensor:
    return convx.functional.conv2d(x, w, padding=1, groups=8, **options)


def expected(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.conv2d(x.double(), w.double(), padding=1, groups=8)


@devices
def test_the_first_call_of_a_problem_is_measured(asked: None, problems: list[Any], device: str) -> None:
    x, w = operands(device)
    state = torch.get_rng_state()
    for _ in range(3):
        torch.testing.assert_close(call(x, w).double(), expected(x, w), rtol=1e-5, atol=1e-5)
    assert len(problems) == 1 and torch.equal(torch.get_rng_state(), state)
    explanation = convx.explain(x, w, padding=1, groups=8)
    assert explanation.chosen.source == "tuned"
    assert explanation.why.startswith("the fastest when the first call (torch.backends.cudnn.benchmark)")
    (found,) = records.all_remembered()
    assert found.by == records.FIRST_CALL and found.algorithm in found.candidates
    assert "native" in found.candidates and 2 <= len(found.candidates) <= 6
    assert found.us <= 1.03 * min(found.candidates.values())
    call(x[:1].contiguous(), w)
    assert [problem.batch for problem in problems] == [2, 1]


@pytest.mark.parametrize(
    ("us", "again"),
    [(8.0, True), (8.4, True), (7.4, False), (10.0, False)],
    ids=["near", "nearer", "far", "torch"],
)
def test_a_short_lead_is_measured_in_graphs(us: float, again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[str], bool]] = []
    winner = "native" if us == 10 else "depthwise/strip"

    def measured(problem: Any, where: Any, plans: list[str], *_: Any, **options: Any) -> records.Record:
        asked.append((plans, options.get("sampler") is not None))
        times = {"native": 10.0, winner: us}
        return records.Record({}, {}, winner, us, times, by=records.FIRST_CALL)

    monkeypatch.setattr(first_call, "measured", measured)
    monkeypatch.setattr(first_call, "plans_of", lambda *_: ["native", "depthwise/strip", "hntmp/tile"])
    monkeypatch.setattr(first_call, "sampler_of", lambda _: "queue")
    monkeypatch.setattr(first_call._planning, "device", lambda _: None)
    found = first_call.found(None, torch.device("cuda", 0))
    first = (["native", "depthwise/strip", "hntmp/tile"], True)
    assert asked == ([first, (["native", "depthwise/strip"], False)] if again else [first])
    assert found.algorithm == winner


def test_without_the_setting_nothing_is_measured(problems: list[Any]) -> None:
    x, w = operands()
    call(x, w)
    assert not problems and not records.all_remembered()
    torch.backends.cudnn.benchmark = True
    try:
        call(x, w)  # known from the call before, and not measured
    finally:
        torch.backends.cudnn.benchmark = False
    assert len(problems) == 1
    call(x[:1].contiguous(), w)
    assert len(problems) == 1


def test_a_named_algorithm_is_taken_as_it_is(asked: None, problems: list[Any]) -> None:
    x, w = operands()
    call(x, w, algorithm="depthwise")
    call(x, w, algorithm="depthwise|auto")
    assert not problems


@devices
def test_gradients_are_problems_too(asked: None, problems: list[Any], device: str) -> None:
    x, _ = operands(device)
    layer = nn.Conv2d(8, 8, 3, padding=1, groups=8).to(device)
    convx.convert_(layer)
    for _ in range(2):
        layer(x.requires_grad_()).sum().backward()
    operations = [problem.operation for problem in problems]
    assert operations == ["forward", "input_grad", "weight_grad"]
    reference = nn.Conv2d(8, 8, 3, padding=1, groups=8).double().to(device)
    reference.load_state_dict(layer.state_dict())
    reference(x.detach().double()).sum().backward()
    assert layer.weight.grad is not None and reference.weight.grad is not None
    torch.testing.assert_close(layer.weight.grad.double(), 2 * reference.weight.grad, rtol=1e-4, atol=1e-4)


def test_layers_and_functions_share_what_was_found(asked: None, problems: list[Any]) -> None:
    x, _ = operands()
    model = nn.Sequential(*(nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False) for _ in range(3))).eval()
    convx.convert_(model)
    with torch.inference_mode():
        for _ in range(2):
            model(x)
        call(x, torch.randn(8, 1, 3, 3))
    assert len(problems) == 1


def test_a_measurement_that_fails_leaves_predictions(
    asked: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def out_of_memory(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(first_call, "measured", out_of_memory)
    x, w = operands()
    with pytest.warns(RuntimeWarning, match=r"could not measure .*: OutOfMemoryError: CUDA out of memory"):
        result = call(x, w)
    torch.testing.assert_close(result.double(), expected(x, w), rtol=1e-5, atol=1e-5)
    assert not records.all_remembered()


def test_later_processes_and_tune_have_the_records(asked: None, problems: list[Any]) -> None:
    x, w = operands()
    call(x, w)
    records.forget()
    assert records.load() == 1  # as convx does when it is imported
    call(x, w)
    assert len(problems) == 1
    layer = convx.nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
    report = convx.tune(layer, x, rounds=2, progress=False)
    assert [row.is_new for row in report.rows] == [True]  # of all plans, and more thoroughly
    (found,) = records.all_remembered()
    assert found.by == records.TUNE
    call(x, w)
    assert len(problems) == 1


def test_threads_measure_a_problem_once(asked: None, problems: list[Any]) -> None:
    x, w = operands()
    threads = [threading.Thread(target=call, args=(x, w)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(problems) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_nothing_is_measured_in_a_capture(asked: None, problems: list[Any]) -> None:
    x, w = operands("cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), convx.constant_filters():
        call(x, w, algorithm="depthwise")  # loads the kernels
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            result = call(x, w)
    assert not problems
    graph.replay()
    torch.testing.assert_close(result.double(), expected(x, w), rtol=1e-5, atol=1e-5)
    call(x, w)
    assert len(problems) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_memory_stays_as_it_was(asked: None) -> None:
    layers: list[Callable[[Tensor], Tensor]] = [
        convx.nn.Conv2d(64, 64, 3, padding=1, groups=groups, device="cuda") for groups in (1, 64)
    ]
    x = torch.randn(4, 64, 56, 56, device="cuda")
    with torch.inference_mode():
        for layer in layers:
            layer(x)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        for size in range(20, 56):
            for layer in layers:
                layer(torch.zeros(4, 64, size, size, device="cuda"))
        packed.forget_all()
        assert torch.cuda.memory_allocated() <= before + (1 << 20)
