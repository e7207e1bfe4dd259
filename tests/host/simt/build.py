"""Builds the programs of the host executor into build/simt: a driver per depthwise kernel family and
per other method, and the planted bugs.

    python tests/host/simt/build.py [--plain] [FAMILY ... | METHOD ... | planted]

Without names, everything that has sources is built. Only what has changed is compiled again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from build_tools import targets  # noqa: E402
from build_tools.ninja_build import Made, make  # noqa: E402
from build_tools.toolchain import BuildError, cxx  # noqa: E402

SIMT = Path("tests/host/simt")
METHODS = Path("methods")
FAMILIES = METHODS / "depthwise"
PLANTED = "planted"
NO_CONVOLUTIONS = BLOCKS, EXCITE, MEANS, POOLING = (
    *("inverted_residual", "squeeze_excite"),
    *("plane_means", "pooling"),
)
# Drivers of a method beside driver.cpp, which runs it on convolutions: for what these do not have.
MORE_DRIVERS = {
    "filter2d_borders": ("filter2d", SIMT / "filter2d_driver.cpp"),
    "blocks": (BLOCKS, SIMT / "block_driver.cpp"),
    "excite": (EXCITE, SIMT / "excite_driver.cpp"),
    "means": (MEANS, SIMT / "means_driver.cpp"),
    "pools": (POOLING, SIMT / "pooling_driver.cpp"),
}
FINISH = "finish_method"  # csrc/methods/finish.cu, of which the program makes a method

COMMON = ["-std=c++17", "-g1", "-DCONVX_SIMT", "-Wall", "-Wno-unknown-pragmas", "-Icsrc", "-Itests/host/simt"]
SANITIZERS = "-fsanitize=address,undefined"
# Every load and store of a kernel becomes a call, which race.cpp answers. Those calls are what kernels spend
# their time on: -O1 compiles for twice as long and runs a tenth faster. Undefined behaviour is a trap: its
# messages would be two thirds of a program, and a third of its compilation.
CHECKED = [
    "-Og",
    SANITIZERS,
    "-fno-sanitize=vptr",
    "-fno-sanitize-recover=all",
    "-fsanitize-undefined-trap-on-error",
    "--param=asan-instrumentation-with-call-threshold=0",
]
# As instructions what would be calls: a product and its sum, which kernels ask for, and halves from and to
# floats. Results are the same: nothing else is contracted.
INSTRUCTIONS = {"fma", "f16c"}
RUNTIME = ["fiber.cpp", "scheduler.cpp", "shared_memory.cpp", "race.cpp", "traffic.cpp"]
TEST = ["case.cpp", "reference.cpp", "runs.cpp"]


def families() -> list[str]:
    """Kernel families that have a GPU launcher."""
    return sorted({path.parent.name for path in targets.sources(f"{FAMILIES}/*/launch*.cu")})


def methods() -> list[str]:
    """Methods with GPU kernels for convolutions that are tested as a whole: all but depthwise."""
    paths = (path.parts for path in targets.sources(f"{METHODS}/*/**/*.cu"))
    return sorted(
        {parts[parts.index(METHODS.name) + 1] for parts in paths} - {FAMILIES.name, *NO_CONVOLUTIONS}
    )


def instructions() -> list[str]:
    """The flags for INSTRUCTIONS, where this machine has them all."""
    cpu = Path("/proc/cpuinfo")
    has = set(cpu.read_text().split()) if cpu.exists() else set()
    flags = [f"-m{each}" for each in sorted(INSTRUCTIONS)] if has >= INSTRUCTIONS else []
    return [*flags, "-ffp-contract=off"]


class Programs:
    """What programs are made of, with the checks of the sanitizers or, plain, without."""

    def __init__(self, plain: bool) -> None:
        self.folder = Path("build/simt") / ("plain" if plain else "checked")
        self.kernel_flags = [*(["-O2"] if plain else CHECKED), *instructions()]
        self.runtime_flags = ["-O2"] if plain else ["-O2", "-DSIMT_ADDRESS_SANITIZER"]
        self.link_flags = [] if plain else [SANITIZERS]
        self.compiled: dict[Path, Made] = {}
        self.linked: list[Made] = []

    def add(self, name: str) -> None:
        """One program more."""
        runtime = self._objects((SIMT / file for file in RUNTIME), self.runtime_flags)
        if name == PLANTED:
            objects = self._objects([SIMT / "planted.cpp"], self.kernel_flags)
        else:
            method, driver = MORE_DRIVERS.get(name, (name, SIMT / "driver.cpp"))
            whole = method in (*methods(), FINISH, *NO_CONVOLUTIONS)
            folder = (METHODS if whole else FAMILIES) / method
            tested = f"-DCONVX_{'METHOD' if whole else 'FAMILY'}={method}"
            objects = self._objects([driver], ["-O1", tested], f"_{name}")
            if method == FINISH:
                kernels, host = targets.sources(f"{METHODS}/finish.cu"), [SIMT / f"{FINISH}.cpp"]
            else:
                kernels = targets.sources(f"{folder}/**/*.cu")
                host = targets.sources(
                    f"{folder}/**/plan*.cpp", f"{folder}/**/gpu.cpp", f"{folder}/generator/*.cpp"
                )
            objects += self._objects(kernels, self.kernel_flags)
            objects += self._objects(host, ["-O1"])
            objects += self._objects((SIMT / file for file in TEST), ["-O2"])
            objects += self._objects(targets.sources("problem/*.cpp", "plan/method.cpp"), ["-O1"])
        program = self.folder / name
        inputs = [*objects, *runtime]
        command = [*cxx(), *self.link_flags, *map(str, inputs), "-o", str(program)]
        self.linked.append(Made(program, command, inputs))

    def _objects(self, files: Iterable[Path], flags: list[str], suffix: str = "") -> list[Path]:
        objects = []
        for source in files:
            output = self.folder / source.with_name(source.name + suffix + ".o")
            depfile = output.with_suffix(".d")
            command = [*cxx(), *COMMON, *flags, "-MMD", "-MF", str(depfile)]
            command += ["-x", "c++", "-c", str(source), "-o", str(output)]
            self.compiled[output] = Made(output, command, [source], depfile)
            objects.append(output)
        return objects


def build(names: list[str], plain: bool = False) -> Path:
    """Builds the named programs and returns the folder that holds them."""
    programs = Programs(plain)
    for name in names:
        programs.add(name)
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        make([*programs.compiled.values(), *programs.linked], programs.folder)
    finally:
        os.chdir(before)
    return ROOT / programs.folder


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="families and methods, or planted; all where none is named")
    parser.add_argument("--plain", action="store_true", help="no sanitizers: quicker, for a first try")
    arguments = parser.parse_args()
    try:
        folder = build(arguments.names or [PLANTED, FINISH, *families(), *methods()], arguments.plain)
    except BuildError as error:
        sys.exit(str(error))
    print(f"built in {folder}")


if __name__ == "__main__":
    main()
