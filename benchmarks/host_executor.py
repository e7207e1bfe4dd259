"""What kernels ask of global memory, counted where the tests run them as plain C++ (tests/host/simt)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).resolve().parent.parent
_RUN = re.compile(r"RUN +forward (.+)\nTRAFFIC loads (\d+) sectors (\d+) stores (\d+) sectors (\d+)")


class Counts(NamedTuple):
    """Loads and stores of warps, and the sectors of 32 bytes that they touch."""

    loads: int
    load_sectors: int
    stores: int
    store_sectors: int


def built(driver: str) -> Path:
    """The driver's program, with the checks that count accesses."""
    subprocess.run([sys.executable, "tests/host/simt/build.py", driver], cwd=_ROOT, check=True)
    return _ROOT / "build/simt/checked" / driver


def counted(program: Path, lines: Iterable[str]) -> list[tuple[str, Counts]]:
    """What the driver calls each plan that it ran for these lines, in their order, and its counts.

    Raises:
        RuntimeError: a line that it can't read, or a plan whose result is wrong.
    """
    text = "\n".join(f"{line} orders=forward traffic=1" for line in lines)
    ran = subprocess.run([program], input=text, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{program} failed: {ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return [(name, Counts(*map(int, numbers))) for name, *numbers in _RUN.findall(ran.stdout)]
