"""Options that the programs share."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence


def some_of(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    """A type of argparse's: some of these, with commas between."""

    def parse(text: str) -> tuple[str, ...]:
        values = tuple(text.split(","))
        for value in values:
            if value not in allowed:
                raise argparse.ArgumentTypeError(f"{value!r} is not one of {', '.join(allowed)}")
        return values

    return parse


def repeating(program: str, arguments: Sequence[str]) -> str:
    """The line that repeats the figures, wherever they were written."""
    kept, words = [], iter(arguments)
    for word in words:
        if word == "--output":
            next(words, None)
        elif not word.startswith("--output="):
            kept.append(word)
    return shlex.join(["python", "-m", program, *kept])
