"""Table 9 of the paper on depthwise separable convolution on whole networks, forward and backward."""

from __future__ import annotations

from benchmarks.papers import claims
from benchmarks.papers.measurements import Machine
from benchmarks.papers.pictures import Panel
from benchmarks.papers.text import Cell, table
from benchmarks.results import Record

SUITE = "networks"
NETWORKS = {  # by their names in the suite
    "efficientnet_b0": "EfficientNet-B0",
    "mnasnet1_0": "MnasNet",
    "mobilenet_v2": "MobileNetV2",
    "shufflenet_v2_x0_5": "ShuffleNetV2",
}
_STEP = "_train_step"


def whole_networks(machine: Machine) -> tuple[str, list[Panel]]:
    """A table, and a panel of forward runs; nothing where not all of a row was measured."""
    found: dict[tuple[str, str], Record] = {}
    for _, results in machine.sources(SUITE):
        for record in results.records.values():
            name, *rest = record["case"].split(" ")
            if rest == ["b1", "float32", "nchw"]:
                found[name, record["operation"]] = record
    all_swapped = "inference_graph" if machine.is_gpu else "inference"
    runs = {
        "forward": ("depthwise_swapped", "pointwise_swapped", all_swapped, "optimized"),
        "training step": (f"depthwise_swapped{_STEP}", f"pointwise_swapped{_STEP}", "train_step"),
    }
    lines: list[list[Cell]] = []
    forward: dict[str, list[float]] = {}
    for name, title in NETWORKS.items():
        for run, kinds in runs.items():
            records = [found[name, kind] for kind in kinds if (name, kind) in found]
            if len(records) == len(kinds):
                gains = [_torchs(record) / record["convx_us"] for record in records]
                dashes = ["-"] * (4 - len(gains))
                lines.append([title, run, f"{_torchs(records[2]) / 1e3:.2f}", *gains, *dashes])
                if run == "forward":
                    forward[title] = gains
    if not lines:
        return "", []
    head = ["network", "run", "torch, ms", "depthwise swapped", "pointwise swapped", "all", "optimized"]
    how = "; forward as replays of CUDA graphs" if machine.is_gpu else ""
    text = (
        f"Whole networks{how}, with depthwise, pointwise or all convolutions converted, and by "
        "`convx.optimize`, which is for inference alone. Each speedup is over torch's network in turns with "
        "it; the time is that beside all converted.\n\n" + table(head, lines, text_columns=2)
    )
    return text, [_panel(forward)] if forward else []


def _panel(forward: dict[str, list[float]]) -> Panel:
    """The paper's speedups, of a network's layers, beside those of the whole networks."""
    series: dict[str, list[float | None]] = {
        "paper: both": [claims.NETWORKS_MS[title][-1][1] for title in forward]
    }
    for index, what in enumerate(("depthwise", "pointwise", "all", "optimized")):
        series[f"convx: {what}"] = [gains[index] for gains in forward.values()]
    return Panel("forward, one image", list(forward), series, "speedup over torch", line=1.0)


def _torchs(record: Record) -> float:
    """Microseconds, of a graph where that was timed."""
    peers: dict[str, float] = record["peers_us"]
    return peers.get("torch_graph", peers["torch"])
