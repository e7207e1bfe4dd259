"""torchvision beside a torch it was not built for: its networks work, its own operators do not."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

_libraries: list[Any] = []  # a Library unregisters its operators when it is collected


def import_torchvision() -> ModuleType:
    """torchvision, also where its compiled operators do not load.

    A CUDA build of torchvision beside a CPU torch fails on import, because it registers fake kernels and
    gradients for operators (nms, roi_align, ...) whose library did not load. With those names defined, the
    import succeeds; classification networks need none of them. timm imports torchvision, so call this first.
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        _define_missing_operators()
        return importlib.import_module("torchvision")


def _define_missing_operators() -> None:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise ImportError("torchvision is not installed")
    sources = [path.read_text() for path in Path(spec.origin).parent.glob("_*_registrations.py")]
    names = {
        name
        for source in sources
        for name in re.findall(r'"torchvision::(\w+)"', source)
        + re.findall(r'register_meta\("(\w+)"', source)
    }
    library = torch.library.Library("torchvision", "DEF")
    for name in sorted(names):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}() -> ()")
    _libraries.append(library)
