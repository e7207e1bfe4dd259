"""Plans of one problem, measured beside one another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from convx import _planning
from convx.tune import records
from convx.tune.operands import BlockOperands, ExciteOperands, FilterOperands, Operands
from convx.tune.profiler import Sampler, Timing, fastest, profile
from convx.tune.records import Record

GENERATED = "pointwise/generated"
_LIKELY = 3.0  # times the least predicted time, which a kernel's own may be for one that is as fast
# Of what they take alone. A block is one link of a network's chain; its layers are calls apart, and what they
# read comes from further away: 285 us of MobileNetV2's last block, 176 to 204 alone, and 188 of its kernel.
_LAYERS_OF_BLOCK = 1.2
_CUDNN = "native/fused"  # of whose kernels cuDNN takes one, the same for every such call


def is_filter(problem: Any) -> bool:
    return isinstance(problem, _planning.core().FilterProblem)


def plans_of(problem: Any, device: Any, most: int | None = None) -> list[str]:
    """Names of the plans that auto may take, native's first; or of native's and so many others.

    What auto takes untuned comes first of these, then the best plan of each kernel that may be as fast: those
    that were measured on layers like this one before estimates. Then come other tilings.
    """
    rows = _planning.core().explain(problem, device)
    offered = [plan for row in rows for plan in row.plans if not plan.by_name_only]
    offered.sort(key=lambda plan: plan.predicted_us)
    plans = {plan.name: plan for plan in reversed(offered)}
    names = list(dict.fromkeys(plan.name for plan in offered))
    names.sort(key=lambda name: plans[name].method != "native")
    if most is None:
        return names
    native = [name for name in names if plans[name].method == "native"]
    others = [name for name in names[len(native) :] if not name.startswith(GENERATED)]
    best = {name.partition(" ")[0]: name for name in reversed(others)}.values()
    bound = _LIKELY * min(plan.predicted_us for plan in plans.values())
    kernels = [name for name in best if plans[name].predicted_us < bound]
    kernels.sort(key=lambda name: (math.isinf(plans[name].doubt), plans[name].predicted_us))
    likely = dict.fromkeys([predicted(problem, device), *kernels, *others])
    return native + [name for name in likely if name in others][:most]


def predicted(problem: Any, device: Any) -> str:
    """The plan that auto takes without tuning."""
    return str(_planning.core().select_untuned(problem, device).plan.name)


def measured(
    problem: Any,
    where: torch.device,
    plans: Sequence[str],
    rounds: int,
    kernels: Mapping[str, Any],
    tell: Callable[[int], Callable[[], None]] = lambda total: lambda: None,
    by: str = records.TUNE,
    sampler: Sampler | None = None,
) -> Record:
    """The fastest of these plans.

    kernels: by the plan, what convx.tune.generated needs to have it again. sampler: as profile has it.
    """
    # What autocast would cast is not the problem, and no plan of the problem's could run it.
    with torch.no_grad(), torch.autocast(where.type, enabled=False):
        timings = _timings(problem, plans, where, rounds, tell, sampler)
    is_cpu_block = where.type == "cpu" and isinstance(problem, _planning.core().BlockProblem)
    winner = fastest(timings, _LAYERS_OF_BLOCK if is_cpu_block else 1.0)
    if winner is None:
        reasons = "; ".join(f"{each}: {timing.failure}" for each, timing in timings.items())
        raise RuntimeError(f"nothing can run {problem.describe()}: {reasons}")
    times = {each: timing.us for each, timing in timings.items() if timing.samples}
    return Record(
        records.environment_of(_planning.device(where)),
        records.problem_fields(problem),
        winner,
        times[winner],
        dict(sorted(times.items(), key=lambda item: item[1])),
        kernels.get(winner),
        by,
    )


def _timings(
    problem: Any,
    plans: Sequence[str],
    where: torch.device,
    rounds: int,
    tell: Callable[[int], Callable[[], None]],
    sampler: Sampler | None,
) -> dict[str, Timing]:
    kinds: dict[str, Any] = {
        "FilterProblem": FilterOperands,
        "BlockProblem": BlockOperands,
        "ExciteProblem": ExciteOperands,
    }
    operands: Any = kinds.get(type(problem).__name__, Operands)(problem, where)
    failures: dict[str, Timing] = {}
    contenders = {}
    for name in plans:
        try:
            contenders[name] = operands.call(name)
            if name.startswith(GENERATED):
                operands.require_right(contenders[name])
            if name == _CUDNN:
                operands.require_nan(contenders[name])
        except Exception as error:  # a plan whose filters can't be packed, a kernel that does not load
            contenders.pop(name, None)
            failures[name] = Timing(failure=f"{type(error).__name__}: {error}")
    timings = profile(contenders, where, operands.sets, rounds, tell(len(contenders)), sampler)
    return {**timings, **failures}
