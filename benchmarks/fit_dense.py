"""What the planner predicts dense convolutions with, from measured times; `python -m benchmarks.fit` runs it.

For every algorithm, torch's own convolution among them, operation, precision and layout: coefficients, none
of them negative, of what the parts of a problem would take at the device's full rates, and a correction from
the measured layers around the problem (benchmarks/dense_model.py); csrc/select/measured_dense.cpp reads both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.choices import (
    HEAD,
    Choice,
    Times,
    choose,
    cost,
    is_dense,
    mean_regret,
    measured_times,
    recorded,
    report,
)
from benchmarks.dense_model import Model, Rates, Samples, Series, series_of
from benchmarks.results import Results
from benchmarks.suites import LAYOUTS, OPERATIONS, Problem, Shape

Models = dict[Series, Model]

# Of the correction: its reach, in octaves, and how much of a residual is its layer's own.
REACHES = (2.0, 4.0, 8.0)
NOISES = (0.02, 0.1, 0.4)
# Of those that cost the same but for noise, the one that serves the measured layers best.
SAME_COST = 0.002
FEWEST_LAYERS = 3  # of an algorithm


def samples_of(times: Times, rates: Rates) -> dict[Series, Samples]:
    grouped: dict[Series, dict[Problem, float]] = {}
    for problem, measured in times.items():
        for algorithm, us in measured.items():
            grouped.setdefault(series_of(problem, algorithm), {})[problem] = us
    return {
        series: Samples(members, rates)
        for series, members in grouped.items()
        if len({problem.shape for problem in members}) >= FEWEST_LAYERS
    }


def choices(times: Times, predicted: Mapping[Series, Mapping[Problem, float]]) -> list[Choice]:
    result = []
    for problem, measured in times.items():
        known = {
            algorithm: us
            for algorithm in measured
            if (us := predicted.get(series_of(problem, algorithm), {}).get(problem)) is not None
        }
        if choice := choose(problem, measured, known):
            result.append(choice)
    return result


def fit_models(samples: Mapping[Series, Samples], reach: float, noise: float) -> Models:
    return {series: each.fit(reach, noise) for series, each in samples.items()}


def predictions(models: Models, rates: Rates) -> dict[Series, dict[Problem, float]]:
    """The times of what a model was made from."""
    return {
        series: dict(zip(model.problems, model.at(model.problems, rates), strict=True))
        for series, model in models.items()
    }


def _order(series: Series) -> tuple[object, ...]:
    enumerated = (
        OPERATIONS.index(series.operation),
        ("float32", "float64", "float16", "bfloat16").index(series.dtype),
        series.tf32,
        LAYOUTS.index(series.layout),
    )
    return (series.algorithm, *enumerated)


def source(models: Models, rates: Rates, heading: str, name: str) -> str:
    """The C++ that csrc/select/measured_dense.cpp includes."""
    layers: dict[tuple[int, Shape], int] = {}
    points: list[str] = []
    rows = []
    for series in sorted(models, key=_order):
        model = models[series]
        coefficients = ", ".join(f"{value:.6g}" for value in model.coefficients)
        layout = "nhwc" if series.layout == "channels_last" else series.layout
        rows.append(
            f'{{"{series.algorithm}", Operation::{series.operation}, DType::{series.dtype}, '
            f"{str(series.tf32).lower()}, Layout::{layout}, {{{coefficients}}}, {len(points)}, "
            f"{len(model.problems)}}},"
        )
        for problem, weight in zip(model.problems, model.weights, strict=True):
            index = layers.setdefault((problem.batch, problem.shape), len(layers))
            points.append(f"{{{index}, {weight:.5g}}}")
    places = [
        f"{{{batch}, {s.in_channels}, {s.size}, {s.out_channels}, {s.filter}, {s.stride}}}"
        for batch, s in layers
    ]
    return "\n".join(
        [
            heading,
            f"constexpr double {name}_GBps = {rates.bandwidth_GBps:g};",
            f"constexpr double {name}_reach = {next(iter(models.values())).reach:g};",
            "// Batch, input channels, height and width, output channels, filter, stride.",
            f"constexpr Layer {name}_layers[] = {{",
            *_wrapped(places),
            "};",
            "// A layer, and its weight in the correction.",
            f"constexpr Point {name}_points[] = {{",
            *_wrapped(points),
            "};",
            "// Coefficients of a launch, bytes of input, output and filters, products, a lane's sums, waves",
            "// of tiles of 32, 64 and 128. First point, number of points.",
            f"constexpr Series {name}[] = {{",
            *rows,
            "};\n",
        ]
    )


def _wrapped(entries: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for entry in entries:
        if lines and len(lines[-1]) + len(entry) < 108:
            lines[-1] += f" {entry},"
        else:
            lines.append(f"{entry},")
    return lines


def fit_device(results: Results, rates: Rates, heading: str, target: Path, worst: int) -> bool:
    """Fits the dense layers of one device's results and writes its file; False where there are none."""
    device = str(results.environment["device"])
    records = list(results.records.values())
    times = measured_times(records, not device.startswith("cpu"), is_dense)
    samples = samples_of(times, rates)
    if not samples:
        return False
    print(f"{device}, dense: {len(times)} problems, {len(samples)} series\n")
    print(f"{'chosen over fastest':34} {HEAD}")
    print(f"{'auto when it was measured':34} {cost(recorded(times, records))}")
    plain = {series: each.left_out(None, 0) for series, each in samples.items()}
    print(f"{'layer left out, no correction':34} {cost(choices(times, plain))}")
    trials: dict[tuple[float, float], list[Choice]] = {}
    for reach in REACHES:
        for noise in NOISES:
            unseen = {series: each.left_out(reach, noise) for series, each in samples.items()}
            trials[reach, noise] = choices(times, unseen)
            print(f"{f'layer left out, reach {reach:g}, noise {noise:g}':34} {cost(trials[reach, noise])}")
    least = min(map(mean_regret, trials.values()))
    fitted = {
        (reach, noise): choices(times, predictions(fit_models(samples, reach, noise), rates))
        for (reach, noise), unseen in trials.items()
        if mean_regret(unseen) < least + SAME_COST
    }
    best = min(fitted, key=lambda each: mean_regret(fitted[each]))
    print(f"{f'all layers, reach {best[0]:g}, noise {best[1]:g}':34} {cost(fitted[best])}\n")
    models = fit_models(samples, *best)
    print(report(fitted[best], trials[best], worst))
    _print_errors(samples, best)
    target.write_text(source(models, rates, heading, target.stem))
    return True


def _print_errors(samples: Mapping[Series, Samples], best: tuple[float, float]) -> None:
    print(f"\n{'error of the time, layer left out':60} {'typical':>8} {'layers':>7}")
    for series in sorted(samples, key=_order):
        each = samples[series]
        predicted = each.left_out(*best)
        errors = np.log([predicted[problem] for problem in each.problems]) - np.log(each.us)
        precision = "tf32" if series.tf32 else series.dtype
        name = f"{series.algorithm} {series.operation} {precision} {series.layout}"
        print(f"{name:60} {math.expm1(float(np.sqrt((errors**2).mean()))):8.1%} {each.layer.max() + 1:7d}")
