"""Each CPU instruction set that this machine has, forced in a process of its own: it is read once, at
import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from convx import _planning

ISAS = ("baseline", "avx2", "avx512")
WIDEST = _planning.device("cpu").isa
PROGRAM = """
import sys
from itertools import product

import torch

from convx import _planning
from reference import DTYPES, OPERATIONS
from test_depthwise import SHAPES, check

assert _planning.device("cpu").isa == sys.argv[1], _planning.device("cpu").isa
for case, dtype, operation, channels_last in product(SHAPES, DTYPES, OPERATIONS, (False, True)):
    check(operation, case, dtype, "cpu", channels_last)
"""


def run(isa: str, program: str) -> subprocess.CompletedProcess[str]:
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-c", program, isa],
        env={**os.environ, "CONVX_CPU_ISA": isa, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("isa", ISAS)
def test_every_shape(isa: str) -> None:
    if ISAS.index(isa) > ISAS.index(WIDEST):
        pytest.skip(f"this CPU has {WIDEST} at most")
    result = run(isa, PROGRAM)
    assert result.returncode == 0, result.stderr[-3000:]


@pytest.mark.parametrize("isa", ["sse9", "AVX2"])
def test_an_unknown_name_is_refused(isa: str) -> None:
    result = run(isa, "from convx import _planning; _planning.device('cpu')")
    assert result.returncode != 0
    assert f"CONVX_CPU_ISA must be baseline, avx2 or avx512, got '{isa}'" in result.stderr
