"""Turns measured times into what the planner predicts with: `python -m benchmarks.fit`.

Reads the results of `python -m benchmarks --all-candidates`, those of `--in-network` before others: what
auto is to be right about is a network. For depthwise layers it draws a curve of time
over bytes for every kernel, torch's own convolution among them (benchmarks/fit_depthwise.py), and writes
csrc/choose/measured/<device>.inc; for images of one channel, from the suite filter2d, <device>_images.inc;
for dense layers benchmarks/fit_dense.py makes <device>_dense.inc. The measured layers around a problem
correct all of them. How much is smoothed, and how far a layer's say reaches, is chosen by what a choice by
those times costs, the time of the chosen kernel over that of the fastest one: both for the measured layers
and for each of them without its own measurements.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import fit_dense, fit_depthwise
from benchmarks.choices import is_convolution, is_depthwise, is_image, problem_of
from benchmarks.dense_model import Rates
from benchmarks.planner import core_problem
from benchmarks.results import RESULTS, Record, Results, load
from convx import _libraries

MEASURED = Path(__file__).resolve().parent.parent / "csrc" / "choose" / "measured"


def planned_device(results: Results) -> Any:
    """The device of the results, as the planner knows it."""
    device_class = _libraries.core().Device
    name = str(results.environment["device"])
    if not results.on_gpu:
        return device_class.host_cpu(results.environment["threads"])
    for key in device_class.known_names():
        known = device_class.known_device(key)
        if name.startswith(known.name):
            return known
    sys.exit(f"{name} is not among the devices of csrc/problem/device.cpp: add it there and build first")


def _rates(device: Any) -> Rates:
    units = device.threads if device.backend == "cpu" else device.multiprocessors
    return Rates(device.bandwidth_GBps, device.fp32_TFLOPs, units)


def heading_of(results: Results, paths: Sequence[Path], program: str = "benchmarks.fit") -> str:
    environment = results.environment
    files = ", ".join(path.name for path in paths)
    return (
        f"// Written by python -m {program} from {files} ({environment['device']}, torch "
        f"{environment['torch']}, {environment['date']});\n// not to be edited."
    )


def name_of(results: Results) -> str:
    """Of a device's files, without what kind they are."""
    return re.sub(r"[^a-z0-9]+", "_", str(results.environment["device"]).lower()).strip("_")


def load_all(paths: Sequence[Path]) -> Results:
    """The records of several files of one device; of those that are in several, the first file's."""
    results = _load_to_fit(paths[0])
    for path in paths[1:]:
        other = _load_to_fit(path)
        for what in ("device", "torch"):
            if other.environment[what] != results.environment[what]:
                raise ValueError(
                    f"{path} is of {what} {other.environment[what]}, {paths[0]} of "
                    f"{results.environment[what]}: fit them one by one"
                )
        results.records = other.records | results.records
    return results


def _load_to_fit(path: Path) -> Results:
    """Times that auto can go by: of --warm it can't, which no network has."""
    results = load(path)
    if results.on_gpu and "--warm" in results.command.split():
        raise ValueError(f"{path} is of --warm: fit what was measured with --in-network, or without either")
    return results


def committed() -> dict[Path, list[Path]]:
    """The files of each machine's folder, in the order in which they count."""
    found: dict[Path, list[Path]] = {}
    for kind in ("*_candidates_in_network", "*_candidates", "filter2d"):
        for path in sorted(RESULTS.glob(f"*/{kind}.json")):
            found.setdefault(path.parent, []).append(path)
    return found


def by_name_alone(records: Iterable[Record], device: Any) -> set[str]:
    """Kernels that auto does not take, so that their times are nothing to it."""
    core = _libraries.core()
    asked: dict[str, Any] = {}
    for record in records:
        if "/" in record["method"] and is_convolution(record):
            asked.setdefault(record["method"], problem_of(record))
    found = set()
    for kernel, problem in asked.items():
        method, candidate = kernel.split("/")
        plans = core.candidates(method, core_problem(problem), device)
        found |= {kernel for plan in plans if plan.candidate == candidate and plan.by_name_only}
    return found


def fit_device(paths: Sequence[Path], output: Path, worst: int) -> list[Path]:
    """Fits the results of one device and writes a file for each kind of layers in them."""
    results = load_all(paths)
    name = name_of(results)
    heading = heading_of(results, paths)
    output.mkdir(parents=True, exist_ok=True)
    written = []
    device = planned_device(results)
    left_out = by_name_alone(results.records.values(), device)
    results.records = {
        key: record for key, record in results.records.items() if record["method"] not in left_out
    }
    rates = _rates(device)
    for wanted, target in (
        (is_depthwise, output / f"{name}.inc"),
        (is_image, output / f"{name}_images.inc"),
    ):
        if fit_depthwise.fit_device(results, wanted, rates.bandwidth_GBps, heading, target, worst):
            written.append(target)
    dense = output / f"{name}_dense.inc"
    if fit_dense.fit_device(results, device, rates, heading, dense, worst):
        written.append(dense)
    if not written:
        sys.exit(f"{', '.join(map(str, paths))}: no layer has torch's time and a kernel's")
    for path in written:
        print(f"\n{path}: build convx again{'' if _listed(path) else '; list it in ' + _table(path).name}")
    return written


def _table(path: Path) -> Path:
    """The source that reads a file."""
    return MEASURED.parent / ("measured_dense.cpp" if path.stem.endswith("_dense") else "measured.cpp")


def _listed(path: Path) -> bool:
    return f"measured/{path.name}" in _table(path).read_text()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit", description=__doc__.split("\n")[0])
    parser.add_argument(
        "files", nargs="*", type=Path, help="results of one device, the newest first (default: all committed)"
    )
    parser.add_argument("--output", type=Path, default=MEASURED, help="folder of the C++ files")
    parser.add_argument("--worst", type=int, default=10, help="rows to show")
    options = parser.parse_args(arguments)
    found = {RESULTS: options.files} if options.files else committed()
    if not found:
        parser.error(f"no */*_candidates.json in {RESULTS}: python -m benchmarks --all-candidates writes it")
    try:
        for paths in found.values():
            fit_device(paths, options.output, options.worst)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
