"""The page on cuConv."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.papers import claims
from benchmarks.papers.cuconv_layers import layer_counts
from benchmarks.papers.cuconv_verdicts import PUBLISHED, TITLES, cuconv_verdict, published_plan
from benchmarks.papers.layer_panels import SAMPLES, by_layer, speedup
from benchmarks.papers.measurements import (
    AUTO,
    CHOICE,
    Machine,
    Row,
    Rows,
    Time,
    cudnn_algorithms,
    named,
)
from benchmarks.papers.pictures import Panel, Picture
from benchmarks.papers.stage_times import stage_times
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
from benchmarks.papers.verdicts import PUBLISHED_PLANS
from benchmarks.results import geomean

STAGES = {
    PUBLISHED: PUBLISHED_PLANS[PUBLISHED],
    "cuconv/two_stage_blocked": "not as published: several filters of a block and several pixels of a thread",
    "cuconv/split": "not as published: the same, and planes by shares of the channels instead of by taps",
    "cuconv/fused": "not as published: the same in one kernel, whose blocks add up everything; no planes",
}
_HNTMP = "fastest of `hntmp/*`"
_CUDNN = named("torch", "cudnn", "cudnn_*")


def page(machines: Sequence[Machine]) -> Page:
    result = Page("cuconv", ["cuConv"])
    result.add(
        'Jordà, Valero-Lara, Peña: "cuConv: A CUDA Implementation of Convolution for CNN Inference". Scalar '
        "products of filter rows with all pixels that they meet, read as they lie in NCHW, then a sum over "
        "the taps, which 1x1 filters do without. convx has it as published, as the plan "
        "`cuconv/two_stage`, and in three plans that are not the paper's, in which blocks and threads do the "
        "work of several, as its section 6 leaves to the future.",
        "## What the paper reports",
        f"On an {claims.CUCONV_HARDWARE}, float32, more than 600 configurations of five networks, against "
        "the fastest of cuDNN's algorithms (section 4.1):",
        table(
            ("filters", "mean speedup at one image", "most"),
            [
                *(
                    (TITLES[size], mean, claims.CUCONV_MOST[size])
                    for size, mean in claims.CUCONV_MEAN.items()
                ),
                ("3x3", f"equal or slower but for {claims.CUCONV_3X3_FASTER} layers", ""),
            ],
        ),
        f"Faster on {claims.CUCONV_FASTER:.2%} of all configurations, batches of 1 to 256, and there "
        f"{claims.CUCONV_FASTER_MEAN} times as fast on average; almost all of these "
        f"{claims.CUCONV_FASTER_COUNT} have a batch of 1.",
        "Tables 3 to 5, microseconds of the kernels that it profiled:",
        _paper_table(),
        layer_counts(),
        f"What `{PUBLISHED}` launches for the layers of tables 3 to 5, on any NVIDIA GPU:",
        _launches(),
        f"{HARDWARE} The paper's GPU and its cuDNN could not be had: cuDNN of today on these GPUs stands in "
        "for them, and where a speedup is smaller than the paper's, cuDNN's progress since is part of why.",
    )
    measured = [machine for machine in machines if machine.rows("small_batch")]
    for machine in measured:
        _machine(result, machine, measured)
    if not measured:
        result.add(NOT_MEASURED)
    return result


def _paper_table() -> str:
    return table(
        ("layer", "table", "cuDNN's fastest", "us", "cuConv, products", "sum", "speedup"),
        [
            (
                layer.label,
                layer.table,
                layer.cudnn,
                us(layer.cudnn_us),
                us(layer.products_us),
                us(layer.sum_us),
                layer.cudnn_us / layer.us,
            )
            for layer in claims.CUCONV
        ],
        text_columns=3,
    ) + (
        "\n\nLayers are side-batch-filter-filters-channels. The speedup is of the fastest algorithm in the "
        "table, which need not be cuDNN's fastest of all."
    )


def _launches() -> str:
    """Blocks, threads and the planes between the stages, as the planner has them."""
    lines: list[list[Cell]] = []
    for layer in claims.CUCONV:
        plan = published_plan(layer.case, layer.batch)
        tiling = plan.tiling
        planes = f"{tiling['planes']}, {plan.workspace_bytes / 2**20:.2f} MiB" if layer.sum_us else "none"
        lines.append([layer.label, tiling["blocks"], tiling["threads"], planes])
    return table(
        ("layer", "blocks of products", "threads of one", "planes of sums between the stages"), lines
    )


def _plans(machine: Machine) -> dict[str, str]:
    """Columns: convx's plans by their headings, and the names of records."""
    plans = list(STAGES) if machine.is_gpu else ["cuconv/rows"]
    hntmp = {_HNTMP if machine.is_gpu else "`hntmp/cpu`": "hntmp/*"}
    return {f"`{plan}`": plan for plan in plans} | hntmp | {"`auto`": "auto"}


def _machine(page: Page, machine: Machine, machines: Sequence[Machine]) -> None:
    rows = machine.rows("small_batch")
    page.add(f"## {machine.name}", sources(machine, "small_batch"), of_age(machine, machines, "small_batch"))
    page.add("### The layers of tables 3 to 5", _same_layers(rows, machine))
    layers = [row for row in rows.values() if row.group.startswith("cuConv")]
    page.add("### All layers of stride 1 of the five networks", _all_layers(layers, machine))
    if not machine.is_gpu:
        page.add(own_spread(layers))
    for part in _pictures(machine, layers):
        page.draw(part, SAMPLES)
    page.add("### Ablation: the stages", *_stages(layers, machine.is_gpu))
    if by_batch := _by_batch_picture(machine, layers):
        page.draw(by_batch)
    if machine.is_gpu:
        page.add(*stage_times(machine))
    page.add("### Verdict", cuconv_verdict(layers, machine, [plan for plan in STAGES if plan != PUBLISHED]))


def _same_layers(rows: Rows, machine: Machine) -> str:
    """The published plan beside cuDNN; then what else convx has, each beside what was timed with it."""
    plans = _plans(machine)
    shown = [f"`{PUBLISHED}`"] if machine.is_gpu else [title for title in plans if title != "`auto`"]
    others = [title for title in plans if title not in shown]
    peer = "cuDNN" if machine.is_gpu else "torch (oneDNN)"
    head = ["layer", *(["paper's speedup"] if machine.is_gpu else []), f"{peer}, us", "algorithm"]
    head += [text for title in shown for text in (f"{title}, us", "speedup")]
    head += [f"speedup of {title}" for title in others]
    lines: list[list[Cell]] = []
    for layer in claims.CUCONV:
        row = rows.get((layer.case, layer.batch))
        if row is None:
            continue
        *found, baseline = row.together(*(named(plans[title]) for title in shown), _CUDNN)
        line: list[Cell] = [layer.label, *([layer.cudnn_us / layer.us] if machine.is_gpu else [])]
        line += [us(baseline), _algorithm(baseline)]
        for time in found:
            line += [us(time), over(baseline, time)]
        lines.append([*line, *(row.ratio(CHOICE, named(plans[title])) for title in others)])
    if not lines:
        return NOT_MEASURED
    which = (
        "cuDNN: the fastest of what its heuristic chooses, which is torch's choice in exact float32, and of "
        f"its algorithms, where they were timed by name. {_fused_winograd(rows)}The microseconds of a line "
        f"are of one measurement, in which `{PUBLISHED}` was "
        "timed. "
        if machine.is_gpu
        else "torch's convolution, which is oneDNN's, in the same layout. The microseconds of a line are of "
        "one measurement. "
    )
    return (
        f"{which}*Speedup of* another plan: over {machine.choice}, which was timed beside that plan.\n\n"
        + table(*without_empty_columns(head, lines))
    )


def _fused_winograd(rows: Rows) -> str:
    """One of the two that the paper compares with on 3x3 filters."""
    timed = [row for row in rows.values() if row.together(cudnn_algorithms)[0]]
    fused = [row for row in timed if row.together(named("cudnn_winograd"))[0]]
    if fused or not timed:
        return ""
    return "Its fused Winograd ran on none of these records: its Winograd is the non-fused one. "


def _algorithm(time: Time | None) -> str:
    """cuDNN's fastest by name, where its algorithms were timed by name."""
    if time is None or not cudnn_algorithms(time.measurement):
        return ""
    name = time.name
    return (
        name.removeprefix("cudnn_").replace("_", " ")
        if name.startswith("cudnn_")
        else "its heuristic's choice"
    )


def _all_layers(layers: list[Row], machine: Machine) -> str:
    """Speedups, and how many are faster, by filter and batch."""
    plans = _plans(machine)
    head = ["filters", "batch", "layers", f"`{PUBLISHED}` over cuDNN's fastest", "most"]
    head += list(plans)
    lines: list[list[Cell]] = []
    for size, batch in sorted({(row.shape["filter"], row.batch) for row in layers}):
        members = [row for row in layers if (row.shape["filter"], row.batch) == (size, batch)]
        found = ratios(members, cudnn_algorithms, named(PUBLISHED))
        line: list[Cell] = [TITLES[size], batch, len(members), won(found), max(found, default=None)]
        lines.append([*line, *(won(ratios(members, CHOICE, named(plan))) for plan in plans.values())])
    head, lines = without_empty_columns(head, lines)
    fastest = (
        " *cuDNN's fastest*: of its heuristic's choice, which is torch's, and of its algorithms by name, "
        f"where they were timed beside `{PUBLISHED}`."
        if machine.is_gpu
        else ""
    )
    return (
        f"Speedups over {machine.choice}: the geomean over the layers on which both were timed together, and "
        f"on how many of them the plan is faster.{fastest}\n\n" + table(head, lines)
    )


def _pictures(machine: Machine, layers: list[Row]) -> list[Picture]:
    """As the paper's figures 5 to 7: every layer at one image, the slowest first."""
    left_out = "`cuconv/two_stage_blocked`"  # more would not be told apart
    plans = {
        title.replace("`", ""): named(plan) for title, plan in _plans(machine).items() if title != left_out
    }
    order = named(PUBLISHED) if machine.is_gpu else AUTO
    panels = []
    for size, title in TITLES.items():
        members = [row for row in layers if row.shape["filter"] == size and row.batch == 1]
        members.sort(key=lambda row: row.ratio(CHOICE, order) or 0)
        lines = {
            name: [speedup(*row.together(CHOICE, plan)) for row in members] for name, plan in plans.items()
        }
        labels = [
            f"{row.shape['size']}-{row.shape['out_channels']}-{row.shape['in_channels']}" for row in members
        ]
        heading = f"{title} filters, one image (side-filters-channels)"
        more = {"points": True, "line": 1.0, "logarithmic": True}
        panel = by_layer(heading, labels, lines, "speedup", **more)
        panels += [panel] if panel.series else []
    if not panels:
        return []
    return [Picture(f"cuconv-{machine.slug}", f"{machine.name}: speedup over {machine.choice}", panels)]


def _by_batch_picture(machine: Machine, layers: list[Row]) -> Picture | None:
    """How the published plan fares with more images."""
    batches = sorted({row.batch for row in layers if row.ratio(cudnn_algorithms, named(PUBLISHED))})
    found = {
        title: [
            ratios(
                [row for row in layers if (row.shape["filter"], row.batch) == (size, batch)],
                cudnn_algorithms,
                named(PUBLISHED),
            )
            for batch in batches
        ]
        for size, title in TITLES.items()
    }
    if not batches:
        return None
    labels = [f"batch {batch}" for batch in batches]
    panel = Panel.of_layers(geomean, f"{PUBLISHED}, geomean over the layers", labels, found, "speedup")
    title = f"{machine.name}: the published plan over cuDNN's fastest"
    return Picture(f"cuconv-batches-{machine.slug}", title, [panel])


def _stages(layers: list[Row], on_gpu: bool) -> list[str]:
    if not on_gpu:
        return ["A CPU has one form, `cuconv/rows`: products and their sum in one sweep."]
    single = [row for row in layers if row.batch == 1]
    head = ["plan", "what it is", *(f"{title}, one image" for title in TITLES.values())]
    lines: list[list[Cell]] = []
    for name, what in STAGES.items():
        members = ([row for row in single if row.shape["filter"] == size] for size in TITLES)
        gains = [won(ratios(some, named(PUBLISHED), named(name))) for some in members]
        lines.append([f"`{name}`", what, *(["1"] * len(gains) if name == PUBLISHED else gains)])
    if all(value == "-" for line in lines[1:] for value in line[2:]):
        said = f"There are no speedups over `{PUBLISHED}`: it was not timed together with the other plans."
        return [said, table(head[:2], [line[:2] for line in lines], text_columns=2)]
    return [
        f"Speedups over `{PUBLISHED}`, where both were timed together: the geomean over these layers, and on "
        "how many of them the plan is faster.",
        table(head, lines, text_columns=2),
    ]
