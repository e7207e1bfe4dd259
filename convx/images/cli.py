"""`python -m convx filter`: filters a photo."""

from __future__ import annotations

import argparse
import importlib
import io
import math
import re
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from convx.images import borders
from convx.images.functional import filter2d
from convx.images.layers import GaussianBlur2d, Sobel2d


class CommandError(Exception):
    """What is wrong with the command line or a file, for the user."""


def _finite(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(f"'{word}' is not finite")
    return number


def parse_filter(text: str) -> list[list[float]]:
    """The rows of "1 2 1; 2 4 2; 1 2 1"; commas may stand between the numbers.

    >>> parse_filter("0 1; -1, 0.5")
    [[0.0, 1.0], [-1.0, 0.5]]
    """
    rows = []
    for line in text.split(";"):
        try:
            rows.append([_finite(word) for word in line.replace(",", " ").split()])
        except ValueError as error:
            raise CommandError(f"--filter takes rows of numbers between semicolons: {error}") from None
    if not rows[0] or any(len(row) != len(rows[0]) for row in rows):
        lengths = ", ".join(str(len(row)) for row in rows)
        raise CommandError(
            f'--filter takes rows of equal length, as "1 2 1; 2 4 2; 1 2 1"; got {lengths} numbers'
        )
    return rows


def _filter_of(options: argparse.Namespace) -> Tensor:
    """What --filter and --normalize name, in float32, whose sums over any photo are finite."""
    weights = torch.tensor(parse_filter(options.filter), dtype=torch.float64)
    if options.normalize:
        total = weights.sum()
        if total == 0:
            raise CommandError("--normalize divides by the sum of the filter, which is 0")
        weights = weights / total if total.isfinite() else weights
    largest = torch.finfo(torch.float32).max
    if not float(weights.abs().sum()) * 255 <= largest:
        divided = ", divided by its sum," if options.normalize else ""
        raise CommandError(
            f"--filter{divided} overflows on photos: 255 times the sum of its numbers' magnitudes must be at "
            f"most {largest:.3g}"
        )
    return weights.float()


def apply(photo: Tensor, options: argparse.Namespace) -> Tensor:
    """The filter that the command names, on (channels, height, width) in uint8."""
    if options.gaussian is not None:
        if not 0 < options.gaussian < float("inf"):
            raise CommandError(f"--gaussian takes a sigma above 0, in pixels, got {options.gaussian}")
        blur = GaussianBlur2d(options.gaussian, border=options.border)
        return blur.to(photo.device)(photo)  # type: ignore[no-any-return]
    if options.sobel:
        return Sobel2d(border=options.border).to(photo.device)(photo)  # type: ignore[no-any-return]
    return filter2d(photo, _filter_of(options).to(photo.device), options.border)


def filtered(photo: Tensor, options: argparse.Namespace) -> Tensor:
    """What apply makes of a photo on the device that the command names."""
    try:
        photo = photo.to(options.device)
    except (RuntimeError, AssertionError, ImportError) as error:  # torch without that device asserts
        raise CommandError(f"--device {options.device}: {error}") from None
    try:
        return apply(photo, options).cpu()
    except (RuntimeError, ValueError, OverflowError) as error:
        raise CommandError(f"the photo can't be filtered on {options.device}: {error}") from None


def _library(module: str) -> Any:
    """A module that photos need and torch does not."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise CommandError(
            f"photos are read and written by Pillow and numpy: pip install pillow numpy ({error})"
        ) from None


def _require_8_bits(path: Path, image: Any) -> None:
    """Of a photo before it is loaded: of colours with 16 bits Pillow loads the upper 8 without a word."""
    if any(re.search(";16[BLN]", str(arguments)) for *_, arguments in image.tile):
        raise CommandError(f"{path} has 16 bits a channel; photos of 8 bits a channel are supported")
    if image.mode not in ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"):
        raise CommandError(
            f"{path} has pixels of mode {image.mode}; photos of 8 bits a channel are supported"
        )


def _upright(image: Any) -> Any:
    """As its camera was held; a photo stays as it lies where its EXIF data can't be read."""
    try:
        return _library("PIL.ImageOps").exif_transpose(image)
    except SyntaxError:
        return image


def _open(path: Path) -> Any:
    pillow = _library("PIL.Image")
    try:
        with pillow.open(path) as image:  # closes the file, also where it is of several pictures or none
            _require_8_bits(path, image)
            image.load()
            return _upright(image)
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise CommandError(f"{path} can't be read as a photo: {error}") from None


def read(path: Path, gray: bool) -> tuple[Tensor, Tensor | None]:
    """A photo as (1 or 3, height, width) in uint8, and its transparency as (1, height, width)."""
    np = _library("numpy")
    image = _open(path)
    transparent = "A" in image.mode or "transparency" in image.info
    alpha = torch.from_numpy(np.array(image.convert("RGBA"))[None, :, :, 3]) if transparent else None
    gray = gray or image.mode in ("1", "L", "LA")
    pixels = torch.from_numpy(np.array(image.convert("L" if gray else "RGB")))
    return (pixels.unsqueeze(0) if gray else pixels.permute(2, 0, 1)), alpha


def write(path: Path, photo: Tensor, alpha: Tensor | None) -> None:
    """Into memory first, so that a file that is there already outlives a photo that can't be written."""
    channels = [photo] if alpha is None else [photo, alpha]
    pixels = torch.cat(channels).permute(1, 2, 0).contiguous().squeeze(-1).numpy()
    pillow = _library("PIL.Image")
    format = pillow.registered_extensions().get(path.suffix.lower())
    if format not in pillow.SAVE:
        raise CommandError(f"{path} can't be written: Pillow writes no files of type '{path.suffix}'")
    encoded = io.BytesIO()
    try:
        pillow.fromarray(pixels).save(encoded, format)
        path.write_bytes(encoded.getvalue())
    except Exception as error:  # each of Pillow's writers has errors of its own
        raise CommandError(f"{path} can't be written: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m convx filter",
        description="Filters a photo, each colour channel by itself; transparency stays.",
        epilog='as in: python -m convx filter photo.png --filter "0 -1 0; -1 5 -1; 0 -1 0" -o sharp.png',
    )
    add = parser.add_argument
    add("photo", type=Path, help="a file that Pillow reads, 8 bits a channel")
    add("-o", "--output", type=Path, required=True, help="the file to write, of a type that Pillow writes")
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--sobel", action="store_true", help="edges: the gradient's length, of the gray photo")
    kind.add_argument("--gaussian", type=float, metavar="SIGMA", help="blur, standard deviation in pixels")
    kind.add_argument("--filter", metavar="ROWS", help='any filter, as "1 2 1; 2 4 2; 1 2 1"')
    add("--normalize", action="store_true", help="with --filter: divide it by its sum")
    add("--border", choices=borders.BORDERS, default="reflect", help="outside of the photo, default reflect")
    add("--gray", action="store_true", help="make the photo gray first")
    add("--device", default="cpu", help='where to filter: "cpu" or "cuda", default cpu')
    return parser


def main(arguments: list[str]) -> int:
    """Runs the command and returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        if options.normalize and options.filter is None:
            raise CommandError("--normalize goes with --filter")
        photo, alpha = read(options.photo, options.gray or options.sobel)
        result = filtered(photo, options)
        write(options.output, result, alpha)
    except CommandError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    height, width = result.shape[-2:]
    print(f"{options.output}: {width} x {height}, {'gray' if result.size(0) == 1 else 'colour'}")
    return 0
