"""What this device can do at best, and the floor that puts under a problem."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.suites import Problem

# Measured once by a long run (elementwise traffic, matmul), so that floors of one device are the same in
# all results. Other devices are measured at the start of a run.
_KNOWN = {
    "NVIDIA H200": {
        "copy_GBps": 4210.0,
        "fma_fp32_TFLOPs": 51.0,
        "tf32_TFLOPs": 390.0,
        "bf16_TFLOPs": 731.0,
    }
}


def ceilings(device: torch.device) -> dict[str, float]:
    """Floors are computed from copy_GBps and the rates; measured_* is what this run saw."""
    measured = _measure(device)
    if device.type == "cuda" and torch.cuda.get_device_name(device) in _KNOWN:
        known = _KNOWN[torch.cuda.get_device_name(device)]
        return known | {f"measured_{name}": value for name, value in measured.items()}
    return measured


def floor_us(problem: Problem, ceiling: dict[str, float]) -> float:
    """The longer of the time its fewest bytes take and the time its multiply-adds take."""
    rate = ceiling["fma_fp32_TFLOPs"]
    if problem.tf32:
        rate = ceiling.get("tf32_TFLOPs", rate)
    elif problem.dtype in ("bfloat16", "float16"):
        rate = ceiling.get("bf16_TFLOPs", rate)
    elif problem.dtype == "float64":
        rate /= 2
    return max(problem.bytes / ceiling["copy_GBps"] / 1e3, problem.flops / rate / 1e6)


def _measure(device: torch.device) -> dict[str, float]:
    on_gpu = device.type == "cuda"
    elements = (1 << 28) if on_gpu else (1 << 25)
    source = torch.ones(elements, device=device)
    target = torch.empty_like(source)
    copy_us = _median_us(lambda: target.copy_(source), device)
    result = {"copy_GBps": 2 * source.nbytes / copy_us / 1e3}
    side = 8192 if on_gpu else 1536
    result["fma_fp32_TFLOPs"] = _matmul(side, torch.float32, device)
    if on_gpu:
        torch.backends.cuda.matmul.allow_tf32 = True
        result["tf32_TFLOPs"] = _matmul(side, torch.float32, device)
        torch.backends.cuda.matmul.allow_tf32 = False
        result["bf16_TFLOPs"] = _matmul(side, torch.bfloat16, device)
    return {name: float(f"{value:.4g}") for name, value in result.items()}


def _matmul(side: int, dtype: torch.dtype, device: torch.device) -> float:
    a = torch.randn(side, side, dtype=dtype, device=device)
    return 2 * side**3 / _median_us(lambda: torch.mm(a, a), device) / 1e6


def _median_us(call: Callable[[], object], device: torch.device) -> float:
    def synchronize() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    call()
    samples = []
    for _ in range(7):
        synchronize()
        begin = time.perf_counter()
        call()
        synchronize()
        samples.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(samples)
