"""What the forms of filter2d ask of global memory, beside the paper's counts of transactions."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.papers import claims
from benchmarks.papers.text import Cell, table, without_empty_columns
from benchmarks.transactions import EXECUTOR, Record, load

_HEADS = {
    "filter2d/direct": "`direct`",
    "filter2d/column_reuse": "`column_reuse`",
    "filter2d/row_reuse": "`row_reuse`, 4 rows",
    "filter2d/both 2": "`both`, 2 rows",
    "filter2d/both 4": "4 rows",
    "filter2d/both 8": "8 rows",
    "filter2d/strip": "`strip`",
    "npp": "NPP",
    "im2col": "im2col",
    "torch": "torch",
}


def transactions(records: Sequence[Record] | None = None) -> list[str]:
    """A section for the page: a table for each who counted. records: the committed ones where None."""
    records = load() if records is None else records
    if not records:
        return []
    parts = [
        "## Memory transactions",
        f"The paper's source has a table of the read transactions of images and filters on an "
        f"{claims.TRANSACTIONS_HARDWARE} (commented out, and so not in print). Beside it the loads of warps, "
        "with 16 result rows of a warp in all of the paper's forms; in brackets the sectors of 32 bytes that "
        "they touch, for each result.",
    ]
    for by in dict.fromkeys(record["by"] for record in records):
        some = [record for record in records if record["by"] == by]
        what = (
            "Counted on the host executor with 32 lanes (`python -m benchmarks.transactions`):"
            if by == EXECUTOR
            else f"Counted by an {by} (Nsight Compute):"
        )
        parts += [what, _table(some)]
    return parts


def _name(contender: str) -> str:
    """The key of _HEADS."""
    plan, *tiling = contender.split()
    rows = dict(part.split("=") for part in tiling).get("rows")
    return f"{plan} {rows}" if plan == "filter2d/both" else plan


def _table(records: Sequence[Record]) -> str:
    places: dict[tuple[int, int], dict[str, Record]] = {}
    for record in records:
        place = (record["filter"], record["size"])
        places.setdefault(place, {})[_name(record["contender"])] = record
    head = ["filter", "image", f"paper's, {claims.TRANSACTIONS_HARDWARE}", *_HEADS.values()]
    lines: list[list[Cell]] = []
    for (extent, size), found in places.items():
        claimed = claims.FILTER_TRANSACTIONS.get(extent, {}).get(size)
        line: list[Cell] = [f"{extent}x{extent}", f"{size} a side", f"{claimed}" if claimed else "-"]
        lines.append(line + [_loads(found.get(name), size) for name in _HEADS])
    head, lines = without_empty_columns(head, lines)
    return table(head, lines, text_columns=2)


def _loads(record: Record | None, size: int) -> str:
    return f"{record['loads']} ({record['load_sectors'] / size**2:.2f})" if record else "-"
