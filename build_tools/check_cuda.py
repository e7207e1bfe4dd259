"""Compiles the GPU library for NVIDIA's targets, on a machine that needs no GPU, and tells what kernels use.

    python -m build_tools.check_cuda [--target 8.0 ...] [--only strip] [--no-library]

Builds and links the whole library for sm_90, as setup.py does, and compiles device code for all targets.
Fails where something does not compile or link, or a kernel spills.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from build_tools.compile import BuildError, run_steps
from build_tools.resources import KernelUse, parse_nvcc, summary, table
from build_tools.target_steps import ReportedStep, reported
from build_tools.targets import GPU_KERNELS, NVCC_FLAGS, ROOT, Build, sources
from build_tools.toolchain import Cuda, find_torch

FULL = "9.0"
OTHERS = ["8.0", "10.0"]
FOLDER = Path("build/targets")


def find_nvcc() -> Path | None:
    """nvcc of CUDA_HOME, of PATH, or of the usual place."""
    home = os.environ.get("CUDA_HOME")
    found = Path(home) / "bin" / "nvcc" if home else Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    return found if found.exists() else None


def device_step(nvcc: Path, source: Path, target: str) -> ReportedStep:
    """Device code of one source for one target."""
    number = target.replace(".", "")
    command = [str(nvcc), *NVCC_FLAGS, "-Xptxas=-v", "-cubin", f"-arch=sm_{number}"]
    output = FOLDER / f"sm_{number}" / source.with_suffix(".cubin")
    return reported(f"sm_{number} {source}", command, source, output, {})


def build_library(nvcc: Path) -> None:
    """The whole library, through the code that setup.py uses; the link leaves nothing undefined."""
    library = ROOT / FOLDER / "cuda" / "libconvx_gpu.so"
    Build(find_torch(), Cuda(nvcc, [FULL]), None, ROOT / FOLDER / "objects").build({"libconvx_gpu": library})
    size = library.stat().st_size / 2**20
    print(f"{library.relative_to(ROOT)}: {size:.1f} MiB, for compute capability {FULL}")


def check(nvcc: Path, targets: list[str], only: str) -> bool:
    """Compiles device code, prints the table and the summary; whether no kernel spills."""
    kernels = [source for source in sources(*GPU_KERNELS) if only in str(source)]
    steps = [device_step(nvcc, source, target) for source in kernels for target in targets]
    run_steps(list(steps))
    uses: list[KernelUse] = []
    for step in steps:
        uses += parse_nvcc(step.report.read_text())
    if not uses:
        print("no kernel was compiled")
        return False
    print(table(uses, {"registers": "registers", "shared": "static shared bytes"}))
    text, good = summary(uses)
    print(text)
    return good


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", action="append", choices=sorted([FULL, *OTHERS], key=float))
    parser.add_argument("--only", default="", help="sources whose path contains this")
    parser.add_argument("--no-library", action="store_true", help="device code alone")
    arguments = parser.parse_args()
    nvcc = find_nvcc()
    if nvcc is None:
        sys.exit("missing: nvcc of CUDA 13 (set CUDA_HOME; NVIDIA's package is cuda-nvcc-13-0)")
    try:
        if not arguments.no_library:
            build_library(nvcc)
        good = check(nvcc, arguments.target or [*OTHERS, FULL], arguments.only)
    except BuildError as error:
        sys.exit(str(error))
    sys.exit(0 if good else "a kernel spills, see above")


if __name__ == "__main__":
    main()
