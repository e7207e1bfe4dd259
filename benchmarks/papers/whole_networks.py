"""What table 9 of the paper on depthwise separable convolution has of layers, on whole networks, forward and
backward."""

from __future__ import annotations

from benchmarks.papers import claims
from benchmarks.papers.measurements import Machine
from benchmarks.papers.pictures import Panel
from benchmarks.papers.text import Cell, table
from benchmarks.papers.verdicts import no_verdict
from benchmarks.results import Record

SUITE = "networks"
NETWORKS = {  # by their names in the suite
    "efficientnet_b0": "EfficientNet-B0",
    "mnasnet1_0": "MnasNet",
    "mobilenet_v2": "MobileNetV2",
    "shufflenet_v2_x0_5": "ShuffleNetV2",
}
NOT_IN_NETWORKS = (
    "the published forms run for those who name them, `pointwise/generated` also where `convx.tune` left a "
    "record of it, and networks take what `auto` does, here without tuning: the forms were not timed in one"
)
WHISKERS = (
    "Whiskers of this picture are the bounds, with 95 % confidence, of a speedup over torch as its records "
    "have them; those of optimized networks have none beside torch's graph, which their bar is over."
)
_STEP = "_train_step"
_Gains = list[float]
_Bounds = list[tuple[float, float] | None]


def whole_networks(machine: Machine) -> tuple[str, list[Panel]]:
    """A table, and a panel of forward runs; nothing where not all of a row was measured."""
    found: dict[tuple[str, str], Record] = {}
    for _, results in machine.sources(SUITE):
        for record in results.records.values():
            name, *rest = record["case"].split(" ")
            if rest == ["b1", "float32", "nchw"]:
                found[name, record["operation"]] = record
    swapped = ("depthwise_swapped", "pointwise_swapped")
    runs = {
        "forward": (*swapped, "inference_graph" if machine.is_gpu else "inference", "optimized"),
        "training step": (*(f"{kind}{_STEP}" for kind in swapped), "train_step", f"compiled{_STEP}"),
    }
    lines: list[list[Cell]] = []
    forward: dict[str, tuple[_Gains, _Bounds]] = {}
    for name, title in NETWORKS.items():
        for run, kinds in runs.items():
            records = [found[name, kind] for kind in kinds if (name, kind) in found]
            if len(records) == len(kinds):
                gains = [_torchs(record) / record["convx_us"] for record in records]
                inductor = _inductors(records[-1])
                lines.append([title, run, f"{_torchs(records[2]) / 1e3:.2f}", *gains, inductor])
                if run == "forward":
                    forward[title] = gains, [_bounds(record) for record in records]
    if not lines:
        return "", []
    head = ["network", "run", "torch, ms", "depthwise swapped", "pointwise swapped", "all", "optimized"]
    head.append("by inductor")
    how = "; forward as replays of CUDA graphs" if machine.is_gpu else ""
    text = (
        f"Whole networks{how}, with depthwise, pointwise or all convolutions converted, and optimized: by "
        "`convx.optimize`, which is for inference alone, and in training by `torch.compile` with convx's "
        "backend. Each speedup is over torch's network in turns with it; the time is that beside all "
        "converted. *By inductor*: `torch.compile` with its own backend, in turns with convx's.\n\n"
        + table(head, lines, text_columns=2)
    )
    if forward:
        text += f"\n\n{_beside_the_paper({title: gains for title, (gains, _) in forward.items()})}"
    return text, [_panel(forward)] if forward else []


def _beside_the_paper(forward: dict[str, _Gains]) -> str:
    head = ["network"]
    lines: list[list[Cell]] = []
    for what in ("depthwise", "pointwise", "both"):
        head += [f"{what}: the paper's", "here, by `auto`"]
    for title, gains in forward.items():
        _, *replaced = claims.NETWORKS_MS[title]
        pairs = zip(replaced, gains, strict=False)  # nothing of the paper's beside optimized networks
        lines.append([title, *(cell for (_, claimed), gain in pairs for cell in (claimed, gain))])
    return (
        f"Beside table 9. {no_verdict(NOT_IN_NETWORKS)} The paper's are of a network's depthwise and "
        "pointwise layers alone, these of whole networks; *both* here is all convolutions.\n\n"
        + table(head, lines)
    )


def _panel(forward: dict[str, tuple[_Gains, _Bounds]]) -> Panel:
    """The paper's speedups, of a network's layers, beside those of the whole networks."""
    series: dict[str, list[float | None]] = {
        "paper: both": [claims.NETWORKS_MS[title][-1][1] for title in forward]
    }
    spread: dict[str, _Bounds] = {}
    for index, what in enumerate(("depthwise", "pointwise", "all", "optimized")):
        name = f"convx: {what}"
        series[name] = [gains[index] for gains, _ in forward.values()]
        spread[name] = [bounds[index] for _, bounds in forward.values()]
    return Panel("forward, one image", list(forward), series, "speedup over torch", line=1.0, spread=spread)


def _bounds(record: Record) -> tuple[float, float] | None:
    """Of the speedup, where the record has them; beside torch's graph it has none."""
    if "over_torch" not in record or "torch_graph" in record["peers_us"]:
        return None
    low, high = record["over_torch"]
    return 1 / high, 1 / low


def _torchs(record: Record) -> float:
    """Microseconds of torch's network: a graph's where that was timed, uncompiled beside compiled ones."""
    peers: dict[str, float] = record["peers_us"]
    return peers.get("torch_graph") or peers.get("torch_eager") or peers["torch"]


def _inductors(record: Record) -> Cell:
    """The speedup of a compiled network that is not convx's."""
    peers: dict[str, float] = record["peers_us"]
    return peers["torch_eager"] / peers["torch"] if "torch_eager" in peers else "-"
