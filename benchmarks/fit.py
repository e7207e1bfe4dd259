"""Turns measured times into what the planner predicts with: `python -m benchmarks.fit`.

Reads the results of `python -m benchmarks --all-candidates`, draws a curve of time over bytes for every
kernel, torch's own convolution among them, and writes csrc/select/measured/<device>.inc. How much the curves
smooth is chosen by what it costs to leave a layer out: the time of the kernel that is chosen without its
measurements, over the time of the fastest one.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.curves import WIDEST, Curve, Point, bucket, fit
from benchmarks.results import RESULTS, Record, Results, geomean, load
from benchmarks.suites import LAYOUTS, OPERATIONS, Case, Problem, Shape
from convx import _libraries

MEASURED = Path(__file__).resolve().parent.parent / "csrc" / "select" / "measured"
SMOOTHING = (0.4, 0.6, 0.8, 1.1, 1.5)  # octaves of bytes
# Of those that cost the same but for noise, the one that serves the measured layers best.
SAME_COST = 0.002
# convx is taken where torch is predicted to be faster by less (csrc/select/select.cpp).
NATIVE_MARGIN = 0.98

Times = dict[Problem, dict[str, float]]  # microseconds of every algorithm that was measured


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


def measured_times(records: Iterable[Record], on_gpu: bool) -> Times:
    """Times of convx's kernels, and of torch's convolution in the same layout as "native"."""
    samples: dict[Problem, dict[str, list[float]]] = {}
    for record in records:
        shape = Shape(**record["shape"])
        if not shape.in_channels == shape.out_channels == shape.groups or (on_gpu and record["warm"]):
            continue
        case = Case("", "", shape, (), ())  # a layer is its shape, whatever it is called
        problem = Problem(case, record["operation"], record["dtype"], record["layout"], record["batch"])
        times = samples.setdefault(problem, {})
        times.setdefault(record["method"], []).append(record["convx_us"])
        if record["chosen_by"] == "auto" and "torch" in record["peers_us"]:
            times.setdefault("native", []).append(record["peers_us"]["torch"])
    return {
        problem: {name: geomean(values) for name, values in times.items()}
        for problem, times in samples.items()
        if len(times) > 1
    }


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


@dataclass(frozen=True)
class Choice:
    """What the curves choose for a problem, beside the fastest."""

    problem: Problem
    algorithm: str
    us: float
    fastest: str
    fastest_us: float

    @property
    def regret(self) -> float:
        return self.us / self.fastest_us


def choose(problem: Problem, measured: dict[str, float], curves: Curves) -> Choice | None:
    predicted = {}
    for algorithm in measured:
        curve = curves.get((series(problem, algorithm), bucket(problem.shape.size)))
        if curve is not None:
            margin = 1 if algorithm == "native" else NATIVE_MARGIN
            predicted[algorithm] = margin * curve.at(problem.bytes)
    if not predicted:
        return None
    chosen = min(predicted, key=predicted.__getitem__)
    fastest = min(measured, key=measured.__getitem__)
    return Choice(problem, chosen, measured[chosen], fastest, measured[fastest])


def choices(times: Times, smoothing: float, leave_one_out: bool) -> list[Choice]:
    shapes = {problem.shape for problem in times} if leave_one_out else {None}
    result = []
    for shape in shapes:
        curves = fit_all(_like(times, shape), smoothing, shape)
        for problem, measured in times.items():
            if shape in (None, problem.shape) and (choice := choose(problem, measured, curves)):
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


def recorded(times: Times, records: Iterable[Record]) -> list[Choice]:
    """What auto took when the records were made."""
    taken = {
        (
            record["operation"],
            record["dtype"],
            record["layout"],
            record["batch"],
            Shape(**record["shape"]),
        ): record["method"]
        for record in records
        if record["chosen_by"] == "auto"
    }
    result = []
    for problem, measured in times.items():
        key = (problem.operation, problem.dtype, problem.layout, problem.batch, problem.shape)
        method = taken.get(key)
        if method in measured:
            fastest = min(measured, key=measured.__getitem__)
            result.append(Choice(problem, method, measured[method], fastest, measured[fastest]))
    return result


def _mean_regret(made: Sequence[Choice]) -> float:
    return geomean(choice.regret for choice in made)


def cost(made: Sequence[Choice]) -> str:
    regrets = [choice.regret for choice in made]
    share = [sum(regret > limit for regret in regrets) / len(regrets) for limit in (1.03, 1.1)]
    return f"{_mean_regret(made):8.4f} {share[0]:8.1%} {share[1]:8.1%} {max(regrets):8.2f} {len(regrets):7d}"


_HEAD = f"{'geomean':>8} {'> 3 %':>8} {'> 10 %':>8} {'worst':>8} {'rows':>7}"


def report(made: Sequence[Choice], unseen: Sequence[Choice], worst: int) -> str:
    """Chosen over fastest by what a row is, with curves through all layers and without its own, and the
    worst rows."""
    kinds: dict[str, Callable[[Problem], str]] = {
        "operation": lambda problem: problem.operation,
        "dtype": lambda problem: problem.dtype,
        "layout": lambda problem: problem.layout,
        "batch": lambda problem: f"{problem.batch:4d}",
        "filter": lambda problem: f"{problem.shape.filter}, stride {problem.shape.stride}",
    }
    lines = [f"{'':30}{'all layers':>42}{'layer left out':>46}", f"{'':30} {_HEAD}    {_HEAD}"]
    for kind, value in kinds.items():
        for name in sorted({value(choice.problem) for choice in made}):
            costs = [cost([c for c in each if value(c.problem) == name]) for each in (made, unseen)]
            lines.append(f"{kind + ' ' + name:30} " + "    ".join(costs))
    for title, each in (("all layers", made), ("the layer left out", unseen)):
        lines.append(f"\nworst rows, {title}:")
        lines += map(_row, sorted(each, key=lambda choice: -choice.regret)[:worst])
    return "\n".join(lines)


def _row(choice: Choice) -> str:
    problem, shape = choice.problem, choice.problem.shape
    return (
        f"{choice.regret:6.2f}  {problem.operation} {problem.dtype} {problem.layout} batch {problem.batch} "
        f"{shape.in_channels}x{shape.size}x{shape.size} {shape.filter}x{shape.filter} stride {shape.stride}: "
        f"{choice.algorithm} {choice.us:.1f} us, {choice.fastest} {choice.fastest_us:.1f} us"
    )


def _order(entry: tuple[Series, int]) -> tuple[object, ...]:
    """As the planner compares: by the values of its enumerations."""
    name, index = entry
    enumerated = (
        OPERATIONS.index(name.operation),
        ("float32", "float64", "float16", "bfloat16").index(name.dtype),
        LAYOUTS.index(name.layout),
    )
    return (name.algorithm, *enumerated, name.filter, name.stride, index)


def _bandwidth(results: Results) -> float:
    """As the planner has it."""
    if str(results.environment["device"]).startswith("cpu"):
        return float(_libraries.core().Device.host_cpu(results.environment["threads"]).bandwidth_GBps)
    return results.ceilings["copy_GBps"]


def source(results: Results, paths: Sequence[Path], curves: Curves, name: str) -> str:
    """The C++ that csrc/select/measured.cpp includes."""
    environment = results.environment
    files = ", ".join(path.name for path in paths)
    lines = [
        f"// Written by python -m benchmarks.fit from {files} ({environment['device']}, torch "
        f"{environment['torch']}, {environment['date']});",
        "// not to be edited. Kernel, operation, dtype, layout, filter, stride, widest map; log2 of bytes at",
        "// the first time; microseconds, a doubling of the bytes from one to the next.",
        f"constexpr double {name}_GBps = {_bandwidth(results):g};",
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


def fit_device(paths: Sequence[Path], output: Path, worst: int) -> Path:
    """Fits the results of one device and writes its file."""
    results = load(paths[0])
    for path in paths[1:]:
        results.keep(path)
    device = str(results.environment["device"])
    records = list(results.records.values())
    times = measured_times(records, on_gpu=not device.startswith("cpu"))
    if not times:
        sys.exit(f"{device}: no record of depthwise layers has torch's time and a kernel's")
    print(f"{device}: {len(times)} problems, {sum(map(len, times.values()))} times\n")
    print(f"{'chosen over fastest':30} {_HEAD}")
    print(f"{'auto when it was measured':30} {cost(recorded(times, records))}")
    trials = {smoothing: choices(times, smoothing, True) for smoothing in SMOOTHING}
    for smoothing, made in trials.items():
        print(f"{f'layer left out, {smoothing} octaves':30} {cost(made)}")
    least = min(map(_mean_regret, trials.values()))
    fitted = {
        smoothing: choices(times, smoothing, False)
        for smoothing, unseen in trials.items()
        if _mean_regret(unseen) < least + SAME_COST
    }
    best = min(fitted, key=lambda smoothing: _mean_regret(fitted[smoothing]))
    print(f"{f'all layers, {best} octaves':30} {cost(fitted[best])}\n")
    print(report(fitted[best], trials[best], worst))
    name = re.sub(r"[^a-z0-9]+", "_", device.lower()).strip("_")
    target = output / f"{name}.inc"
    output.mkdir(parents=True, exist_ok=True)
    target.write_text(source(results, paths, fit_all(times, best), name))
    print(
        f"\n{target}: build convx again" + ("" if _listed(name) else "; list it in csrc/select/measured.cpp")
    )
    return target


def _listed(name: str) -> bool:
    table = MEASURED.parent / "measured.cpp"
    return f"measured/{name}.inc" in table.read_text()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit", description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="results of one device (default: all committed)")
    parser.add_argument("--output", type=Path, default=MEASURED, help="folder of the C++ files")
    parser.add_argument("--worst", type=int, default=10, help="rows to show")
    options = parser.parse_args(arguments)
    if options.files:
        fit_device(options.files, options.output, options.worst)
        return 0
    found = sorted(RESULTS.glob("*/depthwise_candidates.json"))
    if not found:
        parser.error(
            f"no */depthwise_candidates.json in {RESULTS}: python -m benchmarks --all-candidates writes it"
        )
    for path in found:
        fit_device([path], options.output, options.worst)
    return 0


if __name__ == "__main__":
    sys.exit(main())
