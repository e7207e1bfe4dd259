"""Parts of the pictures in reports: SVG within the page, no script, and nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from convx.optimize.report import FusionReport

WIDTH = 1000
LETTER = 6.6  # pixels of most letters in the widest of the usual fonts


class Color(NamedTuple):
    """Of a line, and of the area in it."""

    line: str
    area: str


CONVX, TORCH = Color("#2563eb", "#dbeafe"), Color("#6b7280", "#e5e7eb")


def color_of(row: FusionReport) -> Color:
    return TORCH if row.reason or row.method.startswith("native") else CONVX


def svg(height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="-1 0 {WIDTH + 2} {height:.0f}" width="{WIDTH + 2}" height="{height:.0f}" role="img" '
        f'aria-label="{escape(label)}" '
        f'font-family="system-ui, Segoe UI, Roboto, sans-serif" font-size="11">{"".join(parts)}</svg>'
    )


def text(x: float, y: float, words: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="#1f2937"{weight}>{escape(words)}</text>'


def rectangle(x: float, y: float, width: float, height: float, color: Color, tip: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.5, width):.1f}" height="{height:.1f}" '
        f'fill="{color.area}" stroke="{color.line}" stroke-width="0.8"><title>{escape(tip)}</title></rect>'
    )


def bar(x: float, y: float, width: float, color: Color) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(1.0, width):.1f}" height="4" fill="{color.line}"/>'


def band(corners: Sequence[tuple[float, float]], color: Color) -> str:
    return (
        f'<polygon points="{_points(corners)}" fill="{color.area}" fill-opacity="0.4" stroke="{color.line}" '
        'stroke-opacity="0.25"/>'
    )


def arrow(points: Sequence[tuple[float, float]], *, is_down: bool) -> str:
    """Along these, to the right or down at its end."""
    x, y = points[-1]
    wings = ((x - 3, y - 5), (x + 3, y - 5)) if is_down else ((x - 5, y - 3), (x - 5, y + 3))
    line = f'<polyline points="{_points(points)}" fill="none" stroke="#6b7280"/>'
    return f'{line}<polygon points="{_points(((x, y), *wings))}" fill="#6b7280"/>'


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
