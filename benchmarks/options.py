"""Options that the programs share."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def some_of(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    """A type of argparse's: some of these, with commas between."""

    def parse(text: str) -> tuple[str, ...]:
        values = tuple(text.split(","))
        for value in values:
            if value not in allowed:
                raise argparse.ArgumentTypeError(f"{value!r} is not one of {', '.join(allowed)}")
        return values

    return parse
