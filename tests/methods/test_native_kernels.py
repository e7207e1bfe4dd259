"""What convx leaves to torch runs torch's kernels and no others: random layers, three operations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks import wild
from benchmarks.operands import operands
from benchmarks.peers import convx_function, torch_function


def kernels(call: Callable[[], Tensor]) -> list[str]:
    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        call()
        torch.cuda.synchronize()
    return [event.name for event in profiled.events() if event.device_type == torch.autograd.DeviceType.CUDA]


@pytest.mark.gpu
def test_native_launches_torchs_kernels_alone() -> None:
    device = torch.device("cuda")
    for problem in wild.problems(7, 36):
        pair = operands(problem, 1, device)[0]
        own = convx_function(problem, "native", on_gpu=True)
        torchs = torch_function(problem, problem.layout, device)
        expected = kernels(lambda: torchs(*pair))  # noqa: B023
        assert expected, "the profiler saw nothing"
        assert kernels(lambda: own(*pair)) == expected, problem  # noqa: B023
