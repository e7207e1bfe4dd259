"""What depthwise forms with and without reuse ask of global memory, beside the paper's counts."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.depthwise_transactions import PATH, Record
from benchmarks.papers import claims
from benchmarks.papers.text import NOT_MEASURED, Cell, table, times, without_empty_columns
from benchmarks.results import geomean
from benchmarks.transactions import EXECUTOR, load

_COMMAND = "`python -m benchmarks.depthwise_transactions` counts them."
_NONE = "depthwise/no_reuse"
_FORMS = {
    _NONE: "none: `no_reuse`",
    "depthwise/column_reuse": "columns: `column_reuse`",
    "depthwise/row_reuse": "rows: `row_reuse`",
    "depthwise/strip": "both: `strip`",
    "depthwise/shared_rows": "`shared_rows`",
    "native": "torch's own kernel",
    "torch": "torch's choice",
    "auto": "`auto`",
}
_WARP = 32  # results that the loads of warps are counted for
_LARGEST = 4096  # a side of the paper's images, where borders count the least


def depthwise_transactions(records: Sequence[Record] | None = None) -> list[str]:
    """A part of the page: a table for each who counted. records: the committed ones where None."""
    records = load(PATH) if records is None else records
    parts = ["### Depthwise layers"]
    if not records:
        return [*parts, f"{NOT_MEASURED} {_COMMAND}"]
    parts.append(
        "The paper counts no transactions of depthwise layers: beside them stand those of its kernel with "
        f"both reuses on an image of {_LARGEST} a side. Loads of warps for {_WARP} results, those of filters "
        "among them; in brackets the sectors of 32 bytes that they touch, for each result. The four forms "
        "are one kernel but for what they reuse: a lane has two or four neighbouring columns, where rows are "
        "reused four result rows or more, and reads several columns at once where the plane lets it."
    )
    for by in dict.fromkeys(record["by"] for record in records):
        some = [record for record in records if record["by"] == by]
        what = (
            "Counted on the host executor with 32 lanes, a few channels of each layer "
            "(`python -m benchmarks.depthwise_transactions`):"
            if by == EXECUTOR
            else f"Counted by an {by} (Nsight Compute), eight images:"
        )
        parts += [what, _table(some, "load"), _in_short(some), "Their stores:", _table(some, "store")]
    return parts


_Layer = tuple[int, int, int]  # sides of the filter, stride, and of the plane


def _by_layer(records: Sequence[Record]) -> dict[_Layer, dict[str, Record]]:
    """Those of each contender, without its tiling."""
    layers: dict[_Layer, dict[str, Record]] = {}
    for record in records:
        layer = (record["filter"], record["stride"], record["size"])
        layers.setdefault(layer, {})[record["contender"].partition(" ")[0]] = record
    return layers


def _in_short(records: Sequence[Record]) -> str:
    """What each reuse spares."""
    said = []
    for form in ("column_reuse", "row_reuse", "strip"):
        pairs = [(found.get(_NONE), found.get(f"depthwise/{form}")) for found in _by_layer(records).values()]
        both = [(none, own) for none, own in pairs if none and own]
        if both:
            loads, sectors = (
                geomean(none[what] / own[what] for none, own in both) for what in ("loads", "load_sectors")
            )
            said.append(f"`{form}` {times(loads)} times fewer loads and {times(sectors)} times fewer sectors")
    return f"Beside `no_reuse`, geomean over these layers: {', '.join(said)}." if said else ""


def _table(records: Sequence[Record], what: str) -> str:
    layers = sorted(_by_layer(records).items(), key=lambda item: (*item[0][:2], -item[0][2]))
    head = ["filter", "stride", "plane", f"the paper's on images, {claims.TRANSACTIONS_HARDWARE}"]
    lines: list[list[Cell]] = []
    for (extent, stride, size), found in layers:
        claimed = claims.FILTER_TRANSACTIONS.get(extent, {}).get(_LARGEST) if what == "load" else None
        line: list[Cell] = [f"{extent}x{extent}", f"{stride}", f"{size}x{size}"]
        line.append(f"{claimed * _WARP / _LARGEST**2:.1f}" if claimed and stride == 1 else "-")
        lines.append([*line, *(_asked(found.get(name), what) for name in _FORMS)])
    return table(*without_empty_columns([*head, *_FORMS.values()], lines), text_columns=3)


def _asked(record: Record | None, what: str) -> str:
    if record is None:
        return "-"
    results = record["results"]
    return f"{record[f'{what}s'] * _WARP / results:.1f} ({record[f'{what}_sectors'] / results:.2f})"
