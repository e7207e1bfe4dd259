"""Compilers, architectures and torch's paths: what the environment asks for and what the machine has."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TORCH_FLOOR = (2, 11)
# The oldest torch whose stable ABI the operators use; a newer torch keeps serving it.
TORCH_TARGET = "-DTORCH_TARGET_VERSION=0x020b000000000000"
CUDA_DEFAULT_ARCHITECTURES = "8.0;9.0;10.0+PTX"


class BuildError(RuntimeError):
    """What keeps convx from being built; the message says what to do, or what a compiler printed."""


@dataclass(frozen=True)
class Torch:
    """The installed torch."""

    version: str
    root: Path
    cuda: str | None
    hip: str | None
    module: Any

    @property
    def include_flags(self) -> list[str]:
        """As system headers: their warnings are not ours."""
        return ["-isystem", str(self.root / "include")]


def find_torch() -> Torch:
    """The installed torch, or one line saying what to do."""
    hint = (
        "install one first, for example: pip install 'torch>=2.11'; then "
        "pip install --no-build-isolation . (for a wheel: python -m build --wheel --no-isolation)"
    )
    try:
        import torch
    except ImportError as error:
        raise BuildError(
            f"building needs an installed torch >= 2.11 and found none ({error}): {hint}"
        ) from None
    match = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if match is None or (int(match[1]), int(match[2])) < TORCH_FLOOR:
        raise BuildError(f"building needs torch >= 2.11 and found {torch.__version__}: {hint}")
    return Torch(
        str(torch.__version__), Path(torch.__file__).parent, torch.version.cuda, torch.version.hip, torch
    )


def cxx() -> list[str]:
    """The C++ compiler: CXX, else the first of g++, c++, clang++."""
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    for name in ("g++", "c++", "clang++"):
        if shutil.which(name):
            return [name]
    raise BuildError("no C++ compiler found; install one (Debian, Ubuntu: apt install g++) or set CXX")


def compiler_version(command: list[str]) -> str:
    """First line of the compiler's --version (nvcc: the one that names the release)."""
    lines = subprocess.run([*command, "--version"], capture_output=True, text=True).stdout.splitlines()
    return next((line for line in lines if "release" in line), lines[0] if lines else command[0])


def nvcc_release(cuda: Cuda) -> str:
    """As torch.version.cuda has it: "13.0"."""
    text = compiler_version([str(cuda.nvcc)])
    found = re.search(r"release (\d+\.\d+)", text)
    if found is None:
        raise BuildError(f"{cuda.nvcc} --version names no release: {text}")
    return found[1]


def nvcc_library_flags(cuda: Cuda) -> list[str]:
    """Where nvcc's runtime is, as it knows itself: the program of that name may be a link or a script."""
    command = [str(cuda.nvcc), "--dryrun", "-E", "-x", "cu", os.devnull]
    text = subprocess.run(command, capture_output=True, text=True).stderr
    found = re.search(r"LIBRARIES=(.*)", text)
    return shlex.split(found[1]) if found else []


@dataclass(frozen=True)
class Cuda:
    """nvcc and the architectures to compile for."""

    nvcc: Path
    architectures: str  # as TORCH_CUDA_ARCH_LIST has them
    architecture_flags: list[str]

    @property
    def home(self) -> Path:
        return self.nvcc.parent.parent


def cuda_for(nvcc: Path, architectures: str) -> Cuda:
    """The list read as torch reads it: "9.0;10.0+PTX", "Hopper", "native"."""
    from torch.utils.cpp_extension import _get_cuda_arch_flags

    before = os.environ.get("TORCH_CUDA_ARCH_LIST")
    os.environ["TORCH_CUDA_ARCH_LIST"] = re.sub("[, ]+", ";", architectures)
    try:
        flags = _get_cuda_arch_flags()
    except (IndexError, ValueError) as error:
        raise BuildError(
            f"TORCH_CUDA_ARCH_LIST must list architectures that torch knows, such as '8.0;9.0;10.0+PTX', got "
            f"'{architectures}': {error}"
        ) from None
    finally:
        os.environ.pop("TORCH_CUDA_ARCH_LIST")
        if before is not None:
            os.environ["TORCH_CUDA_ARCH_LIST"] = before
    # Every GPU of 9.0 has the instructions of 9.0a, which PTX for later GPUs must do without.
    real = "arch=compute_90,code=sm_90"
    return Cuda(nvcc, architectures, [flag.replace(real, "arch=compute_90a,code=sm_90a") for flag in flags])


def find_cuda(torch: Torch) -> Cuda | None:
    """nvcc where a CUDA library is wanted: for the GPUs that torch sees, for TORCH_CUDA_ARCH_LIST, or with
    FORCE_CUDA=1 beside any torch."""
    forced = os.environ.get("FORCE_CUDA", "0").strip().lower() in ("1", "true", "yes", "on")
    if torch.hip is not None or (torch.cuda is None and not forced):
        return None
    if not forced and not _has_target(torch, "TORCH_CUDA_ARCH_LIST"):
        print(
            "convx: torch has CUDA but sees no GPU: building for the CPU alone; "
            "TORCH_CUDA_ARCH_LIST='9.0' or FORCE_CUDA=1 builds the GPU library too"
        )
        return None
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = Path(home) / "bin" / "nvcc" if home else Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    if not nvcc.exists():
        where = f"CUDA_HOME={home}" if home else "CUDA_HOME, PATH or /usr/local/cuda"
        if forced:
            raise BuildError(
                f"FORCE_CUDA=1 but no nvcc in {where}; install the CUDA toolkit or set CUDA_HOME"
            )
        print(f"convx: torch has CUDA but there is no nvcc in {where}: building for the CPU alone")
        return None
    return cuda_for(nvcc, _cuda_architectures(torch))


def _has_target(torch: Torch, variable: str) -> bool:
    """Whether there is a GPU, or a list of architectures, to build a GPU library for."""
    return bool(os.environ.get(variable, "").strip()) or bool(torch.module.cuda.is_available())


def _cuda_architectures(torch: Torch) -> str:
    text = os.environ.get("TORCH_CUDA_ARCH_LIST", "").strip()
    if not text and torch.cuda is not None and torch.module.cuda.is_available():
        count = torch.module.cuda.device_count()
        present = {torch.module.cuda.get_device_capability(index) for index in range(count)}
        text = ";".join(f"{major}.{minor}" for major, minor in sorted(present))
    return text or CUDA_DEFAULT_ARCHITECTURES


@dataclass(frozen=True)
class Hip:
    """hipcc and the architectures to compile for."""

    hipcc: Path
    home: Path
    architectures: list[str]


def find_hip(torch: Torch) -> Hip | None:
    """hipcc where torch is a ROCm build that sees a GPU or is told the architectures."""
    if torch.hip is None:
        return None
    if not _has_target(torch, "PYTORCH_ROCM_ARCH"):
        print(
            "convx: torch has ROCm but sees no GPU: building for the CPU alone; "
            "PYTORCH_ROCM_ARCH='gfx90a' builds the GPU library too"
        )
        return None
    home = Path(os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH") or "/opt/rocm")
    found = home / "bin" / "hipcc"
    hipcc = found if found.exists() else Path(shutil.which("hipcc") or found)
    if not hipcc.exists():
        print(f"convx: torch has ROCm but there is no hipcc in {home} or PATH: building for the CPU alone")
        return None
    text = os.environ.get("PYTORCH_ROCM_ARCH", "").strip()
    if not text and torch.module.cuda.is_available():
        count = torch.module.cuda.device_count()
        properties = [torch.module.cuda.get_device_properties(index) for index in range(count)]
        text = ";".join(sorted({each.gcnArchName.split(":")[0] for each in properties}))
    return Hip(hipcc, home, re.split(r"[;, ]+", text))
