"""The page on depthwise separable convolution on DCUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from benchmarks.ablations import REUSE_REFERENCE
from benchmarks.papers import claims, pointwise_ablation
from benchmarks.papers.measurements import AUTO, TORCH, Machine, Row, Time, named, torch_best
from benchmarks.papers.module_calls import SUITE as MODULES
from benchmarks.papers.module_calls import module_calls
from benchmarks.papers.network_layers import network_layers
from benchmarks.papers.pictures import Panel, Picture
from benchmarks.papers.reuse_ablation import reuse_forms, reuse_picture
from benchmarks.papers.separable_published import published
from benchmarks.papers.text import (
    HARDWARE,
    NOT_MEASURED,
    Cell,
    Page,
    of_age,
    over,
    own_spread,
    sources,
    table,
    taken,
    us,
)
from benchmarks.papers.whole_networks import SUITE, WHISKERS, whole_networks
from benchmarks.results import geomean

_CHOSEN = named("auto", REUSE_REFERENCE)  # what auto took, also beside the forms of reuse
Batches = Mapping[int, tuple[float, float, float]]
Timed = list[tuple[Time | None, ...]]
# Suite: group of cases, tables of kernels and of modules, and what is in them.
KINDS: dict[str, tuple[str, int, int, Batches, Batches]] = {
    "depthwise": ("D1-30", 5, 7, claims.DEPTHWISE_KERNELS, claims.DEPTHWISE_MODULES),
    "pointwise": ("P1-45", 6, 8, claims.POINTWISE_KERNELS, claims.POINTWISE_MODULES),
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
        "What `auto` takes is not the published kernels. Of depthwise layers the paper brings rows to shared "
        "memory, from where a group of threads makes a channel's, which is `depthwise/shared_rows`, by name "
        "alone; a lane of convx's other plans has several columns in registers (`depthwise/strip`) or all of "
        "a small plane (`depthwise/plane`). Of pointwise layers the generator's kernels, "
        "`pointwise/generated`, come from the paper's pipeline, with ragged tiles and stages of more "
        "channels beside; `auto` takes precompiled plans, on tensor cores where it may. But after "
        "`convx.tune` has found a generated kernel the fastest for a layer, `auto` takes that by the record; "
        "which plans it took in these measurements stands with them.",
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
        f"{HARDWARE} The paper's DCU and MIOpen could not be had: torch's choice, cuDNN's and, on CPUs, "
        "oneDNN's convolutions stand in for MIOpen, so that a speedup says nothing of MIOpen.",
    )
    measured = [machine for machine in machines if any(map(machine.sources, (*KINDS, MODULES)))]
    for machine in measured:
        _machine(result, machine, measured)
    if not measured:
        result.add(NOT_MEASURED)
    return result


def _paper_table() -> str:
    head = ("batch", "kernels", "MIOpen", "speedup", "modules", "PyTorch", "speedup")
    parts = []
    for suite, (group, *tables, kernels, modules) in KINDS.items():
        lines: list[list[Cell]] = []
        for batch in kernels:
            line: list[Cell] = [batch]
            for ours, theirs, speedup in (kernels[batch], modules[batch]):
                line += [us(ours), us(theirs), speedup]
            lines.append(line)
        parts.append(
            f"{suite.capitalize()}, {group} (tables {tables[0]}, {tables[1]}):\n\n"
            f"{table(head, lines, text_columns=0)}"
        )
    return "\n\n".join(parts)


def _machine(page: Page, machine: Machine, machines: Sequence[Machine]) -> None:
    page.add(f"## {machine.name}", sources(machine, *KINDS, MODULES))
    page.add(of_age(machine, machines, *KINDS, MODULES))
    page.add(
        "Graphs are replayed, which leaves out what the host takes for a call, so that ours stand beside "
        "the paper's kernels (tables 5 and 6), and for the vendor's library the fastest of torch's ways: "
        "cuDNN, torch's own kernels, matrix products. Beside its modules (tables 7 and 8) stand modules."
        if machine.is_gpu
        else "Ours stand beside the paper's kernels (tables 5 and 6), and for the vendor's library the "
        "fastest of torch's ways: oneDNN's convolution, torch's choice, and matrix products. Beside its "
        "modules (tables 7 and 8) stand modules."
    )
    rows = {suite: machine.rows(suite) for suite in KINDS}
    layers = {
        suite: [row for row in rows[suite].values() if row.group == group]
        for suite, (group, *_) in KINDS.items()
    }
    panels = []
    for suite, (group, kernels_table, _, kernels, _) in KINDS.items():
        page.add(f"### {suite.capitalize()} layers {group} (table {kernels_table})")
        members = [row for row in layers[suite] if row.ratio(TORCH, _CHOSEN)]
        if not members:
            page.add(NOT_MEASURED)
            continue
        lines = _by_batch(members, kernels)
        head = ["batch", "`auto`", "torch's choice", "speedup", "torch's best", "speedup"]
        head += ["paper's, kernels", "its geomean", "slower on"]
        page.add(
            "Means over the layers, microseconds; speedups are means of the layers' as the paper's are, "
            f"whose column is of its own kernels. {taken(members, TORCH)}",
            _among_forms(members),
            table(head, lines, text_columns=0),
            "" if machine.is_gpu else own_spread(members),
        )
        panels.append(_panel(suite, members, kernels))
    page.add("### Modules, with the host's cost of a call (tables 7 and 8)")
    claimed = {group: {batch: gain for batch, (*_, gain) in of.items()} for group, *_, of in KINDS.values()}
    paragraphs, more = module_calls(machine, claimed)
    page.add(*paragraphs)
    panels += more
    if panels:
        page.draw(
            Picture(f"depthwise-separable-{machine.slug}", f"{machine.name}: speedups by batch", panels)
        )
    page.add("### Networks, one image (table 9)", network_layers(machine))
    whole, drawn = whole_networks(machine)
    if whole:
        page.add(whole, sources(machine, SUITE), of_age(machine, machines, SUITE))
    if drawn:
        page.draw(
            Picture(f"separable-networks-{machine.slug}", f"{machine.name}: whole networks", drawn), WHISKERS
        )
    page.add(
        "### Ablation: row and column reuse in depthwise layers",
        *reuse_forms(list(rows["depthwise"].values()), machine.is_gpu),
    )
    if picture := reuse_picture(machine, layers["depthwise"], KINDS["depthwise"][0]):
        page.draw(picture)
    pointwise_ablation.add(page, machine, rows["pointwise"])
    published(page, machine, layers)


def _timed(members: list[Row]) -> dict[int, Timed]:
    """By batch: of each layer auto, torch's choice and torch's best."""
    return {
        batch: [row.together(_CHOSEN, TORCH, torch_best) for row in members if row.batch == batch]
        for batch in sorted({row.batch for row in members})
    }


def _among_forms(members: list[Row]) -> str:
    """Batches that no run of `auto` alone was made of."""
    alone = {row.batch for row in members if row.ratio(TORCH, AUTO)}
    rest = sorted({row.batch for row in members} - alone)
    if not rest:
        return ""
    batches = ", ".join(map(str, rest))
    return f"At batches of {batches} `auto` was timed beside the forms with and without reuse, in few rounds."


def _gains(found: Timed, index: int) -> list[float]:
    """auto's over one of the others."""
    return [gain for times in found if (gain := over(times[index], times[0])) is not None]


def _by_batch(members: list[Row], kernels: Batches) -> list[list[Cell]]:
    lines: list[list[Cell]] = []
    for batch, found in _timed(members).items():
        line: list[Cell] = [batch, us(mean(auto.us for auto, _, _ in found if auto))]
        for index in (1, 2):
            line.append(us(mean(time.us for times in found if (time := times[index]))))
            each = _gains(found, index)
            line.append(mean(each))
        claimed = kernels[batch][2] if batch in kernels else None
        slower = sum(one < 1 / 1.02 for one in each)
        lines.append([*line, claimed, geomean(each), f"{slower} of {len(each)}"])
    return lines


def _panel(suite: str, members: list[Row], kernels: Batches) -> Panel:
    timed = _timed(members)
    layers = {
        "paper: kernels over MIOpen": [[kernels[batch][2]] if batch in kernels else [] for batch in timed],
        "auto over torch's choice": [_gains(found, 1) for found in timed.values()],
        "auto over torch's best": [_gains(found, 2) for found in timed.values()],
    }
    labels = [f"batch {batch}" for batch in timed]
    return Panel.of_layers(mean, f"kernels, {suite}", labels, layers, "speedup")
