"""Which machine, which versions: what makes two results files comparable."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

import convx

_ROOT = Path(__file__).resolve().parent.parent
CHANGED = "+"  # after a commit
# What these programs write themselves: none of it is measured.
_WRITTEN = ("benchmarks/results", "benchmarks/fitted", "benchmarks/papers/pictures", "*.md")
# What may differ between two runs whose records may share one file; on a GPU, which one thread calls, also
# how many there are.
_INCIDENTAL = {"date", "commit"}


def environment(device: torch.device) -> dict[str, object]:
    result: dict[str, object] = {
        "device": _device_name(device),
        "processor": processor_name(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "convx": convx.__version__,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
    }
    if device.type == "cuda":
        result["runtime"] = torch.version.cuda or torch.version.hip
        result["cudnn"] = torch.backends.cudnn.version()
    return result


def is_on_gpu(of: dict[str, Any]) -> bool:
    """Whether an environment is a GPU's."""
    return not str(of["device"]).startswith("cpu")


def comparable(first: dict[str, object], second: dict[str, object]) -> bool:
    incidental = _INCIDENTAL | {"threads", "processor"} if is_on_gpu(first) else _INCIDENTAL
    return all(first.get(name) == second.get(name) for name in {*first, *second} - incidental)


def device_slug(device: torch.device) -> str:
    """The folder of this device's results: "nvidia-h200", "cpu-2-cores-avx512"."""
    return re.sub(r"[^a-z0-9]+", "-", _device_name(device).lower()).strip("-")


def processor_name() -> str:
    """As Linux reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return (
        f"cpu {threads} core{'s' if threads != 1 else ''} {torch.backends.cpu.get_cpu_capability().lower()}"
    )


def commit(root: Path = _ROOT) -> str | None:
    """Of the checkout, with a + where files of it were changed, other than the results and pages that the
    run before may have written."""
    others = [f":(exclude){path}" for path in _WRITTEN]
    try:
        revision = _git(root, "rev-parse", "--short=12", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", *others)
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{revision}{CHANGED}" if changed else revision


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", os.fspath(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
