"""What reproduces of the paper on cuConv."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import mean
from typing import Any

from benchmarks.papers import claims
from benchmarks.papers.cuconv_layers import papers_layers
from benchmarks.papers.measurements import Machine, Row, cudnn_algorithms, named, torch_best
from benchmarks.papers.text import percent, ratios, times
from benchmarks.papers.verdicts import (
    NOT_EXPLAINED,
    explained,
    no_verdict,
    outcomes,
    share_verdict,
    since,
    verdict,
)
from benchmarks.planner import core_problem
from benchmarks.results import geomean
from benchmarks.suites import SUITES, problems, select_cases
from convx import _libraries

PUBLISHED = "cuconv/two_stage"
TITLES = {1: "1x1", 3: "3x3", 5: "5x5"}
_ALMOST_ALL = 0.9  # what the paper calls so is taken for that or more
_LIMIT = "CONVX_WORKSPACE_LIMIT_MB"
_FUSED_WINOGRAD = (
    "cuDNN's fused Winograd, the fastest of the paper's table 4 for 13-1-3-384-384, ran on none of these "
    "layers"
)
_OWN = named(PUBLISHED)


def _problem(case: str, batch: int) -> Any:
    cases = select_cases(SUITES["small_batch"](), case)
    (problem,) = problems(cases, ("forward",), ("float32",), ("nchw",), (batch,), on_gpu=True)
    return core_problem(problem)


def _device() -> Any:
    """What this plan launches and needs is the same on every NVIDIA GPU."""
    return _libraries.core().Device.known_device("h200")


def published_plan(case: str, batch: int) -> Any:
    """The planner's, None where it has none."""
    plans = _libraries.core().candidates("cuconv", _problem(case, batch), _device())
    return next((plan for plan in plans if f"cuconv/{plan.candidate}" == PUBLISHED), None)


def _exceeds_workspace(case: str, batch: int) -> bool:
    """Whether the planner has no published plan, for that reason."""
    if published_plan(case, batch) is not None:
        return False
    try:
        _libraries.core().select(_problem(case, batch), _device(), PUBLISHED)
    except ValueError as error:
        return _LIMIT in str(error)
    return False


def cuconv_verdict(layers: list[Row], machine: Machine, others: Sequence[str]) -> str:
    """others: plans that are not the published one."""
    if not machine.is_gpu:
        return no_verdict(
            "a CPU's one form, `cuconv/rows`, is not the published kernel, and the paper compares with cuDNN"
        )
    single = [row for row in layers if row.batch == 1]
    text = []
    for size in TITLES:
        text += _one_image(machine, size, [row for row in single if row.shape["filter"] == size], layers)
    strict = ratios(single, torch_best, _OWN)
    if strict:
        text.append(
            f"- Beside the best of torch's ways, matrix products too where they were timed with it, "
            f"`{PUBLISHED}` comes to {times(geomean(strict))} at one image."
        )
    text += _all_batches(layers, machine)
    plans = ", ".join(f"`{plan}`" for plan in others)
    text.append(f"- {plans}, `hntmp/*` and `auto`. {no_verdict('none of them is the published kernel')}")
    return explained(text)


def _one_image(machine: Machine, size: int, members: Sequence[Row], layers: Sequence[Row]) -> list[str]:
    """Of filters of that side."""
    title = TITLES[size]
    found = ratios(members, cudnn_algorithms, _OWN)
    if not found:
        reason = f"`{PUBLISHED}` and cuDNN's algorithms by name were not timed together"
        return [f"- {title}. {no_verdict(reason)}"]
    gain, claimed = mean(found), claims.CUCONV_MEAN.get(size)
    faster = percent(sum(each > 1 for each in found), len(found))
    what = (
        f"{title} at one image, times as fast as cuDNN's fastest "
        f"(geomean {times(geomean(found))}; faster on {faster} of the layers)"
    )
    if claimed:
        reasons = outcomes(claimed, *_since(layers, (size,)))
        text = [verdict(machine, PUBLISHED, what, gain, claimed, reasons)]
    else:
        reason = "the paper names no mean for these filters"
        text = [f"- `{PUBLISHED}`, {what}: {times(gain)}. {no_verdict(reason)}"]
    return [*text, _three_by_three(machine, members, layers)] if size == 3 else text


def _three_by_three(machine: Machine, members: Sequence[Row], layers: Sequence[Row]) -> str:
    """The paper counts them."""
    found = ratios(members, cudnn_algorithms, _OWN)
    faster, of = sum(each > 1 for each in found), papers_layers(3)
    what = (
        f"share of the 3x3 layers on which it is faster at one image ({faster} of {len(found)}; the paper's "
        f"three leftmost of {of})"
    )
    claimed = claims.CUCONV_3X3_FASTER / of
    lost, won = _since(layers, (3,))
    missed = [] if any(row.together(named("cudnn_winograd"))[0] for row in members) else [_FUSED_WINOGRAD]
    reasons = outcomes(claimed, lost, "; ".join([*missed, won] if won else missed))
    return verdict(machine, PUBLISHED, what, faster / len(found), claimed, reasons, is_share=True)


def _since(layers: Sequence[Row], sizes: Sequence[int] = tuple(TITLES)) -> tuple[str, str]:
    """Why less and why more: by the layers whose times the paper has."""
    rows = {(row.case, row.batch): row for row in layers}
    own, peers = [], []
    for layer in claims.CUCONV:
        row = rows.get((layer.case, layer.batch))
        ours, theirs = row.together(_OWN, cudnn_algorithms) if row else (None, None)
        if row and ours and theirs and row.shape["filter"] in sizes:
            own.append(layer.us / ours.us)
            peers.append(layer.cudnn_us / theirs.us)
    if not own:
        return "", ""
    which = f"the {len(own)} layer{'s' if len(own) > 1 else ''} of tables 3 to 5"
    if len(sizes) == 1:
        which += f" with {TITLES[sizes[0]]} filters"
    return since(f"on {which} cuDNN's fastest", geomean(own), geomean(peers))


def _all_batches(layers: list[Row], machine: Machine) -> list[str]:
    """On what share of all configurations the published plan is faster, and how much there."""
    timed = {(row.case, row.batch) for row in layers if row.ratio(cudnn_algorithms, _OWN)}
    batches = sorted({batch for _, batch in timed})
    if len(batches) < 2:
        return []
    every = [(case, batch) for case in sorted({row.case for row in layers}) for batch in batches]
    absent = [place for place in every if place not in timed]
    refused = [place for place in absent if _exceeds_workspace(*place)]
    count = len(timed) + len(refused)
    won = [row for row in layers if (row.ratio(cudnn_algorithms, _OWN) or 0) > 1]
    gains = ratios(won, cudnn_algorithms, _OWN)
    which = f"({len(won)} of {count}, batches {', '.join(map(str, batches))})"
    what = f"share of configurations on which it is faster than cuDNN's fastest {which}"
    lost, more = _since(layers)[0], _more_wins(won)
    reasons = outcomes(claims.CUCONV_FASTER, lost, more)
    share = len(won) / count
    text = [verdict(machine, PUBLISHED, what, share, claims.CUCONV_FASTER, reasons, is_share=True)]
    if won:
        text.append(_at_one_image(won, machine))
        what = "times as fast where it is faster, in the mean of those"
        reasons = outcomes(claims.CUCONV_FASTER_MEAN, *_since(layers))
        text.append(verdict(machine, PUBLISHED, what, mean(gains), claims.CUCONV_FASTER_MEAN, reasons))
    return text + _without_time(absent, refused)


def _without_time(absent: Sequence[tuple[str, int]], refused: Sequence[tuple[str, int]]) -> list[str]:
    """How configurations count that have none."""
    if not absent:
        return []
    limit = f"their planes of sums exceed the workspace that convx allows (`{_LIMIT}`)"
    rest = [f"{case} at batch {batch}" for case, batch in absent if (case, batch) not in refused]
    others = "None is absent for another reason"
    if rest:
        others = f"{len(rest)} are not refused for that, were not timed and do not count: {', '.join(rest)}"
    return [
        f"- {len(absent)} configurations have no time. The planner refuses {len(refused)} of them, for "
        f"{limit}: these count as not faster. {others}."
    ]


def _more_wins(won: Sequence[Row]) -> str:
    """Where they lie that the paper does not have."""
    threes = sum(row.batch == 1 and row.shape["filter"] == 3 for row in won)
    more_images = sum(row.batch > 1 for row in won)
    parts = []
    if threes > claims.CUCONV_3X3_FASTER:
        paper = claims.CUCONV_3X3_FASTER
        parts.append(f"{threes} of the {len(won)} are 3x3 at one image, where the paper has {paper}")
    if more_images > (1 - _ALMOST_ALL) * len(won):
        parts.append(f"{more_images} are of more images, where it has almost none")
    return ", and ".join(parts)


def _at_one_image(won: Sequence[Row], machine: Machine) -> str:
    """Of those on which it is faster."""
    single = sum(row.batch == 1 for row in won)
    what = f"share of one image among those on which it is faster ({single} of {len(won)})"
    claimed = f"almost all of {claims.CUCONV_FASTER_COUNT}"
    others = Counter((row.batch, TITLES[row.shape["filter"]]) for row in won if row.batch > 1)
    where = ", ".join(
        f"{count} of {title} at batch {batch}" for (batch, title), count in sorted(others.items())
    )
    reasons = outcomes(_ALMOST_ALL, f"it wins on {where} too; why there, {NOT_EXPLAINED}")
    return share_verdict(machine, PUBLISHED, what, single / len(won), claimed, _ALMOST_ALL, reasons)
