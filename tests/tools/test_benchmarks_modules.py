"""The suite of modules: what is called, how it is timed, and what the tables make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import convx.nn
from benchmarks import modules, summary
from benchmarks.__main__ import main
from benchmarks.environment import device_slug
from benchmarks.results import RESULTS, Results, load
from convx.tune.turns import Compared

pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")
CPU = torch.device("cpu")


def records_of(folder: Path, *arguments: str, device: str = "cpu") -> list[dict[str, Any]]:
    line = ["--suite", "modules", *arguments, "--device", device, "--quick", "--output", str(folder)]
    assert main(line) == 0
    (path,) = folder.glob("*/modules.json")
    return list(load(path).records.values())


def record(case: str, torch_us: float, convx_us: float, kind: str = "forward") -> dict[str, Any]:
    """As the suite writes it, of times as they come."""
    compared = Compared({"torch": torch_us, "convx": convx_us}, {"convx": (0.5, 0.75)})
    name, batch = case.split(" b")
    problem = modules.Problem(modules._layers()[name], "forward", "float32", "nchw", int(batch))
    return modules._record(case, kind, problem, compared)


def test_cases_are_all_of_the_papers_tables() -> None:
    cases = modules.cases()
    assert len(cases) == len(set(cases)) == (30 + 45) * 5
    assert cases[:2] == ("D1 b1", "D1 b8") and cases[-1] == "P45 b64"
    assert modules.cases((2,))[-1] == "P45 b2" and len(modules.cases((2,))) == 75


@pytest.mark.parametrize("case", ["D30 b2", "P44 b1"])
def test_contenders_are_one_layer_converted_and_not(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layers: list[nn.Module] = []
    original = modules._call

    def call(kind: str, module: nn.Module, x: torch.Tensor) -> Any:
        layers.append(module)
        return original(kind, module, x)

    def compared(calls: dict[str, Any], device: torch.device, rounds: int) -> Compared:
        assert torch.is_inference_mode_enabled()
        assert not torch.backends.cudnn.allow_tf32 and not torch.backends.cuda.matmul.allow_tf32
        results = [each() for each in calls.values()]
        torch.testing.assert_close(*results)
        assert results[0].dtype == torch.float32 and len(results[0]) == int(case[-1])
        return Compared({"torch": 12.3456, "convx": 4.0}, {"convx": (0.3, 0.4)})

    monkeypatch.setattr(modules, "_call", call)
    monkeypatch.setattr(modules, "_compared", compared)
    before = torch.backends.cudnn.allow_tf32
    (found,) = modules.run(case, CPU, 1, modules.KINDS["cpu"])
    assert torch.backends.cudnn.allow_tf32 == before and not torch.is_inference_mode_enabled()
    assert type(layers[0]) is nn.Conv2d and type(layers[1]) is convx.nn.Conv2d
    assert layers[0].bias is None and layers[1].algorithm == "auto"
    shape = modules._layers()[case.split(" ")[0]].shape
    assert layers[0].weight.shape == shape.weight_size and layers[0].stride == shape.strides
    assert found["peers_us"] == {"torch": 12.35} and found["convx_us"] == 4.0
    assert found["over_torch"] == [0.3, 0.4] and found["batch"] == int(case[-1])


def test_a_run_writes_a_file_of_its_own(tmp_path: Path) -> None:
    records = records_of(tmp_path, "--case", "D24 b1,P44 b*", "--batch", "1,2")
    assert [each["case"] for each in records] == ["D24 b1", "P44 b1", "P44 b2"]
    assert [(each["group"], each["batch"]) for each in records] == [("D1-30", 1), ("P1-45", 1), ("P1-45", 2)]
    for each in records:
        assert (each["operation"], each["method"], each["chosen_by"]) == ("forward", "module", "auto")
        assert each["convx_us"] > 0 and set(each["peers_us"]) == {"torch"} and not each["tf32"]
        low, high = each["over_torch"]
        assert low <= high
    assert records[0]["shape"]["groups"] == 96


def test_a_run_goes_on_with_the_kinds_that_a_case_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / device_slug(CPU) / "modules.json"
    asked: list[tuple[str, tuple[str, ...]]] = []

    def run(case: str, device: torch.device, rounds: int, kinds: list[str]) -> list[dict[str, Any]]:
        asked.append((case, tuple(kinds)))
        return [record(case, 2.0, 1.0, kind) for kind in kinds]

    monkeypatch.setattr(modules, "run", run)
    records_of(tmp_path, "--case", "D1 b1")
    monkeypatch.setitem(modules.KINDS, "cpu", modules.KINDS["cuda"])
    records_of(tmp_path, "--case", "D1 b1,D2 b1", "--resume")
    assert asked == [
        ("D1 b1", ("forward",)),
        ("D1 b1", ("forward_latency",)),
        ("D2 b1", modules.KINDS["cpu"]),
    ]
    assert len(load(path).records) == 4


def test_long_calls_take_fewer_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    monkeypatch.setattr(modules, "compare", lambda calls, device, count, repeats: turns.append(count))
    for turn_us in (3000.0, 1e6):
        monkeypatch.setattr(modules, "turn_of", lambda *_, us=turn_us: (1, us))
        modules._compared({"torch": list, "convx": list}, CPU, 7)
    assert turns == [1, 8, 1, 4]


def test_calls_alone_wait_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU: events about each call, and no other call before it has ended."""
    order: list[str] = []

    class Event:
        names = iter(("begin", "end"))

        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing
            self.name = next(self.names)

        def record(self) -> None:
            order.append(self.name)

        def elapsed_time(self, end: Event) -> float:
            assert (self.name, end.name) == ("begin", "end")
            return float(order.count("call"))  # ms

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: order.append("wait"))
    module: Any = lambda x: order.append("call")  # noqa: E731
    call: Any = modules._call("forward_latency", module, torch.empty(0))
    assert call.us(2) == 1500.0
    assert order == ["begin", "call", "end", "wait"] * 2


def test_speedups_are_means_of_the_layers() -> None:
    """And not of the means, which would be 3."""
    records = [record("D1 b8", 10.0, 5.0), record("D2 b8", 80.0, 10.0), record("D3 b8", 30.0, 25.0)]
    records += [record("D1 b8", 9.0, 10.0, "forward_latency"), record("P1 b64", 1.0, 1.0)]
    found = modules.means(records)
    assert list(found) == [("D1-30", 8, "forward"), ("D1-30", 8, "forward_latency"), ("P1-45", 64, "forward")]
    first = found["D1-30", 8, "forward"]
    assert (first.count, first.torch_us, first.slower) == (3, 40.0, 0)
    assert first.convx_us == pytest.approx(40 / 3) and first.speedup == pytest.approx((2 + 8 + 1.2) / 3)
    assert found["D1-30", 8, "forward_latency"].slower == 1
    text = modules.table(records)
    assert "More than 2 % slower than torch: 1 of 5 rows; with 95 % confidence 0." in text
    assert "| D1-30 | 8 | forward | 40.0 | 13.3 | 3.73 | 2.68 | 0 of 3 |" in text
    assert "| D1-30 | 8 | forward latency | 9.0 | 10.0 | 0.90 | 0.90 | 1 of 1 |" in text


def test_the_summary_has_a_table_of_them() -> None:
    environment = {"device": "Test GPU", "torch": "2", "date": "today"}
    results = Results("modules", environment, "python -m benchmarks --suite modules", {})
    results.add(record("P45 b64", 3.0, 2.0))
    file = summary._File(RESULTS / "test-gpu" / "modules.json", results, summary._changed(results))
    text = summary.long([file])
    assert "## Test GPU: modules" in text and "| P1-45 | 64 | forward | 3.0 | 2.0 | 1.50 | 1.50 |" in text
    assert "modules" not in summary.short([file])  # README has tables of whole suites' layers alone


@pytest.mark.gpu
def test_a_run_on_a_gpu(tmp_path: Path) -> None:
    records = records_of(tmp_path, "--case", "D24 b1,P44 b64", device="cuda")
    assert [each["operation"] for each in records] == [*modules.KINDS["cuda"]] * 2
    for stream, alone in zip(records[::2], records[1::2], strict=True):
        assert min(stream["peers_us"]["torch"], alone["peers_us"]["torch"]) > 1
        assert min(stream["convx_us"], alone["convx_us"]) > 1
        assert min(stream["published_us"], alone["published_us"]) > 1
    assert records[0]["plan"].startswith("depthwise/shared_rows ")
    # Its kernel has buffers of Group_C channels.
    sizes = dict(part.split("=") for part in records[2]["plan"].removeprefix("pointwise/generated ").split())
    assert sizes["stage_c"] == sizes["group_c"]
