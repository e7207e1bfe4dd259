"""Why the forms that Liu et al. published gain what they do, by what was timed beside them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from benchmarks.ablations import FORMS, PUBLISHED, REFERENCE, REUSE_FORMS
from benchmarks.papers.measurements import TORCH, Contender, Row, named
from benchmarks.papers.text import mean_ratio, times
from benchmarks.papers.verdicts import Reasons, outcomes, since

_SHARED_ROWS = REUSE_FORMS["shared_rows"]
_MATTERS = 1.1  # a form that is faster by less explains nothing
# By what records call the published form: what else was timed with it, and what it says of it.
_BESIDE: dict[str, dict[tuple[str, ...], str]] = {
    _SHARED_ROWS: {
        (
            REUSE_FORMS["row_reuse"],
        ): "the same reuse from registers, `depthwise/row_reuse`, is {} times as fast"
    },
    PUBLISHED: {
        (REFERENCE,): f"`{REFERENCE}`, float32 without tensor cores as it is, is {{}} times as fast",
        tuple(
            FORMS.values()
        ): "ragged tiles and longer stages, which the paper's pipeline does not have, make "
        "its kernels {} times as fast",
    },
}
_RANKED = "16 tilings that a model ranks best were timed, where the paper times all"


def reasons_of(
    name: str,
    rows: Sequence[Row],
    baseline: str,
    peer: Contender,
    claimed: tuple[float, float, float],
) -> Reasons:
    """rows: of one batch. baseline: in words. claimed: the paper's times and speedup there."""
    own_us, peers_us, speedup = claimed
    found = [row.together(named(name), peer) for row in rows]
    pairs = [(own.us, time.us) for own, time in found if own and time]
    if not pairs:
        return outcomes(speedup)
    own, peers = (mean(each) for each in zip(*pairs, strict=True))
    lost, won = since(_peer(baseline, peer), own_us / own, peers_us / peers)
    if not lost:
        return outcomes(speedup, won=won)
    return outcomes(speedup, "; ".join([lost, *_beside(name, rows)]), won)


def _peer(baseline: str, peer: Contender) -> str:
    """What stands for the paper's."""
    if peer is TORCH:
        return f"{baseline}, here without the host's part of a call,"
    return f"{baseline}, which stands for MIOpen's,"


def _beside(name: str, rows: Sequence[Row]) -> list[str]:
    found = [
        said.format(times(gain))
        for forms, said in _BESIDE[name].items()
        if (gain := mean_ratio(rows, named(name), named(*forms))) and gain > _MATTERS
    ]
    return [*found, _RANKED] if name == PUBLISHED else found
