"""The main job, the examples and the README's code do what they say."""

from __future__ import annotations

import base64
import contextlib
import io
import re
import runpy
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from models import torchvision_network

import convx.demo
from convx.demo.compare import LayerResult, NetworkResult, WholeResult, examine
from convx.demo.fusions import sentence
from convx.demo.photo_filters import FilterResult
from convx.optimize.report import FusionReport

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
ROOT = Path(__file__).resolve().parents[2]
plots = pytest.importorskip("convx.demo.plots")  # matplotlib
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
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert convx.demo.main(["--quick", "--device", "cpu", "--output", str(folder)]) == 0
    (folder / "printed.txt").write_text(printed.getvalue(), encoding="utf-8")
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


def test_the_optimized_network_is_shown_first(report: Path) -> None:
    printed = (report / "printed.txt").read_text(encoding="utf-8")
    tables = [re.sub(r" +", " ", line) for line in printed.splitlines() if "native" in line]
    assert tables[0] == "whole network optimized ms native ms faster converted ms faster"
    assert tables[1] == "largest error against float64 optimized native converted"
    assert re.findall(r"^(.*)\. Fused: ", printed, re.MULTILINE) == ["MobileNetV2", "ResNet-18"]
    assert "into 20 convolutions: 20 batch norm, 17 relu, 8 residual" in printed
    text = (report / "report.html").read_text(encoding="utf-8")
    heads = re.findall(r'<th class="number">(.*?)</th>', text)
    assert heads[:5] == ["optimized", "native", "times faster", "converted", "times faster"]
    assert heads[5:8] == ["optimized", "native", "converted"]
    first_cards = re.findall(r"<div class='cards'><div class=\"card \"><b>(.*?)</b><span>(.*?)<", text)
    assert len(first_cards) == 2 and all("faster optimized" in caption for _, caption in first_cards)


def test_times_of_the_whole_network_are_in_the_places_of_their_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """The optimized one's calls are the first, the native one's the next."""
    called: list[list[str]] = []

    def compare(calls: list[partial[torch.Tensor]], *_: object, **__: object) -> list[float]:
        called.append([type(call.func).__name__ for call in calls])
        return [10.0 * (index + 1) for index in range(len(calls))]

    monkeypatch.setattr("convx.demo.compare.compare", compare)
    result = examine("net", small_network(), torch.randn(1, 3, 16, 16), "channels_last", 1, print, tune=False)
    whole = [each for each in called if each[0] == "OptimizedModel"]
    assert [each[:3] for each in whole] == [["OptimizedModel", "Sequential", "Sequential"]] * 2
    nchw, last = result.whole
    assert (nchw.layout, last.layout, result.main) == ("nchw", "channels_last", last)
    assert (last.optimized_us, last.native_us, last.convx_us) == (10.0, 20.0, 30.0)
    assert last.optimized_speedup == 2 and last.speedup == pytest.approx(2 / 3)
    assert [each.whole_us for each in result.forced] == [
        (20.0, 10.0 * (index + 4)) for index in range(len(result.forced))
    ]
    assert len(whole[0]) == 3 and len(whole[1]) == 3 + len(result.forced) > 3


def test_the_optimized_network_is_the_first_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(plots, "png", lambda figure: drawn.append(figure) or b"")
    whole = [WholeResult("nchw", way, 1000.0, 4000.0, 2000.0) for way in ("eager", "graph")]
    plots.totals([NetworkResult("net", 1, "nchw", [], whole, 0.0, 0.0, 0.0)])
    (axis,) = drawn[0].axes
    bars = sorted(axis.patches, key=lambda bar: bar.get_x())
    assert [bar.get_height() for bar in bars] == [1.0, 4.0, 2.0] * 2
    assert [text.get_text() for text in axis.texts][:3] == ["1.0 ms\n4.00x", "4.0 ms", "2.0 ms\n2.00x"]
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["nchw, eager", "nchw, graph"]


@pytest.mark.parametrize("tune", [True, False])
def test_a_wrong_optimized_network_disagrees(monkeypatch: pytest.MonkeyPatch, tune: bool) -> None:
    made = convx.optimize
    asked: list[bool] = []

    def wrong(model: torch.nn.Module, images: torch.Tensor, *, tune: bool) -> convx.OptimizedModel:
        asked.append(tune)
        optimized = made(model, images, tune=False)
        optimized.register_forward_hook(lambda module, given, result: result * 1.001)
        return optimized

    x = torch.randn(1, 3, 16, 16)
    assert examine("net", small_network(), x, "nchw", 1, lambda what: None, tune=False).agrees
    monkeypatch.setattr(convx, "optimize", wrong)
    result = examine("net", small_network(), x, "nchw", 1, lambda what: None, tune=tune)
    assert asked == [tune] and not result.agrees
    assert result.optimized_error > 1e-4 > result.convx_error


def small_network() -> torch.nn.Module:
    torch.manual_seed(0)
    convolution = torch.nn.Conv2d(3, 8, 3, bias=False)
    layers = (convolution, torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten())
    return torch.nn.Sequential(*layers).eval()


def fusion(method: str, *fused: str, reason: str = "") -> FusionReport:
    return FusionReport("layer", "", fused, method, reason)


def optimization(*rows: FusionReport, reason: str = "", **options: bool) -> convx.OptimizationReport:
    return convx.OptimizationReport(
        rows,
        reason,
        "as given",
        cuda_graphs=options.pop("cuda_graphs", False),
        native_us=2.0,
        optimized_us=1.0,
        native_error=0.0,
        optimized_error=0.0,
        **options,
    )


def test_what_was_fused_is_counted() -> None:
    blocks = [fusion("inverted_residual", "expand", "depthwise", "project")] * 2
    layers = [fusion("native", "batch norm", "relu"), fusion("pointwise", "batch norm"), fusion("native")]
    left = fusion("", "batch norm", reason="a dtype")
    assert sentence(optimization(*blocks, *layers, left, cuda_graphs=True)) == (
        "Fused: 2 inverted residual blocks by one call each; into 2 convolutions: 2 batch norm, 1 relu. "
        "Works in the input's layout, as a CUDA graph."
    )
    assert sentence(optimization(fusion("squeeze_excite", "mean"), by_image=True)) == (
        "Fused: 1 squeeze-and-excitation by one call each. Works in the input's layout, image by image."
    )
    assert sentence(optimization(fusion("native"), reason="torch's own layers take less time")) == (
        "Fused: nothing, torch's own layers take less time. Works in the input's layout."
    )


def layer_result(method: str, converted: bool) -> LayerResult:
    return LayerResult("features.0", "dense 3x3", "1x3x8x8", converted, method, "", 2.0, 1.0)


def test_who_runs_the_layers_is_counted_by_their_methods() -> None:
    layers = [layer_result("depthwise/strip", True)] * 3 + [layer_result("native", True)] * 2
    layers += [layer_result("native/matmul", True), layer_result("", False)]
    result = NetworkResult("net", 1, "nchw", layers, [], 0.0, 0.0, 0.0)
    assert result.who == (
        "3 of 7 convolutions run on convx's kernels, 3 on torch's, ahead of which nothing was measured, "
        "1 could not be converted"
    )
    assert NetworkResult("net", 1, "nchw", layers[:3], [], 0.0, 0.0, 0.0).who == (
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
    result = examine("googlenet", model, torch.randn(1, 3, 32, 32), "nchw", 1, lambda what: None, tune=False)
    assert len(result.layers) == 57 < len([m for m in model.modules() if isinstance(m, torch.nn.Conv2d)])
    counts = {each.method: each.layers for each in result.forced}
    assert counts["hntmp"] == counts["cuconv"] == 57 and all(count <= 57 for count in counts.values())


@pytest.mark.gpu
def test_main_job_on_a_gpu(tmp_path: Path) -> None:
    torchvision_network("mobilenet_v2")
    arguments = ["--quick", "--device", "cuda", "--batch", "4", "--output", str(tmp_path)]
    assert convx.demo.main(arguments) == 0
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert torch.cuda.get_device_name() in text
    for name in ("MobileNetV2", "ResNet-18"):
        for layout in ("nchw", "channels_last"):
            assert all(f"{name}, {layout}, {way}, batch 4" in text for way in ("eager", "graph"))


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


@pytest.mark.slow
def test_digits_learns_the_same_with_both(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    main = runpy.run_path(str(ROOT / "examples" / "digits.py"))["main"]
    curves = main(["--epochs", "10", "--device", "cpu", "--output", str(tmp_path / "digits.png")])
    assert all(accuracies[-1] > 0.97 for accuracies in curves.values())
    first = [accuracies[0] for accuracies in curves.values()]
    assert abs(first[0] - first[1]) < 0.05
    assert (tmp_path / "digits.png").stat().st_size > 10_000
