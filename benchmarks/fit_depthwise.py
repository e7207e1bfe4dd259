"""What the planner predicts depthwise convolutions with, from measured times; `python -m benchmarks.fit` runs
it.

For every algorithm, torch's own convolution among them, operation, dtype, layout, filter and stride: curves
of time over bytes, one for each range of widths, and a correction from the measured layers around the problem
(benchmarks/depthwise_model.py); csrc/choose/measured.cpp reads both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.choices import HEAD, Times, cost, measured_times, recorded, report
from benchmarks.curves import WIDEST
from benchmarks.depthwise_model import Model, Samples, Series, series_of
from benchmarks.planner_source import LayerTable, enumerators, order
from benchmarks.results import Results
from benchmarks.suites import Shape
from benchmarks.trials import grouped, run

Models = dict[Series, Model]

SMOOTHING = (0.4, 0.6, 0.8, 1.1, 1.5)  # octaves of bytes


def samples_of(times: Times, smoothing: float) -> dict[Series, Samples]:
    return {series: Samples(members, smoothing) for series, members in grouped(times, series_of).items()}


def _order(series: Series) -> tuple[object, ...]:
    enumerated = order(series.operation, series.dtype, series.layout)
    return (series.algorithm, *enumerated, series.filter, series.stride)


def source(models: Models, bandwidth_GBps: float, heading: str, name: str) -> str:
    """The C++ that csrc/choose/measured.cpp includes."""
    table = LayerTable()
    rows = []
    for series in sorted(models, key=_order):
        model = models[series]
        points = table.add(model.correction)
        for index, curve in sorted(model.curves.items()):
            enumerated = ", ".join(enumerators(series.operation, series.dtype, series.layout))
            times = ", ".join(f"{time:g}" for time in curve.us)
            rows.append(
                f'{{"{series.algorithm}", {enumerated}, {series.filter}, {series.stride}, {WIDEST[index]}, '
                f"{points}, {curve.first_octave}, {len(curve.us)}, {{{times}}}}},"
            )
    return "\n".join(
        [
            heading,
            f"constexpr double {name}_GBps = {bandwidth_GBps:g};",
            *table.lines(name, next(iter(models.values())).correction.reach),
            "// Kernel, operation, dtype, layout, filter, stride, widest map; first point, number of points;",
            "// log2 of bytes at the first time; microseconds, a doubling of the bytes from one to the next.",
            f"constexpr Curve {name}[] = {{",
            *rows,
            "};\n",
        ]
    )


def fit_device(
    results: Results,
    wanted: Callable[[Shape], bool],
    bandwidth_GBps: float,
    heading: str,
    target: Path,
    worst: int,
) -> bool:
    """Fits the wanted layers, depthwise or of one channel, of one device's results and writes its file; False
    where there are none."""
    device = str(results.environment["device"])
    records = list(results.records.values())
    times = measured_times(records, results.on_gpu, wanted)
    if not times:
        return False
    print(f"{device}, {target.stem}: {len(times)} problems, {sum(map(len, times.values()))} times\n")
    print(f"{'chosen over fastest':50} {HEAD}")
    if made := recorded(times, records):
        print(f"{'auto when it was measured':50} {cost(made)}")
    samples = {smoothing: samples_of(times, smoothing) for smoothing in SMOOTHING}
    trials = [
        (smoothing, trial)
        for smoothing, members in samples.items()
        for trial in run(
            times, ((series.algorithm, each) for series, each in members.items()), f", {smoothing} octaves"
        )
    ]
    smoothing, best = min(trials, key=lambda trial: trial[1].regret)
    title = f"all layers, {smoothing} octaves, reach {best.reach:g}, noise {best.noise:g}"
    print(f"{title:50} {cost(best.seen)}\n")
    print(report(best.seen, best.unseen, worst))
    models = {series: each.fit(best.reach, best.noise) for series, each in samples[smoothing].items()}
    target.write_text(source(models, bandwidth_GBps, heading, target.stem))
    return True
