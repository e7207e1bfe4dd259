"""Results as text."""

from __future__ import annotations

from benchmarks import host, memory, modules, networks
from benchmarks.results import Record, Results, best_peer, is_slower, precision, summarize


def line(record: Record) -> str:
    """One record, in one line."""
    peers = "  ".join(f"{name} {time:.4g}" for name, time in record["peers_us"].items())
    return (
        f"{record['case']:<16} {record['operation']:<11} {precision(record):<8} {record['layout']:<13} "
        f"N={record['batch']:<4} floor {record['floor_us']:9.2f}  convx {record['convx_us']:9.2f} us "
        f"{record['floor_us'] / record['convx_us']:5.2f}  {record['method']:<26} {peers}  "
        f"error ratio {record['error_ratio']:.2g}"
    )


def table(results: Results) -> str:
    records = list(results.records.values())
    tables = {
        "host": host.table,
        "memory": memory.table,
        "modules": modules.table,
        "networks": networks.table,
    }
    return tables.get(results.suite, _summary_table)(records)


def _summary_table(records: list[Record]) -> str:
    lines = [
        "",
        "geomeans; fraction of the floor (1: the least possible time), convx and torch's best in that layout",
        f"{'operation':<12}{'dtype':<10}{'layout':<15}{'cases':<19}{'records':>8}{'convx':>8}{'torch':>8}"
        f"{'speed-up':>10}{'slower':>8}",
    ]
    for row in summarize(records):
        operation, dtype, layout, group = row.label
        lines.append(
            f"{operation:<12}{dtype:<10}{layout:<15}{group:<19}{row.count:8d}{row.fraction_of_floor:8.3f}"
            f"{row.peer_fraction:8.3f}{row.speedup:10.2f}{row.slower:8d}"
        )
    auto = [record for record in records if record["chosen_by"] == "auto"]
    behind = sorted(
        (record for record in auto if is_slower(record)),
        key=lambda r: best_peer(r)[1] / r["convx_us"],  # type: ignore[index]
    )
    lines.append(
        f"\n{len(behind)} of {len(auto)} records slower than torch's best in the same layout by over 2 %"
    )
    lines += [line(record) for record in behind]
    wrong = [record for record in records if not record["error_ratio"] <= 2]
    lines.append(f"{len(wrong)} of {len(records)} records with more than twice torch's error")
    lines += [line(record) for record in wrong]
    missed = _missed_choices(records)
    if missed:
        lines.append("\nforced kernels that beat the choice of auto by over 2 %")
        lines += missed
    return "\n".join(lines)


def _missed_choices(records: list[Record]) -> list[str]:
    """Where a forced kernel is faster than what auto took: the planner's mistakes."""
    fields = ("case", "operation", "dtype", "tf32", "layout", "batch", "warm")
    auto = {tuple(r[name] for name in fields): r for r in records if r["chosen_by"] == "auto"}
    lines = []
    for record in records:
        chosen = auto.get(tuple(record[name] for name in fields))
        if record["chosen_by"] != "forced" or not chosen or chosen["method"] == record["method"]:
            continue
        gain = chosen["convx_us"] / record["convx_us"]
        if gain > 1.02:
            lines.append(f"{gain:6.2f}x  {record['method']:<24} over {chosen['method']:<24} {line(record)}")
    return sorted(lines, reverse=True)
