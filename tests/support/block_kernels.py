"""Optimized models whose blocks are run by their kernels, wherever there is one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from convx import _core, _planning
from convx.optimize import optimizing
from convx.tune import records
from convx.tune.tuning import block_problems_of


@pytest.fixture
def kernels_are_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that has a kernel is run by it."""

    def choose(model: nn.Module, args: Any, kwargs: Any) -> tuple[records.Record, ...]:
        chosen = []
        for problem, where in block_problems_of(model, args, kwargs):
            device = _planning.device(where)
            plan = _core.candidates(problem.operation, problem, device)[0].name
            environment = records.environment_of(device)
            record = records.Record(environment, records.problem_fields(problem), plan, 1.0, {plan: 1.0})
            records.remember(record)
            chosen.append(record)
        return tuple(chosen)

    monkeypatch.setattr(optimizing, "choose", choose)


def runs(operator: str, model: nn.Module, x: Tensor) -> bool:
    """Whether the model calls convx's operator of that name."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen, torch.no_grad():
        model(x)
    return any(each.key == f"convx::{operator}" for each in seen.key_averages())
