"""What the planner predicts dense convolutions with, from measured times; `python -m benchmarks.fit` runs it.

For every algorithm, torch's own convolution among them, operation, precision and layout: coefficients, none
of them negative, of what the parts of a problem would take at the device's full rates, and a correction from
the measured layers around the problem (benchmarks/dense_model.py); csrc/choose/measured_dense.cpp reads both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.choices import HEAD, Times, cost, is_dense, measured_times, recorded, report
from benchmarks.dense_model import Model, Rates, Samples, Series, series_of
from benchmarks.planner import variant_of
from benchmarks.planner_source import LayerTable, enumerators, order
from benchmarks.results import Results
from benchmarks.suites import Problem
from benchmarks.trials import Trial, grouped, run

Models = dict[Series, Model]

FEWEST_LAYERS = 3  # of an algorithm


def samples_of(times: Times, rates: Rates, device: Any) -> dict[Series, Samples]:
    """device: of the planner's."""

    def series(problem: Problem, algorithm: str) -> Series:
        return series_of(problem, algorithm, variant_of(problem, algorithm, device))

    return {
        series: Samples(members, rates)
        for series, members in grouped(times, series).items()
        if len({problem.shape for problem in members}) >= FEWEST_LAYERS
    }


def _order(series: Series) -> tuple[object, ...]:
    operation, dtype, layout = order(series.operation, series.dtype, series.layout)
    return (series.name, operation, dtype, series.tf32, layout)


def source(models: Models, rates: Rates, heading: str, name: str) -> str:
    """The C++ that csrc/choose/measured_dense.cpp includes."""
    table = LayerTable()
    rows = []
    for series in sorted(models, key=_order):
        model = models[series]
        coefficients = ", ".join(f"{value:.6g}" for value in model.coefficients)
        operation, dtype, layout = enumerators(series.operation, series.dtype, series.layout)
        rows.append(
            f'{{"{series.name}", {operation}, {dtype}, {str(series.tf32).lower()}, {layout}, '
            f"{{{coefficients}}}, {table.add(model.correction)}}},"
        )
    return "\n".join(
        [
            heading,
            f"constexpr double {name}_GBps = {rates.bandwidth_GBps:g};",
            *table.lines(name, next(iter(models.values())).correction.reach),
            "// Coefficients of a launch, bytes of input, output and filters, products, a lane's sums, waves",
            "// of tiles of 32, 64 and 128. First point, number of points.",
            f"constexpr Series {name}[] = {{",
            *rows,
            "};\n",
        ]
    )


def fit_device(results: Results, device: Any, rates: Rates, heading: str, target: Path, worst: int) -> bool:
    """Fits the dense layers of one device's results and writes its file; False where there are none."""
    name = str(results.environment["device"])
    records = list(results.records.values())
    times = measured_times(records, results.on_gpu, is_dense)
    samples = samples_of(times, rates, device)
    if not samples:
        return False
    print(f"{name}, dense: {len(times)} problems, {len(samples)} series\n")
    print(f"{'chosen over fastest':50} {HEAD}")
    if made := recorded(times, records):
        print(f"{'auto when it was measured':50} {cost(made)}")
    trials = run(times, ((series.algorithm, each) for series, each in samples.items()), "")
    best = min(trials, key=lambda trial: trial.regret)
    print(f"{f'all layers, reach {best.reach:g}, noise {best.noise:g}':50} {cost(best.seen)}\n")
    print(report(best.seen, best.unseen, worst))
    _print_errors(samples, best)
    models = {series: each.fit(best.reach, best.noise) for series, each in samples.items()}
    target.write_text(source(models, rates, heading, target.stem))
    return True


def _print_errors(samples: Mapping[Series, Samples], best: Trial) -> None:
    print(f"\n{'error of the time, layer left out':60} {'typical':>8} {'layers':>7}")
    for series in sorted(samples, key=_order):
        each = samples[series]
        predicted = each.left_out(best.reach, best.noise)
        errors = np.log([predicted[problem] for problem in each.problems]) - np.log(each.us)
        precision = "tf32" if series.tf32 else series.dtype
        name = f"{series.name} {series.operation} {precision} {series.layout}"
        print(f"{name:60} {math.expm1(float(np.sqrt((errors**2).mean()))):8.1%} {each.layer.max() + 1:7d}")
