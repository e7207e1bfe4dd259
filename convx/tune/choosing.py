"""Choices by measured times for a model that is about to be used: quicker than convx.tune, of fewer plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.nn import Module

from convx import _planning
from convx.tune import records
from convx.tune.measuring import measured, plans_of
from convx.tune.records import Record
from convx.tune.tuning import block_problems_of, problems_of

_MOST = 14  # plans of a problem, beside torch's
_MOST_OF_BLOCK = 12  # of two kernels whose predictions differ by as much as their times
_ROUNDS = 5


def choose(model: Module, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Record, ...]:
    """Lets layers and blocks of a model take the fastest of their likely plans, in this process; the choices.

    What convx.tune has found already stays.
    """
    problems, _ = problems_of(model, args, kwargs, ("forward",))
    chosen = []
    blocks = block_problems_of(model, args, kwargs)
    # Blocks last: their layers, which they are held against, have their plans then.
    for found, most in ((problems, _MOST), (blocks, _MOST_OF_BLOCK)):
        for problem, where in found:
            device = _planning.device(where)
            record = records.remembered(problem, device)
            if record is None or record.by == records.FIRST_CALL:  # which has looked at fewer
                record = measured(problem, where, plans_of(problem, device, most), _ROUNDS, {})
                records.remember(record)
            chosen.append(record)
    return tuple(chosen)
