"""Each CPU instruction set that this machine has, forced in a process of its own: it is read once, at
import."""

from __future__ import annotations

import pytest
from processes import ISAS, run_python, succeeds_on

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


@pytest.mark.slow
@pytest.mark.parametrize("isa", ISAS)
def test_every_shape(isa: str) -> None:
    succeeds_on(isa, PROGRAM)


@pytest.mark.parametrize("isa", ["sse9", "AVX2"])
def test_an_unknown_name_is_refused(isa: str) -> None:
    result = run_python("from convx import _planning; _planning.device('cpu')", CONVX_CPU_ISA=isa)
    assert result.returncode != 0
    assert f"CONVX_CPU_ISA must be baseline, avx2 or avx512, got '{isa}'" in result.stderr
