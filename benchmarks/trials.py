"""What settings of a model cost: the choices by its times, for layers left out and for the measured ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from benchmarks.choices import Choice, Times, choose, cost, mean_regret
from benchmarks.measured_layers import NOISES, REACHES, Samples
from benchmarks.suites import Problem

Series = TypeVar("Series")
Named = Iterable[tuple[str, Samples]]  # by the algorithm


@dataclass(frozen=True)
class Trial:
    reach: float
    noise: float
    unseen: list[Choice]  # each without the times of its layer
    seen: list[Choice]

    @property
    def regret(self) -> float:
        """For layers that were not measured, and for those that were."""
        return mean_regret(self.unseen) * mean_regret(self.seen)


def grouped(times: Times, series_of: Callable[[Problem, str], Series]) -> dict[Series, dict[Problem, float]]:
    groups: dict[Series, dict[Problem, float]] = {}
    for problem, measured in times.items():
        for algorithm, us in measured.items():
            groups.setdefault(series_of(problem, algorithm), {})[problem] = us
    return groups


def choices(times: Times, predicted: Iterable[tuple[str, Mapping[Problem, float]]]) -> list[Choice]:
    """By what is predicted of each algorithm."""
    by_problem: Times = {}
    for algorithm, members in predicted:
        for problem, us in members.items():
            by_problem.setdefault(problem, {})[algorithm] = us
    made = (choose(problem, measured, by_problem.get(problem, {})) for problem, measured in times.items())
    return [choice for choice in made if choice is not None]


def left_out(times: Times, samples: Named, reach: float | None, noise: float) -> list[Choice]:
    return choices(times, ((name, each.left_out(reach, noise)) for name, each in samples))


def fitted(samples: Samples, reach: float, noise: float) -> dict[Problem, float]:
    times = samples.fit(reach, noise).at(samples.problems)
    return dict(zip(samples.problems, times, strict=True))


def run(times: Times, samples: Named, model: str) -> list[Trial]:
    """Of all settings of the correction; prints what they cost."""
    samples = list(samples)
    title = f"layer left out{model}, "
    print(f"{title + 'no correction':50} {cost(left_out(times, samples, None, 0))}")
    trials = []
    for reach, noise in product(REACHES, NOISES):
        unseen = left_out(times, samples, reach, noise)
        seen = choices(times, ((name, fitted(each, reach, noise)) for name, each in samples))
        trials.append(Trial(reach, noise, unseen, seen))
        print(f"{title + f'reach {reach:g}, noise {noise:g}':50} {cost(unseen)}")
    return trials
