"""torch.compile(backend="convx") with blocks by their kernels, wherever there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from compiled import take_all

from convx import _core, _planning
from convx.compile.watch import CompiledGraph, watched
from convx.tune import first_call, records

OPERATIONS = ("inverted_residual", "squeeze_excite")


def remember_kernel(problem: Any, where: torch.device, faster: bool = True, which: int = 0) -> None:
    """As if the kernel of that place had been measured beside its layers."""
    device = _planning.device(where)
    plans = _core.candidates(problem.operation, problem, device)
    kernel = plans[min(which, len(plans) - 1)].name
    times = {kernel: 1.0, "native": 2.0} if faster else {kernel: 2.0, "native": 1.0}
    environment, fields = records.environment_of(device), records.problem_fields(problem)
    records.remember(records.Record(environment, fields, min(times, key=times.__getitem__), 1.0, times))


def measures_kernels(which: int = 0) -> Callable[[Any, int], None]:
    """In the place of first_call.measure: that kernel of a block is faster than its layers."""

    def measure(problem: Any, index: int) -> None:
        where = torch.device("cpu") if index < 0 else torch.device("cuda", index)
        is_known = records.remembered(problem, _planning.device(where)) is not None
        if problem.operation in OPERATIONS and not is_known:
            remember_kernel(problem, where, which=which)

    return measure


@pytest.fixture
def kernels_are_measured(monkeypatch: pytest.MonkeyPatch, own_folder: object) -> None:
    """Blocks are by their kernels, other layers by what take_all has them take."""
    take_all(monkeypatch)
    monkeypatch.setattr(first_call, "measure", measures_kernels())
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)


@pytest.fixture
def seen() -> Iterator[list[CompiledGraph]]:
    """The graphs that a test has compiled."""
    with watched() as found:
        yield found


def blocks_of(seen: list[CompiledGraph]) -> list[list[str]]:
    """Methods of the blocks of each graph."""
    return [[row.problem.operation for row in each.rewritten.blocks] for each in seen]
