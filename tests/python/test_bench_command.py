"""`python -m convx bench`, and what it says where it can't."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from convx import _peers
from convx.__main__ import main


@pytest.fixture(autouse=True)
def _no_engines(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Those that happen to be installed take seconds."""
    if "engine" not in request.node.name:
        monkeypatch.setattr(_peers.importlib.util, "find_spec", lambda name: None)


@pytest.fixture(autouse=True)
def _networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "benched_networks.py").write_text(
        "from torch import nn\n"
        "def small():\n"
        "    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_way_is_timed_and_checked(
    device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "all.json"
    command = [
        "bench",
        "benched_networks:small",
        "--size",
        "12",
        "--batch",
        "1,3",
        "--rounds",
        "3",
        "--quiet",
    ]
    page = tmp_path / "page.html"
    outputs = ["--json", str(file), "--html", str(page)]
    assert main([*command, "--device", device, "--channels-last", *outputs]) == 0
    html = page.read_text()
    assert "convx: benched_networks:small" in html and "Optimized, 1 image<" in html
    assert "Optimized, 3 images<" in html and html.count("3-&gt;6 3x3") == 2
    text = capsys.readouterr().out
    found = json.loads(file.read_text())
    expected = ["torch", "converted", "optimized"]
    if device == "cuda":
        expected += ["torch, CUDA graph", "converted, CUDA graph"]
    assert [(row["batch"], row["way"]) for row in found["rows"]] == [
        (b, way) for b in (1, 3) for way in expected
    ]
    for row in found["rows"]:
        assert row["us"] > 0 and row["over_torch"][0] <= row["over_torch"][1] and row["error"] < 1e-2
        assert row["way"] in text
    assert [report["rows"][0]["name"] for report in found["reports"]] == ["0", "0"]
    # By image where that happened to be faster.
    assert any(f"3->6 3x3 on {batch}x3x12x12" in text for batch in (3, 1)) and "times as fast" in text


def test_without_a_bar_where_tqdm_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    command = ["bench", "benched_networks:small", "--size", "12", "--rounds", "1", "--device", "cpu"]
    assert main(command) == 0
    assert "optimized" in capsys.readouterr().out


@pytest.mark.slow
def test_compiled_too(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "benched_networks:small", "--size", "12", "--rounds", "1", "--device", "cpu"]
    assert main([*command, "--compile", "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert "torch.compile " in printed and "torch.compile, convx" in printed


def _sevens(file: str, threads: int) -> Any:
    """An engine: it loads what _file has written, and says sevens."""
    shape = json.loads(Path(file).read_text())
    return lambda images: np.full(shape, 7, dtype=images.dtype)


def _wrong(file: str, threads: int) -> Any:
    raise ValueError("not for me\nat all")


def _file(model: nn.Module, x: Tensor, file: str) -> None:
    Path(file).write_text(json.dumps(list(model(x).shape)))


def _ends(file: str, threads: int) -> Any:
    os._exit(3)


def test_engines_in_processes_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engines = {"Sevens": ("json", _sevens), "Wrong": ("json", _wrong), "Ends": ("json", _ends)}
    monkeypatch.setattr(_peers, "ENGINES", {**engines, "Missing": ("no_such_engine", _sevens)})
    monkeypatch.setattr(_peers, "_export", _file)
    command = ["bench", "benched_networks:small", "--size", "12", "--rounds", "2", "--device", "cpu"]
    assert main([*command, "--quiet"]) == 0
    said = capsys.readouterr()
    line = next(line.split() for line in said.out.splitlines() if line.startswith("Sevens"))
    assert float(line[2]) > 0 and float(line[-1]) > 1
    assert "not timed: Wrong, 1 images: ValueError: not for me\n" in said.err
    assert "not timed: Ends, 1 images: RuntimeError: its process has ended" in said.err
    assert "Missing" not in said.out + said.err
    assert not multiprocessing.active_children()


def test_what_engines_get_no_onnx_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuses(*_: Any) -> None:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(_peers, "ENGINES", {"Sevens": ("json", _sevens)})
    monkeypatch.setattr(_peers, "_export", refuses)
    command = ["bench", "benched_networks:small", "--size", "12", "--rounds", "1", "--device", "cpu"]
    assert main([*command, "--quiet"]) == 0
    assert (
        "not timed: Sevens, 1 images: no ONNX of it: RuntimeError: no such operator"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("name", list(_peers.ENGINES))
def test_each_engine_says_what_torch_says(name: str) -> None:
    for needed in (_peers.ENGINES[name][0], "onnx", "onnxscript"):
        pytest.importorskip(needed, reason="pip install convx[peers]")
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU6(), nn.Conv2d(16, 8, 1)).eval()
    x = torch.randn(2, 3, 12, 13)
    with torch.no_grad(), _peers.peers(model, x, [name]) as (found, problems):
        assert not problems
        torch.testing.assert_close(found[name].result, model(x), rtol=1e-4, atol=1e-5)
        assert found[name].us(3) > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such_network"], "no model 'no_such_network'"),
        (["benched_networks:small", "--batch", "1,x"], "--batch takes numbers of images"),
        (["benched_networks:small", "--batch", "0"], "--batch takes numbers of images"),
        (["benched_networks:small", "--rounds", "0"], "--rounds must be at least 1"),
        (["benched_networks:small", "--device", "cpu", "--channels", "4"], "can't run on images of shape"),
    ],
)
def test_what_cannot_be_timed(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["bench", *arguments])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
