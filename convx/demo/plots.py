"""The report's pictures."""

from __future__ import annotations

import io
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from convx.demo.compare import LAYOUTS, LayerResult, NetworkResult

NATIVE, CONVX, LEFT = "#9aa3af", "#2563eb", "#d9dde3"
_STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#6b7280",
    "axes.labelcolor": "#374151",
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "xtick.color": "#374151",
    "ytick.color": "#374151",
    "grid.color": "#e5e7eb",
}


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, bbox_inches="tight", facecolor="white")
    plt.close(figure)
    return buffer.getvalue()


def totals(results: list[NetworkResult]) -> bytes:
    """Whole networks: native and convx in both layouts."""
    with plt.rc_context(_STYLE):
        figure, axes = plt.subplots(1, len(results), figsize=(5.2 * len(results), 3.4), squeeze=False)
        for axis, result in zip(axes[0], results, strict=True):
            for place, layout in enumerate(LAYOUTS):
                native, fast = (time / 1e3 for time in result.whole_us[layout])
                axis.bar(place - 0.19, native, 0.36, color=NATIVE)
                bar = axis.bar(place + 0.19, fast, 0.36, color=CONVX)
                axis.bar_label(bar, [f"{native / fast:.2f}x"], padding=3, color=CONVX, fontweight="bold")
            axis.set_xticks(range(len(LAYOUTS)), LAYOUTS)
            axis.set_title(f"{result.title}, batch {result.batch}")
            axis.set_ylabel("milliseconds, whole network")
            axis.margins(y=0.18)
            axis.grid(axis="y")
        handles = [Patch(color=NATIVE, label="native"), Patch(color=CONVX, label="convx (times faster)")]
        figure.legend(handles=handles, loc="upper center", ncol=2, frameon=False, bbox_to_anchor=(0.5, 1.06))
        figure.tight_layout()
        return png(figure)


def layer_times(result: NetworkResult) -> bytes:
    """Every convolution in order of execution: its time native and converted."""
    layers = result.layers
    with plt.rc_context(_STYLE):
        figure, axis = plt.subplots(figsize=(max(10.0, 0.21 * len(layers) + 2), 3.8))
        for place, layer in enumerate(layers):
            if layer.converted:
                axis.bar(place - 0.21, layer.native_us, 0.42, color=NATIVE)
                axis.bar(place + 0.21, layer.convx_us, 0.42, color=CONVX)
            else:
                axis.bar(place, layer.native_us, 0.5, color=LEFT)
        axis.set_xticks(range(len(layers)), [layer.name for layer in layers], rotation=90, fontsize=7)
        axis.set_xlim(-0.8, len(layers) - 0.2)
        axis.set_ylabel("microseconds")
        axis.set_title(f"{result.title}: time of every convolution, {result.layout}, batch {result.batch}")
        axis.grid(axis="y")
        axis.legend(
            handles=[
                Patch(color=NATIVE, label="native"),
                Patch(color=CONVX, label="convx"),
                Patch(color=LEFT, label="left native"),
            ],
            frameon=False,
            ncol=3,
            loc="lower right",
            bbox_to_anchor=(1, 1.07),
        )
        return png(figure)


def layer_speedups(result: NetworkResult) -> bytes | None:
    """The converted layers: native time over convx time; None where there is none."""
    layers = [layer for layer in result.layers if layer.converted]
    if not layers:
        return None
    with plt.rc_context(_STYLE):
        figure, axis = plt.subplots(figsize=(8.6, 0.27 * len(layers) + 1.3))
        axis.barh(range(len(layers)), [layer.speedup for layer in layers], 0.68, color=CONVX)
        _label_speedups(axis, layers)
        axis.axvline(1, color="#111827", linewidth=1)
        axis.set_yticks(range(len(layers)), [f"{layer.name}   {layer.what}" for layer in layers], fontsize=8)
        axis.invert_yaxis()
        axis.set_xlabel("times faster than native (the line: equal)")
        axis.set_title(f"{result.title}: speed-up of the converted layers")
        axis.margins(x=0.1, y=0.02)
        axis.grid(axis="x")
        return png(figure)


def _label_speedups(axis: Any, layers: list[LayerResult]) -> None:
    for place, layer in enumerate(layers):
        axis.text(layer.speedup, place, f"  {layer.speedup:.2f}", va="center", fontsize=8, color="#374151")
