"""The page on GPU memory transactions: column reuse and row reuse."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.papers import claims
from benchmarks.papers.measurements import Machine, Row
from benchmarks.papers.pictures import Panel, Picture
from benchmarks.papers.reuse_ablation import reuse_forms
from benchmarks.papers.text import (
    NOT_MEASURED,
    Cell,
    Page,
    mean_ratio,
    over,
    ratios,
    sources,
    table,
    times,
    us,
    without_empty_columns,
)
from benchmarks.results import geomean

FORMS = {"none": "direct", "columns": "column_reuse", "rows": "row_reuse", "both": "both"}
STRIP = "filter2d/strip"  # wide loads, and shuffles for the edges alone
PEERS = {
    "im2col": ("im2col",),
    "torch": ("torch", "cudnn_*"),
    "NPP": ("npp",),
    "CuPy": ("cupy",),
    "OpenCV": ("opencv",),
}


def page(machines: Sequence[Machine]) -> Page:
    result = Page("row_and_column_reuse", ["Column reuse and row reuse"])
    result.add(
        'Lu, Zhang, Wang: "Optimizing GPU memory transactions for convolution operations" (2020). Column '
        "reuse: "
        "neighbouring lanes exchange the columns of a filter's window by shuffles instead of loading them "
        "again. Row reuse: an input row is loaded once for all output rows it touches. In convx: `filter2d` "
        "for single-channel images, `depthwise` for depthwise layers, each with the paper's forms by name.",
        "## What the paper reports",
        f"On an {claims.REUSE_HARDWARE}, float32; its figures have no numbers, its text has means.",
        "Single channel, images of 256 to 4096 a side, 3x3 and 5x5 filters, speedups over im2col:",
        table(("", "speedup"), list(claims.FILTER_OVER_IM2COL.items())),
        table(
            ("filter", "over im2col", "over NPP"),
            [
                (f"{size}x{size}", mean, claims.FILTER_OVER_NPP[size])
                for size, mean in claims.FILTER_OVER_IM2COL_BY_SIZE.items()
            ],
        ),
        "NPP is the faster on small images, the paper's kernels from about 1024 a side on.",
        "Depthwise layers CONV1-13 at 512 images:",
        table(
            ("filter", "over a kernel without reuse", "over cuDNN's fastest algorithm", "most"),
            [
                (f"{size}x{size}", mean, *claims.DEPTHWISE_OVER_CUDNN[size])
                for size, mean in claims.DEPTHWISE_OVER_DIRECT.items()
            ],
        ),
    )
    measured = [
        machine for machine in machines if machine.sources("filter2d") or machine.sources("depthwise")
    ]
    for machine in measured:
        _machine(result, machine)
    if not measured:
        result.add(NOT_MEASURED)
    return result


def _machine(page: Page, machine: Machine) -> None:
    page.add(f"## {machine.name}", sources(machine, "filter2d", "depthwise"))
    page.add("### Single-channel images, float32")
    images = [row for row in machine.rows("filter2d").values() if row.auto]
    if images:
        own = "cuDNN" if machine.is_gpu else "oneDNN"
        page.add(_images(images, own))
        page.add(_over_im2col(images, own))
        page.draw(_images_picture(machine, images))
        page.add(
            "### Ablation: column reuse and row reuse on single-channel images",
            *_image_forms(machine, images),
        )
    else:
        page.add(NOT_MEASURED)
    layers = [
        row
        for row in machine.rows("depthwise").values()
        if row.group.startswith("CONV") and row.auto and row.peers
    ]
    page.add("### Depthwise layers CONV1-13, float32")
    if layers:
        page.add(_layers(layers, machine.is_gpu))
        page.draw(_layers_picture(machine, layers))
        page.add(
            "### Ablation: column reuse and row reuse in depthwise layers",
            *reuse_forms(layers, machine.is_gpu),
        )
    else:
        page.add(NOT_MEASURED)
    page.add("### What reproduces, and what does not", _verdict(images, layers))


def _by_filter(rows: list[Row]) -> list[tuple[int, list[Row]]]:
    sizes = sorted({row.shape["filter"] for row in rows})
    return [(size, [row for row in rows if row.shape["filter"] == size]) for size in sizes]


def _images(rows: list[Row], own: str) -> str:
    head = [
        "image",
        "filter",
        *PEERS,
        "`auto`",
        "of the floor",
        "over im2col",
        "over NPP",
        "over the best of them",
    ]
    lines: list[list[Cell]] = []
    for size, members in _by_filter(rows):
        for row in sorted(members, key=lambda row: int(row.shape["size"])):
            found = [row.peer(*patterns) for patterns in PEERS.values()]
            best = min((us for us in found if us is not None), default=None)
            line: list[Cell] = [
                f"{row.shape['size']} a side",
                f"{size}x{size}",
                *map(us, found),
                us(row.auto),
            ]
            line += [over(row.floor_us, row.auto), over(row.peer("im2col"), row.auto)]
            lines.append([*line, over(row.peer("npp"), row.auto), over(best, row.auto)])
    head, lines = without_empty_columns(head, lines)
    return (
        "Microseconds. *Of the floor*: the least time that image, result and multiply-adds take, over the "
        f"time taken. *torch*: the faster of its choice and of {own}'s algorithms that were timed. "
        "ArrayFire is not measured here.\n\n" + table(head, lines, text_columns=2)
    )


def _over_im2col(rows: list[Row], own: str) -> str:
    """The paper's means beside ours: over the same images and filters."""
    some = [
        row for row in rows if row.shape["filter"] in claims.FILTER_OVER_IM2COL_BY_SIZE and row.peer("im2col")
    ]
    ours = {
        "cuDNN's fastest": ratios((row.peer("im2col"), row.peer(*PEERS["torch"])) for row in some),
        "NPP": ratios((row.peer("im2col"), row.peer("npp")) for row in some),
        "column and row reuse": ratios((row.peer("im2col"), row.auto) for row in some),
    }
    head = ["speedup over im2col, mean of 3x3 and 5x5", claims.REUSE_HARDWARE.partition(",")[0], "here"]
    lines: list[list[Cell]] = [
        [
            name if own in name or "cuDNN" not in name else f"{name} (here {own}'s)",
            claimed,
            sum(found) / len(found) if (found := ours.get(name)) else None,
        ]
        for name, claimed in claims.FILTER_OVER_IM2COL.items()
    ]
    return table(head, lines) if some else ""


def _images_picture(machine: Machine, rows: list[Row]) -> Picture:
    panels = []
    for size, members in _by_filter(rows):
        members = sorted(members, key=lambda row: int(row.shape["size"]))
        series: dict[str, list[float | None]] = {
            name: [over(row.floor_us, row.peer(*patterns)) for row in members]
            for name, patterns in PEERS.items()
        }
        series["convx"] = [over(row.floor_us, row.auto) for row in members]
        series = {name: values for name, values in series.items() if any(values)}
        labels = [str(row.shape["size"]) for row in members]
        panels.append(
            Panel(f"{size}x{size} filter, by side of the image", labels, series, "of the floor", line=1.0)
        )
    return Picture(f"filter2d-{machine.slug}", f"{machine.name}: single-channel filters, float32", panels)


def _image_forms(machine: Machine, rows: list[Row]) -> list[str]:
    base = "filter2d/direct"
    forced = [row for row in rows if row.form(base)]
    if not forced:
        return [f"{NOT_MEASURED} `python -m benchmarks --suite filter2d --all-candidates` measures it."]
    head = ["filter", "images", *FORMS, "`strip`", "fastest form"]
    lines: list[list[Cell]] = []
    series: dict[str, list[float | None]] = {}
    for size, members in _by_filter(forced):
        for small in (True, False):
            some = [row for row in members if (int(row.shape["size"]) <= 1024) == small]
            if not some:
                continue
            values = [
                mean_ratio((row.form(base), row.form(f"filter2d/{name}")) for row in some)
                for name in FORMS.values()
            ]
            strip = mean_ratio((row.form(base), row.form(STRIP)) for row in some)
            best = mean_ratio((row.form(base), row.form("filter2d/*")) for row in some)
            which = "up to 1024 a side" if small else "above"
            lines.append([f"{size}x{size}", which, *values, strip, best])
            series[f"{size}x{size}, {which}"] = [*values, strip]
    head, lines = without_empty_columns(head, lines)
    return [
        "Speedups over the kernel without reuse, geomean over the images. *Strip*: several pixels of a "
        "thread by wide loads, row reuse, shuffles for the columns at a lane's edges alone."
        if machine.is_gpu
        else "Speedups over the kernel without reuse, geomean over the images.",
        table(head, lines, text_columns=2),
    ]


def _layers(rows: list[Row], on_gpu: bool) -> str:
    head = [
        "filter",
        "batch",
        "layers",
        "of the floor",
        "over torch's best, mean",
        "most",
        "least",
        "paper's mean",
    ]
    lines: list[list[Cell]] = []
    for size, members in _by_filter(rows):
        for batch in sorted({row.batch for row in members}):
            some = [row for row in members if row.batch == batch]
            found = ratios((row.torch_best, row.auto) for row in some)
            line: list[Cell] = [f"{size}x{size}", batch, len(some)]
            line += [geomean(row.floor_us / row.auto for row in some if row.auto), sum(found) / len(found)]
            lines.append([*line, max(found), min(found), claims.DEPTHWISE_OVER_CUDNN[size][0]])
    peers = "the faster of cuDNN and torch's own depthwise kernels" if on_gpu else "oneDNN's convolution"
    return f"torch's best is {peers}.\n\n" + table(head, lines)


def _layers_picture(machine: Machine, rows: list[Row]) -> Picture:
    batch = max(row.batch for row in rows)
    panels = []
    for size, members in _by_filter([row for row in rows if row.batch == batch]):
        series: dict[str, list[float | None]] = {
            "torch's best": [over(row.floor_us, row.torch_best) for row in members],
            "convx": [over(row.floor_us, row.auto) for row in members],
        }
        labels = [row.case.split("-")[0] for row in members]
        panels.append(Panel(f"{size}x{size}, batch {batch}", labels, series, "of the floor", line=1.0))
    return Picture(f"depthwise-reuse-{machine.slug}", f"{machine.name}: depthwise layers, float32", panels)


def _verdict(images: list[Row], layers: list[Row]) -> str:
    text = []
    for size, members in _by_filter(images):
        for peer, patterns, claimed in (
            ("im2col", ("im2col",), claims.FILTER_OVER_IM2COL_BY_SIZE.get(size)),
            ("NPP", ("npp",), claims.FILTER_OVER_NPP.get(size)),
        ):
            found = ratios((row.peer(*patterns), row.auto) for row in members)
            if found and claimed:
                word = "reproduces" if geomean(found) > 1 else "does not reproduce"
                text.append(
                    f"- {size}x{size} on one channel: {times(geomean(found))} times as fast as {peer} (the "
                    f"paper: {claimed}), from {times(min(found))} to {times(max(found))}: **{word}**."
                )
    forced = [row for row in images if row.form("filter2d/direct")]
    columns = mean_ratio((row.form("filter2d/direct"), row.form("filter2d/column_reuse")) for row in forced)
    rows = mean_ratio((row.form("filter2d/direct"), row.form("filter2d/row_reuse")) for row in forced)
    if columns and rows:
        text.append(
            f"- Alone, column reuse gives {times(columns)} and row reuse {times(rows)} over no reuse at all."
            + (
                " A shuffle, or a shift of vectors, takes about as long as a load that hits the nearest "
                "cache: exchanging every column gains less here than not loading rows again."
                if columns < rows
                else ""
            )
        )
    for size, members in _by_filter(layers):
        batch = max(row.batch for row in members)
        some = [row for row in members if row.batch == batch]
        found = ratios((row.torch_best, row.auto) for row in some)
        floor = geomean(row.floor_us / row.auto for row in some if row.auto)
        mean, most = sum(found) / len(found), max(found)
        claimed_mean, claimed_most = claims.DEPTHWISE_OVER_CUDNN[size]
        word = (
            "reproduces"
            if mean >= claimed_mean
            else "reproduces in part"
            if mean > 1
            else "does not reproduce"
        )
        text.append(
            f"- Depthwise {size}x{size} at batch {batch}: {times(mean)} times as fast as torch's best in the "
            f"mean and {times(most)} at most (the paper: {claimed_mean} and {claimed_most}, over cuDNN): "
            f"**{word}**. convx takes the time of {times(1 / floor)} copies of the data"
            + (": there is little left to gain." if floor > 0.7 else ".")
        )
    return "\n".join(text) if text else NOT_MEASURED
