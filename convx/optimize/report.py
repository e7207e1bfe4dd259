"""What convx.optimize did to a model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from convx.explain import aligned
from convx.optimize.html import layers, page, summary


@dataclass(frozen=True)
class FusionReport:
    """One convolution layer, or a block of several that one kernel runs."""

    name: str
    shape: str
    fused: tuple[str, ...]
    """What its kernel does beside the convolution, in order: "batch norm", "relu6", "residual"; of a block
    its layers."""
    method: str
    """The method and kernel planned for the example input; empty where the layer was left."""
    reason: str
    """Why the layer was left; empty where it is run by convx."""
    us: float | None = None
    """Measured microseconds of its calls for the example input, with all that is fused; None where plans were
    not measured."""
    torch_us: float | None = None
    """The same with torch's convolution, and what is fused in a pass after it."""


@dataclass(frozen=True)
class OptimizationReport:
    """The convolution layers of an optimized model, and what the whole of it gains; prints as a table."""

    rows: tuple[FusionReport, ...]
    reason: str
    """Why nothing is fused; empty where the model could be followed and that is faster."""
    layout: str
    """The layout that convolutions work in: "nchw" or "channels_last"; "as given" follows the input."""
    cuda_graphs: bool
    native_us: float
    """Microseconds of a call of the model on the example input, and of the optimized one, in turns."""
    optimized_us: float
    native_error: float
    """Of the results for the example input, against float64, in the norm over all; nan where the model can't
    be run in float64, and optimized_error is the distance between the two models then."""
    optimized_error: float
    by_image: bool = False
    """Whether a batch's images go through the convolutions one by one (on CPUs); rows are of one then."""
    compiled: bool = False
    """Whether inductor compiles the network, with convx's convolutions."""
    not_compiled: str = ""
    """Why it does not, where that was tried: the times of both, or what went wrong."""

    @property
    def times_faster(self) -> float:
        return self.native_us / self.optimized_us

    @property
    def left(self) -> tuple[FusionReport, ...]:
        return tuple(row for row in self.rows if row.reason)

    def to_html(self) -> str:
        """One page with everything in it: what was gained, and each layer with its times as bars."""
        return page("What convx.optimize did", summary(self), layers(self))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        table: list[tuple[str, ...]] = [("layer", "shape", "with", "method", "us", "by torch's")]
        for row in self.rows:
            left = f"left: {row.reason}" if row.reason else row.method
            times = ("-" if us is None else f"{us:.1f}" for us in (row.us, row.torch_us))
            table.append((row.name, row.shape, ", ".join(row.fused) or "-", left, *times))
        lines = [*aligned(table)]
        if self.reason:
            lines.append(f"nothing is fused: {self.reason}")
        if self.not_compiled:
            lines.append(f"not compiled: {self.not_compiled}")
        compiled = ", compiled by inductor with convx's convolutions" if self.compiled else ""
        graphs = ", as a CUDA graph" if self.cuda_graphs else ", image by image" if self.by_image else ""
        lines += [
            f"{len(self.rows) - len(self.left)} of {len(self.rows)} convolution layers run by convx, "
            f"layout {self.layout}{compiled}{graphs}",
            f"{self.native_us:.0f} us natively, {self.optimized_us:.0f} optimized: "
            f"{self.times_faster:.2f} times as fast",
            f"error {self.native_error:.1e} natively, {self.optimized_error:.1e} optimized",
        ]
        return "\n".join(lines)
