"""Models that a command is told by name, and images for them."""

from __future__ import annotations

import argparse
import copy
import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from convx._arguments import CONVOLUTIONS, PRODUCTS, tf32_setting

_DTYPES = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}
_TF32_OF_DTYPES = {"float32": 0, "tf32": CONVOLUTIONS + PRODUCTS}  # as tf32_setting has it
LAYOUTS = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}
_NAMES = "torchvision:NAME, timm:NAME, FILE.py:FUNCTION, MODULE:FUNCTION"


class Given(NamedTuple):
    """A model and images for it, both in one layout."""

    layout: str
    model: Module
    images: Tensor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All but the batch, and one layout."""
    parser.add_argument(
        "model",
        help="torchvision:NAME, timm:NAME, or NAME of either; or a network of your own: FILE.py:FUNCTION or "
        "MODULE:FUNCTION, where FUNCTION takes no arguments and returns it",
    )
    parser.add_argument("--size", type=int, default=224, help="height and width of the images (default: 224)")
    parser.add_argument("--channels", type=int, default=3, help="channels of the images (default: 3)")
    parser.add_argument("--device", help="cpu or cuda (default: the GPU where there is one)")
    parser.add_argument(
        "--dtype",
        choices=list(_DTYPES),
        help="tf32 is float32 with TF32 allowed in convolutions and matrix products, on GPUs; float32 is "
        "without TF32 (default: float32, with TF32 where torch's settings allow it)",
    )
    parser.add_argument(
        "--channels-last",
        dest="layout",
        action="store_const",
        const="channels_last",
        default="nchw",
        help="layout channels_last",
    )


def require_positive(parser: argparse.ArgumentParser, options: argparse.Namespace, *names: str) -> None:
    """Ends the command where one is not."""
    for name in names:
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")


def build(name: str) -> Module:
    """The model of that name, with random weights; ValueError where there is none."""
    where, _, what = name.rpartition(":")
    library, _, network = name.partition(":")
    if library in _LIBRARIES and network:
        return _of_library(name, library, network)
    if where.endswith(".py") or name.endswith(".py"):
        return _of_file(name, where, what)
    if what.isidentifier() and all(part.isidentifier() for part in where.split(".")):
        return _own(name, "MODULE is imported", lambda: importlib.import_module(where), what)
    return _of_either_library(name)


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _of_library(name: str, library: str, network: str) -> Module:
    from convx.demo._torchvision import import_torchvision

    try:
        import_torchvision()
        models = importlib.import_module(f"{library}.models")
    except Exception as error:  # a library that was built for another torch raises others than ImportError
        raise ValueError(
            f"{name}: {library} can't be imported: {_said(error)}; pip install {library}"
        ) from error
    try:
        return _LIBRARIES[library](network)
    except Exception as error:  # of whatever kind the library has for a name that it doesn't know
        close = difflib.get_close_matches(network, models.list_models())
        raise ValueError(
            f"{name}: {_said(error)}; {library}.models.list_models() has the names"
            + (f", {', '.join(close)} among them" if close else "")
        ) from error


def _of_either_library(name: str) -> Module:
    tried = []
    for library, make in _LIBRARIES.items():
        try:
            return make(name)
        except Exception as error:  # of whatever kind the library has for a name that it doesn't know
            tried.append(f"{library}: {_said(error)}")
    raise ValueError(
        f"no model '{name}' ({'; '.join(tried)}); supported: {_NAMES}, or NAME of either library"
    )


def _of_file(name: str, file: str, function: str) -> Module:
    if not function.isidentifier() or not file:
        raise ValueError(f"{name} names no function; supported: {_NAMES}")
    path = Path(file).resolve()
    if not path.is_file():
        raise ValueError(f"{name}: there is no file {path}; supported: {_NAMES}")
    return _own(name, "FILE.py is run as `python FILE.py` runs it", lambda: _module_of(path), function)


def _module_of(path: Path) -> ModuleType:
    """The module that a file makes. Its folder comes first on sys.path, as for `python FILE`."""
    # Not by its own name: a file may be called as a module of Python's or of torch's is.
    spec = importlib.util.spec_from_file_location(f"_file_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses and torch.compile look
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module


def _own(name: str, how: str, module: Callable[[], ModuleType], function: str) -> Module:
    try:
        model = getattr(module(), function)()
    except Exception as error:  # the user's code may raise anything
        raise ValueError(
            f"{name}: {type(error).__name__}: {error}; "
            f"{how} and FUNCTION called without arguments, and returns the model; supported: {_NAMES}"
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
    from convx.demo._torchvision import import_torchvision

    import_torchvision()
    return importlib.import_module("timm").create_model(name, pretrained=False)  # type: ignore[no-any-return]


_LIBRARIES: dict[str, Callable[[str], Module]] = {"torchvision": _of_torchvision, "timm": _of_timm}


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


def _require_tf32(device: torch.device) -> None:
    """ValueError where --dtype tf32 would be float32."""
    others = ", ".join(name for name in _DTYPES if name != "tf32")
    if device.type != "cuda":
        raise ValueError(f"--dtype tf32: --device {device} has no TF32, GPUs do; supported there: {others}")
    with torch.cuda.device(device):
        if not torch.cuda.is_tf32_supported():
            name = torch.cuda.get_device_name()
            raise ValueError(f"--dtype tf32: {name} has no TF32; supported there: {others}")


def _allow_tf32(setting: int) -> None:
    torch.backends.cudnn.allow_tf32 = bool(setting & CONVOLUTIONS)
    torch.backends.cuda.matmul.allow_tf32 = bool(setting & PRODUCTS)


@contextmanager
def tf32_of(dtype: str | None) -> Iterator[None]:
    """torch's TF32 settings as a --dtype asks for them, for a while: on for tf32, off for float32."""
    if dtype not in _TF32_OF_DTYPES:
        yield
        return
    before = tf32_setting(True, torch.float32)
    _allow_tf32(_TF32_OF_DTYPES[dtype])
    try:
        yield
    finally:
        _allow_tf32(before)


def _require_runs(name: str, given: Given) -> None:
    """ValueError where the model doesn't take such images."""
    try:
        with torch.no_grad():
            given.model(given.images)
    except Exception as error:  # the model's own
        raise ValueError(
            f"{name} can't run on images of shape {tuple(given.images.shape)} in layout {given.layout}: "
            f"{_said(error)}; --batch, --channels, --size and --dtype give others"
        ) from error


def models_and_images(
    options: argparse.Namespace, layouts: Sequence[str], batches: Sequence[int]
) -> list[Given]:
    """The model on its device in each layout, with the same images of each batch; ValueError where the
    options don't go together."""
    device, dtype = _device(options.device), _DTYPES[options.dtype or "float32"]
    if options.dtype == "tf32":
        _require_tf32(device)
    model = build(options.model).to(device, dtype).eval()
    shape = (options.channels, options.size, options.size)
    images = [torch.randn(batch, *shape, device=device, dtype=dtype) for batch in batches]
    found = []
    for layout in layouts:
        # Weights of one input channel that went to channels_last and back would keep its strides.
        laid_out = copy.deepcopy(model) if len(layouts) > 1 else model
        laid_out.to(memory_format=LAYOUTS[layout])  # type: ignore[call-overload]
        found += [Given(layout, laid_out, x.to(memory_format=LAYOUTS[layout])) for x in images]
    for given in found:
        _require_runs(options.model, given)
    return found
