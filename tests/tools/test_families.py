"""The tables of whole networks are of the networks there are, and of what convx does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from models import torchvision_models
from torch import Tensor, nn

from benchmarks import families, family_page, family_tasks, family_times
from benchmarks.families import TABLE, main
from benchmarks.family_looks import look
from benchmarks.family_networks import FamilyNetwork, networks
from benchmarks.results import Results

NETWORKS = [
    FamilyNetwork("torchvision", "mobilenet_v2"),
    FamilyNetwork("torchvision", "ssdlite"),
    FamilyNetwork("timm", "lambda_resnet26t"),
    FamilyNetwork("transformers", "MobileNetV1ForImageClassification"),
    FamilyNetwork("transformers", "SegformerForSemanticSegmentation"),
]


def test_the_table_has_all_networks() -> None:
    cells = [line.split(" | ")[:2] for line in TABLE.read_text().splitlines() if line.startswith("| t")]
    assert cells == [[f"| {each.library}", each.name] for each in networks()]


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS, ids=lambda each: each.name)
def test_rows_are_what_is_fused(network: FamilyNetwork) -> None:
    try:
        row = look(network)
    except ImportError as error:
        pytest.skip(str(error))
    assert row.known in TABLE.read_text() and row.error < 2 * row.own_error


def test_one_network_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    torchvision_models()  # which timm imports in vain beside another torch
    pytest.importorskip("timm")
    assert main(["--network", "convnext_atto"]) == 0
    assert capsys.readouterr().out.startswith("| timm | convnext_atto | 40 | gelu (12)")


def test_every_network_of_torchvision_for_a_task_has_a_family() -> None:
    models: Any = torchvision_models()
    for task in family_tasks.TASKS:
        names = models.list_models(module=getattr(models, task))
        families = [each for each in family_tasks.families() if family_tasks.task_of(each) == task]
        assert names and not [name for name in names if not name.startswith(tuple(families))]


def test_suppression_is_that_of_torchvision() -> None:
    """Of three boxes the second overlaps the best; of two that overlap less both stay."""
    torchvision_models()
    boxes = torch.tensor([[0, 0, 10, 10], [1, 1, 11, 11], [6, 0, 16, 10.0]])
    scores = torch.tensor([0.5, 0.9, 0.7])
    assert family_tasks._nms(boxes, scores, 0.5).tolist() == [1, 2]
    assert family_tasks._nms(boxes, scores, 0.9).tolist() == [1, 2, 0]
    assert family_tasks._nms(boxes[:0], scores[:0], 0.5).tolist() == []


class Small(nn.Module):
    """In the place of a network of a library."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.layer(images)  # type: ignore[no-any-return]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two networks that work and between them one that does not; which of them were made."""
    made: list[str] = []

    def make(network: FamilyNetwork, device: torch.device) -> Any:
        made.append(network.name)
        if network.name == "wrong":
            raise ValueError("there is no such network")
        return Small().to(device), torch.randn(1, 3, 8, 8, device=device)

    every = [FamilyNetwork("timm", name) for name in ("first", "wrong", "last")]
    monkeypatch.setattr(family_times, "networks", lambda: every)
    monkeypatch.setattr(FamilyNetwork, "made_in_full", make)
    return made


def records(folder: Path) -> list[dict[str, Any]]:
    (path,) = (folder / "whole").glob("*.json")
    return json.loads(path.read_text())["records"]  # type: ignore[no-any-return]


def measure(folder: Path, *options: str) -> str:
    output = ["--output", str(folder / "whole"), "--rounds", "2"]
    assert families.main(["--device", "cpu", *output, *options]) == 0
    (page,) = folder.glob("families_*.md")
    return page.read_text()


def test_networks_are_measured_and_one_that_fails_is_a_row(small: list[str], tmp_path: Path) -> None:
    page = measure(tmp_path, "--layout", "nchw,channels_last")
    assert small == ["first", "wrong", "last"] * 2
    first, wrong, last = records(tmp_path)[:3]
    assert first["case"] == "timm/first" and first["layout"] == "nchw" and last["convolutions"] == 1
    assert first["convx_us"] > 0 and first["peers_us"]["torch"] > 0 and first["is_within_twice"] is True
    assert 0 < first["error"]["convx"] <= 2 * first["error"]["torch"] + 1e-6
    assert wrong["failed"] == "ValueError: there is no such network" and "convx_us" not in wrong
    assert "| timm/wrong | float32 | nchw | - | - | - | - | - | - | - | - | ValueError: there" in page
    assert "| float32 | channels_last | 3 | 2 | 1 |" in page


def test_a_run_goes_on_where_another_ended(small: list[str], tmp_path: Path) -> None:
    measure(tmp_path, "--network", "first")
    assert small == ["first"]
    measure(tmp_path, "--resume", "--seconds", "1e-9")
    assert small == ["first"]
    measure(tmp_path, "--resume")
    assert small == ["first", "wrong", "last"] and len(records(tmp_path)) == 3
    measure(tmp_path, "--resume", "--dtype", "bfloat16")
    assert len(small) == 6 and {each["dtype"] for each in records(tmp_path)} == {"float32", "bfloat16"}


def test_a_network_that_ends_the_process_is_known(small: list[str], tmp_path: Path, monkeypatch: Any) -> None:
    """The next run does not try it again."""

    def end(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(family_times, "measured", end)
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path, "--network", "wrong")
    assert [each["failed"] for each in records(tmp_path)] == ["the process ended before it was done"]
    monkeypatch.undo()


def record(case: str, convx_us: float, **more: Any) -> dict[str, Any]:
    known = {
        "case": case,
        "operation": "optimized",
        "dtype": "bfloat16",
        "layout": "nchw",
        "chosen_by": "auto",
        "convx_us": convx_us,
        "peers_us": {"torch": 400.0, "torch_graph": 100.0},
        "over_torch": [0.1, 0.2],
        "error": {"torch": 1e-3, "convx": 1.5e-3},
        "is_within_twice": True,
        "peak_bytes": {"torch": 3 << 20, "convx": 2 << 20},
        "convolutions": 20,
        "left": 0,
        "inside": "as given",
        "compiled": False,
        "reason": "",
        "no_graph": "",
    }
    return known | more


def test_the_page_tells_of_each_network_and_of_all(tmp_path: Path) -> None:
    environment = {"device": "NVIDIA H200", "torch": "2.11.0", "date": "2026-12-01"}
    results = Results("families", environment, "python -m benchmarks.families --device cuda", {})
    results.add(record("timm/a", 50.0))
    results.add(record("timm/b", 200.0, left=2, inside="channels_last", is_within_twice=False))
    alone = {"peers_us": {"torch": 800.0}, "no_graph": "it asks for values of tensors", "peak_bytes": {}}
    of_no_double = {"error": {"torch": float("nan"), "convx": 2e-4}}
    results.add(record("timm/c", 200.0, **alone, **of_no_double))
    results.write(path := tmp_path / "whole" / "nvidia-h200.json")
    page = family_page.write(path)
    assert page == tmp_path / "families_nvidia-h200.md"
    text = page.read_text()
    assert "| bfloat16 | nchw | 3 | 2 | 0 | 4.00 | 2.00 | 1.00 | 0.50 | 1 of 2 |" in text
    assert "| timm/a | bfloat16 | nchw | 400 | 100 | 50 | 0.10 and 0.20 | 1.50 | 3 | 2 | 20 | - |" in text
    assert "| 200 | 0.10 and 0.20 | 1.50 | 3 | 2 | 20 | channels_last inside; 2 left to torch |" in text
    assert "| 800 | - | 200 | 0.10 and 0.20 | 2e-04 apart | - | - | 20 | no graph: it asks for values" in text
    assert "--device cuda`" in text and "NVIDIA H200" in text
