"""The suites of whole networks, of memory and of random layers, and who comes first when times are taken."""

from __future__ import annotations

import json
import mmap
from collections import Counter
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import convx.nn
from benchmarks import memory, network_kinds, networks, timing, wild
from benchmarks.__main__ import main
from benchmarks.environment import device_slug
from benchmarks.results import best_peer, geomean, precision
from benchmarks.suites import LAYOUTS, OPERATIONS
from convx.optimize import optimizing
from convx.tune import records as tuning_records

CPU = torch.device("cpu")


def records_of(folder: Path, suite: str, *arguments: str) -> list[dict[str, Any]]:
    line = ["--suite", suite, *arguments, "--device", "cpu", "--quick", "--output", str(folder)]
    assert main(line) == 0
    path = folder / device_slug(CPU) / f"{suite}.json"
    records: list[dict[str, Any]] = json.loads(path.read_text())["records"]
    return records


def test_a_seed_draws_the_same_layers_of_every_kind() -> None:
    drawn, again = (list(wild.problems(5, 54)) for _ in range(2))
    assert [problem.fields() for problem in drawn] == [problem.fields() for problem in again]
    assert [problem.fields() for problem in wild.problems(6, 54)] != [one.fields() for one in drawn]
    assert Counter(problem.case.group for problem in drawn) == dict.fromkeys(wild.KINDS, 3)
    for problem in islice(wild.problems(7, 400), 0, None, 3):
        assert problem.bytes <= wild.MOST_BYTES["cuda"] and problem.flops <= wild.MOST_FLOPS["cuda"]
        assert (
            1 <= problem.batch <= 64 and problem.operation in OPERATIONS and min(problem.shape.out_maps) > 0
        )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [((), "needs a --seed"), (("--seed", "1", "--layout", "nchw"), "--layout has no say")],
)
def test_wild_takes_a_seed_and_no_choice(
    arguments: tuple[str, ...], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        records_of(tmp_path, "wild", *arguments)
    assert reason in capsys.readouterr().err


def test_random_layers_are_measured_beside_torch_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(wild.MOST_BYTES, "cpu", 1 << 19)
    monkeypatch.setenv("CONVX_CACHE_DIR", str(tmp_path / "cache"))
    drawn, known = list(wild.problems(3, 2, "cpu")), tuning_records.all_remembered()
    records = records_of(tmp_path, "wild", "--seed", "3", "--count", "2")
    assert [record["case"] for record in records] == [problem.case.name for problem in drawn]
    for record in records:
        assert set(record["peers_us"]) == {"torch", "torch_again"} and record["convx_us"] > 0
        assert record["measured_us"] > 0 and record["first_call_ms"] > 0 and record["error_ratio"] <= 2
        same = record["measured_method"] == record["method"]
        assert same or record["measured_us"] != record["convx_us"]
        assert best_peer(record | {"peers_us": {"torch": 2.0, "torch_again": 1.0}}) == ("torch", 2.0)
    assert tuning_records.all_remembered() == known  # nor written: a program's choices are its own
    assert not (tmp_path / "cache").exists()


def test_wild_table_tells_choices_from_chance() -> None:
    def record(kind: str, method: str, us: float, again: float, measured: str, best: float) -> dict[str, Any]:
        peers = {"torch": 1.0, "torch_again": again}
        found = {
            "measured_method": measured,
            "measured_us": best,
            "first_call_ms": 100 * us,
            "torchs_first_call_ms": 7.0,
        }
        return {"group": kind, "method": method, "convx_us": us, "peers_us": peers, **found}

    rows = wild.table(
        [
            record("a", "depthwise/strip", 0.5, 1.0, "depthwise/plane", 0.4),
            record("a", "depthwise/strip", 1.05, 1.2, "native", 1.03),
            record("a", "native", 1.01, 1.03, "native", 1.01),
            record("b", "native", 1.2, 1.0, "depthwise/strip", 0.9),
        ]
    ).splitlines()
    faster, measured = (f"{1 / geomean(times):.2f}" for times in ([0.5, 1.05], [0.4, 0.9]))
    assert rows[-3:] == [
        f"| a | 3 | 2 | {faster} | 1, 0 | 1 | 0, 0 | 1 | 2.50 | 1, 0 | 101 | 7 | 2, 1 |",
        "| b | 1 | 0 |  | 0, 0 | 1 | 1, 1 | 1 | 1.11 | 0, 0 | 120 | 7 | 0, 0 |",
        f"| all | 4 | 2 | {faster} | 1, 0 | 2 | 1, 1 | 2 | {measured} | 1, 0 | 103 | 7 | 2, 1 |",
    ]


def test_memory_is_watched_step_after_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CPU_STEPS", 4)
    monkeypatch.setattr(memory, "EVERY", 2)
    used = iter([100, 300, 400, 450])
    monkeypatch.setattr(memory, "used", lambda device: next(used))
    (record,) = records_of(tmp_path, "memory", "--case", "efficientnet_b0 nchw")
    assert record["bytes"] == {"2": 300, "4": 450} and record["grown_bytes"] == 150
    assert "| efficientnet_b0 nchw | 2 | 4 | 0.0 | 150 B |" in memory.table([record])


def test_memory_that_is_used_is_seen() -> None:
    before = memory.used(CPU)
    with mmap.mmap(-1, 1 << 26) as fresh:  # an allocator may have some left
        fresh.write(b"1" * len(fresh))
        assert memory.used(CPU) - before > len(fresh) // 2


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole networks take their time; this one has a layer of every sort."""

    def get_model(name: str, weights: None) -> nn.Module:
        stem = nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU6()
        depthwise, pointwise = nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, network_kinds.CLASSES, 1)
        return nn.Sequential(*stem, depthwise, pointwise, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    torchvision = SimpleNamespace(models=SimpleNamespace(get_model=get_model))
    monkeypatch.setattr(network_kinds, "import_torchvision", lambda: torchvision)
    monkeypatch.setattr(network_kinds, "SIZE", 16)
    monkeypatch.setattr(network_kinds, "CLASSES", 8)
    monkeypatch.setattr(networks, "_ROUND_US", 1)
    monkeypatch.setattr(optimizing, "choose", lambda *_: ())  # measuring layers is most of the time


def test_networks_run_converted_and_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_kinds, "SIZE", 64)
    records = records_of(tmp_path, "networks", "--case", "squeezenet1_0 b1 *nchw")
    assert [record["operation"] for record in records] == ["inference", "train_step", "optimized"]
    for record in records:
        assert record["case"] == "squeezenet1_0 b1 float32 nchw" and set(record["peers_us"]) == {"torch"}
        assert record["convx_us"] > 0 and not record["tf32"] and "peak_bytes" not in record
        assert ("error" in record) == (record["operation"] != "train_step")
    text = networks.table(records)
    assert "| squeezenet1_0 b1 float32 nchw | train step |" in text
    assert "torch's graph us | torch's error | convx's error |" in text and "torch MB" not in text
    assert "| optimized | 1 | float32 | nchw |" in networks.short_table(records)
    records[2]["peers_us"]["torch_graph"] = 321.0  # as on a GPU
    records[2]["peak_bytes"] = {"torch": 5 << 20, "convx": 3 << 20, "torch_graph": 7 << 20}
    records[2]["error"] = {"torch": 0.25, "convx": 0.125, "torch_graph": 0.25}
    text = networks.table(records)
    assert "| torch's graph us | torch MB | convx MB | torch's error | convx's error |" in text
    assert "| 321 | 5 | 3 | 2.5e-01 | 1.2e-01 |" in text and "MB: the most that torch's" in text
    assert "float32 here is what torch does by default" in text  # two records have no peaks, as older ones
    for record in records[:2]:
        record["peak_bytes"] = {"torch": 5 << 20, "convx": 3 << 20}
    assert "float32 here" not in networks.table(records)
    assert "| optimized beside torch's graph | 1 | float32 | nchw |" in networks.short_table(records)


def test_networks_of_every_kind(tmp_path: Path, tiny: None) -> None:
    kinds = network_kinds.KINDS
    records = records_of(
        tmp_path, "networks", "--case", "resnet18 b8 *nchw", "--operation", ",".join(kinds), "--rounds", "1"
    )
    assert [record["operation"] for record in records] == [
        kind for kind in kinds if kind != "inference_graph"
    ]
    for record in records:
        kind = record["operation"]
        peers = {"torch", "torch_eager"} if "compiled" in kind else {"torch"}
        assert set(record["peers_us"]) == peers and record["batch"] == 8
        assert network_kinds.is_training(kind) or set(record["error"]) == {"convx", *peers}
        assert all(0 < error < 1e-5 for error in record.get("error", {}).values())
    text = networks.table(records)
    assert "| torch's graph us | torch uncompiled us | torch's error | convx's error |" in text
    # Of a batch that is not in the default set README says nothing.
    assert "b8" in text and "| 8 |" not in networks.short_table(records)


def test_networks_are_those_of_torchvision(recwarn: pytest.WarningsRecorder) -> None:
    for name in networks.NETWORKS:
        model = network_kinds.constructed(name, torch.device("meta")).train()
        result = model(torch.empty(2, 3, network_kinds.SIZE, network_kinds.SIZE, device="meta"))
        assert result.shape == (2, network_kinds.CLASSES)
    assert not recwarn.list


def test_networks_have_cases_beside_the_default_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda")
    assert len(networks.default_cases(gpu)) == 48 and len(networks.cases(gpu)) == 11 * 3 * 3 * 2
    asked: list[str] = []
    monkeypatch.setattr(networks, "run", lambda case, *_, **__: asked.append(case) or [])
    for case in ((), ("--case", "resnet18*")):
        assert main(["--suite", "networks", "--device", "cpu", "--output", str(tmp_path), *case]) == 0
    names = [f"resnet18 b{batch} float32 {layout}" for batch in (1, 8) for layout in LAYOUTS]
    assert asked == [*networks.default_cases(CPU), *names]


def test_swapped_layers_are_those_of_one_sort(tiny: None) -> None:
    made = network_kinds.Networks("resnet18 b1 float32 nchw", CPU)
    for kind, place in (("depthwise_swapped", 3), ("pointwise_swapped", 4)):
        assert made.have(kind) and made.have(f"{kind}_train_step")
        model: Any = made.converted(network_kinds.SWAPPED[kind])
        swapped = [index for index, layer in enumerate(model) if isinstance(layer, convx.nn.Conv2d)]
        assert swapped == [place]
    made._first = nn.Conv2d(3, 8, 3)
    assert made.have("inference") and not made.have("pointwise_swapped_train_step")


@pytest.mark.parametrize("case", ["resnet18 b1 tf32 nchw", "resnet18 b1 float32 nchw"])
def test_networks_round_to_tf32_where_that_is_asked_for(
    case: str, tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settings() -> tuple[bool, bool]:
        return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32

    before, seen = settings(), []
    compared = networks._compared
    monkeypatch.setattr(networks, "_compared", lambda *args: seen.append(settings()) or compared(*args))
    (record,) = networks.run(case, CPU, 1, ["inference"])
    is_tf32 = " tf32 " in case
    assert seen == [(is_tf32, is_tf32)] and settings() == before
    assert record["tf32"] == is_tf32 and record["dtype"] == "float32" and record["case"] == case
    assert precision(record) == case.split(" ")[2]


@pytest.mark.gpu
def test_networks_say_how_much_memory_each_contender_takes(tiny: None) -> None:
    gpu = torch.device("cuda", 0)
    for record in networks.run("resnet18 b8 tf32 channels_last", gpu, 1, network_kinds.KINDS):
        peaks = record["peak_bytes"]
        assert set(peaks) == {"convx", *record["peers_us"]} and min(peaks.values()) > 0
        assert max(peaks.values()) < 2 * peaks["torch"] + (32 << 20)  # of workspaces
        assert network_kinds.is_training(record["operation"]) or max(record["error"].values()) < 1e-2


def test_networks_go_on_where_they_stopped(
    tmp_path: Path, tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = ("networks", "--case", "resnet18 b1 *", "--resume")
    clock = count()  # asked at the beginning and before each case
    monkeypatch.setattr("benchmarks.by_case.time", SimpleNamespace(monotonic=lambda: next(clock)))
    stopped = records_of(tmp_path, *cases, "--seconds", "1.5")
    assert {record["case"] for record in stopped} == {"resnet18 b1 float32 nchw"}
    after = records_of(tmp_path, *cases)
    assert after[:3] == stopped and len(after) == 6
    more = records_of(tmp_path, *cases, "--operation", "inference,depthwise_swapped,train_step")
    assert more[:6] == after
    swapped = [(record["operation"], record["layout"]) for record in more[6:]]
    assert swapped == [("depthwise_swapped", "nchw"), ("depthwise_swapped", "channels_last")]


@pytest.mark.parametrize(
    ("suite", "operation", "reason"),
    [
        ("networks", "forward", "--operation forward: the kinds of this suite are inference, "),
        ("networks", "inference_graph", "belongs to GPUs"),
        ("depthwise", "compiled", "--operation: the operations of this suite are forward, "),
    ],
)
def test_suites_have_operations_of_their_own(
    suite: str, operation: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        records_of(tmp_path, suite, "--operation", operation)
    assert reason in capsys.readouterr().err


def test_each_contender_comes_first_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured while a contender was prepared does not count, unless there is nothing else."""
    order: list[str] = []

    def timer_of(call: Callable[[int], Any]) -> Callable[[], float]:
        name = str(call(0))
        prepared = False

        def timer() -> float:
            nonlocal prepared
            if not prepared:
                prepared = True
                return 100.0
            order.append(name)
            return 1.0 + len(order) % 2  # the first of a turn takes longer

        return timer

    monkeypatch.setattr(timing, "_cpu_timer", timer_of)
    calls: Any = {"a": lambda index: "a", "b": lambda index: "b"}
    times, failures, spread = timing.measure(calls, 1, CPU, 7)
    assert Counter(order[::2]) == {"a": 3, "b": 3} and not failures
    assert times == {"a": 1.5, "b": 1.5}
    assert spread == {"a": (1.0, 2.0), "b": (1.0, 2.0)}  # three samples of either
    once = timing.measure(calls, 1, CPU, 1)
    assert once.us == {"a": 100.0, "b": 100.0} and not once.quartiles  # of one sample there are none
