"""Models that a command is told by name, and images for them."""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Sequence

import torch
from torch.nn import Module

_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All but the batch."""
    parser.add_argument(
        "model", help="a network of torchvision or timm by its name, or MODULE:FUNCTION that makes one"
    )
    parser.add_argument("--size", type=int, default=224, help="height and width of the images (default: 224)")
    parser.add_argument("--channels", type=int, default=3, help="channels of the images (default: 3)")
    parser.add_argument("--device", help="cpu or cuda (default: the GPU where there is one)")
    parser.add_argument("--dtype", choices=list(_DTYPES), default="float32")
    parser.add_argument("--channels-last", action="store_true", help="layout channels_last")


def require_positive(parser: argparse.ArgumentParser, options: argparse.Namespace, *names: str) -> None:
    """Ends the command where one is not."""
    for name in names:
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")


def build(name: str) -> Module:
    """The model of that name, with random weights; ValueError where there is none."""
    module, _, function = name.partition(":")
    if function.isidentifier() and all(part.isidentifier() for part in module.split(".")):
        return _own(name, module, function)
    tried = []
    for library, make in (("torchvision", _of_torchvision), ("timm", _of_timm)):
        try:
            return make(name)
        except Exception as error:  # of whatever kind the library has for a name that it doesn't know
            tried.append(f"{library}: {_said(error)}")
    raise ValueError(f"no model '{name}' ({'; '.join(tried)}); MODULE:FUNCTION names one of your own")


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _own(name: str, module: str, function: str) -> Module:
    try:
        model = getattr(importlib.import_module(module), function)()
    except Exception as error:  # the user's code may raise anything
        raise ValueError(
            f"{name}: {type(error).__name__}: {error}; "
            "MODULE is imported and FUNCTION called without arguments, and returns the model"
        ) from error
    if not isinstance(model, Module):
        raise ValueError(f"{name} makes a {type(model).__name__}, not a torch.nn.Module")
    return model


def _of_torchvision(name: str) -> Module:
    from convx.demo._torchvision import import_torchvision

    builder = import_torchvision().models.get_model_builder(name)
    # Detection and segmentation would fetch weights for what they are built on.
    backbone = (
        {"weights_backbone": None} if "weights_backbone" in inspect.signature(builder).parameters else {}
    )
    return builder(weights=None, **backbone)  # type: ignore[no-any-return]


def _of_timm(name: str) -> Module:
    return importlib.import_module("timm").create_model(name, pretrained=False)  # type: ignore[no-any-return]


def _device(asked: str | None) -> torch.device:
    """The device of that name, by default the GPU where there is one; ValueError where it can't be had."""
    name = asked or ("cuda" if torch.cuda.is_available() else "cpu")
    supported = "cpu, cuda (or cuda:0, cuda:1, ... for one of several GPUs)"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"--device {name}: no such device; supported: {supported}") from None
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"--device {name}: nothing can be measured there; supported: {supported}")
    gpus = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) not in range(gpus):
        count = f"{gpus} GPU{'s' if gpus > 1 else ''}" if gpus else "no GPU"
        raise ValueError(f"--device {name}: torch sees {count} here")
    return device


def _require_runs(model: Module, name: str, image: torch.Tensor) -> None:
    """ValueError where the model doesn't take such images."""
    try:
        with torch.no_grad():
            model(image)
    except Exception as error:  # the model's own
        raise ValueError(
            f"{name} can't run on images of shape {tuple(image.shape)}: {_said(error)}; "
            "--batch, --channels, --size and --dtype give others"
        ) from error


def model_and_images(
    options: argparse.Namespace, batches: Sequence[int]
) -> tuple[Module, list[torch.Tensor]]:
    """The model on its device, and images of each batch; ValueError where the options don't go together."""
    device, dtype = _device(options.device), _DTYPES[options.dtype]
    model = build(options.model).to(device, dtype).eval()
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = []
    for batch in batches:
        size = (batch, options.channels, options.size, options.size)
        image = torch.randn(size, device=device, dtype=dtype)
        images.append(image.to(memory_format=torch.channels_last) if options.channels_last else image)
        _require_runs(model, options.model, images[-1])
    return model, images
