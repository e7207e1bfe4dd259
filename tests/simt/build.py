"""Builds the programs of the host executor into build/simt: a driver per kernel family, and the planted bugs.

    python tests/simt/build.py [--plain] [--jobs N] [FAMILY ... | planted]

Without names, everything that has sources is built. Only what has changed is compiled again (ninja).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIMT = ROOT / "tests" / "simt"
FAMILIES = ROOT / "csrc" / "methods" / "depthwise"

INCLUDES = ["-Icsrc", "-Itests/simt"]
COMMON = ["-std=c++17", "-g1", "-DCONVX_SIMT", "-Wall", "-Wno-unknown-pragmas", *INCLUDES]
# Every load and store of a kernel becomes a call, which race.cpp answers.
SANITIZE = [
    "-O1",
    "-fsanitize=address,undefined",
    "-fno-sanitize=vptr",
    "-fno-sanitize-recover=all",
    "--param=asan-instrumentation-with-call-threshold=0",
]
RUNTIME = ["fiber.cpp", "scheduler.cpp", "shared_memory.cpp", "race.cpp"]
TEST = ["case.cpp", "reference.cpp"]


def families() -> list[str]:
    """Kernel families that have a GPU launcher."""
    return sorted({path.parent.name for path in FAMILIES.glob("*/launch*.cu")})


def ninja_file(plain: bool) -> str:
    """Text of the build file; paths are relative to the root of the checkout."""
    sanitize = ["-O2"] if plain else SANITIZE
    runtime = ["-O2"] if plain else ["-O2", "-DSIMT_ADDRESS_SANITIZER"]
    link = [] if plain else ["-fsanitize=address,undefined"]
    out = "build/simt/plain" if plain else "build/simt/checked"
    lines = [
        "ninja_required_version = 1.8",
        f"compiler = {os.environ.get('CXX', 'g++')}",
        "rule compile",
        "  command = $compiler $flags -MMD -MF $out.d -x c++ -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = compile $in",
        "rule archive",
        "  command = rm -f $out && ar rcs $out $in",
        "  description = archive $out",
        "rule link",
        f"  command = $compiler {' '.join(link)} $in -o $out",
        "  description = link $out",
    ]

    def compile_(source: Path, flags: list[str], name: str | None = None) -> str:
        relative = source.relative_to(ROOT).as_posix()
        target = f"{out}/{name or relative.replace('/', '_')}.o"
        lines.append(f"build {target}: compile {relative}")
        lines.append(f"  flags = {' '.join(COMMON + flags)}")
        return target

    def link_(name: str, objects: list[str]) -> None:
        lines.append(f"build {out}/{name}: link {' '.join(objects)}")
        lines.append(f"build {name}: phony {out}/{name}")

    runtime_objects = [compile_(SIMT / name, runtime) for name in RUNTIME]
    test_objects = [compile_(SIMT / name, ["-O2"]) for name in TEST]
    # An archive: the registry in it refers to every family, and is left out of a driver that has one.
    host = sorted((ROOT / "csrc" / "problem").glob("*.cpp")) + sorted((ROOT / "csrc" / "select").glob("*.cpp"))
    archive = f"{out}/host.a"
    lines.append(f"build {archive}: archive {' '.join(compile_(source, ['-O1']) for source in host)}")
    link_("planted", [compile_(SIMT / "planted.cpp", sanitize), *runtime_objects])
    for family in families():
        folder = FAMILIES / family
        kernels = [compile_(source, sanitize) for source in sorted(folder.glob("*.cu"))]
        plans = [compile_(source, ["-O1"]) for source in sorted(folder.glob("*.cpp"))]
        driver = compile_(SIMT / "driver.cpp", ["-O1", f"-DCONVX_FAMILY={family}"], f"driver_{family}")
        link_(f"driver_{family}", [driver, *kernels, *plans, *test_objects, *runtime_objects, archive])
    return "\n".join(lines) + "\n"


def ninja() -> str:
    """The ninja beside this Python, else the one on PATH."""
    beside = Path(sys.executable).parent / "ninja"
    found = str(beside) if beside.exists() else shutil.which("ninja")
    if not found:
        raise SystemExit("ninja is missing: pip install ninja")
    return found


def build(names: list[str], plain: bool = False, jobs: int | None = None) -> Path:
    """Builds the named programs and returns the folder that holds them."""
    folder = ROOT / "build" / "simt"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / ("plain.ninja" if plain else "checked.ninja")
    text = f"builddir = build/simt/{'plain' if plain else 'checked'}\n" + ninja_file(plain)
    if not file.exists() or file.read_text() != text:
        file.write_text(text)
    targets = ["planted" if name == "planted" else f"driver_{name}" for name in names]
    command = [ninja(), "-f", str(file.relative_to(ROOT)), *targets]
    if jobs:
        command += ["-j", str(jobs)]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder / ("plain" if plain else "checked")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="families, or planted; all where none is named")
    parser.add_argument("--plain", action="store_true", help="no sanitizers: quicker, for a first try")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    names = arguments.names or ["planted", *families()]
    try:
        folder = build(names, arguments.plain, arguments.jobs)
    except subprocess.CalledProcessError as error:
        raise SystemExit(error.returncode) from None
    print(f"built in {folder}")


if __name__ == "__main__":
    main()
