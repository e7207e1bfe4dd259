"""Bars and points in SVG. matplotlib draws them; whether a file is of today's data is told without it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.spread import Quartiles, quartiles

_STYLE_VERSION = 3  # of what is drawn from the same data
_COLORS = ("#9aa3af", "#f59e0b", "#10b981", "#be185d", "#7c3aed")
_LAST = "#2563eb"  # of the last series, which is what the others are compared with
_WHISKERS = "#1f2937"


@dataclass(frozen=True)
class Panel:
    """Series of one value (or none) for each label."""

    title: str
    labels: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    y_label: str
    points: bool = False  # for many labels; else bars
    line: float | None = None  # drawn across, to compare with
    logarithmic: bool = False
    spread: Mapping[str, Sequence[Quartiles | None]] = field(default_factory=dict)  # of series that have one

    @classmethod
    def of_layers(
        cls,
        average: Callable[[Sequence[float]], float],
        title: str,
        labels: Sequence[str],
        layers: Mapping[str, Sequence[Sequence[float]]],
        y_label: str,
    ) -> Panel:
        """Averages of the layers' speedups, with their quartiles. layers: by series, those of each label; a
        paper's own average is a single value, which has no spread."""
        series = {
            name: [average(values) if values else None for values in each] for name, each in layers.items()
        }
        spread = {name: [quartiles(values) for values in each] for name, each in layers.items()}
        return cls(title, labels, series, y_label, line=1.0, spread=spread)

    @property
    def has_spread(self) -> bool:
        return any(found for each in self.spread.values() for found in each)


@dataclass(frozen=True)
class Picture:
    name: str  # of the file, without .svg
    title: str
    panels: Sequence[Panel]

    @property
    def digest(self) -> str:
        """Of what is drawn, to three digits as it is seen."""
        text = json.dumps([_STYLE_VERSION, _rounded(asdict(self))], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def is_drawn(self, folder: Path) -> bool:
        path = folder / f"{self.name}.svg"
        return path.is_file() and self.digest in path.read_text()

    def draw(self, folder: Path) -> Path:
        """The same data give the same file, with one matplotlib."""
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        style: Any = {
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "axes.grid": True,
            "axes.grid.axis": "y",
            "grid.color": "#e5e7eb",
            "font.size": 9,
            "font.family": "sans-serif",
            "font.sans-serif": ["DejaVu Sans"],
            "svg.fonttype": "none",
            "svg.hashsalt": "convx",
        }
        with plt.rc_context(style):
            figure, axes = plt.subplots(
                len(self.panels), 1, figsize=(9, 2.8 * len(self.panels) + 0.5), squeeze=False
            )
            for axis, panel in zip(axes[:, 0], self.panels, strict=True):
                draw_panel(axis, panel)
            figure.suptitle(self.title, x=0.01, ha="left", fontweight="bold", fontsize=10)
            figure.tight_layout()
            path = folder / f"{self.name}.svg"
            folder.mkdir(parents=True, exist_ok=True)
            metadata = {"Date": None, "Creator": None, "Description": f"data {self.digest}"}
            figure.savefig(path, metadata=metadata)
            plt.close(figure)
        path.write_text(_compact(path.read_text()))
        return path


def _compact(svg: str) -> str:
    """A tenth of a point is enough for eyes; what is written stays."""
    lines = (line.strip() for line in svg.splitlines())
    whole = "\n".join(line for line in lines if line)
    return re.sub(r"(>[^<]*</text>)|(\d+\.\d)\d+", lambda found: found[1] or found[2], whole) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, dict):
        # As pairs: the order of the series is drawn too.
        return [[key, _rounded(each)] for key, each in value.items()]
    return [_rounded(each) for each in value] if isinstance(value, (list, tuple)) else value


def draw_panel(axis: Any, panel: Panel) -> None:
    from matplotlib import ticker

    places, count = range(len(panel.labels)), len(panel.series)
    width = 0.8 / max(count, 1)
    for index, (name, values) in enumerate(panel.series.items()):
        offset = 0 if panel.points else (index - (count - 1) / 2) * width
        at = [place + offset for place in places]
        shown = [float("nan") if value is None else value for value in values]
        color = _LAST if index == count - 1 else _COLORS[index % len(_COLORS)]
        if panel.points:
            axis.plot(at, shown, marker="o", markersize=3, linewidth=0.8, color=color, label=name)
        else:
            axis.bar(at, shown, width, color=color, label=name)
        if name in panel.spread:
            draw_whiskers(axis, at, panel.spread[name])
    if panel.line is not None:
        axis.axhline(panel.line, color="#111827", linewidth=0.8)
    if panel.logarithmic:
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter(ticker.NullFormatter())
    crowded = len(panel.labels) > 16
    axis.set_xticks(list(places), panel.labels, rotation=90 if crowded else 0, fontsize=5.5 if crowded else 8)
    axis.set_xlim(-0.7, len(panel.labels) - 0.3)
    axis.set_ylabel(panel.y_label)
    axis.set_title(panel.title, loc="left", fontsize=9, pad=20)  # above the legend
    legend = axis.legend(frameon=False, ncol=6, loc="lower left", bbox_to_anchor=(-0.01, 0.98), fontsize=8)
    legend.set_in_layout(False)


def draw_whiskers(axis: Any, places: Sequence[float], spread: Sequence[Quartiles | None]) -> None:
    """From quartile to quartile, wherever the bar ends: a mean may lie outside."""
    found = [(place, *pair) for place, pair in zip(places, spread, strict=True) if pair]
    if found:
        at, lower, upper = zip(*found, strict=True)
        # Those of values a rounding apart may come in the wrong order; matplotlib refuses lengths below 0.
        lengths = [max(high - low, 0) for low, high in zip(lower, upper, strict=True)]
        style: Any = {"fmt": "none", "ecolor": _WHISKERS, "elinewidth": 0.8, "capsize": 2, "capthick": 0.8}
        axis.errorbar(at, lower, yerr=[[0] * len(at), lengths], **style)
