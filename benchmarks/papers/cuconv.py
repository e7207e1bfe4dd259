"""The page on cuConv."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.papers import claims
from benchmarks.papers.measurements import CUDNN, Machine, Row, Rows
from benchmarks.papers.pictures import Panel, Picture
from benchmarks.papers.text import (
    NOT_MEASURED,
    Cell,
    Page,
    mean_ratio,
    over,
    percent,
    ratios,
    sources,
    table,
    times,
    us,
    without_empty_columns,
)
from benchmarks.results import geomean

PUBLISHED = "cuconv/two_stage"
STAGES = {
    PUBLISHED: "published: a block a filter row, a plane of sums a tap, a second kernel adds them",
    "cuconv/two_stage_blocked": "several filters of a block and pixels of a thread",
    "cuconv/split": "planes by shares of the channels instead of by taps",
    "cuconv/fused": "one kernel: a block adds up everything",
}
_TITLES = {1: "1x1", 3: "3x3", 5: "5x5"}


def page(machines: Sequence[Machine]) -> Page:
    result = Page("cuconv", ["cuConv"])
    result.add(
        'Jordà, Valero-Lara, Peña: "cuConv: A CUDA Implementation of Convolution for CNN Inference". Scalar '
        "products of filter rows with all pixels that they meet, read as they lie in NCHW, then a sum over "
        "the taps, which 1x1 filters do without. convx has it as published, as `cuconv/two_stage`, and in "
        "three forms that do the work fusion which the paper's section 6 leaves to the future.",
        "## What the paper reports",
        f"On an {claims.CUCONV_HARDWARE}, float32, more than 600 configurations of five networks, against "
        "the fastest of cuDNN's algorithms (section 4.1):",
        table(
            ("filters", "mean speedup at one image", "most"),
            [
                *(
                    (_TITLES[size], mean, claims.CUCONV_MOST[size])
                    for size, mean in claims.CUCONV_MEAN.items()
                ),
                ("3x3", "equal or slower but for three layers", ""),
            ],
        ),
        f"Faster on {claims.CUCONV_FASTER:.1%} of all configurations, batches of 1 to 256; almost all of "
        "these have a batch of 1.",
        "Tables 3 to 5, microseconds of the kernels that it profiled:",
        _paper_table(),
    )
    measured = [machine for machine in machines if machine.rows("small_batch")]
    for machine in measured:
        _machine(result, machine, machine.rows("small_batch"))
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


def _machine(page: Page, machine: Machine, rows: Rows) -> None:
    peer = "cuDNN" if machine.is_gpu else "torch (oneDNN)"
    page.add(f"## {machine.name}", sources(machine, "small_batch"))
    page.add("### The layers of tables 3 to 5", _same_layers(rows, peer, machine.is_gpu))
    layers = [row for row in rows.values() if row.group.startswith("cuConv")]
    page.add("### All layers of stride 1 of the five networks", _all_layers(layers, peer))
    for part in _pictures(machine, layers, peer):
        page.draw(part)
    page.add("### Ablation: the stages", *_stages(layers, machine.is_gpu))
    page.add("### What reproduces, and what does not", _verdict(layers, peer, machine.is_gpu))


def _same_layers(rows: Rows, peer: str, on_gpu: bool) -> str:
    head = ["layer", "paper's speedup", peer, "algorithm", "published", "speedup"]
    head += ["fastest form of cuConv", "us", "speedup", "HNTMP", "`auto`", "speedup"]
    lines: list[list[Cell]] = []
    for layer in claims.CUCONV:
        row = rows.get((layer.case, layer.batch))
        if row is None:
            continue
        published, best = row.form(PUBLISHED), row.form("cuconv/*")
        lines.append(
            [
                *(layer.label, layer.cudnn_us / layer.us, us(row.cudnn), _algorithm(row), us(published)),
                *(over(row.cudnn, published), row.form_name("cuconv/*").partition("/")[2], us(best)),
                *(over(row.cudnn, best), us(row.form("hntmp/*")), us(row.auto), over(row.cudnn, row.auto)),
            ]
        )
    if not lines:
        return NOT_MEASURED
    names = "Microseconds; speedups over " + (
        "cuDNN: the fastest of torch's choice in exact float32 and of the algorithms that were timed by name."
        if on_gpu
        else "torch's convolution, which is oneDNN's, in the same layout."
    )
    return f"{names}\n\n{table(*without_empty_columns(head, lines))}"


def _algorithm(row: Row) -> str:
    """cuDNN's fastest by name, where its algorithms were timed by name."""
    if row.peer("cudnn_*") is None:
        return ""
    name = row.peer_name(*CUDNN)
    return name.removeprefix("cudnn_").replace("_", " ") if name.startswith("cudnn_") else "torch's choice"


def _all_layers(layers: list[Row], peer: str) -> str:
    """Geomeans of speedups, and how many are faster, by filter and batch."""
    head = ["filters", "batch", "layers", "published", "faster on", "most", "fastest form", "faster on"]
    head += ["cuConv or HNTMP", "faster on", "`auto`", "faster on"]
    lines: list[list[Cell]] = []
    for size, batch in sorted({(row.shape["filter"], row.batch) for row in layers}):
        members = [row for row in layers if (row.shape["filter"], row.batch) == (size, batch)]
        line: list[Cell] = [_TITLES[size], batch, len(members)]
        for patterns in ((PUBLISHED,), ("cuconv/*",), ("cuconv/*", "hntmp/*")):
            found = ratios((row.cudnn, row.form(*patterns)) for row in members)
            line += [geomean(found) if found else None, sum(each > 1 for each in found) if found else None]
            if patterns == (PUBLISHED,):
                line.append(max(found, default=None))
        found = ratios((row.cudnn, row.auto) for row in members)
        lines.append([*line, geomean(found) if found else None, sum(each > 1 for each in found)])
    head, lines = without_empty_columns(head, lines)
    return f"Speedups over {peer}, geomean over the layers.\n\n" + table(head, lines)


def _pictures(machine: Machine, layers: list[Row], peer: str) -> list[Picture]:
    """As the paper's figures 5 to 7: every layer at one image, the slowest first."""
    series = {
        "published": (PUBLISHED,),
        "fastest form of cuConv": ("cuconv/*",),
        "HNTMP": ("hntmp/*",),
    }
    panels = []
    for size, title in _TITLES.items():
        members = [row for row in layers if row.shape["filter"] == size and row.batch == 1 and row.cudnn]
        members.sort(key=lambda row: over(row.cudnn, row.form(PUBLISHED) or row.auto) or 0)
        lines = {
            name: [over(row.cudnn, row.form(*patterns)) for row in members]
            for name, patterns in series.items()
        }
        lines = {name: values for name, values in lines.items() if any(values)}
        lines["auto"] = [over(row.cudnn, row.auto) for row in members]
        labels = [
            f"{row.shape['size']}-{row.shape['out_channels']}-{row.shape['in_channels']}" for row in members
        ]
        if members:
            panels.append(
                Panel(
                    f"{title} filters, one image (side-filters-channels)",
                    labels,
                    lines,
                    "speedup",
                    True,
                    1.0,
                    True,
                )
            )
    if not panels:
        return []
    return [Picture(f"cuconv-{machine.slug}", f"{machine.name}: speedup over {peer}", panels)]


def _stages(layers: list[Row], on_gpu: bool) -> list[str]:
    if not on_gpu:
        return ["A CPU has one form, `cuconv/rows`: products and their sum in one sweep."]
    head = ["form", "what it is", *(f"{title}, one image" for title in _TITLES.values())]
    lines: list[list[Cell]] = []
    for name, what in STAGES.items():
        line: list[Cell] = [f"`{name}`", what]
        for size in _TITLES:
            members = [row for row in layers if row.shape["filter"] == size and row.batch == 1]
            line.append(mean_ratio((row.form(PUBLISHED), row.form(name)) for row in members))
        lines.append(line)
    if all(value is None for line in lines for value in line[2:]):
        return [NOT_MEASURED]
    return ["Speedups over the published form, geomean over the layers.", table(head, lines, text_columns=2)]


def _verdict(layers: list[Row], peer: str, on_gpu: bool) -> str:
    single = [row for row in layers if row.batch == 1]
    pairs = [row for row in single if row.form(PUBLISHED)]
    if not pairs:
        faster = ratios((row.cudnn, row.auto) for row in single)
        won = percent(sum(each > 1 for each in faster), len(faster))
        return f"What `auto` takes is faster than {peer} on {won} of the layers at one image."
    text = []
    for size, title in _TITLES.items():
        found = ratios((row.cudnn, row.form(PUBLISHED)) for row in pairs if row.shape["filter"] == size)
        if not found:
            continue
        mean = geomean(found)
        claimed = claims.CUCONV_MEAN.get(size)
        paper = f"the paper's mean is {times(claimed)}" if claimed else "the paper's is below 1"
        agrees = mean > 1 if claimed else mean <= 1
        word = "reproduces" if agrees else "does not reproduce"
        text.append(
            f"- {title}: the published form is {times(mean)} times as fast as {peer} at one image, {paper}; "
            f"it is faster on {percent(sum(each > 1 for each in found), len(found))} of the layers. That it "
            f"{'wins' if claimed else 'loses'} **{word}**."
        )
    best = ratios((row.form("cuconv/*", "hntmp/*"), row.form(PUBLISHED)) for row in pairs)
    strict = ratios((row.torch_best, row.form(PUBLISHED)) for row in pairs)
    most = mean_ratio((row.form(PUBLISHED), row.form("cuconv/*")) for row in pairs)
    text += [
        f"- Beside what else there is, it loses: of {len(pairs)} layers it is the fastest of convx's forms "
        f"of cuConv and HNTMP on {sum(each >= 1 for each in best)}, the fastest form of cuConv takes "
        f"{times(most)} times less, and against the best of torch's ways (matrix products too, for 1x1) it "
        f"comes to {times(geomean(strict))}.",
        "- Why: each multiply-add of the published form loads an input value, and all blocks load the whole "
        "input again, a filter row each; this GPU does many multiply-adds in the time of a load. With R x S "
        "taps as many planes of partial sums go to memory and come back. The other forms keep several "
        "filters and pixels of a thread in registers, and write planes for shares of the channels only where "
        "one plane would leave multiprocessors idle.",
    ]
    later = [row for row in layers if row.batch > 1 and row.form(PUBLISHED)]
    for batch in sorted({row.batch for row in later}):
        found = ratios((row.cudnn, row.form(PUBLISHED)) for row in later if row.batch == batch)
        text.append(
            f"- Batch {batch}: {times(geomean(found))}. The paper, too, has its gains shrink with the batch."
        )
    return "\n".join(text)
