"""Shares of what takes long: of all things with a name one in N, another for each K of `--turn K/N`."""

from __future__ import annotations

import argparse
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HELP = "K/N: one in N of them, another share for each K from 0 on"


@dataclass(frozen=True)
class Turn:
    """Everything has its turn for one K of each N."""

    which: int
    turns: int

    def has(self, name: str) -> bool:
        return zlib.crc32(name.encode()) % self.turns == self.which % self.turns

    def of(self, paths: Iterable[Path]) -> list[Path]:
        return [path for path in paths if self.has(path.as_posix())]


EVERY = Turn(0, 1)


def turn(text: str) -> Turn:
    """Of the command line's option.

    Raises:
        argparse.ArgumentTypeError: of what is no such text.
    """
    if not re.fullmatch(r"\d+/[1-9]\d*", text):
        raise argparse.ArgumentTypeError(f"wanted are two numbers, as in 0/4, got {text!r}")
    which, turns = map(int, text.split("/"))
    return Turn(which, turns)
