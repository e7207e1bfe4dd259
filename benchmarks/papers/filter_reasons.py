"""Why the published filters on one channel gain what they do: by times, and by counts of what is read."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.papers import claims
from benchmarks.papers.measurements import Contender, Machine, Row, named
from benchmarks.papers.reuse_transactions import read_sectors
from benchmarks.papers.text import times
from benchmarks.papers.verdicts import BUT, NOT_EXPLAINED, outcomes


def over_im2col(machine: Machine, plan: str, size: int, rows: Sequence[Row]) -> dict[str, str]:
    """Which is torch's here. rows: the images of each side, the largest last."""
    claimed = claims.FILTER_OVER_IM2COL_BY_SIZE[size]
    side = _side(rows[-1])
    found = _reads(machine, plan, "im2col", size, rows)
    papers = _papers_reads("im2col", size, side)
    if not found or not papers:
        return outcomes(claimed)
    said = (
        f"at {side} a side im2col, which is torch's here and not Caffe's, reads {times(found)} times the "
        f"sectors of the published form, the paper's {times(papers)} times its transactions"
    )
    against = f"{NOT_EXPLAINED}, for {said}"
    return outcomes(claimed, said, against) if found < papers else outcomes(claimed, against, said)


def over_npp(machine: Machine, plan: str, size: int, rows: Sequence[Row], npp: Contender) -> dict[str, str]:
    claimed = claims.FILTER_OVER_NPP[size]
    large, small = _on_the_largest(machine, plan, size, rows, npp), _on_small_ones(plan, rows, npp)
    where = "; ".join(each for each in (small, large) if each)
    return outcomes(claimed, large, small) | {BUT: where or NOT_EXPLAINED}


def _on_small_ones(plan: str, rows: Sequence[Row], npp: Contender) -> str:
    """How times grow from the smallest image to where the paper's form begins to win."""
    sides = {_side(row): row for row in rows}
    least, turn = min(sides), claims.FILTER_TURN
    pairs = [
        sides[side].together(named(plan), npp) if side in sides else (None, None) for side in (least, turn)
    ]
    (own, peer), (more, more_of_peer) = pairs
    if not (own and peer and more and more_of_peer):
        return ""
    growth, peers_growth = more.us / own.us, more_of_peer.us / peer.us
    if peers_growth >= growth:
        return ""
    return (
        f"from {least} to {turn} a side, {(turn // least) ** 2} times the pixels, NPP takes "
        f"{times(peers_growth)} times as long and the published form {times(growth)} times: what NPP takes "
        "on small images has little to do with their size"
    )


def _on_the_largest(machine: Machine, plan: str, size: int, rows: Sequence[Row], npp: Contender) -> str:
    """Whether what NPP reads is why it wins there."""
    gain, found = rows[-1].ratio(npp, named(plan)), _reads(machine, plan, "npp", size, rows)
    if not gain or not found or gain >= 1:
        return ""
    said = f"at {_side(rows[-1])} a side NPP reads {times(found)} times the sectors of the published form"
    if found > 1:
        return f"{said} and yet takes {times(gain)} of its time, which is {NOT_EXPLAINED}"
    return f"{said} and takes {times(gain)} of its time"


def _reads(machine: Machine, plan: str, peer: str, size: int, rows: Sequence[Row]) -> float | None:
    """Sectors that a peer reads over those of the published form, with as many rows of a thread as were the
    fastest there."""
    side = _side(rows[-1])
    fastest = rows[-1].together(named(f"{plan} * rows"))[0]
    thread = fastest.name.split(" ")[1] if fastest else "4"
    own = read_sectors(machine.name, f"{plan} {thread}", size, side)
    peers = read_sectors(machine.name, peer, size, side)
    return peers / own if own and peers else None


def _papers_reads(peer: str, size: int, side: int) -> float | None:
    """Its transactions over its own form's."""
    own = claims.FILTER_TRANSACTIONS.get(size, {}).get(side)
    peers = claims.OTHERS_TRANSACTIONS[peer].get(size, {}).get(side)
    return peers / own if own and peers else None


def _side(row: Row) -> int:
    return int(row.shape["size"])
