"""The part of two pages about row reuse and column reuse in depthwise layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.ablations import REUSE_FORMS, REUSE_REFERENCE
from benchmarks.papers.measurements import Contender, Machine, Row, named
from benchmarks.papers.pictures import Panel, Picture
from benchmarks.papers.text import NOT_MEASURED, Cell, mean_ratio, ratios, table, without_empty_columns
from benchmarks.papers.verdicts import no_verdict
from benchmarks.results import geomean

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
_POOLED = "D1-30"
_SMALL = 14  # planes whose rows no warp is filled by


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
    head = ["layers", "batch", "count", "over", *PLANS.values()]
    return [
        "Speedups of the fastest tiling of each, geomean over the layers that all of them can run: over "
        "torch's own depthwise kernel, cuDNN switched off, and, where it was timed, over the form without "
        "reuse, which is the same kernel but for what it reuses.",
        table(*without_empty_columns(head, lines)),
        *_by_plane(members, forms, bases, head),
        no_verdict(reason),
    ]


def reuse_picture(machine: Machine, rows: Sequence[Row], group: str) -> Picture | None:
    """Speedups over the form without reuse by batch, or by filter where a group has one batch."""
    base = named(REUSE_FORMS["no_reuse"])
    found = [
        row for row in rows if row.group.startswith(group) and row.ratio(base, named(REUSE_FORMS["strip"]))
    ]
    if not found:
        return None
    kinds = {
        (batch, name): f"{name}, batch {batch}" for name, batch in sorted({(r.group, r.batch) for r in found})
    }
    layers = {
        title.split("`")[1].partition("/")[2] or "auto": [
            ratios([row for row in found if (row.batch, row.group) == kind], base, named(form))
            for kind in kinds
        ]
        for form, title in PLANS.items()
        if form != REUSE_FORMS["no_reuse"]
    }
    panel = Panel.of_layers(geomean, "geomean over the layers", list(kinds.values()), layers, "speedup")
    title = f"{machine.name}: over the depthwise form without reuse"
    return Picture(f"reuse-forms-{group.lower()}-{machine.slug}", title, [panel])


def _by_plane(
    members: Sequence[Row], forms: Sequence[str], bases: Mapping[str, Contender], head: Sequence[str]
) -> list[str]:
    """D1-30 apart by stride and plane, which decide what reuse can do, at the least and most images."""
    rows = [
        row for row in members if row.group == _POOLED and all(row.ratio(_NATIVE, named(f)) for f in forms)
    ]
    batches = sorted({row.batch for row in rows})
    lines: list[list[Cell]] = []
    for batch in dict.fromkeys((*batches[:1], *batches[-1:])):
        for kind in sorted({_kind(row) for row in rows}):
            some = [row for row in rows if (row.batch, _kind(row)) == (batch, kind)]
            for title, base in bases.items():
                line: list[Cell] = [kind, batch, len(some), title]
                lines.append([*line, *(mean_ratio(some, base, named(form)) for form in PLANS)])
    if not lines:
        return []
    return [
        f"{_POOLED} by stride and by the plane that comes in:",
        table(*without_empty_columns(head, lines)),
    ]


def _kind(row: Row) -> str:
    if row.shape["stride"] != 1:
        return f"stride {row.shape['stride']}"
    side = int(row.shape["size"])
    return f"stride 1, {side}x{side}" if side <= _SMALL else f"stride 1, over {_SMALL}x{_SMALL}"
