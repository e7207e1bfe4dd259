"""Turns of slow tests and of sources: whether each has one, and all other tests have every one."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from build_tools.turns import EVERY, Turn, turn

ROOT = Path(__file__).resolve().parents[2]
SOME = ("tests/tools/test_notebooks.py", "tests/host/test_simt.py")


def collected(*options: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *options, *SOME], capture_output=True, text=True, cwd=ROOT, check=True)
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


def test_everything_has_one_turn() -> None:
    paths = [Path(f"launch_{number}.cu") for number in range(60)]
    shares = [Turn(which, 4).of(paths) for which in range(4)]
    assert sorted(path for share in shares for path in share) == sorted(paths) and all(shares)
    assert EVERY.of(paths) == paths == turn("5/1").of(paths) and turn("6/4").of(paths) == shares[2]


@pytest.mark.parametrize("text", ["", "1", "1/0", "-1/4", "1/4/2", "a/4"])
def test_turns_are_two_numbers(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="wanted are two numbers, as in 0/4"):
        turn(text)
