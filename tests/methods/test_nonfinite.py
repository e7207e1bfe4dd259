"""Infinity and NaN affect what they meet and nothing else: every plan on CPUs, by every instruction set."""

from __future__ import annotations

import pytest
from processes import ISAS, succeeds_on


@pytest.mark.parametrize("isa", ISAS)
def test_infinity_and_nan_reach_what_they_meet(isa: str) -> None:
    succeeds_on(isa, "import nonfinite; nonfinite.main()")
