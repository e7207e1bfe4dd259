"""`python -m convx filter`."""

from __future__ import annotations

import importlib.util
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from convx.__main__ import main
from convx.filters.cli import parse_filter
from convx.functional import filter2d
from convx.nn import GaussianBlur2d, Sobel2d

pytestmark = pytest.mark.skipif(importlib.util.find_spec("PIL") is None, reason="needs Pillow")


def save(path: Path, *size: int) -> torch.Tensor:
    """A photo of random pixels, (height, width, channels) or (height, width), and what it holds."""
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return torch.from_numpy(pixels)


def load(path: Path) -> torch.Tensor:
    from PIL import Image

    return torch.from_numpy(np.array(Image.open(path)))


def test_sobel_takes_the_gray_photo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    save(tmp_path / "photo.png", 30, 41, 3)
    output = tmp_path / "edges.png"
    assert main(["filter", str(tmp_path / "photo.png"), "--sobel", "-o", str(output)]) == 0
    gray = torch.from_numpy(np.array(Image.open(tmp_path / "photo.png").convert("L")))
    assert torch.equal(load(output), Sobel2d(border="reflect")(gray))
    assert f"{output}: 41 x 30, gray" in capsys.readouterr().out


def test_gaussian_takes_every_channel(tmp_path: Path) -> None:
    pixels = save(tmp_path / "photo.png", 30, 41, 3)
    arguments = ["filter", str(tmp_path / "photo.png"), "--gaussian", "1.5", "--border", "wrap"]
    assert main([*arguments, "-o", str(tmp_path / "blur.png")]) == 0
    expected = GaussianBlur2d(1.5, border="wrap")(pixels.permute(2, 0, 1))
    assert torch.equal(load(tmp_path / "blur.png").permute(2, 0, 1), expected)


def test_any_filter(tmp_path: Path) -> None:
    pixels = save(tmp_path / "photo.png", 30, 41)
    arguments = ["filter", str(tmp_path / "photo.png"), "--filter", "1 2, 1; 2 4 2; 1 2 1", "--normalize"]
    assert main([*arguments, "-o", str(tmp_path / "blur.png")]) == 0
    weights = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
    assert torch.equal(load(tmp_path / "blur.png"), filter2d(pixels, weights, "reflect"))


def test_transparency_stays(tmp_path: Path) -> None:
    pixels = save(tmp_path / "photo.png", 20, 20, 4)
    arguments = ["filter", str(tmp_path / "photo.png"), "--gaussian", "2", "--gray"]
    assert main([*arguments, "-o", str(tmp_path / "blur.png")]) == 0
    result = load(tmp_path / "blur.png")
    assert result.shape == (20, 20, 2) and torch.equal(result[..., 1], pixels[..., 3])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--filter", "1 2; 3"], "--filter takes rows of equal length.*got 2, 1 numbers"),
        (["--filter", "1 x"], "--filter takes rows of numbers between semicolons.*'x'"),
        (["--filter", ""], "--filter takes rows of equal length.*got 0 numbers"),
        (["--filter", "1 -1", "--normalize"], "--normalize divides by the sum of the filter, which is 0"),
        (["--sobel", "--normalize"], "--normalize goes with --filter"),
        (["--gaussian", "0"], "--gaussian takes a sigma above 0, in pixels, got 0"),
        (["--sobel", "--device", "nowhere"], "--device nowhere: "),
    ],
)
def test_bad_arguments(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "photo.png", 8, 8)
    output = tmp_path / "out.png"
    assert main(["filter", str(tmp_path / "photo.png"), *arguments, "-o", str(output)]) == 2
    error = capsys.readouterr().err
    assert not output.exists() and re.search(message, error), error


def test_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photo, text = tmp_path / "photo.png", tmp_path / "text.png"
    save(photo, 8, 8)
    text.write_text("no photo")
    for source, target, message in (
        (tmp_path / "none.png", tmp_path / "out.png", "none.png can't be read as a photo"),
        (text, tmp_path / "out.png", "text.png can't be read as a photo"),
        (photo, tmp_path / "out.nothing", "out.nothing can't be written"),
        (photo, tmp_path / "nowhere" / "out.png", "out.png can't be written"),
    ):
        assert main(["filter", str(source), "--sobel", "-o", str(target)]) == 2
        assert message in capsys.readouterr().err


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "photo.png", 30, 40, 3)
    example = Path(__file__).resolve().parent.parent / "examples" / "filters.py"
    arguments = [str(tmp_path / "photo.png"), "--output", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", [str(example), *arguments])
    runpy.run_path(str(example), run_name="__main__")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "blur.png",
        "edges.png",
        "sharp.png",
    ]


def test_filters_of_text() -> None:
    assert parse_filter("1 2 1") == [[1, 2, 1]]
    assert parse_filter("0 1; -1, 0.5") == [[0, 1], [-1, 0.5]]


def test_kinds_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["filter", "photo.png", "--sobel", "--gaussian", "1", "-o", "out.png"])
    assert "not allowed with" in capsys.readouterr().err
