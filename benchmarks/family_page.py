"""The page of whole networks on one device, from what benchmarks.family_times measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.family_looks import cell, in_units
from benchmarks.results import Record, Results, geomean, load
from benchmarks.turns import between

_SLOWER = 1.02
_HEAD = """# Whole networks: {device}

Written by `python -m benchmarks.families --device {kind}`: networks of the families that
[families.md](families.md) names, as the libraries have them but for random weights, each called with one
input of a usual size, and as `convx.optimize` makes them{compiled}. *torch* is the network as it is, *graph*
the same replayed as a CUDA graph where that can be captured, *convx* the optimized one: microseconds of a
call, in turns. *Between*: where convx's time over torch's lies, with 95 % confidence. *Error*: against
float64, over this input and four multiples of it, in units of the network's own; *within 2*: at most that, or
a few last bits. `convx.optimize` raises where it is more, and more than what TF32 makes of the network, if
torch's settings allow that. Of networks that choose results by values, as detectors do, it is that of their
pieces. *MB*: the most that a call takes, weights in it. Rows without times have the reason.

{versions}, {origin}

"""
_SUMMARY = """Times faster, geomean and least, and on how many slower than the graph by more than 2 %:

| dtype | layout | networks | within 2 | failed | than torch | least | than graph | least | slower on |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|
"""
_TABLE = """
| network | dtype | layout | torch | graph | convx | between | error | torch MB | convx MB | layers | notes |
|---|---|---|---:|---:|---:|---|---:|---:|---:|---:|---|
"""


def write(path: Path) -> Path:
    """Beside the folder of a device's results; returns where."""
    page = path.parent.parent / f"families_{path.stem}.md"
    page.write_text(text(load(path)))
    return page


def text(results: Results) -> str:
    of, records = results.environment, [*results.records.values()]
    versions = f"{of['date']}, torch {of['torch']}"
    if of.get("cudnn"):
        versions += f", cuDNN {of['cudnn']}"
    compiled = ", inductor tried too" if any(record.get("compiled") for record in records) else ""
    head = _HEAD.format(
        device=of["device"],
        kind="cuda" if results.on_gpu else "cpu",
        compiled=compiled,
        versions=versions,
        origin=results.origin(),
    )
    summary = "".join(f"{line}\n" for line in _summary(records))
    return head + _SUMMARY + summary + _TABLE + "".join(f"{_row(record)}\n" for record in records)


def _summary(records: Iterable[Record]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record["dtype"], record["layout"]), []).append(record)
    for (dtype, layout), group in groups.items():
        done = [record for record in group if "failed" not in record]
        within = sum(record["is_within_twice"] for record in done)
        over_torch, over_graph = (_faster(done, peer) for peer in ("torch", "torch_graph"))
        slower = sum(_SLOWER * each < 1 for each in over_graph)
        yield (
            f"| {dtype} | {layout} | {len(group)} | {within} | {len(group) - len(done)} "
            f"| {_gain(over_torch)} | {_gain(over_graph)} | {slower} of {len(over_graph)} |"
        )


def _faster(records: Iterable[Record], peer: str) -> list[float]:
    return [record["peers_us"][peer] / record["convx_us"] for record in records if peer in record["peers_us"]]


def _gain(faster: list[float]) -> str:
    return f"{geomean(faster):.2f} | {min(faster):.2f}" if faster else "- | -"


def _row(record: Record) -> str:
    about = f"| {record['case']} | {record['dtype']} | {record['layout']} |"
    if "failed" in record:
        return f"{about} {'- | ' * 8}{cell([record['failed']])} |"
    peers, errors, peaks = record["peers_us"], record["error"], record["peak_bytes"]
    graph = f"{peers['torch_graph']:.0f}" if "torch_graph" in peers else "-"
    megabytes = " | ".join(
        f"{peaks[name] / 2**20:.0f}" if name in peaks else "-" for name in ("torch", "convx")
    )
    return (
        f"{about} {peers['torch']:.0f} | {graph} | {record['convx_us']:.0f} | {between(record)} "
        f"| {in_units(errors['convx'], errors['torch'])} | {megabytes} | {record['convolutions']} "
        f"| {cell(_remarks(record))} |"
    )


def _remarks(record: Record) -> Iterator[str]:
    if record["compiled"]:
        yield "compiled by inductor"
    if record["inside"] not in ("as given", record["layout"]):
        yield f"{record['inside']} inside"
    if record["left"]:
        yield f"{record['left']} left to torch"
    if record["reason"]:
        yield record["reason"]
    if record["no_graph"]:
        yield f"no graph: {record['no_graph']}"
