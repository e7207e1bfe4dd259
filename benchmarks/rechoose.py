"""What auto takes since a fit, in the results that it was made from: `python -m benchmarks.rechoose FILE`.

A run over all candidates has auto's records of the planner before the fit. They are replaced by what the same
run has of the kernel that the planner takes now: the forced record's time or, for native on GPUs, that of
torch's convolution or product in the same layout. Such records say `chosen_later`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.choices import problem_of
from benchmarks.fit import planned_device
from benchmarks.planner import plan_of
from benchmarks.results import Record, Results, key, load


def rechosen(record: Record, results: Results, device: Any) -> Record | None:
    """The record of what auto takes now; None where the run does not have it."""
    method = plan_of(problem_of(record), device)
    if method == record["method"]:
        return record
    forced = results.records.get(key(record | {"chosen_by": "forced", "method": method}))
    if forced is not None:
        return forced | {"chosen_by": "auto", "chosen_later": True}
    peer = {"native": "torch", "native/matmul": "matmul"}.get(method)
    if peer not in record["peers_us"]:
        return None
    error = record["error"] / (record["error_ratio"] or 1.0)
    own = {"method": method, "convx_us": record["peers_us"][peer], "error": error, "error_ratio": 1.0}
    return record | own | {"chosen_later": True}


def rechoose(results: Results) -> tuple[int, int]:
    """Replaces auto's records; how many changed, and how many could not."""
    device = planned_device(results)
    changed = missing = 0
    for record in [each for each in results.records.values() if each.get("chosen_by") == "auto"]:
        new = rechosen(record, results, device)
        if new is None:
            missing += 1
        elif new is not record:
            results.add(new)
            changed += 1
    return changed, missing


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rechoose", description=__doc__.split("\n")[0].split(":")[0]
    )
    parser.add_argument("files", nargs="+", type=Path, help="results of --all-candidates, written again")
    for path in parser.parse_args(arguments).files:
        results = load(path)
        changed, missing = rechoose(results)
        results.write(path)
        print(f"{path}: auto takes another kernel in {changed} records; {missing} have no time of it")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
