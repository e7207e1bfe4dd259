"""The part of two pages about row reuse and column reuse in depthwise layers."""

from __future__ import annotations

from collections.abc import Sequence

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
_PLANES = (7, 14)  # sides by themselves; the others are one kind


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
        *_by_plane(members, forms),
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
        _plan(form).partition("/")[2] or "auto": [
            ratios([row for row in found if (row.batch, row.group) == kind], base, named(form))
            for kind in kinds
        ]
        for form in PLANS
        if form != REUSE_FORMS["no_reuse"]
    }
    panel = Panel.of_layers(geomean, "geomean over the layers", list(kinds.values()), layers, "speedup")
    title = f"{machine.name}: over the depthwise form without reuse"
    return Picture(f"reuse-forms-{group.lower()}-{machine.slug}", title, [panel])


def _by_plane(members: Sequence[Row], forms: Sequence[str]) -> list[str]:
    """Of each table of layers, apart by what decides what reuse can do: filter, stride and plane."""
    without = REUSE_FORMS["no_reuse"]
    base = without if without in forms else ""
    over = f"`{_plan(without)}`" if base else "torch's own kernel"
    parts = []
    for group in sorted({_table_of(row) for row in members}):
        rows = [row for row in members if _table_of(row) == group]
        rows = [row for row in rows if all(row.ratio(_NATIVE, named(form)) for form in forms)]
        kinds = sorted({_kind(row) for row in rows}, key=lambda kind: (*kind[:2], kind[2] == 0, kind[2]))
        if not kinds:
            continue
        contender = named(base) if base else _NATIVE
        batches = sorted({row.batch for row in rows})
        shown = list(dict.fromkeys((batches[0], batches[-1])))
        for batch in shown:
            parts += [
                f"{group} at batch {batch} by filter, stride and the plane that comes in, speedups over "
                f"{over}:",
                _forms_by_kind([row for row in rows if row.batch == batch], kinds, contender, base),
            ]
        if len(batches) > len(shown):
            parts += [
                f"Both reuses together, `{_plan(REUSE_FORMS['strip'])}`, over {over}, at every batch:",
                _strip_by_kind(rows, kinds, batches, contender),
            ]
    return parts


_Kind = tuple[int, int, int]  # side of the filter, stride, and of the plane, 0 for the others


def _forms_by_kind(rows: Sequence[Row], kinds: Sequence[_Kind], base: Contender, form: str) -> str:
    """Of one batch. form: the record of base, which has a column of its own gain over torch's."""
    columns = [each for each in PLANS if each != form]
    lines: list[list[Cell]] = []
    for kind in kinds:
        if some := [row for row in rows if _kind(row) == kind]:
            gains = [mean_ratio(some, base, named(each)) for each in columns]
            own = mean_ratio(some, _NATIVE, named(form)) if form else None
            lines.append([*_titles(kind), len(some), *gains, own])
    head = ["filter", "stride", "plane", "layers", *(f"`{_plan(each)}`" for each in columns)]
    head.append(f"`{_plan(form)}` over torch's own kernel" if form else "")
    return table(*without_empty_columns(head, lines), text_columns=3)


def _strip_by_kind(
    rows: Sequence[Row], kinds: Sequence[_Kind], batches: Sequence[int], base: Contender
) -> str:
    strip = named(REUSE_FORMS["strip"])
    lines: list[list[Cell]] = []
    for kind in kinds:
        some = [[row for row in rows if (_kind(row), row.batch) == (kind, batch)] for batch in batches]
        lines.append([*_titles(kind), *(mean_ratio(each, base, strip) for each in some)])
    head = ["filter", "stride", "plane", *(f"batch {batch}" for batch in batches)]
    return table(head, lines, text_columns=3)


def _plan(form: str) -> str:
    """The plan of a record's name, "auto" of what was chosen."""
    return PLANS[form].split("`")[1]


def _table_of(row: Row) -> str:
    """The papers' name of the layers, without their filter."""
    return row.group.split(" ")[0]


def _kind(row: Row) -> _Kind:
    side = int(row.shape["size"])
    return int(row.shape["filter"]), int(row.shape["stride"]), side if side in _PLANES else 0


def _titles(kind: _Kind) -> list[Cell]:
    size, stride, side = kind
    plane = f"{side}x{side}" if side else "others"
    return [f"{size}x{size}", f"{stride}", plane]
