"""The report's pictures."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from convx.demo.compare import NetworkResult, WholeResult

OPTIMIZED, NATIVE, CONVX, LEFT = "#15803d", "#9aa3af", "#2563eb", "#d9dde3"
_METHOD_COLOURS = ("#2563eb", "#0d9488", "#d97706", "#7c3aed", "#be185d", "#4d7c0f")
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
    """Whole networks: optimized, native and converted, in both layouts."""
    most = max(len(result.whole) for result in results)
    with plt.rc_context(_STYLE):
        size = (max(6.0, 2.4 * most) * len(results), 3.4)
        figure, axes = plt.subplots(1, len(results), figsize=size, squeeze=False)
        for axis, result in zip(axes[0], results, strict=True):
            for place, whole in enumerate(result.whole):
                for bar, (us, label, colour) in enumerate(_bars(whole)):
                    drawn = axis.bar(place + 0.28 * (bar - 1), us / 1e3, 0.26, color=colour)
                    axis.bar_label(drawn, [label], padding=3, fontsize=8.5, color="#374151")
            axis.set_xticks(range(len(result.whole)), [whole.label for whole in result.whole])
            axis.set_title(f"{result.title}, batch {result.batch}")
            axis.set_ylabel("milliseconds, whole network")
            axis.margins(y=0.22)
            axis.grid(axis="y")
        names = {"optimized (times faster)": OPTIMIZED, "native": NATIVE, "converted (times faster)": CONVX}
        handles = [Patch(color=colour, label=name) for name, colour in names.items()]
        figure.legend(handles=handles, loc="upper center", ncol=3, frameon=False, bbox_to_anchor=(0.5, 1.06))
        figure.tight_layout()
        return png(figure)


def _bars(whole: WholeResult) -> list[tuple[float, str, str]]:
    """Time, label and colour of each."""
    return [
        (whole.optimized_us, f"{whole.optimized_us / 1e3:.1f} ms\n{whole.optimized_speedup:.2f}x", OPTIMIZED),
        (whole.native_us, f"{whole.native_us / 1e3:.1f} ms", NATIVE),
        (whole.convx_us, f"{whole.convx_us / 1e3:.1f} ms\n{whole.speedup:.2f}x", CONVX),
    ]


def layer_times(result: NetworkResult) -> bytes:
    """Every convolution in order of execution: its time native and converted."""
    layers = result.layers
    with plt.rc_context(_STYLE):
        figure, axis = plt.subplots(figsize=(max(11.5, 0.21 * len(layers) + 2), 3.8))
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
        handles = [Patch(color=NATIVE, label="native"), Patch(color=CONVX, label="convx")]
        if not all(layer.converted for layer in layers):
            handles.append(Patch(color=LEFT, label="left native"))
        axis.legend(
            handles=handles,
            frameon=False,
            ncol=3,
            loc="lower right",
            bbox_to_anchor=(1, 1.07),
        )
        return png(figure)


def layer_speedups(result: NetworkResult) -> bytes | None:
    """The converted layers: native time over convx time, by who runs them; None where there is none."""
    layers = [layer for layer in result.layers if layer.converted]
    if not layers:
        return None
    colours = _colours(layer.method.split("/")[0] for layer in layers)
    with plt.rc_context(_STYLE):
        size = (9.6, 0.27 * len(layers) + 1.6)
        figure, axis = plt.subplots(figsize=size, layout="constrained")
        for place, layer in enumerate(layers):
            _speedup_bar(axis, place, layer.speedup, colours[layer.method.split("/")[0]])
        names = [f"{layer.name}   {layer.what}" for layer in layers]
        _finish_speedups(axis, names, [layer.speedup for layer in layers])
        axis.set_title(f"{result.title}: speed-up of the converted layers, by method")
        handles = [Patch(color=colour, label=method) for method, colour in colours.items()]
        figure.legend(handles=handles, loc="outside upper right", ncol=len(handles), frameon=False)
        return png(figure)


def method_speedups(result: NetworkResult) -> bytes | None:
    """The whole network with every layer that a method can run given to it; None where none can."""
    if not result.forced:
        return None
    total = len(result.layers)
    converted = sum(layer.converted for layer in result.layers)
    rows = [("auto", converted, result.main.speedup)]
    rows += [(each.method, each.layers, each.whole_us[0] / each.whole_us[1]) for each in result.forced]
    with plt.rc_context(_STYLE):
        figure, axis = plt.subplots(figsize=(9.6, 0.34 * len(rows) + 1.1), layout="constrained")
        for place, (method, _, speedup) in enumerate(rows):
            _speedup_bar(axis, place, speedup, CONVX if method == "auto" else NATIVE)
        names = [f"{method}, {layers} of {total} layers" for method, layers, _ in rows]
        _finish_speedups(axis, names, [speedup for _, _, speedup in rows])
        axis.set_title(f"{result.title}: the whole network with auto, and with each method by name")
        return png(figure)


def _colours(methods: Iterable[str]) -> dict[str, str]:
    return dict(zip(dict.fromkeys(methods), itertools.cycle(_METHOD_COLOURS), strict=False))


def _speedup_bar(axis: Any, place: int, speedup: float, colour: str) -> None:
    """From 1, which is native, to the right where faster and to the left where slower."""
    axis.barh(place, speedup - 1, 0.68, left=1, color=colour)
    side, gap = ("left", 4) if speedup >= 1 else ("right", -4)
    axis.annotate(
        f"{speedup:.2f}",
        (speedup, place),
        (gap, 0),
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=8,
        color="#374151",
    )


def _finish_speedups(axis: Any, names: list[str], speedups: list[float]) -> None:
    """A logarithmic axis, on which twice as fast is as far from 1 as half as fast."""
    axis.set_xscale("log", base=2)
    low, high = min(0.72, *speedups), max(1.4, *speedups)
    room = (high / low) ** 0.09  # for the numbers beside the bars
    axis.set_xlim(low / room, high * room)
    axis.xaxis.set_major_locator(LogLocator(base=2, subs=(1, 1.5) if max(speedups) < 8 else (1,)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.axvline(1, color="#111827", linewidth=1)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_xlabel("times faster than native (logarithmic; the line: equal)")
    axis.grid(axis="x")
