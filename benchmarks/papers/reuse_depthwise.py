"""The claims of the paper on memory transactions about depthwise layers, beside convx's forms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

from benchmarks.ablations import REUSE_FORMS, REUSE_REFERENCE
from benchmarks.papers import claims
from benchmarks.papers.measurements import Contender, Row, Time, cudnn_algorithms, named
from benchmarks.papers.text import Cell, mean_ratio, ratios, table, times
from benchmarks.papers.verdicts import Reasons, of_another, outcomes

_NATIVE = named("native")  # torch's own depthwise kernel: no reuse
_CUDNN = named("cudnn", "cudnn_*")  # its heuristic's choice and, where they were timed, its algorithms
_HEURISTIC = "cudnn"
_ALGORITHMS = {
    _HEURISTIC: "its heuristic's choice",
    "cudnn_implicit_gemm": "implicit GEMM",
    "cudnn_implicit_precomp_gemm": "implicit GEMM, precomputed",
    "cudnn_gemm": "GEMM",
    "cudnn_fft": "FFT",
    "cudnn_fft_tiling": "FFT, tiling",
    "cudnn_winograd": "Winograd, fused",
    "cudnn_winograd_nonfused": "Winograd, not fused",
}
_AHEAD = 1.02  # of the named ones: more than their times differ by
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
        *_by_algorithm(rows),
    ]


def claims_lines(rows: Sequence[Row]) -> list[str]:
    """Lines for the verdict; none of these kernels is the paper's."""
    text: list[str] = []
    for size, members in _by_filter(rows):
        for plan, form in (("depthwise/strip", _STRIP), ("depthwise/shared_rows", _SHARED_ROWS)):
            text += _lines(plan, size, members, form)
    return text


def _lines(plan: str, size: int, members: Sequence[Row], name: str) -> Iterator[str]:
    form = named(name)
    kernel, cudnn = ratios(members, _NATIVE, form), ratios(members, _CUDNN, form)
    layers = f"{size}x{size} depthwise layers"
    if kernel:
        what = f"{layers} over torch's own kernel in the mean of {len(kernel)} layers"
        claimed = claims.DEPTHWISE_OVER_DIRECT[size]
        reasons = outcomes(claimed, _from_registers(members) if name == _SHARED_ROWS else "")
        yield of_another(plan, what, mean(kernel), claimed, reasons)
    if cudnn:
        claimed, most = claims.DEPTHWISE_OVER_CUDNN[size]
        what = (
            f"{layers} over cuDNN's fastest in the mean (most {times(max(cudnn))}, the paper's {times(most)})"
        )
        yield of_another(plan, what, mean(cudnn), claimed, _peers_part(members, size, claimed, kernel))


def _from_registers(members: Sequence[Row]) -> str:
    """What rows through shared memory cost."""
    gain = mean_ratio(members, named(_SHARED_ROWS), named(REUSE_FORMS["row_reuse"]))
    return (
        f"the same reuse from registers, `depthwise/row_reuse`, is {times(gain)} times as fast"
        if gain and gain > 1
        else ""
    )


def _peers_part(members: Sequence[Row], size: int, claimed: float, kernel: Sequence[float]) -> Reasons:
    """cuDNN beside the kernel without reuse, here and in the paper, and the form beside it too."""
    peers = ratios(members, _NATIVE, _CUDNN)
    if not peers or not kernel:
        return outcomes(claimed)
    cudnns, own = claims.CUDNN_OVER_DIRECT[size], claims.DEPTHWISE_OVER_DIRECT[size]
    said = (
        f"over a kernel without reuse cuDNN's fastest gains {times(mean(peers))} (the paper's "
        f"{times(cudnns)}), the form {times(mean(kernel))} ({times(own)})"
    )
    faster = mean(peers) / cudnns > mean(kernel) / own
    return outcomes(claimed, said if faster else "", "" if faster else said)


def _by_filter(rows: Sequence[Row]) -> list[tuple[int, list[Row]]]:
    sizes = [size for size in claims.DEPTHWISE_OVER_CUDNN if any(row.shape["filter"] == size for row in rows)]
    return [(size, [row for row in rows if row.shape["filter"] == size]) for size in sizes]


def _which_cudnn(rows: Sequence[Row]) -> str:
    timed, by_name = _timed(rows)
    if not by_name:
        return "cuDNN is what its heuristic chooses: its algorithms were not timed by name with these forms."
    return (
        "cuDNN is the fastest of its heuristic's choice and of its algorithms by name, which were timed on "
        f"{len(by_name)} of {len(timed)} layers."
    )


def _timed(rows: Sequence[Row]) -> tuple[list[Time], list[Time]]:
    """cuDNN's fastest beside the form of both reuses, and those of them with algorithms by name."""
    found = [row.together(named(_STRIP), _CUDNN)[1] for row in rows]
    timed = [time for time in found if time]
    return timed, [time for time in timed if cudnn_algorithms(time.measurement)]


def _by_algorithm(rows: Sequence[Row]) -> list[str]:
    """Each of cuDNN's, as the paper's figure has them."""
    _, by_name = _timed(rows)
    if not by_name:
        return []
    there = {name for time in by_name for name in _CUDNN(time.measurement)}
    sizes = _by_filter(rows)
    lines: list[list[Cell]] = []
    for name, title in _ALGORITHMS.items():
        if name in there:
            lines.append([title, *(_mean_of(members, named(name)) for _, members in sizes)])
    lines.append(["**the fastest of them**", *(_mean_of(members, _CUDNN) for _, members in sizes)])
    papers = [claims.CUDNN_OVER_DIRECT[size] for size, _ in sizes]
    lines.append(["the paper's fastest, implicit GEMM", *papers])
    absent = [title for name, title in _ALGORITHMS.items() if name not in there]
    said = [f"None of these layers was run by {', '.join(absent)}."] if absent else []
    said += [_whose(size, members) for size, members in sizes]
    head = ["cuDNN's algorithm", *(f"{size}x{size}" for size, _ in sizes)]
    return [
        "cuDNN's algorithms over torch's own kernel, means of the layers' speedups. " + " ".join(said),
        table(head, lines),
    ]


def _mean_of(members: Sequence[Row], contender: Contender) -> float | None:
    found = ratios(members, _NATIVE, contender)
    return mean(found) if found else None


def _whose(size: int, members: Sequence[Row]) -> str:
    """Whose the figure of the fastest is."""
    choice = _mean_of(members, named(_HEURISTIC))
    others = [_mean_of(members, named(name)) for name in _ALGORITHMS if name != _HEURISTIC]
    best = max((each for each in others if each), default=None)
    if not choice or not best:
        return ""
    if choice > _AHEAD * best:
        return (
            f"The figure at {size}x{size} is the heuristic's choice's ({times(choice)}), which is none of "
            f"those named: the best of these gives {times(best)}."
        )
    return (
        f"At {size}x{size} the heuristic's choice gives {times(choice)}, the best of those named "
        f"{times(best)}."
    )
