"""What convx.optimize did to a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from convx.explain import aligned
from convx.optimize.html import layers, page, summary


@dataclass(frozen=True)
class Operation:
    """One operation that is no convolution, and that no convolution's kernel does."""

    name: str
    """Of its layer, or of what torch.fx calls it."""
    kind: str
    """"batch norm", "layer norm", "pooling", "mean of planes", "linear layer", "activation", "sum",
    "concatenation", "shuffle", or "move of channels" for several of these and slices together."""
    place: int
    """Its turn in the network."""
    reason: str
    """Why it was left to torch; empty where convx runs it."""


@dataclass(frozen=True)
class Others:
    """All operations of one kind and reason."""

    kind: str
    count: int
    reason: str
    """Why they were left to torch; empty where convx runs them."""

    def __str__(self) -> str:
        return f"{self.kind} ({self.count})"


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
    """The same with torch's convolution, and what is fused in a pass after it; of a block, its layers one by
    one, by the fastest plan of each."""
    place: int = 0
    """Its turn in the network; 0 throughout where layers are run one by one."""

    @property
    def times_faster(self) -> float | None:
        """None where it was not measured both ways."""
        return None if self.us is None or self.torch_us is None else self.torch_us / self.us


@dataclass(frozen=True)
class OptimizationReport:
    """The convolution layers of an optimized model, what is beside them, and what the whole of it gains;
    prints as a table."""

    rows: tuple[FusionReport, ...]
    reason: str
    """Why nothing is fused, or parts alone; empty where the model could be followed and that is faster."""
    layout: str
    """The layout that convolutions work in: "nchw" or "channels_last"; "as given" follows the input. Of a
    network in several: "nchw, channels_last from layer features.5 on"."""
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
    not_replayed: str = ""
    """Why no CUDA graph replays the network, where graphs were asked for."""
    operations: tuple[Operation, ...] = ()
    """What is in no convolution's kernel, in order: pooling, means, norms that were left. Nothing is known of
    them where layers are run one by one, or compiled."""

    @property
    def times_faster(self) -> float:
        return self.native_us / self.optimized_us

    @property
    def left(self) -> tuple[FusionReport, ...]:
        return tuple(row for row in self.rows if row.reason)

    @property
    def in_order(self) -> list[FusionReport]:
        """The rows, as the network calls them."""
        return sorted(self.rows, key=lambda row: row.place)

    @property
    def why(self) -> str:
        """The reason, and what it is the reason for."""
        done = "parts are fused" if any(row.fused for row in self.rows) else "nothing is fused"
        return f"{done}: {self.reason}" if self.reason else ""

    @property
    def others(self) -> tuple[Others, ...]:
        """The operations by kind and reason, most of a kind first."""
        counts = Counter((each.kind, each.reason) for each in self.operations)
        return tuple(Others(kind, count, reason) for (kind, reason), count in counts.most_common())

    def to_html(self) -> str:
        """One page with everything in it: what was gained, the network as pictures, and each layer with its
        times as bars."""
        return page("What convx.optimize did", summary(self), layers(self))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {**asdict(self), "others": [asdict(each) for each in self.others]}

    def __str__(self) -> str:
        table: list[tuple[str, ...]] = [("layer", "shape", "with", "method", "us", "otherwise", "gain")]
        for row in self.in_order:
            left = f"left: {row.reason}" if row.reason else row.method
            times = ("-" if us is None else f"{us:.1f}" for us in (row.us, row.torch_us))
            gain = "-" if row.times_faster is None else f"{row.times_faster:.2f}"
            table.append((row.name, row.shape, ", ".join(row.fused) or "-", left, *times, gain))
        lines = [*(aligned(table) if self.rows else []), *self._lines_of_others()]
        lines += [self.why] if self.reason else []
        if self.not_compiled:
            lines.append(f"not compiled: {self.not_compiled}")
        if self.not_replayed:
            lines.append(f"no CUDA graph: {self.not_replayed}")
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

    def _lines_of_others(self) -> Iterator[str]:
        own = [str(each) for each in self.others if not each.reason]
        if own:
            yield f"beside them by convx: {', '.join(own)}"
        for each in self.others:
            if each.reason and each.reason != self.reason:
                yield f"left to torch: {each}: {each.reason}"
