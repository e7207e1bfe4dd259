"""What settings of a model cost: the choices by its times, for layers left out and for the measured ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from benchmarks.choices import Choice, Prediction, Times, choose, cost, mean_regret
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


def choices(times: Times, predicted: Iterable[tuple[str, Mapping[Problem, Prediction]]]) -> list[Choice]:
    """By what is predicted of each algorithm."""
    by_problem: dict[Problem, dict[str, Prediction]] = {}
    for algorithm, members in predicted:
        for problem, prediction in members.items():
            by_problem.setdefault(problem, {})[algorithm] = prediction
    made = (choose(problem, measured, by_problem.get(problem, {})) for problem, measured in times.items())
    return [choice for choice in made if choice is not None]


def _unseen(samples: Samples, reach: float | None, noise: float) -> dict[Problem, Prediction]:
    nearest = samples.nearest_others()
    return {
        problem: Prediction(us, nearest[problem])
        for problem, us in samples.left_out(reach, noise).items()
        if nearest[problem] <= samples.farthest
    }


def left_out(times: Times, samples: Named, reach: float | None, noise: float) -> list[Choice]:
    return choices(times, ((name, _unseen(each, reach, noise)) for name, each in samples))


def fitted(samples: Samples, reach: float, noise: float) -> dict[Problem, Prediction]:
    times = samples.fit(reach, noise).at(samples.problems)
    return {problem: Prediction(us, 0) for problem, us in zip(samples.problems, times, strict=True)}


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
