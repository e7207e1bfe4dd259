"""Measured times of all algorithms, and what it costs to choose one by predicted times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.results import Record, geomean, precision
from benchmarks.suites import DTYPES, Case, Problem, Shape

Times = dict[Problem, dict[str, float]]  # microseconds of every algorithm that was measured

# What a call of torch's matrix products takes an H200's host, in eager mode: 2 to 6 us more than its
# convolution in forward; 15 to 50 us in a gradient, which is a call of its own then. Kernels that end sooner
# gain nothing there.
_PRODUCT_CALL_US = {"forward": 20.0, "input_grad": 50.0, "weight_grad": 50.0}


class Predicted(Protocol):
    """What a choice is made by."""

    @property
    def us(self) -> float: ...
    @property
    def doubt(self) -> float: ...


@dataclass(frozen=True)
class Prediction:
    """Of an algorithm on a problem."""

    us: float
    nearest: float  # octaves to the nearest problem that it is predicted from

    @property
    def doubt(self) -> float:
        """What the time may be, in us, and still be no surprise (csrc/choose/measured_machine.h)."""
        return 1.02 + 0.375 * self.nearest


def is_depthwise(shape: Shape) -> bool:
    return 1 < shape.in_channels == shape.out_channels == shape.groups


def is_image(shape: Shape) -> bool:
    """One channel, filtered once."""
    return shape.in_channels == shape.out_channels == 1


def is_dense(shape: Shape) -> bool:
    return shape.groups == 1 and shape.in_channels > 1


def shape_of(record: Record) -> Shape:
    fields = record["shape"]
    if "in_channels" in fields:
        return Shape(**fields)
    return Shape(1, fields["size"], 1, fields["filter"], 1, 1)  # of the suite filter2d


def problem_of(record: Record) -> Problem:
    """Whatever its layer is called."""
    case = Case("", "", shape_of(record), (), ())
    return Problem(
        case,
        record["operation"],
        record["dtype"],
        record["layout"],
        record["batch"],
        record.get("tf32", False),
    )


def is_convolution(record: Record) -> bool:
    """Not of bytes, nor of what a call costs."""
    return record["dtype"] in DTYPES and record["method"] != "call" and "shape" in record


def measured_times(records: Iterable[Record], on_gpu: bool, wanted: Callable[[Shape], bool]) -> Times:
    """Times on the wanted layers. Native has those of torch's convolution in the same layout on GPUs, and
    where it was not measured itself; its product those of torch's on GPUs where it was not, and there no
    product takes less than its call."""
    torchs: dict[Problem, set[float]] = {}
    products: dict[Problem, set[float]] = {}
    samples: dict[Problem, dict[str, list[float]]] = {}
    for record in records:
        if not is_convolution(record) or not wanted(shape_of(record)):
            continue
        problem = problem_of(record)
        times = samples.setdefault(problem, {})
        if "/" in record["method"] or record["method"] == "native":
            times.setdefault(record["method"], []).append(record["convx_us"])
        if "torch" in record["peers_us"]:
            torchs.setdefault(problem, set()).add(record["peers_us"]["torch"])
        if on_gpu and "matmul" in record["peers_us"]:
            products.setdefault(problem, set()).add(record["peers_us"]["matmul"])
    for problem, several in products.items():
        samples[problem].setdefault("native/matmul", sorted(several))
    for problem, several in torchs.items():
        if on_gpu or "native" not in samples[problem]:
            samples[problem].setdefault("native", []).extend(sorted(several))
    found = {
        problem: {name: geomean(values) for name, values in times.items()}
        for problem, times in samples.items()
        if len(times) > 1
    }
    for problem, means in found.items() if on_gpu else ():
        for product in {"native/matmul", "native/im2col"} & means.keys():
            means[product] = max(means[product], _PRODUCT_CALL_US[problem.operation])
    return found


@dataclass(frozen=True)
class Choice:
    """What was chosen for a problem, beside the fastest."""

    problem: Problem
    algorithm: str
    us: float
    fastest: str
    fastest_us: float
    torch_us: float  # of torch's convolution

    @property
    def regret(self) -> float:
        return self.us / self.fastest_us

    @property
    def over_torch(self) -> float:
        return self.us / self.torch_us


def choice_of(problem: Problem, measured: Mapping[str, float], algorithm: str) -> Choice:
    fastest = min(measured, key=measured.__getitem__)
    return Choice(
        problem, algorithm, measured[algorithm], fastest, measured[fastest], measured.get("native", math.nan)
    )


def choose(
    problem: Problem, measured: Mapping[str, float], predicted: Mapping[str, Predicted]
) -> Choice | None:
    """As the planner does: torch's convolution, unless something is predicted to be ahead of it in spite of
    what predictions may be off by."""
    torch = predicted.get("native")
    if "native" not in measured:
        return None
    ahead = {
        name: each.us
        for name, each in predicted.items()
        if torch is not None and name in measured and each.us * max(each.doubt, torch.doubt) < torch.us
    }
    return choice_of(problem, measured, min(ahead, key=ahead.__getitem__, default="native"))


def recorded(times: Times, records: Iterable[Record]) -> list[Choice]:
    """What auto took when the records were made."""
    taken = {
        problem_of(record): record["method"]
        for record in records
        if record.get("chosen_by") == "auto" and is_convolution(record)
    }
    return [
        choice_of(problem, measured, taken[problem])
        for problem, measured in times.items()
        if taken.get(problem) in measured
    ]


def mean_regret(made: Iterable[Choice]) -> float:
    return geomean(choice.regret for choice in made)


HEAD = (
    f"{'geomean':>8} {'> 5 %':>8} {'> 10 %':>8} {'worst':>8} {'over torch 2 %':>14} {'10 %':>6} {'rows':>7}"
)


def cost(made: Sequence[Choice]) -> str:
    """Of the choices over the fastest; the share that is slower than torch's convolution by 2 and 10 %."""
    regrets, over = [choice.regret for choice in made], [choice.over_torch for choice in made]

    def share(values: Sequence[float], limit: float) -> float:
        return sum(value > limit for value in values) / len(values)

    shares = f"{share(regrets, 1.05):8.1%} {share(regrets, 1.1):8.1%} {max(regrets):8.2f}"
    over_torch = f"{share(over, 1.02):12.2%} {share(over, 1.1):7.2%}"
    return f"{mean_regret(made):8.4f} {shares} {over_torch} {len(regrets):7d}"


def report(made: Sequence[Choice], unseen: Sequence[Choice], worst: int) -> str:
    """Chosen over fastest by what a row is, predicted from all layers and without its own, and the worst
    rows."""
    kinds: dict[str, Callable[[Problem], str]] = {
        "operation": lambda problem: problem.operation,
        "dtype": lambda problem: precision(problem.fields()),
        "layout": lambda problem: problem.layout,
        "batch": lambda problem: f"{problem.batch:4d}",
        "filter": lambda problem: f"{problem.shape.filter}, stride {problem.shape.stride}",
    }
    lines = [f"{'':30}{'all layers':>65}{'layer left out':>68}", f"{'':30} {HEAD}    {HEAD}"]
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
        f"{choice.regret:6.2f}  {problem.operation} {precision(problem.fields())} {problem.layout} "
        f"batch {problem.batch} {shape.in_channels}x{shape.size}x{shape.size} to {shape.out_channels}, "
        f"{shape.filter}x{shape.filter} stride {shape.stride}: "
        f"{choice.algorithm} {choice.us:.1f} us, {choice.fastest} {choice.fastest_us:.1f} us"
    )
