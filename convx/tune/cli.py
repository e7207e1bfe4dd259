"""`python -m convx tune MODEL`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

import torch
from torch.nn import Module

from convx.tune.tuning import tune

_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m convx tune",
        description="Measures every way to run a model's convolutions here and records the fastest.",
    )
    parser.add_argument(
        "model", help="a network of torchvision or timm by its name, or MODULE:FUNCTION that makes one"
    )
    parser.add_argument("--batch", type=int, default=1, help="images at once (default: 1)")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images (default: 224)")
    parser.add_argument("--channels", type=int, default=3, help="channels of the images (default: 3)")
    parser.add_argument("--device", help="cpu or cuda (default: the GPU where there is one)")
    parser.add_argument("--dtype", choices=list(_DTYPES), default="float32")
    parser.add_argument("--channels-last", action="store_true", help="layout channels_last")
    parser.add_argument("--training", action="store_true", help="both gradients too")
    parser.add_argument("--force", action="store_true", help="measure again what has a record")
    parser.add_argument("--rounds", type=int, default=7, help="samples of each contender (default: 7)")
    parser.add_argument("--no-generated", action="store_true", help="without generated kernels")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def build(name: str) -> Module:
    """The model of that name, with random weights; ValueError where there is none."""
    if ":" in name:
        module, function = name.split(":", 1)
        try:
            model = getattr(importlib.import_module(module), function)()
        except (ImportError, AttributeError) as error:
            raise ValueError(f"{name}: {error}") from None
        if not isinstance(model, Module):
            raise ValueError(f"{name} makes a {type(model).__name__}, not a torch.nn.Module")
        return model
    from convx.demo._torchvision import import_torchvision

    tried = []
    try:
        return import_torchvision().models.get_model(name, weights=None)  # type: ignore[no-any-return]
    except (ImportError, ValueError) as error:
        tried.append(f"torchvision: {error}")
    try:
        timm = importlib.import_module("timm")
        return timm.create_model(name, pretrained=False)  # type: ignore[no-any-return]
    except (ImportError, RuntimeError, ValueError) as error:
        tried.append(f"timm: {error}")
    raise ValueError(f"no model '{name}' ({'; '.join(tried)}); MODULE:FUNCTION names one of your own")


def main(arguments: Sequence[str] | None = None) -> int:
    """Tunes, prints the report, and returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error(f"--device {options.device}: torch sees no GPU here")
    for name in ("batch", "size", "channels", "rounds"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    try:
        model = build(options.model).to(device, _DTYPES[options.dtype]).eval()
    except ValueError as error:
        parser.error(str(error))
    image = torch.randn(
        options.batch,
        options.channels,
        options.size,
        options.size,
        device=device,
        dtype=_DTYPES[options.dtype],
    )
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        image = image.to(memory_format=torch.channels_last)
    operations = ("forward", "input_grad", "weight_grad") if options.training else ("forward",)
    try:
        report = tune(
            model,
            image,
            operations=operations,
            force=options.force,
            rounds=options.rounds,
            generate=not options.no_generated,
            progress=not options.quiet,
        )
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
    print(report)
    return 0
