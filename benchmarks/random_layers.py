"""Times of every kernel on random layers, and the model of them that the planner goes by where nothing like a
layer was measured: `python -m benchmarks.random_layers --seed N --seconds S` measures, `--add FILE` takes
over results of the suite wild that have served, `--fit` writes csrc/choose/measured/<device>_random.inc.

The layers are of the kinds of the suite wild, which judges the model on seeds that it was not fitted to.
Torch's convolution tries all of cuDNN's algorithms, as there.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmarks import wild
from benchmarks.by_case import end_of, is_over
from benchmarks.choices import Choice, choose
from benchmarks.environment import device_slug, environment
from benchmarks.fit import MEASURED, heading_of, name_of, planned_device
from benchmarks.peers import tf32
from benchmarks.planner import core_problem, unfitted
from benchmarks.random_model import Model, Sample, Series, fit_all, series_of, source
from benchmarks.results import Record, Results, geomean, load
from benchmarks.suites import Case, Problem
from convx import _planning
from convx.tune import first_call, measuring

FOLDER = Path(__file__).resolve().parent / "fitted"
_KERNELS = 9  # of a problem, torch's convolution among them
_ROUNDS = 3
_FOLDS = 5
_ANY_CPU = 2.0  # of those with its instructions (csrc/choose/measured_machine.h)


def kernels_of(problem: Any, device: Any) -> list[str]:
    """The plan of each kernel that is predicted to be its fastest, torch's convolution first."""
    best: dict[str, str] = {}
    for name in measuring.plans_of(problem, device):
        if not name.startswith(measuring.GENERATED):
            best.setdefault(_kernel(name), name)
    return list(best.values())[:_KERNELS]


def measured(problem: Problem, device: torch.device) -> Record:
    core = core_problem(problem)
    with tf32(problem.tf32):
        wild.first_call_of_torch(problem, device)()
        plans = kernels_of(core, _planning.device(device))
        sampler = first_call.sampler_of(device)
        times = measuring.measured(core, device, plans, _ROUNDS, {}, sampler=sampler).candidates
    kernels = {_kernel(name): float(f"{us:.4g}") for name, us in times.items()}
    return problem.fields() | {"group": problem.case.group, "us": kernels}


def served(record: Record) -> Record:
    """What a row of the suite wild shows of its layer: torch's time, and that of the kernel which predictions
    took. The kernel which measuring took would count as faster than it is, for its luck in that."""
    us = {"native": record["peers_us"]["torch"]}
    if record["method"] != "native":
        us[record["method"]] = record["convx_us"]
    fields = ("case", "operation", "dtype", "tf32", "layout", "batch", "shape", "group")
    return {name: record[name] for name in fields} | {"us": us, "by": "wild"}


def problem_of(record: Record) -> Problem:
    fields: dict[str, Any] = record["shape"]
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    shape: Any = wild.AnyShape(**fields)
    case = Case(record["case"], record["group"], shape, (), ())
    which = (record[name] for name in ("operation", "dtype", "layout", "batch", "tf32"))
    return wild.RandomProblem(case, *which)


@dataclass(frozen=True)
class Expected:
    us: float
    doubt: float


@dataclass(frozen=True)
class Layer:
    """A problem with what was measured, and what the planner predicts without the model."""

    problem: Problem
    us: dict[str, float]
    planned: dict[str, Expected]
    is_whole: bool  # every kernel was measured

    def samples(self) -> Iterable[tuple[Series, Sample]]:
        """Of what the planner has no measured times for; torch's other ways come from no model."""
        for kernel, plan in self.planned.items():
            if kernel in self.us and not kernel.startswith("native/") and math.isinf(plan.doubt):
                yield series_of(self.problem, kernel), Sample(self.problem, plan.us, self.us[kernel])

    def choice(self, models: dict[Series, Model]) -> Choice:
        choice = choose(
            self.problem, self.us, {kernel: self._expected(kernel, models) for kernel in self.planned}
        )
        assert choice is not None  # torch's convolution is always measured
        return choice

    def _expected(self, kernel: str, models: dict[Series, Model]) -> Expected:
        plan, model = self.planned[kernel], models.get(series_of(self.problem, kernel))
        if model is None or math.isfinite(plan.doubt) or not model.has_seen(self.problem):
            return plan
        return Expected(model.at(self.problem, plan.us), model.doubt)


def _kernel(name: str) -> str:
    """Of a plan, without its tiling."""
    return name.partition(" ")[0]


def layer_of(record: Record, device: Any) -> Layer:
    problem = problem_of(record)
    if device.backend == "cpu":
        problem = replace(problem, tf32=False)
    plans = sorted(unfitted(core_problem(problem), device), key=lambda plan: -plan.predicted_us)
    planned = {_kernel(plan.name): Expected(plan.predicted_us, plan.doubt) for plan in plans}
    return Layer(problem, record["us"], planned, record.get("by") != "wild")


def models_of(layers: Iterable[Layer], margin: float) -> dict[Series, Model]:
    samples: dict[Series, list[Sample]] = {}
    for layer in layers:
        for series, sample in layer.samples():
            samples.setdefault(series, []).append(sample)
    return fit_all(samples, margin)


@dataclass(frozen=True)
class Judged:
    """Choices over torch's convolution."""

    times_faster: float
    slower: float  # the share that is by more than 2 %
    much_slower: float  # 10 %

    def __str__(self) -> str:
        return (
            f"{self.times_faster:.3f} times as fast as torch, slower by more than 2 % on {self.slower:.2%}, "
            f"by more than 10 % on {self.much_slower:.2%}"
        )


def judged(layers: Sequence[Layer], margin: float | None) -> Judged:
    """By models of other layers, or without any, where all kernels were measured."""
    over_torch = []
    for fold in range(_FOLDS):
        others = [layer for index, layer in enumerate(layers) if index % _FOLDS != fold]
        models = models_of(others, margin) if margin else {}
        own = (layer for layer in layers[fold::_FOLDS] if layer.is_whole)
        over_torch += [layer.choice(models).over_torch for layer in own]
    shares = (sum(ratio > bound for ratio in over_torch) / len(over_torch) for bound in (1.02, 1.1))
    return Judged(1 / geomean(over_torch), *shares)


def _measure(options: argparse.Namespace, device: torch.device, path: Path) -> None:
    arguments = ["--seed", str(options.seed), "--seconds", f"{options.seconds:g}"]
    command = " ".join(["python -m benchmarks.random_layers", *arguments])
    results = Results("random_layers", environment(device), command, {})
    results.keep(path)
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        _measure_all(options, device, path, results)
    finally:
        torch.backends.cudnn.benchmark = before


def _measure_all(options: argparse.Namespace, device: torch.device, path: Path, results: Results) -> None:
    until = end_of(options.seconds)
    with tqdm(wild.problems(options.seed, options.count, device.type), unit="layer", disable=None) as bar:
        for problem in bar:
            if is_over(until, options.seconds, bar):
                break
            try:
                results.add(measured(problem, device))
            except RuntimeError as error:  # of memory, say
                bar.write(f"{problem}: {error}")
            if device.type == "cuda":
                torch.cuda.empty_cache()
            if len(results.records) % 100 == 0:
                results.write(path)
    results.write(path)


def _add(path: Path, folder: Path) -> Path:
    """Rows of the suite wild to the measured times of the same machine."""
    wilds = load(path)
    command = f"python -m benchmarks.random_layers --add {path}"
    results = Results("random_layers", wilds.environment, command, {})
    target = folder / f"{path.parent.name}.json"
    results.keep(target)
    for record in wilds.records.values():
        results.add(served(record))
    results.write(target)
    return target


@dataclass(frozen=True)
class Fitted:
    """What --fit makes of the measured times of a machine."""

    name: str  # of the file with its models
    layers: list[Layer]
    margin: float
    text: str  # of that file


def fitted(path: Path) -> Fitted:
    results = load(path)
    margin = 1.0 if results.on_gpu else _ANY_CPU
    device = planned_device(results)
    if not results.on_gpu and not path.stem.endswith(device.isa):
        raise ValueError(
            f"{path} is of a CPU with other instructions than {device.isa}, and its model is of estimates "
            "for those: set CONVX_CPU_ISA, if this one has them"
        )
    layers = [layer_of(record, device) for record in results.records.values()]
    name = f"{name_of(results)}_random"
    heading = heading_of(results, [path], "benchmarks.random_layers --fit")
    text = source(models_of(layers, margin), device.bandwidth_GBps, heading, name)
    return Fitted(name, layers, margin, text)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.random_layers", description=(__doc__ or "").split("\n\n")[0]
    )
    add = parser.add_argument
    add("--seed", type=int, help="of the layers to measure; those of other seeds stay in the file")
    add("--count", type=int, default=5000, help="layers at most")
    add("--seconds", type=float, help="stop after this time")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--output", type=Path, default=FOLDER, help="folder of the measured times")
    add("--add", type=Path, metavar="FILE", help="results of the suite wild to take over")
    add("--fit", action="store_true", help="write the models of all results there are")
    options = parser.parse_args(arguments)
    if [options.fit, options.seed is not None, options.add is not None].count(True) != 1:
        parser.error("one of --seed, to measure, --add and --fit")
    if options.add is not None:
        print(f"{_add(options.add, options.output)}: fit again")
        return 0
    if options.fit:
        for path in sorted(options.output.glob("*.json")):
            try:
                made = fitted(path)
            except ValueError as error:
                print(f"left: {error}")
                continue
            target = MEASURED / f"{made.name}.inc"
            target.write_text(made.text)
            print(f"{path}: {len(made.layers)} layers")
            print(f"without a model: {judged(made.layers, None)}")
            print(f"by models of other layers: {judged(made.layers, made.margin)}")
            print(f"{target}: build convx again")
        return 0
    device = torch.device(options.device)
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
    _measure(options, device, options.output / f"{device_slug(device)}.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
