"""The part of two pages about row reuse and column reuse in depthwise layers."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.ablations import REUSE_FORMS
from benchmarks.papers import claims
from benchmarks.papers.measurements import Row
from benchmarks.papers.text import NOT_MEASURED, Cell, mean_ratio, table, times, without_empty_columns


def reuse_forms(rows: Sequence[Row], on_gpu: bool) -> list[str]:
    """Of the layers that every form can run, and of all that the form without reuse can."""
    base = REUSE_FORMS["none"]
    members = [row for row in rows if row.form(base)]
    if not members:
        command = "`python -m benchmarks --suite depthwise --ablations` measures it."
        return [f"{NOT_MEASURED} {command}" if on_gpu else "The forms, one by one, are a GPU's."]
    lines: list[list[Cell]] = []
    for group, batch in sorted({(row.group, row.batch) for row in members}):
        some = [row for row in members if (row.group, row.batch) == (group, batch)]
        whole = [row for row in some if all(row.form(name) for name in REUSE_FORMS.values())]
        line: list[Cell] = [group, batch, f"{len(whole)} of {len(some)}"]
        line += [_gain(whole, base, name) for name in REUSE_FORMS.values()]
        line.append(mean_ratio((row.form(base), row.auto) for row in some))
        named = group.startswith("CONV")
        lines.append([*line, claims.DEPTHWISE_OVER_DIRECT[some[0].shape["filter"]] if named else None])
    head = ["layers", "batch", "count", *REUSE_FORMS, "`auto`", "paper, both"]
    columns, by_rows, both = (_gain(members, base, REUSE_FORMS[name]) for name in ("columns", "rows", "both"))
    return [
        "Speedups over a kernel that computes one result a thread and reuses nothing, geomean over the "
        "layers that all forms can run; and of what `auto` takes, over all layers. The other forms read four "
        "columns of a lane at once.",
        table(*without_empty_columns(head, lines)),
        f"Over all layers that a form can run: column reuse {times(columns)}, row reuse {times(by_rows)}, "
        f"both {times(both)}.",
    ]


def _gain(rows: Sequence[Row], before: str, after: str) -> float | None:
    return mean_ratio((row.form(before), row.form(after)) for row in rows)
