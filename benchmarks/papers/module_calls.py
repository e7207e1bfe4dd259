"""Tables 7 and 8 of the paper on depthwise separable convolution: modules, with the host's cost of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from benchmarks.modules import KINDS, PUBLISHED, Means, means
from benchmarks.papers.measurements import Machine
from benchmarks.papers.pictures import Panel
from benchmarks.papers.text import NOT_MEASURED, Cell, table, us
from benchmarks.results import Record

SUITE = "modules"
_COMMAND = f"`python -m benchmarks --suite {SUITE}` measures it."
_STREAM, _ALONE = KINDS["cuda"]
_Claims = Mapping[str, Mapping[int, float]]  # the paper's speedups, by group of layers and batch
_Gains = Mapping[tuple[str, int, str], Sequence[float]]  # the layers', by group, batch and kind


def module_calls(machine: Machine, claimed: _Claims) -> tuple[list[str], list[Panel]]:
    """Paragraphs, and a panel for each group that was measured."""
    records = [each for _, results in machine.sources(SUITE) for each in results.records.values()]
    if not records:
        return [f"{NOT_MEASURED} {_COMMAND}"], []
    found = means(records)
    is_gpu = machine.is_gpu
    head = ["layers", "batch"]
    runs = {"alone: ": _ALONE, "stream: ": _STREAM} if is_gpu else {"": _STREAM}
    for index, run in enumerate(runs):
        beside = [] if index else ["paper's"]  # the first is timed as the paper's
        head += [f"{run}torch", "convx", "speedup", *beside, "slower on"]
    lines: list[list[Cell]] = []
    for group, batch in sorted({(group, batch) for group, batch, _ in found}):
        cells = [_cells(found.get((group, batch, kind))) for kind in runs.values()]
        cells[0].insert(-1, claimed[group].get(batch))
        lines.append([group, batch, *(cell for each in cells for cell in each)])
    measured = sorted({group for group, _, _ in found})
    gains, published = _gains(records), _gains(records, PUBLISHED)
    panels = [_panel(group, gains, published, claimed[group], is_gpu) for group in measured]
    return [_text(is_gpu), table(head, lines)], panels


def _text(is_gpu: bool) -> str:
    runs = (
        "*Alone*: from an event before a call to one after it, when the GPU waits for the call, as the tests "
        "of modules that the paper's authors published take their times (the paper does not say). *Stream*: "
        "calls one after another until the GPU has done all, the longer of what the host and the GPU take."
        if is_gpu
        else "Calls one after another."
    )
    return (
        "`torch.nn.Conv2d` without bias, and the same after `convx.convert_`, called in turns in "
        f"`torch.inference_mode`, float32 in NCHW, without TF32. {runs} Means over the layers, microseconds; "
        "speedups are means of the layers' as the paper's are, whose column is of its own modules."
    )


def _cells(found: Means | None) -> list[Cell]:
    if found is None:
        return ["-"] * 4
    slower = f"{found.slower} of {found.count}"
    return [us(found.torch_us), us(found.convx_us), found.speedup, slower]


def _gains(records: Sequence[Record], ours: str = "convx") -> _Gains:
    found: dict[tuple[str, int, str], list[float]] = {}
    for record in records:
        if f"{ours}_us" in record:
            label = (record["group"], record["batch"], record["operation"])
            found.setdefault(label, []).append(record["peers_us"]["torch"] / record[f"{ours}_us"])
    return found


def _panel(group: str, found: _Gains, published: _Gains, claimed: Mapping[int, float], is_gpu: bool) -> Panel:
    batches = sorted({batch for each, batch, _ in found if each == group})

    def gains(kind: str, of: _Gains = found) -> list[Sequence[float]]:
        return [of.get((group, batch, kind), []) for batch in batches]

    layers: dict[str, list[Sequence[float]]] = {
        "paper: modules over PyTorch": [[claimed[batch]] if batch in claimed else [] for batch in batches]
    }
    if any(theirs := gains(_ALONE, published)):
        layers["published form over torch, alone"] = theirs
    if is_gpu:
        layers["convx over torch, stream"] = gains(_STREAM)
    layers["convx over torch, alone" if is_gpu else "convx over torch"] = gains(_ALONE if is_gpu else _STREAM)
    labels = [f"batch {batch}" for batch in batches]
    return Panel.of_layers(mean, f"modules, {group}", labels, layers, "speedup")
