"""Turns of slow tests: whether each has one, and all others have every one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOME = ("tests/tools/test_notebooks.py", "tests/host/test_simt.py")


def collected(*options: str) -> set[str]:
    pytest = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run([*pytest, *options, *SOME], capture_output=True, text=True, cwd=ROOT, check=True)
    return {line for line in done.stdout.splitlines() if "::" in line}


def test_each_slow_test_has_one_turn_and_what_is_compiled_together_the_same() -> None:
    every, turns = collected(), [collected("--turn", f"{which}/2") for which in (0, 1)]
    assert turns[0] | turns[1] == every and turns[0] != turns[1]
    both = turns[0] & turns[1]
    assert any("test_planted_bugs_are_found" in each for each in both)
    assert not any("test_notebook_runs" in each or "test_kernels_are_exact" in each for each in both)
    found = [each for each in turns[0] if "test_kernels_are_exact" in each]
    families = {each.partition("[")[2].partition("-")[0] for each in found}
    assert families and len(found) == 3 * len(families)
