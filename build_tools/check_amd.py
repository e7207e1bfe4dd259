"""Compiles every GPU source for AMD's targets, on a machine that needs no AMD GPU, and tells what they use.

    python -m build_tools.check_amd [--target gfx90a ...] [--only strip] [--turn 1/4]

Debian 12's hipcc compiles for the older targets; clang 19 with Debian's device libraries, to which constants
of the newer targets are added, for the rest. For one target the whole library, launchers and operators, is
built and linked; for the others device code alone. Sources and flags are those of setup.py. Fails where
something does not compile or link, or a kernel spills.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from build_tools import targets
from build_tools.linked import compiled, link
from build_tools.ninja_build import Made, make
from build_tools.resources import parse_amd, summary, table
from build_tools.toolchain import BuildError, Hip, find_torch
from build_tools.turns import EVERY, HELP, Turn, turn

PACKAGES = "hipcc libamdhip64-dev rocm-device-libs clang-19 clang-tools-19 lld-19 llvm-19"
HIPCC_TARGETS = ["gfx906", "gfx90a", "gfx1030"]
CLANG_TARGETS = ["gfx942", "gfx1100", "gfx1201"]
FULL = "gfx90a"  # the target of the library
DEVICE_LIBRARIES = Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
FOLDER = Path("build/targets")


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


def device_object(source: Path, target: str) -> Made:
    """Device code of one source for one target."""
    command = compiler(hip(target)) if target in HIPCC_TARGETS else clang(target)
    command = [flag for flag in command if flag != "-fPIC"]
    command += ["--cuda-device-only", *targets.HIP_REPORT]
    return compiled(source, FOLDER / target, command, reports=True)


def clang(target: str) -> list[str]:
    """With the device libraries that were written."""
    libraries = targets.ROOT / FOLDER / "device-libraries"
    command = ["clang++-19", "--rocm-path=/usr", f"--rocm-device-lib-path={libraries}", "-x", "hip"]
    return [*command, *targets.HIP_FLAGS, f"--offload-arch={target}"]


def hip(target: str) -> Hip:
    """Debian's, for one target."""
    return Hip(Path("hipcc"), Path("/usr"), [target])


def compiler(hip: Hip) -> list[str]:
    return [*targets.gpu_compiler(None, hip), *targets.gpu_flags(None, hip)]


def check(wanted: list[str], only: str, share: Turn) -> bool:
    """Compiles, prints the table and the summary; whether all is well."""
    write_device_libraries(targets.ROOT / FOLDER / "device-libraries")
    files = [source for source in share.of(targets.sources(*targets.GPU_KERNELS)) if only in str(source)]
    objects = {target: [device_object(source, target) for source in files] for target in wanted}
    linked = FULL in wanted and not only and share == EVERY
    if linked:
        command = [*compiler(hip(FULL)), *targets.HIP_REPORT]
        objects[FULL] = [compiled(source, FOLDER / "hip", command, reports=True) for source in files]
        torch = find_torch()
        libraries = targets.gpu_libraries(torch, None, hip(FULL))
        link(torch, objects[FULL], libraries, FOLDER / "hip" / "libconvx_gpu.so")
    rest = [each for target in wanted for each in objects[target] if not (linked and target == FULL)]
    make(rest, FOLDER / "rules")
    uses = [
        use
        for target in wanted
        for each in objects[target]
        for use in parse_amd(each.log.read_text(), target)
    ]
    uses = [use for use in uses if not use.does_nothing]
    if not uses:
        raise BuildError("no kernel was compiled")
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
    parser.add_argument(
        "--only", default="", help="sources whose path contains this; the library is not linked"
    )
    parser.add_argument("--turn", type=turn, default=EVERY, help=f"of the sources, {HELP}; not linked")
    arguments = parser.parse_args()
    missing = missing_tools()
    if missing:
        sys.exit(f"missing: {', '.join(missing)}\nDebian 12: apt install --no-install-recommends {PACKAGES}")
    try:
        good = check(arguments.target or HIPCC_TARGETS + CLANG_TARGETS, arguments.only, arguments.turn)
    except BuildError as error:
        sys.exit(str(error))
    sys.exit(0 if good else "a kernel spills, see above")


if __name__ == "__main__":
    main()
