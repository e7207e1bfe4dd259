"""`python -m convx filter`."""

from __future__ import annotations

import importlib.util
import re
import runpy
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from convx.__main__ import main
from convx.functional import filter2d
from convx.images import cli
from convx.images.cli import parse_filter
from convx.nn import GaussianBlur2d, Sobel2d

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("PIL") is None, reason="needs Pillow"),
    # A photo that is left open fails the test that opened it.
    pytest.mark.filterwarnings("error::ResourceWarning"),
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
]


def save(path: Path, *size: int) -> torch.Tensor:
    """A photo of random pixels, (height, width, channels) or (height, width), and what it holds."""
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return torch.from_numpy(pixels)


def load(path: Path) -> torch.Tensor:
    from PIL import Image

    with Image.open(path) as photo:
        return torch.from_numpy(np.array(photo))


def test_sobel_takes_the_gray_photo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    save(tmp_path / "photo.png", 30, 41, 3)
    output = tmp_path / "edges.png"
    assert main(["filter", str(tmp_path / "photo.png"), "--sobel", "-o", str(output)]) == 0
    with Image.open(tmp_path / "photo.png") as photo:
        gray = torch.from_numpy(np.array(photo.convert("L")))
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


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
def test_every_kind_of_photo(mode: str, tmp_path: Path) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (20, 31, 4), dtype=np.uint8)
    photo = Image.fromarray(pixels) if "A" in mode else Image.fromarray(pixels[..., :3])
    photo = photo.convert(mode)
    photo.save(tmp_path / "photo.tif")
    arguments = ["filter", str(tmp_path / "photo.tif"), "--gaussian", "1.5", "-o", str(tmp_path / "blur.png")]
    assert main(arguments) == 0
    colours = np.atleast_3d(np.array(photo.convert("L" if mode in ("1", "L", "LA") else "RGB")))
    blurred = GaussianBlur2d(1.5)(torch.from_numpy(colours).permute(2, 0, 1)).permute(1, 2, 0)
    alpha = torch.from_numpy(pixels[..., 3:]) if "A" in mode else torch.empty(20, 31, 0, dtype=torch.uint8)
    assert torch.equal(load(tmp_path / "blur.png"), torch.cat([blurred, alpha], 2).squeeze(-1))


def test_a_transparent_colour_of_a_palette_stays(tmp_path: Path) -> None:
    from PIL import Image

    indices = np.random.default_rng(0).integers(0, 4, (20, 31), dtype=np.uint8)
    photo = Image.fromarray(indices)
    photo.putpalette([0, 0, 0, 250, 10, 20, 30, 240, 50, 60, 70, 230])
    photo.save(tmp_path / "photo.png", transparency=3)
    arguments = ["filter", str(tmp_path / "photo.png"), "--sobel", "-o", str(tmp_path / "edges.png")]
    assert main(arguments) == 0
    result = load(tmp_path / "edges.png")
    assert result.shape == (20, 31, 2)
    assert torch.equal(result[..., 1] == 0, torch.from_numpy(indices) == 3)


@pytest.mark.parametrize(("orientation", "quarters"), [(1, 0), (3, 2), (6, -1), (8, 1)])
def test_photos_are_turned_as_their_camera_was(orientation: int, quarters: int, tmp_path: Path) -> None:
    from PIL import Image

    pixels = save(tmp_path / "photo.png", 20, 30)
    with Image.open(tmp_path / "photo.png") as photo:
        exif = photo.getexif()
        exif[0x112] = orientation
        photo.save(tmp_path / "photo.png", exif=exif)
    arguments = ["filter", str(tmp_path / "photo.png"), "--filter", "1", "-o", str(tmp_path / "turned.png")]
    assert main(arguments) == 0
    assert torch.equal(load(tmp_path / "turned.png"), pixels.rot90(quarters))


def test_photos_with_broken_exif_data_stay_as_they_lie(tmp_path: Path) -> None:
    from PIL import Image

    pixels = save(tmp_path / "photo.png", 20, 30)
    with Image.open(tmp_path / "photo.png") as photo:
        photo.save(tmp_path / "photo.png", exif=b"nothing")
    arguments = ["filter", str(tmp_path / "photo.png"), "--filter", "1", "-o", str(tmp_path / "same.png")]
    assert main(arguments) == 0
    assert torch.equal(load(tmp_path / "same.png"), pixels)


KINDS = [["--sobel"], ["--gaussian", "1.5"], ["--filter", "1 2 1; 2 4 2; 1 2 1", "--normalize"]]


@pytest.mark.parametrize("kind", KINDS, ids=["sobel", "gaussian", "filter"])
def test_filters_go_to_the_device_of_the_photo(kind: list[str]) -> None:
    options = cli._parser().parse_args(["photo.png", *kind, "-o", "out.png"])
    result = cli.apply(torch.empty(3, 20, 30, dtype=torch.uint8, device="meta"), options)
    assert result.device.type == "meta" and result.shape == (3, 20, 30)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS, ids=["sobel", "gaussian", "filter"])
def test_gpus_agree_with_the_cpu(kind: list[str], tmp_path: Path) -> None:
    save(tmp_path / "photo.png", 37, 75, 3)
    results = []
    for device in ("cpu", "cuda"):
        output = tmp_path / f"{device}.png"
        arguments = ["filter", str(tmp_path / "photo.png"), *kind, "--device", device, "-o", str(output)]
        assert main(arguments) == 0
        results.append(load(output))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--filter", "1 2; 3"], "--filter takes rows of equal length.*got 2, 1 numbers"),
        (["--filter", "1 x"], "--filter takes rows of numbers between semicolons.*'x'"),
        (["--filter", ""], "--filter takes rows of equal length.*got 0 numbers"),
        (["--filter", "1 -1", "--normalize"], "--normalize divides by the sum of the filter, which is 0"),
        (["--filter", "nan"], "--filter takes rows of numbers between semicolons: 'nan' is not finite"),
        (["--filter", "1 -inf"], "--filter takes rows of numbers.*'-inf' is not finite"),
        (["--filter", "1e999"], "--filter takes rows of numbers.*'1e999' is not finite"),
        (["--filter", "1e39"], r"--filter overflows on photos: .*must be at most 3.4e\+38"),
        (["--filter", "1e36 -1e36 1e36"], "--filter overflows on photos: "),
        (["--filter", "1e30 -1e30 1e-20", "--normalize"], "--filter, divided by its sum, overf"),
        (["--filter", "1e308 1e308", "--normalize"], "--filter, divided by its sum, overflows"),
        (["--sobel", "--normalize"], "--normalize goes with --filter"),
        (["--gaussian", "0"], "--gaussian takes a sigma above 0, in pixels, got 0"),
        (["--sobel", "--device", "nowhere"], "--device nowhere: "),
        (["--sobel", "--device", "hpu"], "--device hpu: "),
        (["--sobel", "--device", "meta"], "the photo can't be filtered on meta: "),
        (["--gaussian", "1e300"], "the photo can't be filtered on cpu: "),
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


def test_photos_of_several_pictures(tmp_path: Path) -> None:
    """The first counts; Pillow keeps such files open for the others."""
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (2, 20, 31), dtype=np.uint8)
    first, second = map(Image.fromarray, pixels)
    first.save(tmp_path / "photo.tif", save_all=True, append_images=[second])
    arguments = ["filter", str(tmp_path / "photo.tif"), "--filter", "1", "-o", str(tmp_path / "same.png")]
    assert main(arguments) == 0
    assert np.array_equal(load(tmp_path / "same.png"), pixels[0])


def test_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photo, text, short = tmp_path / "photo.png", tmp_path / "text.png", tmp_path / "short.ppm"
    save(photo, 8, 8)
    text.write_text("no photo")
    short.write_text("P6 8 8 100 ")
    for source, target, message in (
        (tmp_path / "none.png", tmp_path / "out.png", "none.png can't be read as a photo"),
        (text, tmp_path / "out.png", "text.png can't be read as a photo"),
        (short, tmp_path / "out.png", "short.ppm can't be read as a photo"),
        (
            photo,
            tmp_path / "out.nothing",
            "out.nothing can't be written: Pillow writes no",
        ),
        (photo, tmp_path / "nowhere" / "out.png", "out.png can't be written"),
    ):
        assert main(["filter", str(source), "--sobel", "-o", str(target)]) == 2
        assert message in capsys.readouterr().err


def test_photos_that_are_too_large(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    save(tmp_path / "photo.png", 8, 8)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert main(["filter", str(tmp_path / "photo.png"), "--sobel", "-o", str(tmp_path / "out.png")]) == 2
    assert "photo.png can't be read as a photo: Image size (64 pixels) exceeds" in capsys.readouterr().err


def test_photos_of_16_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    gray, colour = tmp_path / "gray.png", tmp_path / "colour.png"
    Image.fromarray(np.zeros((4, 5), np.uint16)).save(gray)
    header = struct.pack(">IIBBBBB", 5, 4, 16, 2, 0, 0, 0)  # Pillow writes none of these
    rows = zlib.compress(bytes(4 * (1 + 5 * 6)))
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    colour.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)
    for photo in (gray, colour):
        assert main(["filter", str(photo), "--sobel", "-o", str(tmp_path / "out.png")]) == 2
        message = f"{photo} has 16 bits a channel; photos of 8 bits a channel are supported"
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(("size", "name"), [((8, 8, 4), "out.jpg"), ((1, 70000), "out.gif")])
def test_what_cannot_be_written_leaves_the_file_that_is_there(
    size: tuple[int, ...], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "photo.png", *size)
    (tmp_path / name).write_text("kept")
    assert main(["filter", str(tmp_path / "photo.png"), "--filter", "1", "-o", str(tmp_path / name)]) == 2
    assert f"{name} can't be written: " in capsys.readouterr().err
    assert (tmp_path / name).read_text() == "kept"


@pytest.mark.parametrize("module", ["numpy", "PIL.Image"])
def test_what_has_to_be_installed(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "photo.png", 8, 8)
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["filter", str(tmp_path / "photo.png"), "--sobel", "-o", str(tmp_path / "out.png")]) == 2
    assert "pip install pillow numpy" in capsys.readouterr().err


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "photo.png", 30, 40, 3)
    example = Path(__file__).resolve().parents[2] / "examples" / "filters.py"
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
