"""What the files that the planner is built with have in common."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.measured_layers import Correction
from benchmarks.suites import LAYOUTS, OPERATIONS, Shape

_DTYPES = ("float32", "float64", "float16", "bfloat16")


def order(operation: str, dtype: str, layout: str) -> tuple[int, int, int]:
    """As the planner compares: by the values of its enumerations."""
    return OPERATIONS.index(operation), _DTYPES.index(dtype), LAYOUTS.index(layout)


def enumerators(operation: str, dtype: str, layout: str) -> tuple[str, str, str]:
    layout = "nhwc" if layout == "channels_last" else layout
    return f"Operation::{operation}", f"DType::{dtype}", f"Layout::{layout}"


class LayerTable:
    """The measured layers of one file, and the points of its series, which have weights of theirs."""

    def __init__(self) -> None:
        self._layers: dict[tuple[int, Shape], int] = {}
        self._points: list[str] = []

    def add(self, correction: Correction) -> str:
        """The first and the number of the points that a series has."""
        first = len(self._points)
        for problem, weight in zip(correction.problems, correction.weights, strict=True):
            index = self._layers.setdefault((problem.batch, problem.shape), len(self._layers))
            self._points.append(f"{{{index}, {weight:.5g}}}")
        return f"{first}, {len(self._points) - first}"

    def lines(self, name: str, reach: float) -> list[str]:
        layers = [
            f"{{{batch}, {s.in_channels}, {s.size}, {s.out_channels}, {s.filter}, {s.stride}}}"
            for batch, s in self._layers
        ]
        return [
            f"constexpr double {name}_reach = {reach:g};",
            "// Batch, input channels, height and width, output channels, filter, stride.",
            f"constexpr MeasuredLayer {name}_layers[] = {{",
            *_wrapped(layers),
            "};",
            "// A layer, and its weight in the correction.",
            f"constexpr MeasuredPoint {name}_points[] = {{",
            *_wrapped(self._points),
            "};",
        ]


def _wrapped(entries: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for entry in entries:
        if lines and len(lines[-1]) + len(entry) < 108:
            lines[-1] += f" {entry},"
        else:
            lines.append(f"{entry},")
    return lines
