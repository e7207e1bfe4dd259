"""Programs in processes of their own, for what is read once, at import: instruction sets, limits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from convx import _planning

ISAS = ("baseline", "avx2", "avx512")
_WIDEST = _planning.device("cpu").isa


def run_python(
    program: str, *arguments: str, timeout: float | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program that may import the tests, with these environment variables, for so many seconds."""
    rooms = sorted({str(path.parent) for path in Path(__file__).parents[1].glob("*/*.py")})
    paths = [*rooms, os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def succeeds_on(isa: str, program: str) -> None:
    """The program, whose argument is the instruction set, ends well; skips where this CPU lacks the set."""
    if ISAS.index(isa) > ISAS.index(_WIDEST):
        pytest.skip(f"this CPU has {_WIDEST} at most")
    done = run_python(program, isa, CONVX_CPU_ISA=isa)
    assert done.returncode == 0, done.stderr[-3000:]
