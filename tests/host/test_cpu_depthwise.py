"""The depthwise kernels for CPUs against sums in double, under sanitizers, with the widest vectors here."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from processes import ISAS
from simt import build as programs

from build_tools import targets
from build_tools.ninja_build import Made, make
from build_tools.toolchain import cxx
from convx import _planning

pytestmark = [
    pytest.mark.slow("cpu_depthwise"),
    pytest.mark.skipif(
        platform.system() != "Linux" or not shutil.which(os.environ.get("CXX", "g++")),
        reason="needs g++ and Linux",
    ),
]
FOLDER = Path("build/cpu_depthwise")
FLAGS = ["-std=c++17", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wall"]
CHECK = Path("tests/host/cpu_depthwise/check.cpp")
ROUNDS = 300


@pytest.fixture(scope="module")
def isa() -> str:
    return str(_planning.device("cpu").isa)


@pytest.fixture(scope="module")
def program(isa: str) -> Path:
    """Kernels of one instruction set alone: all three take minutes to compile with sanitizers."""
    planner = targets.sources("platform/cpu/*.cpp", "problem/*.cpp", "plan/method.cpp")
    kernels = targets.sources("methods/depthwise/cpu/*.cpp")
    others = {f"cpu_{other}" for other in ISAS if other != isa}
    files = [source for source in (*planner, *kernels) if source.stem not in others]
    objects = []
    for source in (*files, CHECK):
        output = FOLDER / isa / source.with_suffix(".o")
        depfile = output.with_suffix(".d")
        quick = ["-O2"] if source == CHECK else []  # its sums take longer than the kernels do
        command = [*cxx(), *FLAGS, *quick, "-Icsrc", f"-DCONVX_CHECKED_ISA={isa}"]
        command += ["-MMD", "-MF", str(depfile), "-c", str(source), "-o", str(output)]
        objects.append(Made(output, command, [source], depfile))
    check = FOLDER / isa / "check"
    inputs = [each.output for each in objects]
    link = [*cxx(), *FLAGS, *map(str, inputs), "-lpthread", "-o", str(check)]
    with pytest.MonkeyPatch.context() as here:
        here.chdir(programs.ROOT)
        make([*objects, Made(check, link, inputs)], FOLDER)
    return programs.ROOT / check


def test_any_problem(program: Path, isa: str) -> None:
    done = subprocess.run([program, str(ROUNDS)], capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert f"{isa}: {ROUNDS} problems" in done.stdout
