"""A network as a chain of its kernels, in a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

from convx.optimize.svg import CONVX, LETTER, TORCH, Color, arrow, bar, color_of, rectangle, svg, text

if TYPE_CHECKING:
    from convx.optimize.report import FusionReport, Operation

_ACROSS, _BOX, _GAP = 5, 180, 25  # kernels in a line, their width, and what is between two of them
_INSIDE, _LINE = _BOX - 12, 14  # the width and the height of text


def chain(rows: Sequence[FusionReport], operations: Sequence[Operation]) -> str:
    """Of convolutions and what is beside them, line by line; of what is measured with bars, on one scale."""
    boxes = list(_boxes(rows, operations))
    longest = max((us for box in boxes for us in box.us if us is not None), default=1.0)
    parts: list[str] = []
    top = 4.0
    for first in range(0, len(boxes), _ACROSS):
        line = boxes[first : first + _ACROSS]
        bottom = top + max(box.height for box in line)
        for place, box in enumerate(line):
            x = float(place * (_BOX + _GAP))
            parts += box.drawn(x, top, longest)
            if place > 0:
                parts.append(arrow([(x - _GAP, top + 20), (x, top + 20)], is_down=False))
        if first + _ACROSS < len(boxes):
            parts.append(_turn(top + line[-1].height, bottom))
        top = bottom + _GAP
    return svg(top - _GAP + 4, "the network as a chain of its kernels", parts)


def _turn(start: float, bottom: float) -> str:
    """From below a line's last box to the first one of the next line."""
    left, right, y = _BOX / 2, (_ACROSS - 1) * (_BOX + _GAP) + _BOX / 2, bottom + _GAP / 2
    return arrow([(right, start), (right, y), (left, y), (left, bottom + _GAP)], is_down=True)


@dataclass(frozen=True)
class _Box:
    """A kernel, or operations that follow one another."""

    number: str
    name: str
    told: tuple[str, ...]  # below the name
    color: Color
    us: tuple[float | None, float | None] = (None, None)  # its own, and otherwise

    @property
    def words(self) -> list[str]:
        most = int(_INSIDE / LETTER)
        return [line for each in self.told for line in wrap(each, most)]

    @property
    def height(self) -> float:
        bars = 14 if self.us[0] is not None else 0
        return 24 + _LINE * len(self.words) + bars

    def drawn(self, x: float, y: float, longest: float) -> Iterator[str]:
        yield rectangle(x, y, _BOX, self.height, self.color, "; ".join((self.number + self.name, *self.told)))
        yield text(x + 6, y + 15, self.number + _shortened(self.name, len(self.number)), bold=True)
        for place, words in enumerate(self.words, 1):
            yield text(x + 6, y + 15 + _LINE * place, words)
        for place, (us, color) in enumerate(zip(self.us, (self.color, TORCH), strict=True)):
            if us is not None:
                yield bar(x + 6, y + self.height - 14 + 6 * place, _INSIDE * us / longest, color)


def _shortened(name: str, taken: int) -> str:
    """The end of one that is too long beside what is before it: layers' names begin alike."""
    most = int(_INSIDE / (LETTER * 1.15)) - taken  # in bold
    return name if len(name) <= most else f"…{name[1 - most :]}"


def _boxes(rows: Sequence[FusionReport], operations: Sequence[Operation]) -> Iterator[_Box]:
    """Both in the order of their places."""
    rest = list(operations)
    for number, row in enumerate(rows, 1):
        before = [each for each in rest if each.place < row.place]
        yield from _beside(before)
        yield _of_layer(number, row)
        rest = rest[len(before) :]
    yield from _beside(rest)


def _of_layer(number: int, row: FusionReport) -> _Box:
    time = "" if row.us is None else f"{row.us:.1f} us"
    gain = "" if row.times_faster is None else f", gain {row.times_faster:.2f}"
    by = f"left: {row.reason}" if row.reason else row.method
    told = (time + gain, by, ", ".join(row.fused))
    return _Box(f"{number} ", row.name, told, color_of(row), (row.us, row.torch_us))


def _beside(operations: Sequence[Operation]) -> Iterator[_Box]:
    for is_left, found in groupby(operations, lambda each: bool(each.reason)):
        group = list(found)
        kinds = ", ".join(each.kind for each in group)
        by, color = ("torch", TORCH) if is_left else ("convx", CONVX)
        yield _Box("", group[0].name, (by, kinds), color)
