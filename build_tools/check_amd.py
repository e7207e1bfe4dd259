"""Compiles every GPU source for AMD's targets, on a machine that needs no AMD GPU, and tells what they use.

    python -m build_tools.check_amd [--target gfx90a ...] [--only strip] [--no-library]

Debian 12's hipcc compiles for the older targets; clang 19 with Debian's device libraries, to which constants
of the newer targets are added, for the rest. The whole library, launchers and operators, is built and linked
for one target, as setup.py does beside a ROCm torch. Fails where something does not compile or a kernel
spills.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from build_tools.compile import BuildError, run_steps
from build_tools.resources import KernelUse, parse_amd, summary, table
from build_tools.target_steps import ReportedStep, reported
from build_tools.targets import GPU_KERNELS, HIP_FLAGS, ROOT, Build, sources
from build_tools.toolchain import Hip, find_torch

PACKAGES = "hipcc libamdhip64-dev rocm-device-libs clang-19 lld-19 llvm-19"
HIPCC_TARGETS = ["gfx906", "gfx90a", "gfx1030"]
CLANG_TARGETS = ["gfx942", "gfx1100", "gfx1201"]
FULL = "gfx90a"  # the target of the library
DEVICE_LIBRARIES = Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
FOLDER = Path("build/targets")
REPORT = "-Rpass-analysis=kernel-resource-usage"


def missing_tools() -> list[str]:
    """What has to be installed first."""
    missing = [tool for tool in ("hipcc", "clang++-19", "llvm-as-19", "c++filt") if not shutil.which(tool)]
    return missing if DEVICE_LIBRARIES.exists() else [*missing, str(DEVICE_LIBRARIES)]


def write_device_libraries(folder: Path) -> None:
    """Debian's device libraries, and what clang 19 looks for that they lack.

    Each target selects its code paths in the libraries by two constants, the version of its instruction set
    and that of the code object.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for library in DEVICE_LIBRARIES.glob("*.bc"):
        link = folder / library.name
        if not link.exists():
            link.symlink_to(library)
    constants = {"oclc_abi_version_600.bc": ("__oclc_ABI_version", 600)}
    for name, version in {"942": 9402, "1100": 11000, "1201": 12001}.items():
        constants[f"oclc_isa_version_{name}.bc"] = ("__oclc_ISA_version", version)
    for file, (symbol, value) in constants.items():
        text = (
            'target triple = "amdgcn-amd-amdhsa"\n'
            f"@{symbol} = linkonce_odr protected local_unnamed_addr addrspace(4) "
            f"constant i32 {value}, align 4\n"
        )
        if not (folder / file).exists():
            subprocess.run(["llvm-as-19", "-o", str(folder / file), "-"], input=text, text=True, check=True)


def compile_step(source: Path, target: str) -> ReportedStep:
    """Device code of one source for one target."""
    flags = [flag for flag in HIP_FLAGS if flag != "-fPIC"]
    common = [*flags, "-x", "hip", f"--offload-arch={target}", "--cuda-device-only", REPORT]
    if target in HIPCC_TARGETS:
        command = ["hipcc", *common]
    else:
        libraries = ROOT / FOLDER / "device-libraries"
        command = ["clang++-19", *common, "--rocm-path=/usr", f"--rocm-device-lib-path={libraries}"]
    output = FOLDER / target / source.with_suffix(".o")
    # hipcc takes nvcc where it finds one, unless it is told otherwise.
    return reported(f"{target} {source}", command, source, output, {"HIP_PLATFORM": "amd"})


def build_library() -> None:
    """The whole library, through the code that setup.py uses; the link leaves nothing undefined."""
    library = ROOT / FOLDER / "hip" / "libconvx_gpu.so"
    hip = Hip(Path(shutil.which("hipcc") or "hipcc"), Path("/usr"), [FULL])
    Build(find_torch(), None, hip, ROOT / FOLDER / "objects").build({"libconvx_gpu": library})
    print(f"{library.relative_to(ROOT)}: {library.stat().st_size / 2**20:.1f} MiB, for {FULL}")


def check(targets: list[str], only: str) -> bool:
    """Compiles, prints the table and the summary; whether all is well."""
    write_device_libraries(ROOT / FOLDER / "device-libraries")
    kernels = [source for source in sources(*GPU_KERNELS) if only in str(source)]
    steps = [compile_step(source, target) for source in kernels for target in targets]
    run_steps(list(steps))
    uses: list[KernelUse] = []
    for step in steps:
        uses += parse_amd(step.report.read_text(), step.title.split()[0])
    uses = [use for use in uses if not use.does_nothing]
    if not uses:
        print("no kernel was compiled")
        return False
    print(table(uses, {"vgpr": "VGPRs", "shared": "LDS bytes", "occupancy": "waves per SIMD"}))
    text, good = summary(uses)
    print(text)
    return good


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", action="append", choices=HIPCC_TARGETS + CLANG_TARGETS)
    parser.add_argument("--only", default="", help="sources whose path contains this")
    parser.add_argument("--no-library", action="store_true", help="device code alone")
    arguments = parser.parse_args()
    missing = missing_tools()
    if missing:
        sys.exit(f"missing: {', '.join(missing)}\nDebian 12: apt install --no-install-recommends {PACKAGES}")
    try:
        if not arguments.no_library:
            build_library()
        good = check(arguments.target or HIPCC_TARGETS + CLANG_TARGETS, arguments.only)
    except BuildError as error:
        sys.exit(str(error))
    sys.exit(0 if good else "a kernel spills, see above")


if __name__ == "__main__":
    main()
