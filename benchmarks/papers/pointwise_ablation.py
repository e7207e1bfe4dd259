"""The part of the page on depthwise separable convolution about channel distribution and dynamic tiling."""

from __future__ import annotations

from benchmarks.ablations import CPU_FORMS, CPU_REFERENCE, EXACT_FORMS, FORMS, REFERENCE
from benchmarks.papers.measurements import Machine, Row, Rows, named, torch_best
from benchmarks.papers.pictures import Panel, Picture
from benchmarks.papers.text import NOT_MEASURED, Cell, Page, mean_ratio, ratios, table, times, won
from benchmarks.results import geomean

_COMMAND = "`python -m benchmarks --suite pointwise --ablations` measures it."


def add(page: Page, machine: Machine, rows: Rows) -> None:
    page.add("### Ablation: channel distribution and dynamic tiling")
    names = FORMS.values() if machine.is_gpu else CPU_FORMS.values()
    members = [row for row in rows.values() if row.together(named(*names))[0]]
    if not members:
        page.add(f"{NOT_MEASURED} {_COMMAND}")
    elif machine.is_gpu:
        _gpu(page, machine, members)
    else:
        _cpu(page, machine, members)


def _by_batch(members: list[Row]) -> list[tuple[int, list[Row]]]:
    batches = sorted({row.batch for row in members})
    return [(batch, [row for row in members if row.batch == batch]) for batch in batches]


def _gain(rows: list[Row], before: str, after: str) -> float | None:
    return mean_ratio(rows, named(before), named(after))


def _gpu(page: Page, machine: Machine, members: list[Row]) -> None:
    base, dynamic = FORMS["direct", "fixed"], FORMS["direct", "dynamic"]
    distributed = FORMS["distributed", "dynamic"]
    labels = [f"{kind}, {tiling} tiling" for kind, tiling in FORMS]
    labels += [f"precompiled (`{REFERENCE}`)", "torch's best"]
    contenders = [*map(named, (*FORMS.values(), REFERENCE)), torch_best]
    lines: list[list[Cell]] = []
    layers: dict[str, list[list[float]]] = {}
    for batch, some in _by_batch(members):
        values = [mean_ratio(some, named(base), each) for each in contenders]
        won = ratios(some, named(dynamic), named(distributed))
        lines.append([batch, len(some), *values, f"{sum(each > 1 for each in won)} of {len(won)}"])
        layers[f"batch {batch}"] = [ratios(some, named(base), each) for each in contenders]
    page.add(
        "Generated kernels, float32 without tensor cores; speedups over the direct form with one tiling for "
        "all layers, geomean. *Fixed*: the tiling of two by two waves that the generator's model ranks best "
        "over the layers. *Dynamic*: the fastest measured of the eight that it ranks best for the "
        "layer.",
        table(["batch", "layers", *labels, "distribution wins on"], lines, text_columns=0),
        f"Dynamic tiling gains {times(_gain(members, base, dynamic))}; channel distribution, on top of it, "
        f"{times(_gain(members, dynamic, distributed))}.",
    )
    page.draw(_picture(machine, labels, layers, "speedup over direct, fixed"))
    page.add(*_exact(members))


_CHOICES = {  # what is added, by the forms before and after it
    "dynamic tiling, direct": (("direct", "fixed"), ("direct", "dynamic")),
    "dynamic tiling, distributed": (("distributed", "fixed"), ("distributed", "dynamic")),
    "channel distribution, fixed tiling": (("direct", "fixed"), ("distributed", "fixed")),
    "channel distribution, dynamic tiling": (("direct", "dynamic"), ("distributed", "dynamic")),
    "both": (("direct", "fixed"), ("distributed", "dynamic")),
}


def _exact(members: list[Row]) -> list[str]:
    """With and without either, of the tilings that the paper has."""
    some = [row for row in members if row.together(named(*EXACT_FORMS.values()))[0]]
    if not some:
        return [f"The same of the paper's own tilings: {NOT_MEASURED.lower()} {_COMMAND}"]
    lines: list[list[Cell]] = []
    for batch, rows in _by_batch(some):
        gains = [
            ratios(rows, named(EXACT_FORMS[before]), named(EXACT_FORMS[after]))
            for before, after in _CHOICES.values()
        ]
        lines.append([batch, len(rows), *map(won, gains)])
    counts = {
        form: sum(row.together(named(name))[0] is not None for row in some)
        for form, name in EXACT_FORMS.items()
    }
    there = ", ".join(f"{kind} with {tiling} tiling on {count}" for (kind, tiling), count in counts.items())
    return [
        "#### With the paper's own tilings",
        "As published: tilings by exact divisors of the pixels and the filters, buffers of Group_C channels. "
        "Gains of what is added, geomean over the layers that have both forms, and on how many of those it "
        "is faster. *Fixed*: four waves in two rows of two, as the authors' earlier work had them; of such "
        "tilings the one that the model ranks best over a batch's layers among those that divide the layer. "
        "*Dynamic*: the fastest measured of the eight that it ranks best for the layer. No tiling of a form "
        "may divide a layer: the direct form needs filters by the lanes of a wave, two rows of waves an even "
        f"number of pixels, which 7x7 has not. Of {len(some)} layers and batches there are {there}.",
        table(["batch", "layers", *_CHOICES], lines, text_columns=0),
    ]


def _cpu(page: Page, machine: Machine, members: list[Row]) -> None:
    base = CPU_FORMS["fixed"]
    labels = ["fixed tiling", "predicted tiling", "dynamic tiling", "torch's best"]
    contenders = [*map(named, (base, CPU_REFERENCE, CPU_FORMS["dynamic"])), torch_best]
    lines: list[list[Cell]] = []
    layers: dict[str, list[list[float]]] = {}
    for batch, some in _by_batch(members):
        values = [mean_ratio(some, named(base), each) for each in contenders]
        lines.append([batch, len(some), *values])
        layers[f"batch {batch}"] = [ratios(some, named(base), each) for each in contenders]
    page.add(
        "Speedups over one register tile for all layers, geomean. *Fixed*: the tile that the model ranks "
        "best over the suite, its blocks as each layer needs them. *Predicted*: what the model ranks best "
        "for the layer. *Dynamic*: the fastest measured of all its plans. A CPU has no lanes to spread "
        "channels over: its vectors lie along pixels or filters.",
        table(["batch", "layers", *labels], lines, text_columns=0),
        f"Dynamic tiling gains {times(_gain(members, base, CPU_FORMS['dynamic']))}.",
    )
    page.draw(_picture(machine, labels, layers, "speedup over fixed tiling"))


def _picture(
    machine: Machine, labels: list[str], layers: dict[str, list[list[float]]], y_label: str
) -> Picture:
    shown = [label.replace("`", "").replace(", ", ",\n").replace(" (", "\n(") for label in labels]
    panel = Panel.of_layers(geomean, "geomean over P1-P45", shown, layers, y_label)
    return Picture(f"pointwise-ablation-{machine.slug}", f"{machine.name}: pointwise kernels", [panel])
