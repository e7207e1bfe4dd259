"""Turns measured times into what the planner predicts with: `python -m benchmarks.fit`.

Reads the results of `python -m benchmarks --all-candidates`. For depthwise layers it draws a curve of time
over bytes for every kernel, torch's own convolution among them, and writes csrc/select/measured/<device>.inc;
for dense ones benchmarks/fit_dense.py makes <device>_dense.inc. How much either smooths is chosen by what it
costs to leave a layer out: the time of the kernel that is chosen without its measurements, over the time of
the fastest one.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import fit_dense
from benchmarks.choices import (
    HEAD,
    Choice,
    Times,
    choose,
    cost,
    is_depthwise,
    mean_regret,
    measured_times,
    recorded,
    report,
)
from benchmarks.curves import WIDEST, Curve, Point, bucket, fit
from benchmarks.dense_model import Rates
from benchmarks.results import RESULTS, Results, load
from benchmarks.suites import LAYOUTS, OPERATIONS, Problem, Shape
from convx import _libraries

MEASURED = Path(__file__).resolve().parent.parent / "csrc" / "select" / "measured"
SMOOTHING = (0.4, 0.6, 0.8, 1.1, 1.5)  # octaves of bytes
# Of those that cost the same but for noise, the one that serves the measured layers best.
SAME_COST = 0.002


@dataclass(frozen=True)
class Series:
    """What shares curves: all but sizes."""

    algorithm: str
    operation: str
    dtype: str
    layout: str
    filter: int
    stride: int


Curves = dict[tuple[Series, int], Curve]  # the number is that of the bucket of widths


def series(problem: Problem, algorithm: str) -> Series:
    shape = problem.shape
    return Series(algorithm, problem.operation, problem.dtype, problem.layout, shape.filter, shape.stride)


def fit_all(times: Times, smoothing: float, left_out: Shape | None = None) -> Curves:
    """Curves of every series and bucket of widths, through the times of all layers but one."""
    points: dict[Series, list[Point]] = {}
    for problem, measured in times.items():
        if problem.shape != left_out:
            for algorithm, us in measured.items():
                point = Point(problem.shape.size, problem.bytes, us)
                points.setdefault(series(problem, algorithm), []).append(point)
    wanted = range(len(WIDEST)) if left_out is None else (bucket(left_out.size),)
    return {
        (name, index): fit(members, index, smoothing)
        for name, members in points.items()
        for index in wanted
        # Maps that are much wider or narrower than all measured ones are another matter.
        if min(abs(bucket(point.width) - index) for point in members) <= 1
    }


def predicted_times(problem: Problem, algorithms: Iterable[str], curves: Curves) -> dict[str, float]:
    found = {
        algorithm: curves.get((series(problem, algorithm), bucket(problem.shape.size)))
        for algorithm in algorithms
    }
    return {algorithm: curve.at(problem.bytes) for algorithm, curve in found.items() if curve is not None}


def choices(times: Times, smoothing: float, leave_one_out: bool) -> list[Choice]:
    shapes = {problem.shape for problem in times} if leave_one_out else {None}
    result = []
    for shape in shapes:
        curves = fit_all(_like(times, shape), smoothing, shape)
        for problem, measured in times.items():
            if shape not in (None, problem.shape):
                continue
            if choice := choose(problem, measured, predicted_times(problem, measured, curves)):
                result.append(choice)
    return result


def _like(times: Times, shape: Shape | None) -> Times:
    """The problems that may share a series with a layer."""
    if shape is None:
        return times
    wanted = (shape.filter, shape.stride)
    return {
        problem: measured
        for problem, measured in times.items()
        if (problem.shape.filter, problem.shape.stride) == wanted
    }


def _order(entry: tuple[Series, int]) -> tuple[object, ...]:
    """As the planner compares: by the values of its enumerations."""
    name, index = entry
    enumerated = (
        OPERATIONS.index(name.operation),
        ("float32", "float64", "float16", "bfloat16").index(name.dtype),
        LAYOUTS.index(name.layout),
    )
    return (name.algorithm, *enumerated, name.filter, name.stride, index)


def _rates(results: Results) -> Rates:
    """As the planner has them."""
    device_class = _libraries.core().Device
    name = str(results.environment["device"])
    if name.startswith("cpu"):
        host = device_class.host_cpu(results.environment["threads"])
        return Rates(host.bandwidth_GBps, host.fp32_TFLOPs, host.threads)
    for key in device_class.known_names():
        known = device_class.known_device(key)
        if name.startswith(known.name):
            return Rates(known.bandwidth_GBps, known.fp32_TFLOPs, known.multiprocessors)
    sys.exit(f"{name} is not among the devices of csrc/problem/device.cpp: add it there and build first")


def _heading(results: Results, paths: Sequence[Path]) -> str:
    environment = results.environment
    files = ", ".join(path.name for path in paths)
    return (
        f"// Written by python -m benchmarks.fit from {files} ({environment['device']}, torch "
        f"{environment['torch']}, {environment['date']});\n// not to be edited."
    )


def source(heading: str, bandwidth_GBps: float, curves: Curves, name: str) -> str:
    """The C++ that csrc/select/measured.cpp includes."""
    lines = [
        f"{heading} Kernel, operation, dtype, layout, filter, stride, widest map; log2 of bytes at",
        "// the first time; microseconds, a doubling of the bytes from one to the next.",
        f"constexpr double {name}_GBps = {bandwidth_GBps:g};",
        f"constexpr Curve {name}[] = {{",
    ]
    for key, index in sorted(curves, key=_order):
        curve = curves[key, index]
        layout = "nhwc" if key.layout == "channels_last" else key.layout
        times = ", ".join(f"{time:g}" for time in curve.us)
        lines.append(
            f'{{"{key.algorithm}", Operation::{key.operation}, DType::{key.dtype}, Layout::{layout}, '
            f"{key.filter}, {key.stride}, {WIDEST[index]}, {curve.first_octave}, {len(curve.us)}, "
            f"{{{times}}}}},"
        )
    return "\n".join([*lines, "};"]) + "\n"


def _fit_depthwise(results: Results, heading: str, target: Path, worst: int) -> bool:
    """Writes the file of one device's depthwise layers; False where there are none."""
    device = str(results.environment["device"])
    records = list(results.records.values())
    times = measured_times(records, not device.startswith("cpu"), is_depthwise)
    if not times:
        return False
    print(f"{device}, depthwise: {len(times)} problems, {sum(map(len, times.values()))} times\n")
    print(f"{'chosen over fastest':30} {HEAD}")
    print(f"{'auto when it was measured':30} {cost(recorded(times, records))}")
    trials = {smoothing: choices(times, smoothing, True) for smoothing in SMOOTHING}
    for smoothing, made in trials.items():
        print(f"{f'layer left out, {smoothing} octaves':30} {cost(made)}")
    least = min(map(mean_regret, trials.values()))
    fitted = {
        smoothing: choices(times, smoothing, False)
        for smoothing, unseen in trials.items()
        if mean_regret(unseen) < least + SAME_COST
    }
    best = min(fitted, key=lambda smoothing: mean_regret(fitted[smoothing]))
    print(f"{f'all layers, {best} octaves':30} {cost(fitted[best])}\n")
    print(report(fitted[best], trials[best], worst))
    bandwidth = _rates(results).bandwidth_GBps
    target.write_text(source(heading, bandwidth, fit_all(times, best), target.stem))
    return True


def load_all(paths: Sequence[Path]) -> Results:
    """The records of several files of one device; of those that are in several, the first file's."""
    results = load(paths[0])
    for path in paths[1:]:
        other = load(path)
        for what in ("device", "torch"):
            if other.environment[what] != results.environment[what]:
                raise ValueError(
                    f"{path} is of {what} {other.environment[what]}, {paths[0]} of "
                    f"{results.environment[what]}: fit them one by one"
                )
        results.records = other.records | results.records
    return results


def fit_device(paths: Sequence[Path], output: Path, worst: int) -> list[Path]:
    """Fits the results of one device and writes a file for each kind of layers in them."""
    results = load_all(paths)
    name = re.sub(r"[^a-z0-9]+", "_", str(results.environment["device"]).lower()).strip("_")
    heading = _heading(results, paths)
    output.mkdir(parents=True, exist_ok=True)
    written = []
    curves, dense = output / f"{name}.inc", output / f"{name}_dense.inc"
    if _fit_depthwise(results, heading, curves, worst):
        written.append(curves)
    if fit_dense.fit_device(results, _rates(results), heading, dense, worst):
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
    found: dict[Path, list[Path]] = {}
    for path in options.files or sorted(RESULTS.glob("*/*_candidates.json")):
        found.setdefault(RESULTS if options.files else path.parent, []).append(path)
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
