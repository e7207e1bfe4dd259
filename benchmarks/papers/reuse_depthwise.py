"""The claims of the paper on memory transactions about depthwise layers, beside convx's forms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

from benchmarks.ablations import REUSE_FORMS, REUSE_REFERENCE
from benchmarks.papers import claims
from benchmarks.papers.measurements import Contender, Row, named
from benchmarks.papers.text import Cell, ratios, table, times
from benchmarks.papers.verdicts import of_another

_NATIVE = named("native")  # torch's own depthwise kernel: no reuse
_CUDNN = named("cudnn", "cudnn_*")  # its heuristic's choice and, where they were timed, its algorithms
_STRIP, _SHARED_ROWS = REUSE_FORMS["strip"], REUSE_FORMS["shared_rows"]
_FORMS = {
    "`depthwise/strip`, both reuses, several columns of a lane": named(_STRIP),
    "`depthwise/shared_rows`, row reuse as another paper has it": named(_SHARED_ROWS),
    "`auto`": named(REUSE_REFERENCE),
    "cuDNN's fastest": _CUDNN,
}


def beside_claims(rows: Sequence[Row]) -> list[str]:
    """Paragraphs: means of the layers' speedups, as the paper's are."""
    lines: list[list[Cell]] = []
    for size, members in _by_filter(rows):
        most = claims.DEPTHWISE_OVER_CUDNN[size]
        for title, form in _FORMS.items():
            kernel = ratios(members, _NATIVE, form)
            if not kernel:
                continue
            line: list[Cell] = [f"{size}x{size}", title, len(kernel), mean(kernel)]
            if form is _CUDNN:
                lines.append([*line, claims.CUDNN_OVER_DIRECT[size], None, None, None, None])
                continue
            cudnn = ratios(members, _CUDNN, form)
            line += [claims.DEPTHWISE_OVER_DIRECT[size], mean(cudnn) if cudnn else None]
            lines.append([*line, max(cudnn, default=None), *most])
    if not lines:
        return []
    head = ["filter", "plan", "layers", "over torch's own kernel", "the paper's, over one without reuse"]
    head += ["over cuDNN's fastest", "most", "the paper's", "its most"]
    return [
        f"Means of the layers' speedups, as the paper's are. torch's own kernel, cuDNN switched off, reuses "
        f"nothing. {_which_cudnn(rows)}",
        table(head, lines, text_columns=2),
    ]


def claims_lines(rows: Sequence[Row]) -> list[str]:
    """Lines for the verdict; none of these kernels is the paper's."""
    text: list[str] = []
    for size, members in _by_filter(rows):
        for plan, form in (("depthwise/strip", _STRIP), ("depthwise/shared_rows", _SHARED_ROWS)):
            text += _lines(plan, size, members, named(form))
    return text


def _lines(plan: str, size: int, members: Sequence[Row], form: Contender) -> Iterator[str]:
    kernel, cudnn = ratios(members, _NATIVE, form), ratios(members, _CUDNN, form)
    layers = f"{size}x{size} depthwise layers"
    if kernel:
        what = f"{layers} over torch's own kernel in the mean of {len(kernel)} layers"
        yield of_another(plan, what, mean(kernel), claims.DEPTHWISE_OVER_DIRECT[size])
    if cudnn:
        claimed, most = claims.DEPTHWISE_OVER_CUDNN[size]
        what = (
            f"{layers} over cuDNN's fastest in the mean (most {times(max(cudnn))}, the paper's {times(most)})"
        )
        yield of_another(plan, what, mean(cudnn), claimed)


def _by_filter(rows: Sequence[Row]) -> list[tuple[int, list[Row]]]:
    sizes = [size for size in claims.DEPTHWISE_OVER_CUDNN if any(row.shape["filter"] == size for row in rows)]
    return [(size, [row for row in rows if row.shape["filter"] == size]) for size in sizes]


def _which_cudnn(rows: Sequence[Row]) -> str:
    found = [row.together(named(_STRIP), _CUDNN)[1] for row in rows]
    timed = [time for time in found if time]
    by_name = [time for time in timed if any(n.startswith("cudnn_") for n in time.measurement.peers)]
    if not by_name:
        return "cuDNN is what its heuristic chooses: its algorithms were not timed by name with these forms."
    names = sorted({time.name.removeprefix("cudnn_").replace("_", " ") for time in by_name} - {"cudnn"})
    return (
        f"cuDNN is the fastest of its heuristic's choice and of its algorithms by name, which were timed on "
        f"{len(by_name)} of {len(timed)} layers; of those the fastest were {', '.join(names) or 'none'}. In "
        "the paper it was the implicit one everywhere."
    )
