"""Host cost of a call: a convolution so small that what counts is everything around it."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch

import convx.functional
from benchmarks.results import Record

_CHANNELS, _SIZE = 8, 8
Contender = tuple[str, Callable[[], object]]


def cases() -> tuple[str, ...]:
    return ("inference_mode", "no_grad", "grad")


def run(case: str, device: torch.device, rounds: int) -> Record:
    """One record: convx.functional.conv2d, beside F.conv2d and the bare operator, without synchronising."""
    with _mode(case):
        contenders = _contenders(case == "grad", device)
        times: dict[str, list[float]] = {name: [] for name, _ in contenders}
        with _one_thread():
            for _ in range(rounds + 1):
                for name, call in contenders:
                    times[name].append(_call_us(call, device))
    medians = {name: float(f"{statistics.median(samples[1:]):.3g}") for name, samples in times.items()}
    fast = medians.pop("convx")
    return {
        "case": case,
        "operation": "forward",
        "dtype": "float32",
        "tf32": False,
        "layout": "nchw",
        "batch": 1,
        "shape": {"channels": _CHANNELS, "size": _SIZE, "filter": 3, "groups": _CHANNELS},
        "warm": True,
        "convx_us": fast,
        "method": "call",
        "chosen_by": "auto",
        "peers_us": medians,
    }


def _contenders(needs_grad: bool, device: torch.device) -> list[Contender]:
    x = torch.randn(1, _CHANNELS, _SIZE, _SIZE, device=device)
    w = torch.randn(_CHANNELS, 1, 3, 3, device=device, requires_grad=needs_grad)
    step, sides, groups = (1, 1), (1, 1, 1, 1), _CHANNELS
    conv2d, bare = convx.functional.conv2d, torch.ops.convx.conv2d.default
    contenders: list[Contender] = [
        ("convx", lambda: conv2d(x, w, padding=1, groups=groups)),
        ("torch", lambda: torch.nn.functional.conv2d(x, w, padding=1, groups=groups)),
        ("operator", lambda: bare(x, w, None, step, sides, step, groups, "none", "auto", 0)),
    ]
    if device.type == "cuda":
        # The scale: what this processor takes for the same call without a GPU.
        x_cpu, w_cpu = x.cpu(), w.detach().cpu().requires_grad_(needs_grad)
        contenders.append(
            ("torch_cpu", lambda: torch.nn.functional.conv2d(x_cpu, w_cpu, padding=1, groups=groups))
        )
        if not needs_grad:
            graph = torch.cuda.CUDAGraph()
            conv2d(x, w, padding=1, groups=groups)
            with torch.cuda.graph(graph):
                conv2d(x, w, padding=1, groups=groups)
            contenders.append(("graph_replay", graph.replay))
    return contenders


def _call_us(call: Callable[[], object], device: torch.device) -> float:
    repeats = 400
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    seconds = time.perf_counter() - begin  # before the synchronisation: only what the host spends
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return seconds * 1e6 / repeats


def _mode(case: str) -> AbstractContextManager[object]:
    if case == "inference_mode":
        return torch.inference_mode()
    return torch.no_grad() if case == "no_grad" else contextlib.nullcontext()


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
