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
}
_OTHERS = {"npp": "NPP", "im2col": "im2col", "torch": "torch's choice"}


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
        parts += [what, _table(some), *_others(some), *_stores(some)]
    return parts


def read_sectors(by: str, name: str, extent: int, size: int) -> int | None:
    """As a GPU counted them. name: of a column."""
    some = [record for record in load() if record["by"] == by]
    record = _places(some).get((extent, size), {}).get(name)
    return int(record["load_sectors"]) if record else None


def _name(contender: str) -> str:
    """The key of _HEADS."""
    plan, *tiling = contender.split()
    rows = dict(part.split("=") for part in tiling).get("rows")
    return f"{plan} {rows}" if plan == "filter2d/both" else plan


_Places = dict[tuple[int, int], dict[str, Record]]  # by filter and image, of each contender


def _places(records: Sequence[Record]) -> _Places:
    places: _Places = {}
    for record in records:
        place = (record["filter"], record["size"])
        places.setdefault(place, {})[_name(record["contender"])] = record
    return places


def _line(extent: int, size: int) -> list[Cell]:
    return [f"{extent}x{extent}", f"{size} a side"]


def _table(records: Sequence[Record]) -> str:
    head = ["filter", "image", f"paper's, {claims.TRANSACTIONS_HARDWARE}", *_HEADS.values()]
    lines: list[list[Cell]] = []
    for (extent, size), found in _places(records).items():
        claimed = claims.FILTER_TRANSACTIONS.get(extent, {}).get(size)
        line = [*_line(extent, size), f"{claimed}" if claimed else "-"]
        lines.append(line + [_asked(found.get(name), "load", size) for name in _HEADS])
    head, lines = without_empty_columns(head, lines)
    return table(head, lines, text_columns=2)


def _others(records: Sequence[Record]) -> list[str]:
    """What libraries read, beside the paper's rows of them; nothing where none was counted."""
    papers = claims.OTHERS_TRANSACTIONS
    head = ["filter", "image", *(f"paper's, {name}" for name in papers), *_OTHERS.values()]
    lines: list[list[Cell]] = []
    for (extent, size), found in _places(records).items():
        if any(name in found for name in _OTHERS):
            line = _line(extent, size)
            line += [
                f"{claimed:.0f}" if (claimed := papers[name][extent].get(size)) else "-" for name in papers
            ]
            lines.append(line + [_asked(found.get(name), "load", size) for name in _OTHERS])
    if not lines:
        return []
    text = (
        "What others read. The paper's are of global, texture and shared memory together, ours of global "
        "memory alone. Its im2col reads as much at 1024 a side as at 512, which can't be; ArrayFire could "
        "not be had."
    )
    return [text, table(*without_empty_columns(head, lines), text_columns=2)]


def _stores(records: Sequence[Record]) -> list[str]:
    """Of the largest images, for all have as many a result; the paper has none."""
    names = _HEADS | _OTHERS
    largest = max(record["size"] for record in records)
    lines: list[list[Cell]] = [
        [*_line(extent, size), *(_asked(found.get(name), "store", size) for name in names)]
        for (extent, size), found in _places(records).items()
        if size == largest
    ]
    text = "Stores of warps, which the paper does not have; in brackets their sectors, for each result."
    return [text, table(*without_empty_columns(["filter", "image", *names.values()], lines), text_columns=2)]


def _asked(record: Record | None, what: str, size: int) -> str:
    """Loads or stores."""
    return f"{record[f'{what}s']} ({record[f'{what}_sectors'] / size**2:.2f})" if record else "-"
