"""`python -m convx bench`, and what it says where it can't."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from convx import _named_models, _peers, bench
from convx.__main__ import main
from convx._arguments import is_channels_last
from convx._named_models import Given
from convx.demo import _torchvision
from convx.optimize import OptimizationReport


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
        "def depthwise(): return nn.Conv2d(3, 3, 3, groups=3)\n"
        "class Viewing(nn.Conv2d):\n"
        "    def forward(self, x): return super().forward(x).view(-1)\n"
        "def viewing(): return Viewing(3, 6, 3)\n"
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
    assert main([*command, "--device", device, "--layout", "channels_last,nchw", *outputs]) == 0
    html = page.read_text()
    text = capsys.readouterr().out
    assert "convx: benched_networks:small" in html and f"3x12x12, {device}" in html
    cases = [(layout, batch) for layout in ("channels_last", "nchw") for batch in (1, 3)]
    for layout, batch in cases:
        title = f"Optimized, {layout}, {batch} image{'s' if batch > 1 else ''}"
        assert f"<h2>{title}</h2>" in html
        # On a CPU the layers of a batch may be of one image.
        section = text.partition(f"\n{title}\n")[2].partition("\nOptimized, ")[0]
        assert f"3->6 3x3 on {batch}x3x12x12" in section or "3->6 3x3 on 1x3x12x12" in section
        assert "times as fast" in section
    assert html.count("3-&gt;6 3x3") == 4
    found = json.loads(file.read_text())
    expected = ["torch", "converted", "optimized"]
    if device == "cuda":
        expected += ["torch, CUDA graph", "converted, CUDA graph"]
    assert [(row["layout"], row["batch"], row["way"]) for row in found["rows"]] == [
        (*case, way) for case in cases for way in expected
    ]
    for row in found["rows"]:
        assert row["us"] > 0 and row["over_torch"][0] <= row["over_torch"][1] and row["error"] < 1e-2
        assert row["way"] in text
    assert [(report["given_layout"], report["batch"]) for report in found["reports"]] == cases
    assert all(report["rows"][0]["name"] == "0" for report in found["reports"])


def _measure_nothing(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Given, tuple[bool, bool]]]:
    """What would be measured, with torch's TF32 settings then: of convolutions, of matrix products."""
    seen: list[tuple[Given, tuple[bool, bool]]] = []

    def note(given: Given, rounds: int, compiled: bool) -> tuple[bench.Measured, dict[str, str]]:
        seen.append((given, _tf32()))
        row = bench.Row(given.layout, len(given.images), "torch", 1.0, (1.0, 1.0), 0.0)
        report = OptimizationReport((), "", "nchw", False, 1.0, 1.0, 0.0, 0.0)
        return bench.Measured(given.layout, len(given.images), [row], report), {}

    monkeypatch.setattr(bench, "measure", note)
    return seen


def _tf32() -> tuple[bool, bool]:
    return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


@pytest.fixture(params=[(True, False), (False, True), (True, True), (False, False)])
def before(request: pytest.FixtureRequest) -> Iterator[tuple[bool, bool]]:
    """torch's TF32 settings as a user may have set them."""
    kept = _tf32()
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = request.param
    yield request.param
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = kept


@pytest.mark.parametrize(
    ("options", "layouts"),
    [
        ([], ["nchw"]),
        (["--channels-last"], ["channels_last"]),
        (["--layout", "channels_last"], ["channels_last"]),
        (["--layout", "channels_last,nchw,channels_last"], ["channels_last", "nchw"]),
    ],
)
def test_layouts_of_the_network_and_the_images(
    options: list[str], layouts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _measure_nothing(monkeypatch)
    command = ["bench", "benched_networks:depthwise", "--size", "12", "--batch", "2,2,3", "--device", "cpu"]
    assert main([*command, "--quiet", *options]) == 0
    cases = [(layout, batch) for layout in layouts for batch in (2, 3)]
    assert [(given.layout, len(given.images)) for given, _ in seen] == cases
    for given, _ in seen:
        for tensor in (given.images, given.model(given.images)):
            assert is_channels_last(tensor) == (given.layout == "channels_last")
    for (one, _), (other, _) in zip(seen[:2], seen[-2:], strict=True):
        assert torch.equal(one.images, other.images)


@pytest.mark.parametrize(
    ("device", "options", "expected"),
    [
        ("cpu", [], None),
        ("cpu", ["--dtype", "float32"], (False, False)),
        ("cpu", ["--dtype", "bfloat16"], None),
        pytest.param("cuda", ["--dtype", "tf32"], (True, True), marks=pytest.mark.gpu),
    ],
)
def test_tf32_while_measuring_alone(
    device: str,
    options: list[str],
    expected: tuple[bool, bool] | None,
    before: tuple[bool, bool],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = _measure_nothing(monkeypatch)
    command = ["bench", "benched_networks:small", "--size", "12", "--device", device, "--quiet"]
    assert main([*command, *options]) == 0
    assert [settings for _, settings in seen] == [expected or before]
    assert _tf32() == before
    assert ("TF32 in convolutions and matrix products" in capsys.readouterr().out) == (device == "cuda")


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("tf32", (True, True)), ("float32", (False, False)), ("float16", None), (None, None)],
)
def test_tf32_until_stopped(
    dtype: str | None, expected: tuple[bool, bool] | None, before: tuple[bool, bool]
) -> None:
    with pytest.raises(KeyboardInterrupt), _named_models.tf32_of(dtype):
        assert _tf32() == (expected or before)
        raise KeyboardInterrupt
    assert _tf32() == before


@pytest.mark.parametrize("name", ["file", "torchvision:squeezenet1_1"])
def test_names_of_every_kind(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = _measure_nothing(monkeypatch)
    network = nn.Sequential(nn.Conv2d(3, 4, 1))
    monkeypatch.setitem(_named_models._LIBRARIES, "torchvision", {"squeezenet1_1": network}.__getitem__)
    if name == "file":
        name = f"{tmp_path / 'benched_networks.py'}:small"
    else:
        monkeypatch.setattr(_torchvision, "import_torchvision", lambda: None)
        monkeypatch.setitem(sys.modules, "torchvision.models", ModuleType("torchvision.models"))
    assert main(["bench", name, "--size", "12", "--device", "cpu", "--quiet"]) == 0
    assert len(seen) == 1 and f"{name}, 3x12x12, cpu, float32\n" in capsys.readouterr().out


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
    assert float(line[3]) > 0 and float(line[-1]) > 1
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
        (["benched_networks:small", "--layout", "nhwc"], "--layout takes nchw and channels_last"),
        (["benched_networks:small", "--layout", "nchw,"], "separated by commas, got nchw,"),
        (
            ["benched_networks:viewing", "--layout", "nchw,channels_last", "--device", "cpu"],
            "can't run on images of shape (1, 3, 224, 224) in layout channels_last: ",
        ),
        (["benched_networks:small", "--dtype", "half"], "invalid choice: 'half'"),
        (
            ["benched_networks:small", "--dtype", "tf32", "--device", "cpu"],
            "--dtype tf32: --device cpu has no TF32, GPUs do; supported there: float32, float16, ",
        ),
        (["benched_networks:small", "--rounds", "0"], "--rounds must be at least 1"),
        (["benched_networks:small", "--device", "cpu", "--channels", "4"], "can't run on images of shape"),
    ],
)
def test_what_cannot_be_timed(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["bench", *arguments])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
