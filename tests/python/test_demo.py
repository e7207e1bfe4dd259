"""The main job, the examples and the README's code do what they say."""

from __future__ import annotations

import base64
import re
import runpy
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from models import torchvision_network

import convx.demo
from convx.demo.compare import LayerResult, NetworkResult, examine
from convx.demo.photo_filters import FilterResult

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("matplotlib")
pytest.importorskip("skimage")
pytest.importorskip("tqdm")


class _Links(HTMLParser):
    """Everything that a browser would load."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href", "data")]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torchvision_network("mobilenet_v2")  # skips where there is no torchvision
    folder = tmp_path_factory.mktemp("demo") / "report"
    assert convx.demo.main(["--quick", "--device", "cpu", "--output", str(folder)]) == 0
    return folder


def test_report_is_one_self_contained_file(report: Path) -> None:
    parser = _Links()
    text = (report / "report.html").read_text(encoding="utf-8")
    parser.feed(text)
    assert parser.loaded and all(link.startswith("data:image/png;base64,") for link in parser.loaded)
    assert "script" not in parser.tags and "link" not in parser.tags
    assert "@import" not in text and "url(" not in text


def test_report_names_every_layer_and_its_method(report: Path) -> None:
    text = (report / "report.html").read_text(encoding="utf-8")
    for name in ("mobilenet_v2", "resnet18"):
        for layer, module in torchvision_network(name).named_modules():
            if isinstance(module, torch.nn.Conv2d):
                assert f"<code>{layer}</code>" in text
    assert text.count("outputs agree") == 2
    assert text.count("Each method by name") == 2
    for method in ("depthwise", "pointwise", "hntmp", "cuconv"):  # those that have layers to run on a CPU
        assert f"algorithm=&#x27;{method}&#x27;" in text or f"algorithm='{method}'" in text


def layer_result(method: str, converted: bool) -> LayerResult:
    return LayerResult("features.0", "dense 3x3", "1x3x8x8", converted, method, "", 2.0, 1.0)


def test_who_runs_the_layers_is_counted_by_their_methods() -> None:
    layers = [layer_result("depthwise/strip", True)] * 3 + [layer_result("native", True)] * 2
    layers += [layer_result("native/matmul", True), layer_result("", False)]
    result = NetworkResult("net", 1, "nchw", layers, {}, 0.0, 0.0)
    assert result.who == (
        "3 of 7 convolutions run on convx's kernels, 3 on torch's, ahead of which nothing was measured, "
        "1 could not be converted"
    )
    assert NetworkResult("net", 1, "nchw", layers[:3], {}, 0.0, 0.0).who == (
        "3 of 3 convolutions run on convx's kernels"
    )


def test_pictures_are_written_too(report: Path) -> None:
    names = {path.name for path in report.glob("*.png")}
    kinds = ("layers", "speedups", "methods")
    expected = {
        "totals.png",
        *(f"{name}_{kind}.png" for name in ("mobilenetv2", "resnet18") for kind in kinds),
    }
    photos = {"photo.png", "photo_sharpened.png", "photo_blurred.png", "photo_edges.png"}
    assert names == expected | photos
    text = (report / "report.html").read_text(encoding="utf-8")
    for path in report.glob("*.png"):
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG") and base64.b64encode(data).decode() in text


def test_the_photo_is_filtered(report: Path) -> None:
    text = (report / "report.html").read_text(encoding="utf-8")
    assert "the pictures agree" in text
    assert all(name in text for name in ("Filter2d([[0, -1, 0]", "GaussianBlur2d(3)", "Sobel2d()"))
    pixels = {}
    for path in report.glob("photo*.png"):
        with Image.open(path) as file:
            pixels[path.stem] = np.array(file)
    photo, edges = pixels["photo"], pixels["photo_edges"]
    assert pixels["photo_sharpened"].shape == pixels["photo_blurred"].shape == photo.shape
    assert edges.shape == photo.shape[:2]

    def roughness(name: str) -> float:
        return float(np.abs(np.diff(pixels[name].astype(float), axis=1)).mean())

    assert roughness("photo_sharpened") > 1.5 * roughness("photo") > 3 * roughness("photo_blurred")
    assert 0 < np.median(edges) < edges.max() == 255


def test_filters_are_held_against_float64() -> None:
    right = partial(FilterResult, "", "", "", "", None, 2.0, 1.0)
    assert right(2e-6, 3e-6).agrees and right(0.0, 5e-7).agrees and right(1e-7, 1e-7).speedup == 2
    assert not right(2e-6, 5e-6).agrees and not right(0.0, 2e-6).agrees


def test_layers_that_rest_are_not_counted() -> None:
    """googlenet's auxiliary classifiers have convolutions that run in training alone."""
    model = torchvision_network("googlenet", init_weights=False)
    result = examine("googlenet", model, torch.randn(1, 3, 32, 32), "nchw", 1, lambda what: None)
    assert len(result.layers) == 57 < len([m for m in model.modules() if isinstance(m, torch.nn.Conv2d)])
    counts = {each.method: each.layers for each in result.forced}
    assert counts["hntmp"] == counts["cuconv"] == 57 and all(count <= 57 for count in counts.values())


@pytest.mark.gpu
def test_main_job_on_a_gpu(tmp_path: Path) -> None:
    torchvision_network("mobilenet_v2")
    arguments = ["--quick", "--device", "cuda", "--batch", "4", "--output", str(tmp_path)]
    assert convx.demo.main(arguments) == 0
    assert torch.cuda.get_device_name() in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_weights_of_a_file(tmp_path: Path) -> None:
    model = torchvision_network("squeezenet1_1")
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    arguments = ["--model", "squeezenet1_1", "--weights", str(tmp_path / "weights.pt"), "--quick"]
    assert convx.demo.main([*arguments, "--device", "cpu", "--output", str(tmp_path / "report")]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "no_such_network"], "no_such_network"),
        (["--weights", "weights.pt"], "--weights needs one --model"),
        (["--weights", "missing.pt", "--model", "resnet18"], "there is no file missing.pt"),
        (["--device", "cpu", "--layout", "nhwc"], "--layout"),
        (["--device", "foo"], "--device must be cpu or cuda, got 'foo'"),
        (["--device", "meta"], "--device must be cpu or cuda, got 'meta'"),
        (["--batch", "0"], "--batch must be at least 1, got 0"),
        (["--weights", __file__, "--model", "resnet18", "--quick"], "is no state dict"),
        pytest.param(
            ["--device", "cuda"],
            "torch sees no GPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU here"),
        ),
    ],
)
def test_bad_options_are_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    torchvision_network("resnet18")
    with pytest.raises(SystemExit):
        convx.demo.main(arguments)
    assert message in capsys.readouterr().err


def test_missing_packages_take_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(convx.demo, "_PACKAGES", {"no_such_module": "no-such-package"})
    assert convx.demo.main([]) == 1
    assert capsys.readouterr().out == "The demo needs more packages: pip install no-such-package\n"


def test_readme_code_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


def test_quickstart_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "quickstart.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "2 of 2 convolution layers converted" in printed and "NVIDIA H200" in printed


def test_digits_learns_the_same_with_both(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    main = runpy.run_path(str(ROOT / "examples" / "digits.py"))["main"]
    curves = main(["--epochs", "10", "--device", "cpu", "--output", str(tmp_path / "digits.png")])
    assert all(accuracies[-1] > 0.97 for accuracies in curves.values())
    first = [accuracies[0] for accuracies in curves.values()]
    assert abs(first[0] - first[1]) < 0.05
    assert (tmp_path / "digits.png").stat().st_size > 10_000
