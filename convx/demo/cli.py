"""Command line of the demo."""

from __future__ import annotations

import argparse
import os
import pickle
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

import convx
from convx import _libraries
from convx.demo import networks
from convx.demo.compare import LAYOUTS, NetworkResult, examine, steps
from convx.demo.photo_filters import FilterResult, filter_photo
from convx.demo.report import page
from convx.demo.tables import print_filters, print_networks


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m convx demo",
        description="Runs networks on a photo, optimized, native and with their layers converted, and writes "
        "a report.",
    )
    parser.add_argument("--output", type=Path, default=Path("convx-report"), help="folder of the report")
    parser.add_argument(
        "--model", action="append", help="torchvision network (default: mobilenet_v2, resnet18)"
    )
    parser.add_argument("--weights", type=Path, help="state dict for --model, instead of random weights")
    parser.add_argument("--device", help="cpu or cuda (default: the GPU where there is one)")
    parser.add_argument("--batch", type=int, help="images at once (default: 1 on a CPU, 32 on a GPU)")
    parser.add_argument("--layout", choices=LAYOUTS, default="nchw", help="layout of the layer-by-layer part")
    parser.add_argument(
        "--quick", action="store_true", help="fewer repetitions, and optimized by predictions"
    )
    return parser


def run(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.weights and len(options.model or []) != 1:
        parser.error("--weights needs one --model, the network that the file belongs to")
    if options.weights and not options.weights.is_file():
        parser.error(f"--weights: there is no file {options.weights}")
    if options.batch is not None and options.batch < 1:
        parser.error(f"--batch must be at least 1, got {options.batch}")
    try:
        device = torch.device(options.device or _best_device())
    except RuntimeError:
        parser.error(f"--device must be cpu or cuda, got {options.device!r}")
    if device.type not in ("cpu", "cuda"):
        parser.error(f"--device must be cpu or cuda, got {options.device!r}")
    if not torch.cuda.is_available() and device.type == "cuda":
        parser.error(f"--device {options.device}: torch sees no GPU here")
    batch_size = options.batch or (32 if device.type == "cuda" else 1)
    names = options.model or list(networks.NETWORKS)
    begin = time.monotonic()

    image = networks.photo()
    batch = networks.augmentations(image, batch_size).to(device)
    calibration = networks.augmentations(image, 8 if options.quick else 32)
    print(f"Building {', '.join(names)}; {_machine(device)}")
    try:
        models = {name: networks.build(name, options.weights, calibration) for name in names}
    except (ValueError, RuntimeError) as error:  # an unknown network, or a file of another one
        parser.error(str(error))
    except (AttributeError, IndexError, EOFError, pickle.UnpicklingError):
        parser.error(f"--weights: {options.weights} is no state dict that torch.save has written")

    results: list[NetworkResult] = []
    with tqdm(
        total=sum(map(steps, models.values())) + 1, unit="step", mininterval=0.5, dynamic_ncols=True
    ) as bar:

        def progress(what: str) -> None:
            bar.set_postfix_str(what, refresh=False)
            bar.update()

        rounds = 3 if options.quick else 15
        for name, model in models.items():
            title = networks.NETWORKS.get(name, name)
            result = examine(title, model, batch, options.layout, rounds, progress, tune=not options.quick)
            if options.weights is None:
                result.top_classes.clear()  # random weights have no opinion
            results.append(result)
        filtered = filter_photo(image, device, rounds)
        progress("filters on the photo")
    print_networks(results)
    print_filters(filtered)
    seconds = time.monotonic() - begin
    _write(options.output, results, filtered, image, _facts(device, options, seconds))
    print(f"\nReport: {(options.output / 'report.html').resolve()}   ({seconds:.0f} s)")
    agree = [result.agrees for result in results] + [each.agrees for each in filtered]
    return 0 if all(agree) else 1


def _best_device() -> str:
    if not torch.cuda.is_available():
        return "cpu"
    library = _libraries.load()["gpu"]
    if library.loaded:
        return "cuda"
    print(f"There is a GPU, but convx has no kernels for it: {library.reason}\nGoing on with the CPU.")
    return "cpu"


def _write(
    folder: Path,
    results: list[NetworkResult],
    filtered: list[FilterResult],
    image: Any,
    facts: dict[str, str],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text, pictures = page(results, filtered, image, facts)
    (folder / "report.html").write_text(text, encoding="utf-8")
    for name, data in pictures.items():
        (folder / name).write_bytes(data)


def _facts(device: torch.device, options: argparse.Namespace, seconds: float) -> dict[str, str]:
    weights = (
        str(options.weights) if options.weights else "random, batch-norm statistics calibrated on the photo"
    )
    return {
        "machine": _machine(device),
        "system": platform.platform(),
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "convx": convx.__version__,
        "weights": weights,
        "photo": "scikit-image's chelsea",
        "date": time.strftime("%Y-%m-%d"),
        "the whole job took": f"{seconds:.0f} s",
    }


def _machine(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_processor()}, {torch.get_num_threads()} threads of {os.cpu_count()} processors"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()} ({torch.backends.cpu.get_cpu_capability()})"
