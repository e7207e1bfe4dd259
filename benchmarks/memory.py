"""Memory of training converted networks, step after step: what is lost at every call adds up."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import convx
from benchmarks.results import Record
from benchmarks.suites import DTYPES, LAYOUTS
from convx.demo._torchvision import import_torchvision

NETWORKS = ("resnet50", "efficientnet_b0")
STEPS, EVERY, SETTLED = 300, 25, 50  # after which memory must not grow
BATCH, SIZE, CLASSES = 32, 224, 1000
CPU_STEPS, CPU_BATCH, CPU_SIZE = 50, 2, 64


def cases() -> tuple[str, ...]:
    return tuple(f"{name} {layout}" for name in NETWORKS for layout in LAYOUTS)


def run(case: str, device: torch.device) -> Iterator[Record]:
    """One record: bytes after every so many steps of stochastic gradient descent in bfloat16."""
    name, layout = case.split(" ")
    on_gpu = device.type == "cuda"
    steps, batch, size = (STEPS, BATCH, SIZE) if on_gpu else (CPU_STEPS, CPU_BATCH, CPU_SIZE)
    torch.manual_seed(0)
    memory_format = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    model: Any = import_torchvision().models.get_model(name, weights=None)
    model = model.to(device, DTYPES["bfloat16"]).to(memory_format=memory_format).train()
    convx.convert_(model)
    x = torch.randn(batch, 3, size, size, device=device, dtype=DTYPES["bfloat16"])
    x = x.contiguous(memory_format=memory_format)
    labels = torch.randint(CLASSES, (batch,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    taken, times = [], []
    for _ in range(steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(x).float(), labels).backward()
        optimizer.step()
        taken.append(used(device))
        times.append((time.perf_counter() - begin) * 1e6)
    settled = min(SETTLED, steps // 2)
    yield {
        "case": case,
        "operation": "train_step",
        "dtype": "bfloat16",
        "tf32": False,
        "layout": layout,
        "batch": batch,
        "shape": {"size": size},
        "warm": True,
        "convx_us": float(f"{statistics.median(times):.4g}"),
        "method": "call",
        "chosen_by": "auto",
        "peers_us": {},
        "steps": steps,
        "bytes": {str(step): taken[step - 1] for step in range(EVERY, steps + 1, EVERY)},
        "grown_bytes": taken[-1] - taken[settled - 1],
    }


def used(device: torch.device) -> int:
    """Bytes: of torch's allocator on a GPU, of the process on a CPU, which moves with its allocator."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return torch.cuda.memory_allocated(device)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def forget_workspaces() -> None:
    """Those of cuBLAS that torch keeps for every stream that calls it have come to."""
    torch._C._cuda_clearCublasWorkspaces()


def peak(call: Callable[[], object], device: torch.device) -> int:
    """The most bytes that torch's allocator of a GPU has given out at one moment of a call, its workspaces
    among them. What a graph keeps for its replays counts in the call that records it, and in none after."""
    forget_workspaces()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)


def table(records: list[Record]) -> str:
    lines = ["| training steps, bfloat16 | batch | steps | MB | grown after the first | ms a step |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for record in records:
        last = list(record["bytes"].values())[-1]
        lines.append(
            f"| {record['case']} | {record['batch']} | {record['steps']} | {last / 2**20:.1f} "
            f"| {record['grown_bytes']} B | {record['convx_us'] / 1e3:.1f} |"
        )
    return "\n".join(lines)
