"""The page on HNTMP."""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.papers import claims
from benchmarks.papers.measurements import Machine, Row, Rows
from benchmarks.papers.pictures import Panel, Picture
from benchmarks.papers.text import (
    NOT_MEASURED,
    Cell,
    Page,
    mean_ratio,
    percent,
    ratios,
    sources,
    table,
    times,
    us,
    without_empty_columns,
)
from benchmarks.results import geomean

PUBLISHED = ("hntmp/taps", "hntmp/general")  # the first that was timed
# What the paper compares with, by the names of our records. cuDNN's implicit GEMM unfolds tiles on the fly,
# as libdnn does. cuConv in one kernel is a direct convolution: threads, or vector lanes, own pixels.
RIVALS: dict[str, tuple[str, tuple[str, ...]]] = {
    "im2col": ("im2col, then a matrix product", ("im2col", "native", "cudnn_gemm")),
    "libdnn": ("implicit GEMM (cuDNN)", ("cudnn_implicit_gemm", "cudnn_implicit_precomp_gemm")),
    "Winograd F(2,3)": ("Winograd (cuDNN)", ("cudnn_winograd", "cudnn_winograd_nonfused")),
    "direct": ("direct (cuConv's fused form)", ("cuconv/fused", "cuconv/rows")),
}
FORMS = {
    "hntmp/taps": "a filter's rows one at a time, for any filter: nearest to the paper's",
    "hntmp/small": "a whole 3x3 filter in registers, 4x7 pixels of a thread",
    "hntmp/tile": "the same, 7x7 pixels",
    "hntmp/rows": "whole rows of 14 pixels, no products with the padding at their ends",
    "hntmp/image": "the whole 7x7 image, no products with the padding",
}


def page(machines: Sequence[Machine]) -> Page:
    result = Page("hntmp", ["HNTMP"])
    result.add(
        'Ji: "HNTMP Conv: Optimize Convolution Algorithm for Single-Image Convolution Neural Network '
        'Inference on Mobile GPUs". A thread owns an output channel and keeps a tile of pixels in registers; '
        "filters are read in "
        "the order [C][R][S][K] straight from memory, without a barrier. In convx a thread owns one to four "
        "channels, and the input's channels are spread over lanes, warps and, where an image gives too few "
        "blocks, over blocks (`..._split`).",
        "## What the paper reports",
        f"ResNet's 3x3 layers at one image. On an {claims.HNTMP_HARDWARE} others take longer than HNTMP by "
        "(section 5.1; its figure 2 has no numbers):",
        table(("", "times HNTMP's"), list(claims.HNTMP_SPEEDUP.items())),
        "Its profile of the 256x14x14 layer on an AMD Vega 8 (table 3):",
        table(
            ("kernel", "threads", "registers, vector + scalar", "flat memory instructions of a thread"),
            [(name, *facts) for name, facts in claims.HNTMP_PROFILE.items()],
            text_columns=4,
        ),
    )
    measured = [machine for machine in machines if machine.rows("small_batch")]
    for machine in measured:
        _machine(result, machine, machine.rows("small_batch"))
    if not measured:
        result.add(NOT_MEASURED)
    return result


def _rivals(on_gpu: bool) -> dict[str, tuple[str, tuple[str, ...]]]:
    """torch has neither Winograd nor libdnn for CPUs to ask for."""
    return {name: rival for name, rival in RIVALS.items() if on_gpu or "cuDNN" not in rival[0]}


def _published(row: Row) -> float | None:
    return next((us for name in PUBLISHED if (us := row.form(name)) is not None), None)


def _rival(row: Row, patterns: tuple[str, ...]) -> float | None:
    found = [row.peer(*patterns), row.form(*patterns)]
    return min((us for us in found if us is not None), default=None)


def _machine(page: Page, machine: Machine, rows: Rows) -> None:
    layers = [row for row in rows.values() if row.group == "ResNet 3x3" and row.batch == 1]
    own = "cuDNN" if machine.is_gpu else "torch (oneDNN)"
    page.add(
        f"## {machine.name}", sources(machine, "small_batch"), "### ResNet's 3x3 layers, one image, float32"
    )
    page.add(_resnet(layers, own, machine.is_gpu), _missing(layers, machine.is_gpu))
    picture = _picture(machine, layers, own)
    if picture:
        page.draw(picture)
    page.add("### Ablation: tiles, and channels split over blocks", *_forms(layers))
    page.add("### cuConv's layers, one image", _cuconv_layers(rows, own))
    page.add("### What reproduces, and what does not", _verdict(layers, rows, own, machine.is_gpu))


def _resnet(layers: list[Row], own: str, on_gpu: bool) -> str:
    rivals = _rivals(on_gpu)
    head = [
        "layer",
        *(title for title, _ in rivals.values()),
        own,
        "HNTMP, as published",
        "HNTMP",
        "tile",
        "`auto`",
    ]
    lines: list[list[Cell]] = [
        [
            f"{row.shape['in_channels']}x{row.shape['size']}x{row.shape['size']} to "
            f"{row.shape['out_channels']}",
            *(us(_rival(row, patterns)) for _, patterns in rivals.values()),
            *(us(row.cudnn), us(_published(row)), us(row.form("hntmp/*"))),
            *(row.form_name("hntmp/*").partition("/")[2], us(row.auto)),
        ]
        for row in layers
    ]
    best = [row.form("hntmp/*") or row.auto for row in layers]
    mean: list[Cell] = ["**times HNTMP's, geomean**"]
    mean += [
        mean_ratio((_rival(row, patterns), ours) for row, ours in zip(layers, best, strict=True))
        for _, patterns in rivals.values()
    ]
    mean += [mean_ratio((row.cudnn, ours) for row, ours in zip(layers, best, strict=True))]
    mean += [mean_ratio((_published(row), ours) for row, ours in zip(layers, best, strict=True)), "", "", ""]
    claimed: list[Cell] = [
        f"paper, {claims.HNTMP_HARDWARE}",
        *(claims.HNTMP_SPEEDUP[name] for name in rivals),
    ]
    claimed += [""] * (len(head) - len(claimed))
    head, lines = without_empty_columns(head, [*lines, mean, claimed])
    return "Microseconds.\n\n" + table(head, lines)


def _missing(layers: list[Row], on_gpu: bool) -> str:
    """What the columns can't show, and why."""
    if any(row.peer("cudnn_*") for row in layers):
        return "cuDNN's algorithms by name, through its C interface; the faster of its two where it has two."
    if not on_gpu:
        return "torch has neither Winograd nor libdnn for CPUs to ask for."
    return (
        "torch has no way to ask cuDNN for one of its algorithms (`torch.backends.cudnn.benchmark` takes the "
        "fastest that it finds). `--peers cudnn_algorithms` times them by name: not measured yet."
    )


def _picture(machine: Machine, layers: list[Row], own: str) -> Picture | None:
    series: dict[str, list[float | None]] = {
        re.split(r" \(|,", title)[0]: [_rival(row, patterns) for row in layers]
        for title, patterns in RIVALS.values()
    }
    series[own] = [row.cudnn for row in layers]
    series["HNTMP"] = [row.form("hntmp/*") for row in layers]
    series = {name: values for name, values in series.items() if any(values)}
    if not layers:
        return None
    labels = [f"{row.shape['in_channels']}x{row.shape['size']}x{row.shape['size']}" for row in layers]
    panel = Panel("float32, one image", labels, series, "microseconds")
    return Picture(f"hntmp-{machine.slug}", f"{machine.name}: ResNet's 3x3 layers", [panel])


def _forms(layers: list[Row]) -> list[str]:
    head = ["tile", "what it is"]
    for row in layers:
        head += [f"{row.shape['in_channels']}x{row.shape['size']}", "split"]
    lines: list[list[Cell]] = []
    for name, what in FORMS.items():
        line: list[Cell] = [f"`{name}`", what]
        for row in layers:
            line += [us(row.form(name)), us(row.form(f"{name}_split"))]
        if any(value != "-" for value in line[2:]):
            lines.append(line)
    if not lines:
        return ["A CPU has one form: vector lanes are output channels."]
    return ["Microseconds; *split*: channels shared out over blocks.", table(head, lines, text_columns=2)]


def _cuconv_layers(rows: Rows, own: str) -> str:
    head = [
        "filters",
        "layers",
        f"HNTMP over {own}",
        "faster on",
        "HNTMP over cuConv's fastest form",
        "faster on",
    ]
    lines: list[list[Cell]] = []
    for size in (1, 3, 5):
        members = [
            row
            for row in rows.values()
            if row.group.startswith("cuConv") and row.batch == 1 and row.shape["filter"] == size
        ]
        line: list[Cell] = [f"{size}x{size}", len(members)]
        for pairs in (
            [(row.cudnn, row.form("hntmp/*")) for row in members],
            [(row.form("cuconv/*"), row.form("hntmp/*")) for row in members],
        ):
            found = ratios(pairs)
            line += [geomean(found) if found else None, sum(each > 1 for each in found) if found else None]
        if members:
            lines.append(line)
    if not lines or all(line[2] is None for line in lines):
        return NOT_MEASURED
    return table(head, lines)


def _verdict(layers: list[Row], rows: Rows, own: str, on_gpu: bool) -> str:
    text = []
    for name, (title, patterns) in _rivals(on_gpu).items():
        mean = mean_ratio((_rival(row, patterns), row.form("hntmp/*")) for row in layers)
        if mean is None:
            text.append(f"- {title}: not measured.")
            continue
        word = "reproduces" if mean > 1 else "does not reproduce"
        size = "more" if mean > claims.HNTMP_SPEEDUP[name] else "less"
        text.append(
            f"- {title}: HNTMP takes {times(mean)} times less, the paper says {claims.HNTMP_SPEEDUP[name]}. "
            f"That it is faster **{word}**, by {size} than there."
        )
    published = mean_ratio((row.cudnn, _published(row)) for row in layers)
    best = mean_ratio((row.cudnn, row.form("hntmp/*")) for row in layers)
    if published and best and on_gpu:
        text.append(
            f"- The form nearest to the paper's is {times(published)} times as fast as {own} on these "
            f"layers, the best tile for each {times(best)}. Why it wins here too: one image is too little "
            "work for a kernel that maps threads to pixels, while channels are plenty; what the paper leaves "
            "out and the smaller maps need is the channels spread over lanes and warps, without which 7x7 "
            "pixels would keep a few warps busy."
        )
    single = [row for row in rows.values() if row.batch == 1]
    found = ratios((row.cudnn, row.form("cuconv/*", "hntmp/*")) for row in single)
    if found:
        won = percent(sum(each > 1 for each in found), len(found))
        text.append(f"- HNTMP or cuConv is faster than {own} on {won} of the suite's layers at one image.")
    return "\n".join(text)
