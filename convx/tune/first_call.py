"""Choices by measured times at the first call of a problem, where torch.backends.cudnn.benchmark is set.

torch's users ask by that setting for convolutions that are chosen by their times at the first call of each
shape, in which cuDNN then takes some milliseconds. With it "auto" does as much: torch's own convolution and
the plans that are predicted to be the fastest, on operands of its own. What was found holds for the process
and, by the records of convx.tune, for later ones.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch

from convx import _libraries, _planning
from convx._errors import reason_of
from convx.tune import records
from convx.tune.folder import warn_once
from convx.tune.measuring import measured, plans_of
from convx.tune.profiler import Sampler
from convx.tune.replays import InNetwork, Queued

_MOST = 4  # plans, beside torch's
_ROUNDS = 5
_TORCH = "native"
# A lead over torch's convolution that holds in a graph too; shorter ones are measured there.
_FAR, _FAR_US = 0.25, 1.5
_alone = threading.Lock()  # measurements would be in one another's times


def register() -> None:
    """Lets convx._front ask."""
    if not _libraries.core_problem():
        _libraries.core().set_measure_first(measure)


def found(problem: Any, where: torch.device) -> records.Record:
    """The fastest of the likely plans of a _core.Problem; nothing is remembered."""
    plans = plans_of(problem, _planning.device(where), _MOST)
    record = measured(problem, where, plans, _ROUNDS, {}, by=records.FIRST_CALL, sampler=sampler_of(where))
    torch_us = record.candidates.get(_TORCH, 0.0)
    lead_us = torch_us - record.us
    if where.type == "cpu" or record.algorithm == _TORCH or lead_us > max(_FAR_US, _FAR * torch_us):
        return record
    # Of 833 random layers on an H200, 23 that were behind torch's in a graph were ahead in the queue, most of
    # them by less than a microsecond.
    return measured(problem, where, [_TORCH, record.algorithm], _ROUNDS, {}, by=records.FIRST_CALL)


def sampler_of(where: torch.device) -> Sampler | None:
    """Takes little time before the first sample; None on a CPU, where every one does."""
    return _network(where).timer if where.type == "cuda" else None


@functools.cache
def _network(where: torch.device) -> InNetwork:
    with torch.inference_mode(False):  # tensors made under it could not be written to later, without
        return InNetwork(where, lambda call: Queued(call, where))


def measure(problem: Any, device_index: int) -> None:
    """Remembers the fastest plan of a _core.Problem on the GPU with that index, or the CPU where it is below
    zero, if nothing is remembered yet. A measurement that fails leaves the choice to predictions."""
    where = torch.device("cpu") if device_index < 0 else torch.device("cuda", device_index)
    device = _planning.device(where)
    with _alone:
        if records.remembered(problem, device) is not None:
            return
        try:
            record = found(problem, where)
        except RuntimeError as error:  # of memory, say
            warn_once(
                f"first call on {where.type}",
                f"convx could not measure {problem.describe()} at its first call, as "
                f"torch.backends.cudnn.benchmark asks, and goes by predictions: {reason_of(error)}",
            )
            return
        records.save(record)
        records.remember(record)
