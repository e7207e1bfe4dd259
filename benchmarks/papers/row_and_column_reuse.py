"""The page on GPU memory transactions: column reuse and row reuse."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from benchmarks.papers import claims
from benchmarks.papers.depthwise_transactions import depthwise_transactions
from benchmarks.papers.filter_verdicts import filter_verdicts
from benchmarks.papers.layer_panels import SAMPLES, by_layer, speedup
from benchmarks.papers.measurements import (
    AUTO,
    Contender,
    Machine,
    Row,
    floor,
    named,
    torch_best,
)
from benchmarks.papers.pictures import Picture
from benchmarks.papers.reuse_ablation import reuse_forms, reuse_picture
from benchmarks.papers.reuse_depthwise import beside_claims, claims_lines
from benchmarks.papers.reuse_transactions import transactions
from benchmarks.papers.text import (
    HARDWARE,
    NOT_MEASURED,
    Cell,
    Page,
    mean_ratio,
    of_age,
    over,
    ratios,
    sources,
    table,
    taken,
    times,
    us,
    without_empty_columns,
)
from benchmarks.papers.verdicts import PUBLISHED_PLANS, explained, no_verdict

PUBLISHED = "filter2d/both"
FORMS = {
    "none": "filter2d/direct",
    "columns": "filter2d/column_reuse",
    "rows": "filter2d/row_reuse",
    "both": PUBLISHED,
}
STRIP = "filter2d/strip"
DIFFERENCES = (
    f"On GPUs `{PUBLISHED}` is {PUBLISHED_PLANS[PUBLISHED]}. `filter2d/column_reuse`, `filter2d/row_reuse` "
    "and `filter2d/direct` are the same kernel with one reuse or none. `filter2d/strip` is convx's own and "
    "not the published form: a lane reads several pixels at once by wide loads, reuses rows, and exchanges "
    "by shuffles the columns at its edges alone. `depthwise` has the two reuses in kernels of convx's own, "
    "in which a lane holds several columns (`depthwise/strip`, `row_reuse`, `column_reuse`) or all of a "
    "small plane (`depthwise/plane`); none is the published form. On CPUs the plans keep the idea in vectors."
)
PEERS: dict[str, Contender] = {
    "im2col": named("im2col"),
    "torch": named("torch", "cudnn_*"),
    "NPP": named("npp"),
    "CuPy": named("cupy"),
    "OpenCV": named("opencv"),
}
_FASTEST = named("filter2d/*")


def page(machines: Sequence[Machine]) -> Page:
    result = Page("row_and_column_reuse", ["Column reuse and row reuse"])
    result.add(
        'Lu, Zhang, Wang: "Optimizing GPU memory transactions for convolution operations" (2020). Column '
        "reuse: "
        "neighbouring lanes exchange the columns of a filter's window by shuffles instead of loading them "
        "again. Row reuse: an input row is loaded once for all output rows it touches. In convx: `filter2d` "
        "for single-channel images, `depthwise` for depthwise layers.",
        DIFFERENCES,
        "## What the paper reports",
        f"On an {claims.REUSE_HARDWARE}, float32; its figures have no numbers, its text has means.",
        "Single channel, images of 256 to 4096 a side, 3x3 and 5x5 filters, speedups over im2col:",
        table(("", "speedup"), list(claims.FILTER_OVER_IM2COL.items())),
        table(
            ("filter", "over im2col", "over NPP"),
            [
                (f"{size}x{size}", claimed, claims.FILTER_OVER_NPP[size])
                for size, claimed in claims.FILTER_OVER_IM2COL_BY_SIZE.items()
            ],
        ),
        "The paper's kernels are the fastest of all on "
        f"{claims.FILTER_FASTEST[0]} of {claims.FILTER_FASTEST[1]} images and filters: NPP is on small ones, "
        f"they from about {claims.FILTER_TURN} a side on.",
        "Depthwise layers CONV1-13 at 512 images:",
        table(
            (
                "filter",
                "over a kernel without reuse",
                "over cuDNN's fastest algorithm",
                "most",
                "cuDNN over the kernel without reuse",
            ),
            [
                (
                    f"{size}x{size}",
                    claimed,
                    *claims.DEPTHWISE_OVER_CUDNN[size],
                    claims.CUDNN_OVER_DIRECT[size],
                )
                for size, claimed in claims.DEPTHWISE_OVER_DIRECT.items()
            ],
        ),
        f"{HARDWARE} ArrayFire could not be had, and nothing stands in for it; of NPP and cuDNN there are "
        "those of today, on other GPUs than the paper's.",
        *transactions(),
        *depthwise_transactions(),
    )
    measured = [
        machine for machine in machines if machine.sources("filter2d") or machine.sources("depthwise")
    ]
    for machine in measured:
        _machine(result, machine, measured)
    if not measured:
        result.add(NOT_MEASURED)
    return result


def _machine(page: Page, machine: Machine, machines: Sequence[Machine]) -> None:
    suites = ("filter2d", "depthwise")
    page.add(f"## {machine.name}", sources(machine, *suites), of_age(machine, machines, *suites))
    page.add("### Single-channel images, float32")
    images = list(machine.rows("filter2d").values())
    if images:
        page.add(_images(images), _speedups(images, machine.is_gpu))
        if machine.is_gpu:
            page.add(_over_im2col(images))
        page.draw(_images_picture(machine, images), SAMPLES)
        page.add(_rows_of_a_thread(images))
        page.add("### Ablation: column reuse and row reuse on single-channel images", *_image_forms(images))
        if forms := _forms_picture(machine, images):
            page.draw(forms, SAMPLES)
    else:
        page.add(NOT_MEASURED)
    depthwise = [row for row in machine.rows("depthwise").values() if row.group.startswith("CONV")]
    layers = [row for row in depthwise if row.ratio(torch_best, AUTO)]
    page.add("### Depthwise layers CONV1-13, float32")
    if layers:
        page.add(_layers(layers, machine.is_gpu))
        page.add(*beside_claims(depthwise))
        page.draw(_layers_picture(machine, layers), SAMPLES)
        page.add(
            "### Ablation: column reuse and row reuse in depthwise layers",
            *reuse_forms(depthwise, machine.is_gpu),
        )
        if picture := reuse_picture(machine, depthwise, "CONV"):
            page.draw(picture)
    else:
        page.add(NOT_MEASURED)
    page.add("### Verdict", _verdict(machine, images, depthwise))


def _by_filter(rows: list[Row]) -> list[tuple[int, list[Row]]]:
    """Smaller images first."""
    sizes = sorted({row.shape["filter"] for row in rows})
    rows = sorted(rows, key=lambda row: int(row.shape["size"]))
    return [(size, [row for row in rows if row.shape["filter"] == size]) for size in sizes]


def _images(rows: list[Row]) -> str:
    head = ["image", "filter", *PEERS, f"`{PUBLISHED}`", "fastest of `filter2d/*`", "which", "`auto`"]
    head += ["fastest, of the floor"]
    lines: list[list[Cell]] = []
    for size, members in _by_filter(rows):
        for row in members:
            fastest, auto, least, *found = row.together(
                _FASTEST, AUTO, floor, *PEERS.values(), named(PUBLISHED)
            )
            line: list[Cell] = [f"{row.shape['size']} a side", f"{size}x{size}", *map(us, found), us(fastest)]
            line += [f"`{fastest.name}`" if fastest else "", us(auto), over(least, fastest)]
            lines.append(line)
    head, lines = without_empty_columns(head, lines)
    return (
        "Microseconds; a line is one measurement. *Of the floor*: the least time that image, result and "
        "multiply-adds take, over the time taken. *torch*: the faster of its choice and of cuDNN's "
        "algorithms, where they were timed. *im2col*: torch's unfolding and matrix product, not Caffe's.\n\n"
        + table(head, lines, text_columns=2)
    )


def _any_peer(row: Row, plan: Contender) -> float | None:
    """Over the fastest peer beside it."""
    time, *found = row.together(plan, *PEERS.values())
    best = min((peer for peer in found if peer), key=lambda peer: peer.us, default=None)
    return over(best, time)


def _speedups(rows: list[Row], on_gpu: bool) -> str:
    head = ["filter", "plan", "", "over im2col", "over NPP", "over the best of them", "least"]
    lines: list[list[Cell]] = []
    for size, members in _by_filter(rows):
        for plan in (*FORMS.values(), STRIP, "auto"):
            line: list[Cell] = [f"{size}x{size}", f"`{plan}`"]
            line.append("the published form" if plan == PUBLISHED and on_gpu else "")
            for peer in ("im2col", "NPP"):
                found = ratios(members, PEERS[peer], named(plan))
                line.append(mean(found) if found else None)
            best = [gain for row in members if (gain := _any_peer(row, named(plan)))]
            line += [mean(best) if best else None, min(best, default=None)]
            if best:
                lines.append(line)
    head, lines = without_empty_columns(head, lines)
    return (
        "Speedups, means over the images as the paper's are. The records of `auto` do not say which plan it "
        "took.\n\n" + table(head, lines, text_columns=3 if on_gpu else 2)
    )


def _rows_of_a_thread(rows: list[Row]) -> str:
    """The paper's trade-off: more rows read less, and make fewer warps."""
    counts = (2, 4, 8)
    head = ["filter", "image", "1, `filter2d/column_reuse`", *map(str, counts)]
    lines: list[list[Cell]] = []
    for size, members in _by_filter(rows):
        for row in members:
            each = [named(f"{PUBLISHED} {count} rows") for count in counts]
            two, column, *more = row.together(each[0], named(FORMS["columns"]), *each[1:])
            if two:
                line: list[Cell] = [f"{size}x{size}", f"{row.shape['size']} a side"]
                lines.append([*line, us(column), us(two), *map(us, more)])
    if not lines:
        return ""
    return (
        f"Result rows of a thread of `{PUBLISHED}`, microseconds with as many rows of a warp as are the "
        "fastest. More rows read fewer pixels, fewer make more warps: the paper describes it so, without "
        "times.\n\n" + table(head, lines, text_columns=2)
    )


def _over_im2col(rows: list[Row]) -> str:
    """The paper's means beside ours: over the same images and filters."""
    some = [row for row in rows if row.shape["filter"] in claims.FILTER_OVER_IM2COL_BY_SIZE]
    ours = {
        "cuDNN's fastest": PEERS["torch"],
        "NPP": PEERS["NPP"],
        "column and row reuse": named(PUBLISHED),
    }
    lines: list[list[Cell]] = []
    for name, claimed in claims.FILTER_OVER_IM2COL.items():
        found = ratios(some, PEERS["im2col"], ours[name]) if name in ours else []
        title = f"{name} (here `{PUBLISHED}`)" if name == "column and row reuse" else name
        lines.append([title, claimed, mean(found) if found else None])
    found = ratios(some, PEERS["im2col"], named(STRIP))
    if found:
        lines.append([f"`{STRIP}`, not the paper's", None, mean(found)])
    head = ["speedup over im2col, mean of 3x3 and 5x5", claims.REUSE_HARDWARE.partition(",")[0], "here"]
    return table(head, lines) if any(line[2] for line in lines) else ""


def _images_picture(machine: Machine, rows: list[Row]) -> Picture:
    panels = []
    for size, members in _by_filter(rows):
        found = [row.together(_FASTEST, floor, *PEERS.values(), named(PUBLISHED)) for row in members]
        values = {
            name: [speedup(times[1], times[index]) for times in found]
            for index, name in enumerate([*PEERS, PUBLISHED], 2)
        }
        values["fastest of filter2d/*"] = [speedup(times[1], times[0]) for times in found]
        labels = [str(row.shape["size"]) for row in members]
        title = f"{size}x{size} filter, by side of the image"
        panels.append(by_layer(title, labels, values, "of the floor", line=1.0))
    return Picture(f"filter2d-{machine.slug}", f"{machine.name}: single-channel filters, float32", panels)


def _image_forms(rows: list[Row]) -> list[str]:
    base = named(FORMS["none"])
    forced = [row for row in rows if row.together(base)[0]]
    if not forced:
        return [f"{NOT_MEASURED} `python -m benchmarks --suite filter2d --all-candidates` measures it."]
    head = ["filter", "images", *(f"`{plan}`" for plan in (*FORMS.values(), STRIP))]
    lines: list[list[Cell]] = []
    for size, members in _by_filter(forced):
        for small in (True, False):
            some = [row for row in members if (int(row.shape["size"]) <= 1024) == small]
            if some:
                gains = [mean_ratio(some, base, named(plan)) for plan in (*FORMS.values(), STRIP)]
                lines.append([f"{size}x{size}", "up to 1024 a side" if small else "above", *gains])
    head, lines = without_empty_columns(head, lines)
    columns, by_rows = (mean_ratio(forced, base, named(FORMS[form])) for form in ("columns", "rows"))
    return [
        f"Speedups over `{FORMS['none']}`, which reuses nothing, geomean over the images.",
        table(head, lines, text_columns=2),
        f"Over all images column reuse alone gives {times(columns)} and row reuse alone {times(by_rows)}.",
    ]


def _forms_picture(machine: Machine, rows: list[Row]) -> Picture | None:
    """Speedups over the form that reuses nothing, by image."""
    base = named(FORMS["none"])
    plans = [plan for plan in (*FORMS.values(), STRIP) if plan != FORMS["none"]]
    panels = []
    for size, members in _by_filter([row for row in rows if row.together(base)[0]]):
        values = {plan: [speedup(*row.together(base, named(plan))) for row in members] for plan in plans}
        labels = [str(row.shape["size"]) for row in members]
        title = f"{size}x{size} filter, by side of the image"
        panels.append(by_layer(title, labels, values, "speedup", line=1.0))
    title = f"{machine.name}: over filter2d/direct, which reuses nothing"
    return Picture(f"filter2d-forms-{machine.slug}", title, panels) if panels else None


def _layers(rows: list[Row], on_gpu: bool) -> str:
    head = [
        "filter",
        "batch",
        "layers",
        "`auto`, of the floor",
        "`auto` over torch's best, mean",
        "most",
        "least",
    ]
    lines: list[list[Cell]] = []
    for size, members in _by_filter(rows):
        for batch in sorted({row.batch for row in members}):
            some = [row for row in members if row.batch == batch]
            found = ratios(some, torch_best, AUTO)
            line: list[Cell] = [f"{size}x{size}", batch, len(some), mean_ratio(some, floor, AUTO)]
            lines.append([*line, mean(found), max(found), min(found)])
    peers = "the fastest of torch's ways that were timed" if on_gpu else "oneDNN's convolution"
    return f"torch's best is {peers}. {taken(rows, torch_best)}\n\n" + table(head, lines)


def _layers_picture(machine: Machine, rows: list[Row]) -> Picture:
    batch = max(row.batch for row in rows)
    panels = []
    for size, members in _by_filter([row for row in rows if row.batch == batch]):
        found = [row.together(AUTO, torch_best, floor) for row in members]
        values = {
            "torch's best": [speedup(least, torch) for _, torch, least in found],
            "auto": [speedup(least, auto) for auto, _, least in found],
        }
        labels = [row.case.split("-")[0] for row in members]
        panels.append(by_layer(f"{size}x{size}, batch {batch}", labels, values, "of the floor", line=1.0))
    return Picture(f"depthwise-reuse-{machine.slug}", f"{machine.name}: depthwise layers, float32", panels)


def _verdict(machine: Machine, images: list[Row], layers: list[Row]) -> str:
    if not machine.is_gpu:
        return no_verdict("the paper's kernels are a GPU's, and on a CPU convx has others")
    text = filter_verdicts(machine, PUBLISHED, _by_filter(images), PEERS)
    if not text:
        text.append(f"- {no_verdict(f'`{PUBLISHED}` was not timed together with im2col or NPP')}")
    reason = "none of convx's forms is the published kernel, a lane of which has one column"
    text += [
        f"- `{STRIP}` and `auto` on one channel. {no_verdict('they are not the published kernel')}",
        f"- Depthwise layers. {no_verdict(reason)}",
        *claims_lines(layers),
    ]
    return explained(text)
