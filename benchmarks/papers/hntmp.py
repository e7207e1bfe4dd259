"""The page on HNTMP."""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.papers import claims
from benchmarks.papers.hntmp_verdicts import DIRECT, NEAREST, PUBLISHED, RIVALS, hntmp_verdict
from benchmarks.papers.kernel_profiles import profile
from benchmarks.papers.layer_panels import SAMPLES, by_layer, microseconds
from benchmarks.papers.measurements import AUTO, CHOICE, Contender, Machine, Measurement, Row, Rows, named
from benchmarks.papers.pictures import Picture
from benchmarks.papers.text import (
    HARDWARE,
    NOT_MEASURED,
    Cell,
    Page,
    of_age,
    over,
    own_spread,
    ratios,
    sources,
    table,
    us,
    without_empty_columns,
    won,
)
from benchmarks.results import geomean

# cuConv's rows are a direct convolution there: vector lanes own pixels.
CPU_RIVALS = {"im2col": RIVALS["im2col"], "direct": ("direct (`cuconv/rows`)", ("cuconv/rows",))}
DIRECT_CACHED = "hntmp/direct_cached"
PAPERS_FORMS = (PUBLISHED, DIRECT, DIRECT_CACHED)
FORMS = {
    NEAREST: "a filter's rows one at a time, two filters of a thread (four of 1x1) and 4x7 pixels of each",
    "hntmp/small": "a whole 3x3 filter in registers, two filters of a thread and 4x7 pixels of each",
    "hntmp/tile": "the same, 7x7 pixels",
    "hntmp/rows": "one filter of a thread, whole rows of 14 pixels, none of the padding at their ends",
    "hntmp/image": "two filters of a thread, the whole 7x7 image, none of the padding",
}
DIFFERENCE = (
    f"`{PUBLISHED}` is the paper's algorithm 2 as printed: a thread owns one output channel and reads its "
    "filter one weight at a time, in the order [C][R][S][K], straight from memory; a block brings each input "
    "channel's tile to shared memory behind a barrier. `hntmp/direct` is its algorithm 1 without the filter "
    f"in shared memory, which the paper compares with, `{DIRECT_CACHED}` the same with it. All three are "
    "for those who name them; `hntmp/*` below is without them. "
    "`hntmp/taps` comes nearest of what convx takes and differs in this: "
    "filters are staged in shared memory beside the input, both by asynchronous copies into a ring of each "
    "warp's own, so that no barrier of the block stands in the loop; a thread has two filters (four of 1x1), "
    "a row of each in registers at a time; the input's channels are spread over lanes and warps, whose sums "
    "meet at the end. The other plans keep whole filters in registers; `..._split` spreads channels over "
    "blocks too. On CPUs `hntmp/cpu` has vector lanes in the place of threads."
)
_PROFILE = (
    *("algorithm", "kernel", "threads", "shared bytes", "registers, vector + scalar"),
    *("vector units, %", "KB read + written", "flat memory instructions of a thread"),
)
_SIDES = {64: 56, 128: 28, 256: 14, 512: 7}  # of maps, by channels

_ANY, _PUBLISHED = named("hntmp/*"), named(PUBLISHED)


def _fastest(measurement: Measurement) -> dict[str, float]:
    """What convx has of the method, without the paper's forms."""
    found = _ANY(measurement)
    return {name: us for name, us in found.items() if name not in PAPERS_FORMS}


def page(machines: Sequence[Machine]) -> Page:
    result = Page("hntmp", ["HNTMP"])
    result.add(
        'Ji: "HNTMP Conv: Optimize Convolution Algorithm for Single-Image Convolution Neural Network '
        'Inference on Mobile GPUs". A thread owns an output channel and keeps a tile of pixels in registers, '
        "which is what `hntmp` has of it.",
        DIFFERENCE,
        "## What the paper reports",
        f"ResNet's 3x3 layers at one image. On an {claims.HNTMP_HARDWARE} others take longer than HNTMP by "
        "(section 5.1; its figure 2 has no numbers):",
        table(("", "times HNTMP's"), list(claims.HNTMP_SPEEDUP.items())),
        "Its profile of the 256x14x14 layer on an AMD Vega 8 (table 3):",
        table(_PROFILE, claims.HNTMP_PROFILE, text_columns=3),
        *profile(),
        "How many of these layers a network has (table 1):",
        table(
            ("network", *(f"{channels}x{side}x{side}" for channels, side in _SIDES.items())),
            [_counts(name) for name in claims.HNTMP_LAYERS],
        ),
        f"{HARDWARE} libdnn could not be had: cuDNN's implicit GEMM stands in for it, which unfolds tiles as "
        "it reads them too; torch's unfolding and matrix product, and cuDNN's Winograd, for the paper's own. "
        "A GPU of thousands of lanes has fewer threads of one image to a lane than the paper's, of 240 to "
        "3840, had: what is slow here need not be slow there.",
    )
    measured = [machine for machine in machines if machine.rows("small_batch")]
    for machine in measured:
        _machine(result, machine, measured)
    if not measured:
        result.add(NOT_MEASURED)
    return result


def _counts(network: str) -> list[Cell]:
    """A line of table 1, with what it prints where that can't be."""
    line: list[Cell] = [network]
    for channels, count in claims.HNTMP_LAYERS[network].items():
        printed = claims.HNTMP_MISPRINTS.get((network, channels))
        line.append(count if printed is None else f"{count} (the paper prints {printed})")
    return line


def _rivals(on_gpu: bool) -> dict[str, tuple[str, tuple[str, ...]]]:
    """torch has neither Winograd nor libdnn for CPUs to ask for."""
    return RIVALS if on_gpu else CPU_RIVALS


def _machine(page: Page, machine: Machine, machines: Sequence[Machine]) -> None:
    rows = machine.rows("small_batch")
    layers = [row for row in rows.values() if row.group == "ResNet 3x3" and row.batch == 1]
    page.add(f"## {machine.name}", sources(machine, "small_batch"), of_age(machine, machines, "small_batch"))
    page.add("### ResNet's 3x3 layers, one image, float32")
    page.add(_resnet(layers, machine), _missing(layers, machine.is_gpu), _networks(layers, machine))
    if not machine.is_gpu:
        page.add(own_spread(layers))
    picture = _picture(machine, layers)
    if picture:
        page.draw(picture, SAMPLES)
    page.add("### Ablation: tiles, and channels split over blocks", *_forms(layers))
    if forms := _forms_picture(machine, layers):
        page.draw(forms, SAMPLES)
    page.add("### cuConv's layers, one image", _cuconv_layers(rows, machine))
    page.add("### Verdict", hntmp_verdict(layers, machine))


def _others(machine: Machine) -> dict[str, Contender]:
    """Columns beside convx's best: by their titles."""
    found = {title: named(*patterns) for title, patterns in _rivals(machine.is_gpu).values()}
    return found | {
        f"direct, filters cached (`{DIRECT_CACHED}`)": named(DIRECT_CACHED),
        machine.choice: CHOICE,
        f"`{PUBLISHED}`": _PUBLISHED,
        f"`{NEAREST}`": named(NEAREST),
    }


def _resnet(layers: list[Row], machine: Machine) -> str:
    rivals, contenders = _rivals(machine.is_gpu), _others(machine)
    head = ["layer", *contenders, "fastest of `hntmp/*`", "which", "`auto`"]
    lines: list[list[Cell]] = []
    over_published: list[list[float | None]] = []
    over_fastest: list[list[float | None]] = []
    for row in layers:
        _, published, fastest, auto, *others = row.together(
            _ANY, _PUBLISHED, _fastest, AUTO, *contenders.values()
        )
        name = f"{row.shape['in_channels']}x{row.shape['size']}x{row.shape['size']}"
        which = f"`{fastest.name}`" if fastest else ""
        lines.append(
            [f"{name} to {row.shape['out_channels']}", *map(us, others), us(fastest), which, us(auto)]
        )
        over_published.append([over(time, published) for time in others])
        over_fastest.append([over(time, fastest) for time in others])
    published_means, fastest_means = _means(over_published), _means(over_fastest)
    if any(published_means):
        lines.append([f"**over `{PUBLISHED}`, geomean**", *published_means, "", "", ""])
    # A rival that was not timed with them has no column, though the paper has a number for it.
    claimed: list[Cell] = [
        claims.HNTMP_SPEEDUP[name] if mean else None
        for name, mean in zip(rivals, fastest_means, strict=False)
    ]
    paper = f"the paper, over its own kernel on an {claims.HNTMP_HARDWARE}"
    lines.append([paper, *claimed, *[""] * (len(head) - 1 - len(claimed))])
    lines.append(["**over the fastest of `hntmp/*`, geomean**", *fastest_means, "", "", ""])
    return "Microseconds; a line is one measurement.\n\n" + table(*without_empty_columns(head, lines))


def _networks(layers: list[Row], machine: Machine) -> str:
    """Sums over a network's layers, of what was timed on all of them."""
    contenders = _others(machine) | {"fastest of `hntmp/*`": _fastest, "`auto`": AUTO}
    found = {
        row.shape["in_channels"]: row.together(_ANY, *contenders.values())[1:]
        for row in layers
        if row.shape["size"] == _SIDES.get(row.shape["in_channels"])
    }
    if set(found) != set(_SIDES):
        return ""
    lines: list[list[Cell]] = []
    for name, counts in claims.HNTMP_LAYERS.items():
        line: list[Cell] = [name]
        for place in range(len(contenders)):
            times = [(count, found[channels][place]) for channels, count in counts.items()]
            known = [count * time.us for count, time in times if time is not None]
            line.append(round(sum(known)) if len(known) == len(times) else None)
        lines.append(line)
    return (
        "All 3x3 layers of a network, microseconds: those times so many as the paper's table 1 counts.\n\n"
        + table(*without_empty_columns(["network", *contenders], lines))
    )


def _means(gains: list[list[float | None]]) -> list[Cell]:
    """Of each column, over what it has."""
    columns = [[gain for gain in column if gain is not None] for column in zip(*gains, strict=True)]
    return [geomean(column) if column else None for column in columns]


def _missing(layers: list[Row], on_gpu: bool) -> str:
    """What the columns can't show, and why."""
    said = []
    for title, patterns in _rivals(on_gpu).values():
        if not ratios(layers, named(*patterns), _fastest):
            said.append(f"{title} was not timed together with `hntmp`.")
    if any(row.together(named("cudnn_*"))[0] for row in layers):
        said.append(
            "cuDNN's algorithms by name, through its C interface; the faster of its two where it has two."
        )
        if not any(row.together(named("cudnn_winograd"))[0] for row in layers):
            said.append("Its fused Winograd ran on none of these layers: Winograd here is the non-fused one.")
    elif on_gpu:
        said.append(
            "torch has no way to ask cuDNN for one of its algorithms (`torch.backends.cudnn.benchmark` takes "
            "the fastest that it finds). `--peers cudnn_algorithms` times them by name: not measured yet."
        )
    else:
        said.append("torch has neither Winograd nor libdnn for CPUs to ask for.")
    return " ".join(said)


def _picture(machine: Machine, layers: list[Row]) -> Picture | None:
    titles = [re.split(r" \(|,", title)[0] for title, _ in _rivals(machine.is_gpu).values()]
    contenders = [named(*patterns) for _, patterns in _rivals(machine.is_gpu).values()]
    found = [row.together(_ANY, _PUBLISHED, _fastest, *contenders, CHOICE)[1:] for row in layers]
    names = [PUBLISHED, "fastest of hntmp/*", *titles, machine.choice]
    values = {name: [microseconds(row[index]) for row in found] for index, name in enumerate(names)}
    panel = by_layer("float32, one image", _labels(layers), values, "microseconds")
    if not panel.series:
        return None
    return Picture(f"hntmp-{machine.slug}", f"{machine.name}: ResNet's 3x3 layers", [panel])


def _forms(layers: list[Row]) -> list[str]:
    names = [form for name in FORMS for form in (name, f"{name}_split")]
    columns = [row.together(_fastest, *map(named, names))[1:] for row in layers]
    head = ["plan", "what it is"]
    for row in layers:
        head += [f"{row.shape['in_channels']}x{row.shape['size']}", "`..._split`"]
    lines: list[list[Cell]] = []
    for index, (name, what) in enumerate(FORMS.items()):
        line: list[Cell] = [f"`{name}`", what]
        for column in columns:
            line += [us(column[2 * index]), us(column[2 * index + 1])]
        if any(value != "-" for value in line[2:]):
            lines.append(line)
    if not lines:
        return ["A CPU has one form, `hntmp/cpu`: vector lanes are output channels."]
    return [
        "Microseconds; the times of a layer are of one measurement. `..._split`: channels shared out over "
        "blocks.",
        table(head, lines, text_columns=2),
    ]


def _forms_picture(machine: Machine, layers: list[Row]) -> Picture | None:
    """The paper's forms beside convx's, and convx's tiles."""
    best = "fastest of hntmp/*"
    shown = {
        "the paper's forms": {name: named(name) for name in (*PAPERS_FORMS, NEAREST)} | {best: _fastest},
        "tiles": {name: named(name) for name in FORMS},
    }
    panels = []
    for title, contenders in shown.items():
        found = [row.together(_fastest, *contenders.values())[1:] for row in layers]
        values = {
            name: [microseconds(times[index]) for times in found] for index, name in enumerate(contenders)
        }
        is_wide = best in contenders  # from convx's to the paper's
        panels.append(
            by_layer(title, _labels(layers), values, "microseconds", points=is_wide, logarithmic=is_wide)
        )
    if not all(panel.series for panel in panels):
        return None
    return Picture(f"hntmp-forms-{machine.slug}", f"{machine.name}: forms, ResNet's 3x3 layers", panels)


def _labels(layers: list[Row]) -> list[str]:
    return [f"{row.shape['in_channels']}x{row.shape['size']}x{row.shape['size']}" for row in layers]


def _cuconv_layers(rows: Rows, machine: Machine) -> str:
    plans = ["cuconv/two_stage", "cuconv/fused"] if machine.is_gpu else ["cuconv/rows"]
    rivals = {machine.choice: CHOICE} | {f"`{plan}`": named(plan) for plan in plans}
    ours = "the fastest of `hntmp/*`" if machine.is_gpu else "`hntmp/cpu`"
    head = ["filters", "layers", *(f"{ours} over {rival}" for rival in rivals)]
    lines: list[list[Cell]] = []
    for size in (1, 3, 5):
        members = [
            row
            for row in rows.values()
            if row.group.startswith("cuConv") and row.batch == 1 and row.shape["filter"] == size
        ]
        line: list[Cell] = [f"{size}x{size}", len(members)]
        line += [won(ratios(members, rival, _fastest)) for rival in rivals.values()]
        if members:
            lines.append(line)
    if not lines or all(value == "-" for line in lines for value in line[2:]):
        return NOT_MEASURED
    return (
        "Speedups: the geomean over the layers on which both were timed together, and on how many of them it "
        "is "
        "faster.\n\n" + table(*without_empty_columns(head, lines))
    )
