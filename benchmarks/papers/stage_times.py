"""The two stages of the paper on cuConv, each with a time of its own, beside its tables 3 to 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from benchmarks import stages
from benchmarks.papers import claims
from benchmarks.papers.measurements import Machine
from benchmarks.papers.text import Cell, table, us


def stage_times(machine: Machine, found: Mapping[str, Sequence[stages.Stages]] | None = None) -> list[str]:
    """Paragraphs. found: the committed times by GPU where None."""
    times = (stages.load() if found is None else found).get(machine.name, ())
    if not times:
        return ["The time of each stage was not taken: `python -m benchmarks.stages` does."]
    by_case = {(each.case, each.batch): each for each in times}
    lines: list[list[Cell]] = []
    for layer in claims.CUCONV:
        own = by_case.get((layer.case, layer.batch))
        line: list[Cell] = [layer.label, us(layer.products_us), us(layer.sum_us)]
        lines.append([*line, us(own.products_us), us(own.sum_us)] if own else [*line, "-", "-"])
    shares = ", ".join(
        f"{_share(times, size, batch):.0%} for {size}x{size} at batch {batch}"
        for size in (3, 5)
        for batch in sorted({each.batch for each in times})
    )
    return [
        f"The time of each stage of `{stages.PLAN}` (`python -m benchmarks.stages`), microseconds of the "
        "kernels alone, one after the other, with operands in the GPU's cache: without launches, and so less "
        "than the times above. The share of the sum is, in the mean over all layers of the networks, "
        f"{shares}; of the paper's times it is {_papers_shares()}.",
        table(("layer", "paper: products", "sum", f"`{stages.PLAN}`: products", "sum"), lines),
    ]


def _share(times: Sequence[stages.Stages], size: int, batch: int) -> float:
    members = [each for each in times if (each.filter, each.batch) == (size, batch) and each.sum_us]
    return mean((each.sum_us or 0) / (each.products_us + (each.sum_us or 0)) for each in members)


def _papers_shares() -> str:
    found = [layer.sum_us / layer.us for layer in claims.CUCONV if layer.sum_us]
    return f"{min(found):.0%} to {max(found):.0%}"
