"""The part of two pages about row reuse and column reuse in depthwise layers."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.ablations import REUSE_FORMS, REUSE_REFERENCE
from benchmarks.papers.measurements import Row, named
from benchmarks.papers.text import NOT_MEASURED, Cell, mean_ratio, table, without_empty_columns
from benchmarks.papers.verdicts import no_verdict

_NATIVE = named("native")  # torch's own depthwise kernel, cuDNN switched off
# By the names of records: the plan, and what it reuses.
PLANS = {
    REUSE_FORMS["no_reuse"]: "`depthwise/no_reuse`: none",
    REUSE_FORMS["column_reuse"]: "`depthwise/column_reuse`: columns",
    REUSE_FORMS["row_reuse"]: "`depthwise/row_reuse`: rows",
    REUSE_FORMS["strip"]: "`depthwise/strip`: both",
    REUSE_FORMS["shared_rows"]: "`depthwise/shared_rows`: rows, through shared memory",
    REUSE_REFERENCE: "`auto`",
}
FORMS = tuple(REUSE_FORMS.values())


def reuse_forms(rows: Sequence[Row], on_gpu: bool) -> list[str]:
    """Over torch's own kernel and over the form without reuse, of the layers that every measured form ran."""
    members = [row for row in rows if row.ratio(_NATIVE, named(REUSE_FORMS["strip"]))]
    if not members:
        command = "`python -m benchmarks --suite depthwise --ablations` measures it."
        return [f"{NOT_MEASURED} {command}" if on_gpu else "The forms, one by one, are a GPU's."]
    forms = [form for form in FORMS if any(row.ratio(_NATIVE, named(form)) for row in members)]
    bases = {"torch's own kernel": _NATIVE}
    if REUSE_FORMS["no_reuse"] in forms:
        bases["`depthwise/no_reuse`"] = named(REUSE_FORMS["no_reuse"])
    lines: list[list[Cell]] = []
    for group, batch in sorted({(row.group, row.batch) for row in members}):
        some = [row for row in members if (row.group, row.batch) == (group, batch)]
        whole = [row for row in some if all(row.ratio(_NATIVE, named(form)) for form in forms)]
        for title, base in bases.items():
            line: list[Cell] = [group, batch, f"{len(whole)} of {len(some)}", title]
            lines.append([*line, *(mean_ratio(whole, base, named(form)) for form in PLANS)])
    reason = (
        "the papers compare with kernels that are not here. Their own are not either, but for "
        "`depthwise/shared_rows`: a lane of the other forms holds several columns at once"
    )
    return [
        "Speedups of the fastest tiling of each, geomean over the layers that all of them can run: over "
        "torch's own depthwise kernel, cuDNN switched off, and, where it was timed, over the form without "
        "reuse, which is the same kernel but for what it reuses.",
        table(*without_empty_columns(["layers", "batch", "count", "over", *PLANS.values()], lines)),
        no_verdict(reason),
    ]
