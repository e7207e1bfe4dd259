"""The part of two pages about row reuse and column reuse in depthwise layers."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.ablations import REUSE_FORMS, REUSE_REFERENCE
from benchmarks.papers.measurements import Row, named
from benchmarks.papers.text import NOT_MEASURED, Cell, mean_ratio, table, times, without_empty_columns
from benchmarks.papers.verdicts import no_verdict

_NATIVE = named("native")  # torch's own depthwise kernel, cuDNN switched off
# By the names of records: the plan, and what it reuses.
PLANS = {
    REUSE_FORMS["none"]: "`depthwise/direct`, a result a thread: none",
    REUSE_FORMS["columns"]: "`depthwise/column_reuse`: columns",
    REUSE_FORMS["rows"]: "`depthwise/row_reuse`: rows",
    REUSE_FORMS["both"]: "`depthwise/strip`: both",
    REUSE_REFERENCE: "`auto`",
}
FORMS = tuple(REUSE_FORMS.values())


def reuse_forms(rows: Sequence[Row], on_gpu: bool) -> list[str]:
    """Over torch's own kernel, of the layers that every form can run."""
    members = [row for row in rows if row.ratio(_NATIVE, named(REUSE_FORMS["none"]))]
    if not members:
        command = "`python -m benchmarks --suite depthwise --ablations` measures it."
        return [f"{NOT_MEASURED} {command}" if on_gpu else "The forms, one by one, are a GPU's."]
    lines: list[list[Cell]] = []
    for group, batch in sorted({(row.group, row.batch) for row in members}):
        some = [row for row in members if (row.group, row.batch) == (group, batch)]
        whole = [row for row in some if all(row.ratio(_NATIVE, named(form)) for form in FORMS)]
        line: list[Cell] = [group, batch, f"{len(whole)} of {len(some)}"]
        lines.append([*line, *(mean_ratio(whole, _NATIVE, named(form)) for form in PLANS)])
    slower = mean_ratio(members, named(REUSE_FORMS["none"]), _NATIVE)
    reason = (
        "the papers compare with kernels that are not here, and their own are not either: a lane of these "
        "forms holds several columns at once"
    )
    return [
        "Speedups of the fastest tiling of each over torch's own depthwise kernel, cuDNN switched off, "
        "geomean over the layers that all forms can run. Not over convx's form without reuse: that is a "
        f"general kernel for any filter, which takes {times(slower)} times as long as torch's on these "
        "layers, so that speedups over it would tell more of it than of reuse.",
        table(*without_empty_columns(["layers", "batch", "count", *PLANS.values()], lines)),
        no_verdict(reason),
    ]
