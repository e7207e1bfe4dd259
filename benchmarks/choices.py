"""Measured times of all algorithms, and what it costs to choose one by predicted times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.results import Record, geomean, precision
from benchmarks.suites import Case, Problem, Shape

# convx is taken where torch is predicted to be faster by less (csrc/select/select.cpp).
NATIVE_MARGIN = 0.98

Times = dict[Problem, dict[str, float]]  # microseconds of every algorithm that was measured


def is_depthwise(shape: Shape) -> bool:
    return shape.in_channels == shape.out_channels == shape.groups


def is_dense(shape: Shape) -> bool:
    return shape.groups == 1 and shape.in_channels > 1


def problem_of(record: Record) -> Problem:
    """Whatever its layer is called."""
    case = Case("", "", Shape(**record["shape"]), (), ())
    return Problem(
        case,
        record["operation"],
        record["dtype"],
        record["layout"],
        record["batch"],
        record.get("tf32", False),
    )


def measured_times(records: Iterable[Record], on_gpu: bool, wanted: Callable[[Shape], bool]) -> Times:
    """Times on the wanted layers. Native has those of torch's convolution in the same layout on GPUs, and
    where it was not measured itself; its product those of torch's on GPUs where it was not."""
    torchs: dict[Problem, float] = {}
    products: dict[Problem, set[float]] = {}
    samples: dict[Problem, dict[str, list[float]]] = {}
    for record in records:
        if "shape" not in record or not wanted(Shape(**record["shape"])) or (on_gpu and record["warm"]):
            continue
        times = samples.setdefault(problem_of(record), {})
        times.setdefault(record["method"], []).append(record["convx_us"])
        if record["chosen_by"] == "auto" and "torch" in record["peers_us"]:
            torchs[problem_of(record)] = record["peers_us"]["torch"]
        if on_gpu and "matmul" in record["peers_us"]:
            products.setdefault(problem_of(record), set()).add(record["peers_us"]["matmul"])
    for problem, several in products.items():
        samples[problem].setdefault("native/matmul", sorted(several))
    for problem, us in torchs.items():
        if on_gpu or "native" not in samples[problem]:
            samples[problem].setdefault("native", []).append(us)
    return {
        problem: {name: geomean(values) for name, values in times.items()}
        for problem, times in samples.items()
        if len(times) > 1
    }


@dataclass(frozen=True)
class Choice:
    """What was chosen for a problem, beside the fastest."""

    problem: Problem
    algorithm: str
    us: float
    fastest: str
    fastest_us: float

    @property
    def regret(self) -> float:
        return self.us / self.fastest_us


def choice_of(problem: Problem, measured: Mapping[str, float], algorithm: str) -> Choice:
    fastest = min(measured, key=measured.__getitem__)
    return Choice(problem, algorithm, measured[algorithm], fastest, measured[fastest])


def choose(problem: Problem, measured: Mapping[str, float], predicted: Mapping[str, float]) -> Choice | None:
    """As the planner does."""
    if not predicted:
        return None
    margins = {
        name: us * (1 if name.partition("/")[0] == "native" else NATIVE_MARGIN)
        for name, us in predicted.items()
    }
    return choice_of(problem, measured, min(margins, key=margins.__getitem__))


def recorded(times: Times, records: Iterable[Record]) -> list[Choice]:
    """What auto took when the records were made."""
    taken = {
        problem_of(record): record["method"]
        for record in records
        if record.get("chosen_by") == "auto" and "shape" in record
    }
    return [
        choice_of(problem, measured, taken[problem])
        for problem, measured in times.items()
        if taken.get(problem) in measured
    ]


def mean_regret(made: Iterable[Choice]) -> float:
    return geomean(choice.regret for choice in made)


HEAD = f"{'geomean':>8} {'> 5 %':>8} {'> 10 %':>8} {'worst':>8} {'rows':>7}"


def cost(made: Sequence[Choice]) -> str:
    regrets = [choice.regret for choice in made]
    share = [sum(regret > limit for regret in regrets) / len(regrets) for limit in (1.05, 1.1)]
    return f"{mean_regret(made):8.4f} {share[0]:8.1%} {share[1]:8.1%} {max(regrets):8.2f} {len(regrets):7d}"


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
    lines = [f"{'':30}{'all layers':>42}{'layer left out':>46}", f"{'':30} {HEAD}    {HEAD}"]
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
