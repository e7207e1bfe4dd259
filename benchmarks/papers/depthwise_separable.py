"""The page on depthwise separable convolution on DCUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean

from benchmarks.papers import claims, pointwise_ablation
from benchmarks.papers.measurements import Machine, Row, Rows
from benchmarks.papers.networks import NETWORKS
from benchmarks.papers.pictures import Panel, Picture
from benchmarks.papers.reuse_ablation import reuse_forms
from benchmarks.papers.text import (
    NOT_MEASURED,
    Cell,
    Page,
    ratios,
    sources,
    table,
    us,
)
from benchmarks.results import geomean

Batches = Mapping[int, tuple[float, float, float]]
# Suite, group of cases: theirs as kernels and as modules.
KINDS: dict[str, tuple[str, str, Batches, Batches]] = {
    "depthwise": ("D1-30", "5, 7", claims.DEPTHWISE_KERNELS, claims.DEPTHWISE_MODULES),
    "pointwise": ("P1-45", "6, 8", claims.POINTWISE_KERNELS, claims.POINTWISE_MODULES),
}


def page(machines: Sequence[Machine]) -> Page:
    result = Page("depthwise_separable", ["Depthwise separable convolution on DCUs"])
    result.add(
        'Liu et al.: "Optimizing depthwise separable convolution on DCU" (2024). Depthwise layers with row '
        "reuse: an "
        "input row is loaded once for all output rows it touches. Pointwise layers with tilings that a "
        "generator makes for each layer, kernels that spread input channels over lanes, and a profiler. In "
        "convx: `depthwise`, `pointwise` and `convx.tune`, which generates kernels for GPUs when it is asked "
        "to tune.",
        "## What the paper reports",
        f"On a {claims.SEPARABLE_HARDWARE}, float32: means over the layers, microseconds. Kernels are "
        "compared with the fastest of MIOpen's algorithms (tables 5 and 6), modules with PyTorch's (tables 7 "
        "and 8).",
        _paper_table(),
        "Its ablation (table 9), milliseconds of the depthwise and pointwise layers of a network at one "
        "image:",
        table(
            (
                "network",
                "PyTorch",
                "depthwise replaced",
                "speedup",
                "pointwise replaced",
                "speedup",
                "both",
                "speedup",
            ),
            [
                [name, baseline, *(value for replaced in rest for value in replaced)]
                for name, (baseline, *rest) in claims.NETWORKS_MS.items()
            ],
        ),
    )
    measured = [
        machine for machine in machines if machine.sources("depthwise") or machine.sources("pointwise")
    ]
    for machine in measured:
        _machine(result, machine)
    if not measured:
        result.add(NOT_MEASURED)
    return result


def _paper_table() -> str:
    head = ("batch", "kernels", "MIOpen", "speedup", "modules", "PyTorch", "speedup")
    parts = []
    for suite, (group, tables, kernels, modules) in KINDS.items():
        lines: list[list[Cell]] = []
        for batch in kernels:
            line: list[Cell] = [batch]
            for ours, theirs, speedup in (kernels[batch], modules[batch]):
                line += [us(ours), us(theirs), speedup]
            lines.append(line)
        parts.append(
            f"{suite.capitalize()}, {group} (tables {tables}):\n\n{table(head, lines, text_columns=0)}"
        )
    return "\n\n".join(parts)


def _machine(page: Page, machine: Machine) -> None:
    page.add(f"## {machine.name}", sources(machine, *KINDS))
    page.add(
        "Graphs are replayed, so that a module's time is its kernel's, and ours stand beside "
        "both of the paper's tables, with torch's choice for PyTorch, and for the vendor's library the "
        "fastest of torch's ways: cuDNN, torch's own kernels, matrix products."
        if machine.is_gpu
        else "Ours stand beside both of the paper's tables: torch's choice, oneDNN's convolution, for "
        "PyTorch, and the fastest of torch's ways, matrix products too, for the vendor's library."
    )
    rows = {suite: machine.rows(suite) for suite in KINDS}
    panels, words = [], []
    for suite, (group, tables, kernels, modules) in KINDS.items():
        page.add(f"### {suite.capitalize()} layers {group} (tables {tables})")
        members = [row for row in rows[suite].values() if row.group == group and row.auto and row.peers]
        if not members:
            page.add(NOT_MEASURED)
            continue
        lines = _by_batch(members, kernels, modules)
        head = ["batch", "convx", "torch's choice", "speedup", "paper's, modules"]
        head += ["torch's best", "speedup", "paper's, kernels", "its geomean", "slower on"]
        means = "Means over the layers, microseconds; speedups are means of the layers' as the paper's are."
        page.add(means, table(head, lines, text_columns=0))
        panels.append(_panel(suite, lines))
        words.append(_words(suite, lines, machine.is_gpu))
    if panels:
        page.draw(
            Picture(f"depthwise-separable-{machine.slug}", f"{machine.name}: speedups by batch", panels)
        )
    page.add("### Networks, one image (table 9)", _networks(rows["depthwise"], rows["pointwise"]))
    page.add(
        "### Ablation: row and column reuse in depthwise layers",
        *reuse_forms(list(rows["depthwise"].values()), machine.is_gpu),
    )
    pointwise_ablation.add(page, machine, rows["pointwise"])
    page.add("### What reproduces, and what does not", "\n".join(words) if words else NOT_MEASURED)


def _by_batch(members: list[Row], kernels: Batches, modules: Batches) -> list[list[Cell]]:
    lines: list[list[Cell]] = []
    for batch in sorted({row.batch for row in members}):
        some = [row for row in members if row.batch == batch]
        line: list[Cell] = [batch, us(mean(row.auto or 0 for row in some))]
        for baseline, claimed in ((_torch, modules), (_torch_best, kernels)):
            each = ratios((baseline(row), row.auto) for row in some)
            line += [us(mean(baseline(row) or 0 for row in some)), mean(each)]
            line.append(claimed[batch][2] if batch in claimed else None)
        slower = sum(one < 1 / 1.02 for one in each)
        lines.append([*line, geomean(each), f"{slower} of {len(each)}"])
    return lines


def _auto(row: Row) -> float | None:
    return row.auto


def _torch_best(row: Row) -> float | None:
    return row.torch_best


def _torch(row: Row) -> float | None:
    return row.peer("torch")


def _panel(suite: str, lines: list[list[Cell]]) -> Panel:
    def column(index: int) -> list[float | None]:
        return [value if isinstance(value := line[index], float) else None for line in lines]

    series = {
        "paper: kernels over MIOpen": column(7),
        "convx over torch's best": column(6),
        "paper: modules over PyTorch": column(4),
        "convx over torch's choice": column(3),
    }
    return Panel(suite, [f"batch {line[0]}" for line in lines], series, "speedup", line=1.0)


def _words(suite: str, lines: list[list[Cell]], on_gpu: bool) -> str:
    speedups = {int(str(line[0])): float(str(line[6])) for line in lines}
    least, most = min(speedups), max(speedups)
    values = ", ".join(f"{value:.2f} at {batch}" for batch, value in speedups.items())
    if suite == "depthwise":
        word = "reproduces" if min(speedups.values()) > 1 else "does not reproduce at every batch"
        return f"- Depthwise layers are faster than torch's best at every batch: **{word}** ({values})."
    wins = "reproduces" if speedups[least] > 1 else "does not reproduce"
    text = f"- Pointwise layers gain at one image: **{wins}** ({values})."
    if most > least:
        falls = speedups[most] < speedups[least]
        loses = speedups[most] < 1
        text += (
            " The paper's gain turns into a loss at 64 images (0.90 and 0.76). Ours "
            f"{'is' if falls else 'is not'} lower at {most} than at {least} and "
            f"{'is a loss too' if loses else 'stays a gain'}"
        )
        text += (
            ", for with many pixels its place is taken by tiles for tensor cores or by torch's."
            if on_gpu
            else "."
        )
    return text


def _networks(depthwise: Rows, pointwise: Rows) -> str:
    head = ["network", "torch", "depthwise replaced", "speedup", "paper"]
    head += ["pointwise replaced", "speedup", "paper", "both", "speedup", "paper"]
    lines: list[list[Cell]] = []
    for name, layers in NETWORKS.items():
        rows = {case: (depthwise if case[0] == "D" else pointwise).get((case, 1)) for case in layers}
        if any(row is None or row.auto is None or _torch(row) is None for row in rows.values()):
            continue
        before = [_sum(layers, rows, kind, _torch) for kind in "DP"]
        after = [_sum(layers, rows, kind, _auto) for kind in "DP"]
        taken = (after[0] + before[1], before[0] + after[1], sum(after))
        line: list[Cell] = [name, us(sum(before))]
        for ours, (_, claimed) in zip(taken, claims.NETWORKS_MS[name][1:], strict=True):
            line += [us(ours), sum(before) / ours, claimed]
        lines.append(line)
    if not lines:
        return NOT_MEASURED
    return (
        "Microseconds: the times of the layers, added up, each as often as the network has it; torch's "
        "choice in NCHW "
        "before, `auto` after.\n\n" + table(head, lines)
    )


def _sum(
    layers: Mapping[str, int], rows: Mapping[str, Row | None], kind: str, pick: Callable[[Row], float | None]
) -> float:
    found = [(layers[case], row) for case, row in rows.items() if case[0] == kind and row]
    return sum(count * (pick(row) or 0) for count, row in found)
