"""Compiles the GPU library for NVIDIA's targets, on a machine that needs no GPU, and tells what kernels use.

    python -m build_tools.check_cuda [--target 8.0 ...] [--only strip] [--turn 1/4]

Builds and links the whole library of the sources and with the flags of setup.py, with device code for all
targets, and reads the report of that very compile. Fails where something does not compile or link, a kernel
spills, or one's products of warpgroups are made to wait for one another. Of some sources nothing is linked.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from build_tools import targets
from build_tools.linked import compiled, link
from build_tools.ninja_build import make
from build_tools.resources import parse_nvcc, serialized_products, summary, table
from build_tools.toolchain import BuildError, cuda_for, find_torch
from build_tools.turns import EVERY, HELP, Turn, turn

TARGETS = ["8.0", "9.0", "10.0"]
FOLDER = Path("build/targets/cuda")


def find_nvcc() -> Path | None:
    """nvcc of CUDA_HOME, of PATH, or of the usual place."""
    home = os.environ.get("CUDA_HOME")
    found = Path(home) / "bin" / "nvcc" if home else Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    return found if found.exists() else None


def check(nvcc: Path, architectures: list[str], only: str, share: Turn) -> bool:
    """Compiles, prints the table and the summary; whether no kernel spills."""
    cuda = cuda_for(nvcc, ";".join(architectures))
    command = [str(nvcc), *targets.gpu_flags(cuda, None), *targets.NVCC_REPORT]
    folder = FOLDER / "-".join(architectures)
    files = [path for path in share.of(targets.sources(*targets.GPU_KERNELS)) if only in str(path)]
    kernels = [compiled(path, folder, command, reports=True) for path in files]
    if only or share != EVERY:
        make(kernels, folder)
    else:
        torch = find_torch()
        link(torch, kernels, targets.gpu_libraries(torch, cuda, None), folder / "libconvx_gpu.so")
    logs = [each.log.read_text() for each in kernels]
    uses = [use for log in logs for use in parse_nvcc(log)]
    if not uses:
        raise BuildError("no kernel was compiled")
    print(table(uses, {"registers": "registers", "shared": "static shared bytes"}))
    text, good = summary(uses)
    print(text)
    slow = [line for log in logs for line in serialized_products(log)]
    print("".join(f"  SERIALIZED {line}\n" for line in slow), end="")
    return good and not slow


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", action="append", choices=TARGETS)
    parser.add_argument(
        "--only", default="", help="sources whose path contains this; the library is not linked"
    )
    parser.add_argument("--turn", type=turn, default=EVERY, help=f"of the sources, {HELP}; not linked")
    arguments = parser.parse_args()
    nvcc = find_nvcc()
    if nvcc is None:
        sys.exit("missing: nvcc of CUDA 13 (set CUDA_HOME; NVIDIA's package is cuda-nvcc-13-0)")
    try:
        good = check(nvcc, arguments.target or TARGETS, arguments.only, arguments.turn)
    except BuildError as error:
        sys.exit(str(error))
    sys.exit(0 if good else "a kernel spills, or its products wait for one another, see above")


if __name__ == "__main__":
    main()
