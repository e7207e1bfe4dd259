"""Reports as one HTML page, its style inside and nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from convx.optimize.pictures import pictures

if TYPE_CHECKING:
    from convx.optimize.report import FusionReport, OptimizationReport

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; color: #1f2937;
  margin: 0 auto; max-width: 1200px; padding: 24px;
}}
h1 {{ font-size: 24px; }}
h2 {{ font-size: 18px; margin: 28px 0 8px; }}
.cards {{ display: flex; flex-wrap: wrap; gap: 12px; }}
.card {{ background: #f9fafb; border: 1px solid #e5e7eb; border-radius: 10px; padding: 8px 14px; }}
.card b {{ display: block; font-size: 20px; }}
.card span, .left {{ color: #6b7280; font-size: 13px; }}
table {{ border-collapse: collapse; width: 100%; font-size: 13px; }}
th {{ text-align: left; border-bottom: 2px solid #d1d5db; padding: 4px 8px; }}
td {{ border-bottom: 1px solid #eef0f3; padding: 3px 8px; }}
td.number, th.number {{ text-align: right; font-variant-numeric: tabular-nums; }}
svg {{ display: block; max-width: 100%; height: auto; }}
.bar {{ height: 7px; margin: 2px 0; background: #2563eb; }}
.bar.torch {{ background: #9aa3af; }}
</style>
</head>
<body>
<h1>{title}</h1>
{sections}
</body>
</html>
"""
_OTHERWISE = (
    '<p class="left">Otherwise: by torch\'s convolution, with a pass after it for what is fused; '
    "of a block, its layers one by one.</p>"
)


def page(title: str, *sections: str) -> str:
    return _PAGE.format(title=escape(title), sections="\n".join(sections))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """Cells are HTML; the last `numbers` columns are numbers."""
    first = len(head) - numbers

    def line(kind: str, cells: Sequence[str]) -> str:
        marks = (' class="number"' if place >= first else "" for place in range(len(cells)))
        made = (f"<{kind}{mark}>{cell}</{kind}>" for mark, cell in zip(marks, cells, strict=True))
        return f"<tr>{''.join(made)}</tr>"

    return f"<table>{line('th', head)}{''.join(line('td', row) for row in rows)}</table>"


def summary(report: OptimizationReport) -> str:
    run = len(report.rows) - len(report.left)
    cards = {
        "times as fast": f"{report.times_faster:.2f}",
        "us natively": f"{report.native_us:.0f}",
        "us optimized": f"{report.optimized_us:.0f}",
        "convolution layers by convx": f"{run} of {len(report.rows)}",
        "layout": report.layout,
        "CUDA graph": "yes" if report.cuda_graphs else "no",
        "images one by one": "yes" if report.by_image else "no",
        "error natively": f"{report.native_error:.1e}",
        "error optimized": f"{report.optimized_error:.1e}",
    }
    made = (
        f'<div class="card"><b>{escape(value)}</b><span>{name}</span></div>' for name, value in cards.items()
    )
    why = f'<p class="left">{escape(report.why)}</p>' if report.reason else ""
    if report.not_compiled:
        why += f'<p class="left">Not compiled: {escape(report.not_compiled)}</p>'
    if report.not_replayed:
        why += f'<p class="left">No CUDA graph: {escape(report.not_replayed)}</p>'
    if report.compiled:
        why += '<p class="left">Compiled by inductor, with convx\'s convolutions</p>'
    return f'<div class="cards">{"".join(made)}</div>{why}'


def layers(report: OptimizationReport) -> str:
    """The network as pictures, and as tables of its convolutions and of what is beside them."""
    return f"{pictures(report)}{_convolutions(report)}{_others(report)}"


def _convolutions(report: OptimizationReport) -> str:
    if not report.rows:
        return ""
    longest = max((us for row in report.rows for us in (row.us, row.torch_us) if us is not None), default=0.0)
    head = ("layer", "shape", "with", "method", "as it is, and otherwise", "us", "otherwise", "gain")
    rows = table(head, (_layer(row, longest) for row in report.in_order), 3)
    return f"<h2>Layers</h2>{_OTHERWISE}{rows}"


def _others(report: OptimizationReport) -> str:
    if not report.others:
        return ""
    rows = (
        (each.kind, "torch" if each.reason else "convx", escape(each.reason), f"{each.count}")
        for each in report.others
    )
    return f"<h2>Beside the convolutions</h2>{table(('operation', 'by', 'why', 'times'), rows, 1)}"


def _layer(row: FusionReport, longest: float) -> tuple[str, ...]:
    method = f'<span class="left">left: {escape(row.reason)}</span>' if row.reason else escape(row.method)
    bars, times = "", []
    for us, kind in ((row.us, ""), (row.torch_us, " torch")):
        times.append("" if us is None else f"{us:.1f}")
        if us is not None:
            bars += f'<div class="bar{kind}" style="width: {max(1.0, 200 * us / longest):.0f}px"></div>'
    times.append("" if row.times_faster is None else f"{row.times_faster:.2f}")
    return escape(row.name), escape(row.shape), escape(", ".join(row.fused)), method, bars, *times
