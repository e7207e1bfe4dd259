"""What reproduces of the paper on HNTMP."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.papers import claims
from benchmarks.papers.measurements import Machine, Row, named
from benchmarks.papers.text import ratios, times
from benchmarks.papers.verdicts import Reasons, explained, no_verdict, not_timed, outcomes, verdict
from benchmarks.profiles import load
from benchmarks.results import geomean
from convx import _libraries

PUBLISHED = "hntmp/published"
DIRECT = "hntmp/direct"
NEAREST = "hntmp/taps"  # to the paper's, of what convx takes
# What the paper compares with, by the names of our records. cuDNN's implicit GEMM unfolds tiles on the fly,
# as libdnn does.
RIVALS: dict[str, tuple[str, tuple[str, ...]]] = {
    "im2col": ("im2col, then a matrix product", ("im2col", "native", "cudnn_gemm")),
    "libdnn": ("implicit GEMM (cuDNN)", ("cudnn_implicit_gemm", "cudnn_implicit_precomp_gemm")),
    "Winograd F(2,3)": ("Winograd (cuDNN)", ("cudnn_winograd", "cudnn_winograd_nonfused")),
    "direct": ("direct (`hntmp/direct`)", (DIRECT,)),
}
_ALIKE = 1.5  # times for each channel that differ by less are alike


def hntmp_verdict(layers: list[Row], machine: Machine) -> str:
    if not machine.is_gpu:
        return no_verdict("the paper's are of its own kernel, and `hntmp/cpu` is not that (see above)")
    lines, judged = [], 0
    for name, claimed in claims.HNTMP_SPEEDUP.items():
        title, patterns = RIVALS[name]
        found = ratios(layers, named(*patterns), named(PUBLISHED))
        what = f"over {title.replace('`', '')}, the geomean of these layers"
        if found:
            reasons = _reasons(layers, patterns, claimed, machine)
            lines.append(verdict(machine, PUBLISHED, what, geomean(found), claimed, reasons))
        else:
            lines.append(not_timed(machine, PUBLISHED, what, claimed))
        judged += bool(found)
    if not judged:
        reason = (
            f"the paper's are of its own kernel, and `{NEAREST}` is not that (see above); `{PUBLISHED}`, "
            "which is, was not timed here yet"
        )
        return no_verdict(reason)
    reason = "none of them is the published kernel"
    lines.append(f"- `{NEAREST}`, the other plans of `hntmp/*` and `auto`. {no_verdict(reason)}")
    lines.append(f"- Verdicts on {judged} of the paper's {len(claims.HNTMP_SPEEDUP)} speedups.")
    return explained(lines)


def _reasons(layers: Sequence[Row], patterns: Sequence[str], claimed: float, machine: Machine) -> Reasons:
    return outcomes(claimed, _blocks_of_direct() if DIRECT in patterns else _waits(layers, patterns, machine))


def _waits(layers: Sequence[Row], patterns: Sequence[str], machine: Machine) -> str:
    """Where its times follow how many channels there are, and not the work."""
    beside = [row.together(named(PUBLISHED), named(*patterns))[0] for row in layers]
    found = [(row.shape, time.us) for row, time in zip(layers, beside, strict=True) if time]
    work = {s["in_channels"] * s["out_channels"] * s["size"] ** 2 for s, _ in found}
    taken = [us for _, us in found]
    each = [us / shape["in_channels"] for shape, us in found]
    if len(found) < 2 or len(work) > 1 or max(taken) < 2 * min(taken) or max(each) > _ALIKE * min(each):
        return ""
    return (
        f"these layers have as many multiply-adds each, yet it takes {times(min(each))} to "
        f"{times(max(each))} us for each input channel, which go one after another with a barrier and a wait "
        "for memory"
        f"{_blocks(machine)}"
    )


def _blocks(machine: Machine) -> str:
    """Of the profile's layer, where the planner knows the GPU by that name."""
    devices = [_libraries.core().Device.known_device(name) for name in _libraries.core().Device.known_names()]
    counts = [device.multiprocessors for device in devices if device.name == machine.name]
    blocks = _profiled().get(PUBLISHED)
    if not counts or not blocks:
        return ""
    return f"; its {blocks} blocks of 256x14x14 meet {counts[0]} multiprocessors"


def _blocks_of_direct() -> str:
    """Where the rival is spread over more blocks than in the paper."""
    found = _profiled()
    if DIRECT not in found or PUBLISHED not in found or found[DIRECT] <= found[PUBLISHED]:
        return ""
    return (
        f"for 256x14x14 the direct form has {found[DIRECT]} blocks here and the published one "
        f"{found[PUBLISHED]}, where the paper has as many of both: the rival is spread over more of the GPU"
    )


def _profiled() -> dict[str, int]:
    """Blocks by plan."""
    return {str(each["plan"]): int(each["blocks"]) for each in load()}
