"""Whole networks, torch's layers and converted: inference, eager and as a CUDA graph, and training steps; and
what convx.optimize makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import convx
from benchmarks.results import Record, geomean
from benchmarks.suites import DTYPES, LAYOUTS
from benchmarks.turns import between, over_torch, slower_rows
from convx.demo._torchvision import import_torchvision
from convx.tune import records
from convx.tune.replays import captured
from convx.tune.turns import Compared, compare, turn_of

NETWORKS = ("mobilenet_v2", "mnasnet1_0", "resnet18", "resnet50", "efficientnet_b0", "convnext_tiny")
PRECISIONS = ("float32", "bfloat16")
GPU_BATCHES, CPU_BATCHES = (1, 64), (1,)
SIZE, CLASSES = 224, 1000
KINDS = ("inference", "inference_graph", "train_step", "optimized")
_ROUND_US = 30000  # of one contender
_FEWEST_TURNS = 2  # in a round
_TRAINING_ROUNDS = 3  # for each round of the others: steps differ more from one another


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
    native, converted, x, _first = pair(case, device)
    found = []
    for kind in KINDS:
        if kind == "inference_graph" and device.type != "cuda":
            continue
        if kind == "optimized":
            with _measured_choices():
                compared = _compared(_calls_of_optimized(native, x), device, rounds)
        else:
            calls = {"torch": call(kind, native, x), "convx": call(kind, converted, x)}
            times = _TRAINING_ROUNDS if kind == "train_step" else 1
            compared = _compared(calls, device, times * rounds)
        found.append(record(case, kind, compared))
    return found


_choices: list[records.Record] = []


@contextmanager
def _measured_choices() -> Iterator[None]:
    """Plans that convx.optimize has measured are not what the other rows are to show. The other layout's are
    kept for the case that has it."""
    for each in _choices:
        records.remember(each)
    try:
        yield
    finally:
        _choices[:] = records.all_remembered()
        records.forget()


class Pair(NamedTuple):
    native: nn.Module
    converted: nn.Module
    images: Tensor
    first: nn.Module  # of torch's layers, called by nobody: to be held as long as the others


def pair(case: str, device: torch.device) -> Pair:
    """The case's network and the same converted.

    The host calls the first network that a process makes 1 to 3 % faster than a second one just like it: so
    that one is neither of the two.
    """
    name, batch, dtype, layout = case.split(" ")
    memory_format = torch.channels_last if layout == "channels_last" else torch.contiguous_format

    def make() -> nn.Module:
        # Each from its constructor: the modules of a copy keep their attributes in another kind of dict, and
        # a call of all of them takes 1 to 4 % longer.
        torch.manual_seed(0)
        model: Any = import_torchvision().models.get_model(name, weights=None)
        return model.to(device, DTYPES[dtype]).to(memory_format=memory_format)  # type: ignore[no-any-return]

    first, native, converted = make(), make(), make()
    convx.convert_(converted)
    x = torch.randn(int(batch[1:]), 3, SIZE, SIZE, device=device, dtype=DTYPES[dtype])
    return Pair(native, converted, x.contiguous(memory_format=memory_format), first)


def record(case: str, kind: str, compared: Compared) -> Record:
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
        "convx_us": float(f"{compared.us['convx']:.4g}"),
        "method": "call",
        "chosen_by": "auto",
        "peers_us": {name: float(f"{us:.4g}") for name, us in compared.us.items() if name != "convx"},
        "over_torch": over_torch(compared),
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

    return infer if kind == "inference" else captured(infer)


def _calls_of_optimized(native: nn.Module, x: Tensor) -> dict[str, Callable[[], object]]:
    """Beside torch's own network called, and replayed."""
    native.eval()
    calls = {
        "torch": call("inference", native, x),
        "convx": call("inference", convx.optimize(native, x), x),
    }
    return {**calls, "torch_graph": call("inference_graph", native, x)} if x.is_cuda else calls


def _compared(calls: dict[str, Callable[[], object]], device: torch.device, rounds: int) -> Compared:
    compare(calls, device, 1, 3)  # cuDNN's and convx's choices, and memory
    repeats, turn_us = turn_of(calls.values(), device)
    turns = max(_FEWEST_TURNS, round(_ROUND_US / turn_us))
    return compare(calls, device, rounds * turns, repeats)


def table(records: list[Record]) -> str:
    lines = [
        slower_rows(records),
        "",
        "| network | run | torch us | convx us | convx / torch | between | torch's graph us |",
        "|---|---|---:|---:|---:|---|---:|",
    ]
    for record in records:
        torch_us, convx_us = record["peers_us"]["torch"], record["convx_us"]
        graph = f"{record['peers_us']['torch_graph']:.0f}" if "torch_graph" in record["peers_us"] else ""
        lines.append(
            f"| {record['case']} | {record['operation'].replace('_', ' ')} | {torch_us:.0f} | {convx_us:.0f} "
            f"| {convx_us / torch_us:.2f} | {between(record)} | {graph} |"
        )
    return "\n".join(lines)


def short_table(records: list[Record]) -> str:
    """Over all networks."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for record in records:
        for peer, peer_us in record["peers_us"].items():
            kind = str(record["operation"]).replace("_", " ")
            kind += "" if peer == "torch" else " beside torch's graph"
            label = (kind, str(record["batch"]), record["dtype"], record["layout"])
            groups.setdefault(label, []).append(peer_us / record["convx_us"])
    lines = [
        slower_rows(records),
        "",
        "| run | batch | dtype | layout | networks | times faster | least | most |",
        "|---|---:|---|---|---:|---:|---:|---:|",
    ]
    for group, faster in sorted(groups.items()):
        figures = (geomean(faster), min(faster), max(faster))
        cells = (*group, str(len(faster)), *(f"{each:.2f}" for each in figures))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
