"""Pictures of a results file: `python -m benchmarks.plots FILE ...` (or --plots of the benchmarks)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.papers.pictures import draw_whiskers
from benchmarks.results import Record, best_peer, group_of, load, precision
from benchmarks.spread import Quartiles, own_spread, peers_spread

_CONVX, _PEER = "#2563eb", "#9aa3af"


def draw(path: Path) -> list[Path]:
    """One picture per operation and group of cases: how near to the floor convx and torch's best come."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in load(path).records.values():
        if record["chosen_by"] == "auto" and "floor_us" in record:
            groups.setdefault((record["operation"], group_of(record)), []).append(record)
    return [_draw_group(path, operation, name, records) for (operation, name), records in groups.items()]


def _draw_group(path: Path, operation: str, name: str, records: list[Record]) -> Path:
    panels: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        panels.setdefault((precision(record), record["layout"]), []).append(record)
    style: Any = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "font.size": 9,
    }
    with plt.rc_context(style):
        figure, axes = plt.subplots(len(panels), 1, figsize=(10, 2.4 * len(panels) + 0.6), squeeze=False)
        for axis, ((dtype, layout), members) in zip(axes[:, 0], panels.items(), strict=True):
            _draw_panel(axis, members)
            axis.set_title(f"{dtype}, {layout}", loc="left", fontsize=9)
        axes[0, 0].legend(frameon=False, ncol=2, loc="lower right", bbox_to_anchor=(1, 1))
        device = load(path).environment["device"]
        figure.suptitle(f"{device}: {operation}, {name}", x=0.01, ha="left", fontweight="bold")
        figure.tight_layout()
        slug = name.replace(", batch ", "-n").replace(" ", "-").lower()
        target = path.with_name(f"{path.stem}-{operation}-{slug}.png")
        figure.savefig(target, dpi=100)
        plt.close(figure)
    return target


def _draw_panel(axis: Any, records: list[Record]) -> None:
    places = range(len(records))
    fractions = [record["floor_us"] / record["convx_us"] for record in records]
    peers = [record["floor_us"] / peer[1] if (peer := best_peer(record)) else 0.0 for record in records]
    axis.bar([place - 0.2 for place in places], peers, 0.4, color=_PEER, label="torch's best, same layout")
    axis.bar([place + 0.2 for place in places], fractions, 0.4, color=_CONVX, label="convx")
    draw_whiskers(axis, [place - 0.2 for place in places], [_fractions(r, _peers_spread(r)) for r in records])
    draw_whiskers(axis, [place + 0.2 for place in places], [_fractions(r, own_spread(r)) for r in records])
    axis.axhline(1, color="#111827", linewidth=0.8)
    axis.set_xticks(
        list(places), [record["case"].split("-")[0] for record in records], rotation=60, fontsize=7
    )
    axis.set_xlim(-0.7, len(records) - 0.3)
    axis.set_ylabel("fraction of the floor")
    axis.grid(axis="y", color="#e5e7eb")


def _peers_spread(record: Record) -> Quartiles | None:
    peer = best_peer(record)
    return peers_spread(record).get(peer[0]) if peer else None


def _fractions(record: Record, times: Quartiles | None) -> Quartiles | None:
    """Of the floor, at the quartiles of a time."""
    return (record["floor_us"] / times[1], record["floor_us"] / times[0]) if times else None


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        for picture in draw(Path(argument)):
            print(picture)
