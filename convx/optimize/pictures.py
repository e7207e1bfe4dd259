"""The pictures of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from convx.optimize.chain_picture import chain
from convx.optimize.svg import CONVX, LETTER, TORCH, WIDTH, band, color_of, rectangle, svg, text

if TYPE_CHECKING:
    from convx.optimize.report import FusionReport, OptimizationReport


def pictures(report: OptimizationReport) -> str:
    """Both calls, the kernels' times, and the network as a chain of its kernels; what there is to show."""
    rows = report.in_order
    numbered = enumerate(rows, 1)
    measured = [(number, row) for number, row in numbered if row.us is not None and row.torch_us is not None]
    made = ["<h2>A call</h2>", _legend(), _calls(report)]
    if measured:
        made += ["<h2>The convolutions' time, in order</h2>", _flow(measured)]
    if rows or report.operations:
        made += ["<h2>The network's kernels, in order</h2>", chain(rows, report.operations)]
    return "".join(made)


def _legend() -> str:
    keys = ((CONVX, "convx's kernels"), (TORCH, "torch's"))
    marks = (
        f'<span style="background: {color.area}; border: 1px solid {color.line}; padding: 1px 8px; '
        f'margin-right: 8px">{name}</span>'
        for color, name in keys
    )
    return f'<p class="left">{"".join(marks)}</p>'


def _calls(report: OptimizationReport) -> str:
    """Natively and optimized, on one scale."""
    times = (("natively", report.native_us, TORCH), ("optimized", report.optimized_us, CONVX))
    longest, parts = max(us for _, us, _ in times) or 1.0, []
    for place, (name, us, color) in enumerate(times):
        y, width = 4.0 + 30 * place, 800 * us / longest
        parts += [text(0, y + 15, name), rectangle(70, y, width, 22, color, f"{name}: {us:.0f} us")]
        parts.append(text(78 + width, y + 15, f"{us:.0f} us", bold=True))
    return svg(60, "time of a call natively and optimized", parts)


def _flow(rows: Sequence[tuple[int, FusionReport]]) -> str:
    """The part that each row has, with its number, of the time otherwise, and below of the time as it is."""
    times = [(row.torch_us or 0.0, row.us or 0.0) for _, row in rows]
    totals = [sum(column) for column in zip(*times, strict=True)]
    scale, at = WIDTH / (max(totals) or 1.0), [0.0, 0.0]
    parts = [text(0, 13, f"By torch's convolutions, and blocks layer by layer: {totals[0]:.0f} us together")]
    for (number, row), both in zip(rows, times, strict=True):
        above, below = (us * scale for us in both)
        color, tip = color_of(row), f"{row.name}: {both[1]:.1f} us, otherwise {both[0]:.1f}"
        corners = ((at[0], 48.0), (at[0] + above, 48.0), (at[1] + below, 92.0), (at[1], 92.0))
        parts.append(band(corners, color))
        for place, (width, own, y) in enumerate(((above, TORCH, 20.0), (below, color, 92.0))):
            parts.append(rectangle(at[place], y, width, 28, own, tip))
            said = _fitting(width, f"{number} {row.name}", f"{number}")
            parts += [text(at[place] + 4, y + 18, said)] if said else []
            at[place] += width
    parts.append(text(0, 136, f"As they are: {totals[1]:.0f} us together"))
    return svg(142, "the convolutions' times otherwise and as they are", parts)


def _fitting(width: float, *texts: str) -> str:
    """The first that there is room for, or none."""
    return next((each for each in texts if len(each) * LETTER + 6 < width), "")
