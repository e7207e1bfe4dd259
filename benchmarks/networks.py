"""Whole networks, torch's layers and converted: inference, eager and as a CUDA graph, and training steps."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import convx
from benchmarks.results import Record
from benchmarks.suites import DTYPES, LAYOUTS
from benchmarks.timing import in_turns, paired_medians
from convx.demo._torchvision import import_torchvision

NETWORKS = ("mobilenet_v2", "mnasnet1_0", "resnet18", "resnet50", "efficientnet_b0", "convnext_tiny")
PRECISIONS = ("float32", "bfloat16")
GPU_BATCHES, CPU_BATCHES = (1, 64), (1,)
SIZE, CLASSES = 224, 1000
KINDS = ("inference", "inference_graph", "train_step")
_ROUND_US = 30000


def cases(device: torch.device) -> tuple[str, ...]:
    """ "convnext_tiny b64 bfloat16 channels_last"."""
    batches, precisions = (
        (GPU_BATCHES, PRECISIONS) if device.type == "cuda" else (CPU_BATCHES, PRECISIONS[:1])
    )
    return tuple(
        f"{name} b{batch} {dtype} {layout}"
        for name in NETWORKS
        for batch in batches
        for dtype in precisions
        for layout in LAYOUTS
    )


def run(case: str, device: torch.device, rounds: int) -> list[Record]:
    """A record for every kind of run, both networks timed in turns."""
    native, converted, x = pair(case, device)
    records = []
    for kind in KINDS:
        if kind == "inference_graph" and device.type != "cuda":
            continue
        calls = [call(kind, model, x) for model in (native, converted)]
        torch_us, convx_us = _in_turns(calls, device, rounds)
        records.append(record(case, kind, convx_us, torch_us))
    return records


def pair(case: str, device: torch.device) -> tuple[nn.Module, nn.Module, Tensor]:
    """The case's network, the same converted, and its images."""
    name, batch, dtype, layout = case.split(" ")
    memory_format = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    torch.manual_seed(0)
    native: Any = import_torchvision().models.get_model(name, weights=None)
    native = native.to(device, DTYPES[dtype]).to(memory_format=memory_format)
    converted = copy.deepcopy(native)
    convx.convert_(converted)
    x = torch.randn(int(batch[1:]), 3, SIZE, SIZE, device=device, dtype=DTYPES[dtype])
    return native, converted, x.contiguous(memory_format=memory_format)


def record(case: str, kind: str, convx_us: float, torch_us: float) -> Record:
    _, batch, dtype, layout = case.split(" ")
    return {
        "case": case,
        "operation": kind,
        "dtype": dtype,
        "tf32": False,
        "layout": layout,
        "batch": int(batch[1:]),
        "shape": {"size": SIZE},
        "warm": True,
        "convx_us": float(f"{convx_us:.4g}"),
        "method": "call",
        "chosen_by": "auto",
        "peers_us": {"torch": float(f"{torch_us:.4g}")},
    }


def call(kind: str, model: nn.Module, x: Tensor) -> Callable[[], object]:
    if kind == "train_step":
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        labels = torch.randint(CLASSES, (len(x),), device=x.device)

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(x).float(), labels).backward()
            optimizer.step()

        return step
    model.eval()

    def infer() -> Tensor:
        with torch.inference_mode():
            result: Tensor = model(x)
            return result

    return infer if kind == "inference" else _captured(infer)


def _captured(call: Callable[[], object]) -> Callable[[], object]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), convx.constant_filters():
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            alive = call()

    def replay() -> object:
        graph.replay()
        return alive

    return replay


def _in_turns(calls: list[Callable[[], object]], device: torch.device, rounds: int) -> list[float]:
    """Microseconds of each, of rounds of several calls, host and device together (paired_medians)."""

    def seconds(call: Callable[[], object], repeats: int) -> float:
        begin = time.perf_counter()
        for _ in range(repeats):
            call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (time.perf_counter() - begin) / repeats

    for call in calls:
        seconds(call, 3)
    repeats = max(1, round(_ROUND_US / 1e6 / seconds(calls[0], 2)))
    times = paired_medians(in_turns([partial(seconds, call, repeats) for call in calls], rounds))
    return [each * 1e6 for each in times]


def table(records: list[Record]) -> str:
    lines = ["| network | run | torch us | convx us | times faster |", "|---|---|---:|---:|---:|"]
    for record in records:
        torch_us, convx_us = record["peers_us"]["torch"], record["convx_us"]
        lines.append(
            f"| {record['case']} | {record['operation'].replace('_', ' ')} | {torch_us:.0f} | {convx_us:.0f} "
            f"| {torch_us / convx_us:.2f} |"
        )
    return "\n".join(lines)
