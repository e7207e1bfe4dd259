"""What reproduces of the paper on memory transactions on single-channel images: by the mean, and by where the
published kernel wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from benchmarks.papers import claims
from benchmarks.papers.filter_reasons import over_im2col, over_npp
from benchmarks.papers.measurements import Contender, Machine, Row, named
from benchmarks.papers.text import ratios, times
from benchmarks.papers.verdicts import BUT, NOT_EXPLAINED, STRONGER, WEAKER, Reasons, verdict

_RIVALS = ("im2col", "torch", "NPP")  # of the paper's, those that could be had


def filter_verdicts(
    machine: Machine, plan: str, by_filter: Sequence[tuple[int, list[Row]]], peers: Mapping[str, Contender]
) -> list[str]:
    """Lines. by_filter: the images of each side of a filter."""
    text = []
    own = named(plan)
    for size, members in by_filter:
        found = ratios(members, peers["im2col"], own)
        if found and size in claims.FILTER_OVER_IM2COL_BY_SIZE:
            what = f"{_mean_of(size, 'im2col')} (from {times(min(found))} to {times(max(found))})"
            claimed = claims.FILTER_OVER_IM2COL_BY_SIZE[size]
            reasons = over_im2col(machine, plan, size, members)
            text.append(verdict(machine, plan, what, mean(found), claimed, reasons))
        found = ratios(members, peers["NPP"], own)
        if found and size in claims.FILTER_OVER_NPP:
            wins = [_side(row) for row in members if (row.ratio(peers["NPP"], own) or 0) > 1]
            what = (
                f"{_mean_of(size, 'NPP')} (from {times(min(found))} to {times(max(found))}; faster on "
                f"{len(wins)} of {len(found)} images, {_sides(wins)}, the paper's on the large ones, from "
                f"about {claims.FILTER_TURN} a side)"
            )
            but = f" in the mean, {_where(wins)} in where it wins" if _where(wins) else ""
            claimed, reasons = (
                claims.FILTER_OVER_NPP[size],
                over_npp(machine, plan, size, members, peers["NPP"]),
            )
            text.append(verdict(machine, plan, what, mean(found), claimed, reasons, but=but))
    return text + _fastest(machine, plan, by_filter, peers)


def _mean_of(size: int, peer: str) -> str:
    return f"{size}x{size} on one channel, times as fast as {peer} in the mean"


def _fastest(
    machine: Machine, plan: str, by_filter: Sequence[tuple[int, list[Row]]], peers: Mapping[str, Contender]
) -> list[str]:
    """On how many of the paper's images and filters it is the fastest of all."""
    rivals = [peers[name] for name in _RIVALS]
    some = [row for size, members in by_filter if size in claims.FILTER_OVER_NPP for row in members]
    timed = [row for row in some if all(row.ratio(rival, named(plan)) for rival in rivals)]
    if not timed:
        return []
    wins = [row for row in timed if all((row.ratio(rival, named(plan)) or 0) > 1 for rival in rivals)]
    sides = [_side(row) for row in wins]
    count, of = claims.FILTER_FASTEST
    what = (
        f"share of images and filters on which it is the fastest of all ({len(wins)} of {len(timed)}, "
        f"{_sides(sides)}; the paper's {count} of {of} are the large ones)"
    )
    but = f" and {_where(sides)} in where it wins" if _where(sides) else ""
    reasons = _as_beside_npp(plan, timed, peers)
    return [verdict(machine, plan, what, len(wins) / len(timed), count / of, reasons, is_share=True, but=but)]


def _as_beside_npp(plan: str, timed: Sequence[Row], peers: Mapping[str, Contender]) -> Reasons:
    """Whom it loses to, of whom the lines above say more."""
    lost = {
        name: [row for row in timed if (row.ratio(peers[name], named(plan)) or 2) <= 1] for name in _RIVALS
    }
    beaten = ", ".join(f"{name} is as fast or faster on {len(rows)}" for name, rows in lost.items() if rows)
    reason = f"{beaten} of them, for which see above" if beaten else NOT_EXPLAINED
    return {WEAKER: reason, STRONGER: NOT_EXPLAINED, BUT: reason}


def _side(row: Row) -> int:
    return int(row.shape["size"])


def _sides(sides: Sequence[int]) -> str:
    return f"of {', '.join(map(str, sorted(set(sides))))} a side" if sides else "none"


def _where(sides: Sequence[int]) -> str:
    """Whether the wins lie on the paper's side of its turning point: "" where all do."""
    small = [side for side in sides if side < claims.FILTER_TURN]
    if not small:
        return ""
    return "reversed" if len(small) == len(sides) else "different"
