"""How many layers the paper on cuConv measured, and how many there are here."""

from __future__ import annotations

from collections import Counter

from benchmarks import layers
from benchmarks.papers import claims
from benchmarks.papers.text import Cell, table


def papers_layers(size: int) -> int:
    """With filters of that side, added up over its table 1."""
    return sum(counts.get(size, 0) for counts in claims.CUCONV_LAYERS.values())


def layer_counts() -> str:
    """A table by side of the filter, and how its numbers fit together."""
    own = Counter(size for _, size, *_ in layers.cuconv())
    googlenet = Counter(size for _, size, *_ in layers.googlenet())
    lines: list[list[Cell]] = []
    for size in sorted(own):
        line: list[Cell] = [f"{size}x{size}"]
        line += [counts.get(size, "-") for counts in claims.CUCONV_LAYERS.values()]
        lines.append([*line, papers_layers(size), own[size], googlenet[size]])
    head = ["filters", *claims.CUCONV_LAYERS, "added up", "here", "of GoogLeNet here"]
    listed = sum(map(papers_layers, own))
    configurations = round(claims.CUCONV_FASTER_COUNT / claims.CUCONV_FASTER)
    tested = configurations // len(claims.CUCONV_BATCHES)
    single = round(claims.CUCONV_1X1_SHARE * tested)
    unlisted = googlenet[1] - claims.CUCONV_LAYERS["GoogLeNet"][1]
    return (
        "Its layers of stride 1, from the counts and shares of its table 1, which names none:\n\n"
        + table(head, lines)
        + f"\n\nBy network these are {listed}; it tested {tested}. For {claims.CUCONV_FASTER_COUNT} "
        f"configurations are {claims.CUCONV_FASTER:.2%} of {configurations}, at "
        f"{len(claims.CUCONV_BATCHES)} batches, and {claims.CUCONV_1X1_SHARE:.1%} have 1x1 filters, {single} "
        f"layers of {tested}, where the table has {papers_layers(1)}: what two networks share counts once. "
        f"Here there are {own.total()}, each once, and all that are more are 1x1, {own[1]} instead of "
        f"{single}: {unlisted} of GoogLeNet's, one of ResNet-50's, and one because here two networks share "
        "one layer alone (56-64-64, of both of these). Which of GoogLeNet's the paper leaves out it does not "
        "say."
    )
