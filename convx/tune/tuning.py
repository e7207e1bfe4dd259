"""convx.tune: every plan of every method, measured on the problems that a model's layers have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from torch.nn import Module

from convx import _layers, _planning
from convx._errors import InvalidArgument
from convx._progress import progress_bar
from convx.explain import aligned
from convx.images.layers import FilterLayer
from convx.tune import generated, records
from convx.tune.measuring import GENERATED, is_filter, measured, plans_of, predicted

_OPERATIONS = ("forward", "input_grad", "weight_grad")


@dataclass(frozen=True)
class TunedProblem:
    """What became of one problem. Times in microseconds."""

    layers: str
    problem: str
    before: str
    """The plan that auto took by prediction."""
    before_us: float
    """Its measured time; infinite where it could not run."""
    winner: str
    us: float
    candidates: dict[str, float]
    """Every contender's time, by the plan's name."""
    is_new: bool
    """Measured now; otherwise read from a record."""

    @property
    def speedup(self) -> float:
        """What the choice gains over the prediction's."""
        return self.before_us / self.us


def _told_apart(plan: str, other: str) -> str:
    """A plan's name, with as much of its tiling as tells it from another plan of that name."""
    (name, *tiling), (other_name, *other_tiling) = plan.split(), other.split()
    differs = [each for each in tiling if each not in other_tiling] if name == other_name else []
    return " ".join([name, *differs])


@dataclass(frozen=True)
class TuningReport:
    """The problems of a model and their fastest plans, by whole name in rows; prints as a table."""

    rows: tuple[TunedProblem, ...]
    left: dict[str, str] = field(default_factory=dict)
    """The layers that can't be tuned, by name, and why."""

    def __str__(self) -> str:
        table = [("layers", "problem", "fastest", "time", "predicted best", "time", "")]
        for row in self.rows:
            note = "measured" if row.is_new else "recorded"
            first, *more = row.layers.split(", ")
            table.append(
                (
                    f"{first} and {len(more)} more" if more else first,
                    row.problem,
                    _told_apart(row.winner, row.before),
                    f"{row.us:.1f} us",
                    _told_apart(row.before, row.winner),
                    f"{row.before_us:.1f} us",
                    note,
                )
            )
        measured = sum(row.is_new for row in self.rows)
        total = (
            f"{len(self.rows)} problems, {measured} measured now, {len(self.rows) - measured} recorded before"
        )
        left = [f"left {name}: {reason}" for name, reason in self.left.items()]
        return "\n".join([*aligned(table), total, *left])


def tune(
    layer_or_model: Module,
    example_input: Any,
    *,
    operations: Sequence[str] = ("forward",),
    force: bool = False,
    rounds: int = 7,
    generate: bool = True,
    progress: bool = True,
) -> TuningReport:
    """Measure every plan of every method on a model's convolutions and filters, and let "auto" take the
    fastest.

    The model is run once on the example to learn its layers' inputs, in evaluation mode without gradients.
    Then each distinct problem is run by every plan that convx.explain lists, native among them, on random
    data; hopeless ones are stopped early. For pointwise layers on GPUs kernels are also generated, where
    NVRTC or hipRTC is there to compile them. The winner holds for that very problem (shape, dtype, layout,
    bias, activation, TF32 setting) on this device, at once and, through a record in the cache folder
    (CONVX_CACHE_DIR, else the user's), in later processes. Tuning that was interrupted goes on where it was.

    torch.use_deterministic_algorithms slows some of torch's own kernels: records are of the setting that they
    were measured under, and read for the one that holds when convx is imported. Call tune again after
    changing it; what has a record for the new setting is not measured again.

    Args:
        layer_or_model: torch's or convx's Conv2d and Conv1d, convx's Filter2d, GaussianBlur2d and Sobel2d, or
            a model that has some. Converting it is not needed, but only convx's layers use what was found.
        example_input: a tensor, a tuple of positional or a dict of keyword arguments.
        operations: of "forward", "input_grad" and "weight_grad", which to tune. Of filters forward alone is,
            each pass by itself; their gradients are convolutions.
        force: measure again what has a record.
        rounds: samples of each contender; their median counts.
        generate: let generated kernels take part.
        progress: show a bar, where tqdm is installed.

    Returns:
        TuningReport, one row per problem; prints as a table. Layers that no kernel can run, such as those of
        complex numbers, are left, with the reason.

    Raises:
        TypeError: layer_or_model is not a module, operations are no sequence, or rounds no int.
        convx.InvalidArgument: no such operation or none at all, rounds below 1, or no convolution or filter
        that is reached and can be tuned.

    After Liu et al. 2024, whose profiler times each candidate once.

    >>> import torch, convx
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 1), torch.nn.Conv2d(8, 8, 3, groups=8))
    >>> report = convx.tune(model, torch.randn(1, 4, 12, 12), rounds=2, progress=False)
    >>> [row.layers for row in report.rows]
    ['0', '1']
    >>> blur = convx.tune(convx.nn.GaussianBlur2d(1.0), torch.rand(3, 32, 32), rounds=2, progress=False)
    >>> [row.problem.split(", ")[1] for row in blur.rows]  # its two passes
    ['filter 7x1', 'filter 1x7']
    """
    _layers.require_module("layer_or_model", layer_or_model)
    operations = _checked_operations(operations)
    if not isinstance(rounds, Integral) or isinstance(rounds, bool):
        raise TypeError(f"rounds must be an int, got {rounds!r} ({type(rounds).__name__})")
    if rounds < 1:
        raise InvalidArgument(f"rounds must be at least 1, got {rounds}")
    problems, left = problems_of(layer_or_model, *_layers.arguments_of(example_input), operations)
    if left and not problems:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left.items())
        raise InvalidArgument(f"none of the model's layers can be tuned: {reasons}")
    if not problems:
        raise InvalidArgument(
            "the example input reaches no Conv1d or Conv2d of the model, nor a filter of convx.nn; there is "
            "nothing to tune"
        )
    rows = []
    with progress_bar(len(problems), "problem", progress) as shown:
        bar = _Bar(shown)
        for (problem, where), names in problems.items():
            bar.describe(", ".join(names))
            rows.append(
                tune_problem(problem, where, ", ".join(names), force, rounds, generate, bar.contender)
            )
            bar.step()
    return TuningReport(tuple(rows), left)


def _checked_operations(operations: Any) -> tuple[str, ...]:
    supported = ", ".join(_OPERATIONS)
    if isinstance(operations, str) or not isinstance(operations, Iterable):
        raise TypeError(f"operations must be a sequence, of {supported}, got {operations!r}")
    checked = tuple(operations)
    for operation in checked:
        if operation not in _OPERATIONS:
            raise InvalidArgument(f"operations must be of {supported}, got {operation!r}")
    if not checked:
        raise InvalidArgument(f"operations must be one or more of {supported}, got {operations!r}")
    return checked


def tune_problem(
    problem: Any,
    where: torch.device,
    name: str = "",
    force: bool = False,
    rounds: int = 7,
    generate: bool = True,
    tell: Callable[[int], Callable[[], None]] = lambda total: lambda: None,
) -> TunedProblem:
    """As tune, for one _core.Problem or _core.FilterProblem. tell is given the number of contenders, and
    returns what is called as each of them is done with."""
    device = _planning.device(where)
    known = None if force else records.find(problem, device)
    if known is not None and known.by != records.TUNE:
        known = None  # of fewer plans, more quickly
    # A plan of the record may be gone, or want another setting: then there is nothing that could be taken.
    if known is not None and records.restore(known) and known.algorithm in plans_of(problem, device):
        best = predicted(problem, device)
        us = known.candidates.get(best, float("inf"))
        return TunedProblem(
            name, problem.describe(), best, us, known.algorithm, known.us, known.candidates, False
        )
    before = predicted(problem, device)
    kernels: dict[str, Any] = {}
    if generate and device.backend != "cpu" and not is_filter(problem):
        problem_text = records.fields_text(records.problem_fields(problem))
        kernels = generated.offer(problem, device, problem_text)
    # Kernels of other calls have no place in the record, and generate may keep them out.
    plans = [name for name in plans_of(problem, device) if not name.startswith(GENERATED) or name in kernels]
    record = measured(problem, where, plans, rounds, kernels, tell)
    records.save(record)
    records.remember(record)
    before_us = record.candidates.get(before, float("inf"))
    return TunedProblem(
        name, problem.describe(), before, before_us, record.algorithm, record.us, record.candidates, True
    )


def problems_of(
    model: Module, args: Sequence[Any], kwargs: dict[str, Any], operations: Sequence[str]
) -> tuple[dict[tuple[Any, torch.device], list[str]], dict[str, str]]:
    """The distinct problems of a model's layers, with the names of the layers; and the names of layers that
    can't be tuned, with the reason."""
    names: dict[Module, list[str]] = {
        layer: each
        for layer, each in {**_layers.convolutions(model), **_layers.filters(model)}.items()
        if isinstance(layer, (torch.nn.Conv1d, torch.nn.Conv2d, FilterLayer))
    }
    found: dict[tuple[Any, torch.device], list[str]] = {}
    left: dict[str, str] = {}
    for layer, calls in _layers.record_calls(model, list(names), args, kwargs).items():
        for call in calls:
            for operation in _operations_of(layer, operations):
                try:
                    problems = _problems_of_call(layer, call, operation)
                except (TypeError, ValueError) as error:
                    left[", ".join(names[layer])] = str(error)
                    continue
                for problem in problems:
                    layers = found.setdefault((problem, call.device), [])
                    layers += [name for name in names[layer] if name not in layers]
    return found, left


def block_problems_of(
    model: Module, args: Sequence[Any], kwargs: dict[str, Any]
) -> list[tuple[Any, torch.device]]:
    """The distinct problems of a model's blocks that one kernel can run. Those inside of others come first:
    the others are held against them."""
    found: dict[tuple[Any, torch.device], None] = {}
    for block, calls in reversed(_layers.record_block_calls(model, args, kwargs).items()):
        for call in calls:
            problem = block.problem(call.size, call.dtype, call.channels_last)
            able, _ = _planning.core().supports(block.method, problem, _planning.device(call.device))
            if able:
                found[problem, call.device] = None
    return list(found)


def _operations_of(layer: Module, operations: Sequence[str]) -> Sequence[str]:
    """Of filters forward alone, where it is among them."""
    return ("forward",) if isinstance(layer, FilterLayer) and "forward" in operations else operations


def _problems_of_call(layer: Module, call: _layers.Call, operation: str) -> list[Any]:
    if call.device.type not in ("cpu", "cuda"):
        raise InvalidArgument(f"nothing can be measured on device '{call.device}'; supported: cpu, cuda")
    if not isinstance(layer, FilterLayer):
        return [_layers.problem(layer, call, operation)]
    if operation != "forward":
        raise InvalidArgument(f"a filter's {operation} is made of convolutions that no layer has")
    return _layers.filter_problems(layer, call)


class _Bar:
    """tqdm's bar over problems, with the contenders of the present one; nothing without a bar."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar

    def describe(self, text: str) -> None:
        if self._bar is not None:
            self._bar.set_description(text[:40])

    def step(self) -> None:
        if self._bar is not None:
            self._bar.update()

    def contender(self, total: int) -> Callable[[], None]:
        done = 0

        def advance() -> None:
            nonlocal done
            done += 1
            if self._bar is not None:
                self._bar.set_postfix_str(f"{done} of {total} plans")

        return advance
