"""Loads convx's binaries. A missing or broken one never breaks `import convx`: the reason is kept."""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

import torch

PACKAGE = Path(__file__).parent
FOLDER = PACKAGE / "lib"
SOURCE_TREE = PACKAGE.parent
BUILD_HINT = "build it with: pip install --no-build-isolation ."
if (SOURCE_TREE / "csrc").exists():  # an installed convx is hidden by the source tree in the current folder
    BUILD_HINT = f"build it with: pip install --no-build-isolation -e {SOURCE_TREE}, or leave that folder"


@dataclass(frozen=True)
class Library:
    """One operator library: whether it is loaded and, if not, why."""

    name: str
    path: Path
    loaded: bool
    reason: str = ""


def _load(name: str) -> Library:
    path = FOLDER / f"{name}.so"
    if not path.exists():
        return Library(name, path, False, f"{path} does not exist; {BUILD_HINT}")
    try:
        torch.ops.load_library(path)
    except (OSError, RuntimeError) as error:
        return Library(name, path, False, f"{path} can't be loaded: {error}")
    return Library(name, path, True)


@functools.cache
def load() -> dict[str, Library]:
    """Loads the operator libraries once: the CPU one, then the GPU one where torch has a GPU backend."""
    cpu = _load("libconvx_cpu")
    if torch.version.cuda is None and torch.version.hip is None:
        gpu = Library("libconvx_gpu", FOLDER / "libconvx_gpu.so", False, "this torch has no GPU backend")
    elif not cpu.loaded:  # the schemas are in the CPU library
        gpu = Library("libconvx_gpu", FOLDER / "libconvx_gpu.so", False, "libconvx_cpu is not loaded")
    else:
        gpu = _load("libconvx_gpu")
    return {"cpu": cpu, "gpu": gpu}


def _own(name: str) -> ModuleType:
    """A module of this very package, which an editable installation's finder would take from another checkout
    where there is none here. Raises ImportError."""
    if PathFinder.find_spec(f"convx.{name}", [str(PACKAGE)]) is None:
        raise ImportError(f"there is no {name} in {PACKAGE}")
    return importlib.import_module(f"convx.{name}")


@functools.cache
def core() -> ModuleType:
    """The planner, convx._core; raises ImportError with the reason where it can't be loaded."""
    try:
        return _own("_core")
    except ImportError as error:
        raise ImportError(f"convx._core, the planner, can't be loaded ({error}); {BUILD_HINT}") from error


@functools.cache
def _front_or_problem() -> tuple[ModuleType | None, str]:
    if not load()["cpu"].loaded:
        return None, "libconvx_cpu is not loaded"
    try:
        built_for = core().build_info()["torch"]
        if built_for != torch.__version__:
            return None, f"it was built for torch {built_for}, and this is {torch.__version__}; {BUILD_HINT}"
        return _own("_front"), ""
    except ImportError as error:
        return None, f"it can't be loaded ({error}); {BUILD_HINT}"


def front() -> ModuleType | None:
    """convx._front, the shortest way from a layer to a kernel, where it fits this torch."""
    return _front_or_problem()[0]


def front_problem() -> str:
    """Why the front is not used, or an empty string."""
    return _front_or_problem()[1]


def core_problem() -> str:
    """Why the planner can't be loaded, or an empty string."""
    try:
        core()
    except ImportError as error:
        return str(error)
    return ""


def require(device_type: str) -> None:
    """Raises RuntimeError with the reason where the operators for a device type are not loaded."""
    library = load()["cpu" if device_type == "cpu" else "gpu"]
    if not library.loaded:
        raise RuntimeError(f"convx has no operators for {device_type} tensors: {library.reason}")
