"""What convx.optimize fused in a network, in a sentence."""

from __future__ import annotations

from collections import Counter

from convx import OptimizationReport
from convx._blocks import InvertedResidual, SqueezeExcite

_BLOCKS = {
    InvertedResidual.method: "inverted residual block",
    SqueezeExcite.method: "squeeze-and-excitation",
}


def sentence(report: OptimizationReport) -> str:
    """Counts of blocks that run as one, and of what convolutions do beside."""
    rows = [row for row in report.rows if not row.reason]
    blocks = Counter(_BLOCKS[row.method] for row in rows if row.method in _BLOCKS)
    layers = [row.fused for row in rows if row.fused and row.method not in _BLOCKS]
    fused = Counter(part for parts in layers for part in parts)
    done = [f"{_counted(count, block)} by one call each" for block, count in blocks.items()]
    if layers:
        parts = ", ".join(f"{count} {part}" for part, count in fused.items())
        done.append(f"into {_counted(len(layers), 'convolution')}: {parts}")
    nothing = f"nothing, {report.reason}" if report.reason else "nothing"
    return f"Fused: {'; '.join(done) or nothing}. Works in {_works_in(report)}."


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _works_in(report: OptimizationReport) -> str:
    layout = "the input's layout" if report.layout == "as given" else report.layout
    how = {
        "compiled by inductor": report.compiled,
        "as a CUDA graph": report.cuda_graphs,
        "image by image": report.by_image,
    }
    return ", ".join([layout, *(each for each, is_so in how.items() if is_so)])
