"""Host cost of a call: layers so small that what counts is all around their kernels, and whole networks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

import convx
from benchmarks import networks
from benchmarks.network_kinds import Networks, call
from benchmarks.results import Record
from benchmarks.suites import DTYPES, LAYOUTS
from benchmarks.turns import between, over_torch, slower_rows
from convx.tune.turns import compare

_CHANNELS, _SIZE = 96, 14
_TURNS, _REPEATS = 5, 40  # in a round; of a layer in a turn, a network is called once
_LAYERS: dict[str, Callable[[], nn.Conv2d]] = {
    "depthwise 3x3": lambda: nn.Conv2d(_CHANNELS, _CHANNELS, 3, padding=1, groups=_CHANNELS),
    "pointwise": lambda: nn.Conv2d(_CHANNELS, 24, 1),
    "dense 3x3": lambda: nn.Conv2d(_CHANNELS, 64, 3, padding=1),
}
KINDS = ("inference_mode", "no_grad", "autocast", "with_grad", "forward_backward")
_PRECISIONS = ("float32", "bfloat16")


NETWORK_KINDS = ("inference", "train_step")


def cases(device: torch.device) -> tuple[str, ...]:
    """ "pointwise bfloat16 channels_last", "mobilenet_v2 b1 float32 nchw"."""
    layers = (f"{layer} {dtype} {layout}" for layer in _LAYERS for dtype in _PRECISIONS for layout in LAYOUTS)
    return (*layers, *networks.default_cases(device))


def case_of(record: Record) -> str:
    """As `cases` has it. Networks have all of it as theirs."""
    is_layer = record["case"] in _LAYERS
    return f"{record['case']} {record['dtype']} {record['layout']}" if is_layer else str(record["case"])


def run(case: str, device: torch.device, rounds: int) -> list[Record]:
    """A record for every kind of call: convx's layer, torch's own and convx's that is told to leave it to
    torch, or a network and the same converted; in turns, without waiting for what they enqueue."""
    if case in networks.default_cases(device):
        return _run_network(case, device, rounds)
    name, dtype, layout = case.rsplit(" ", 2)
    memory_format = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    layers: dict[str, nn.Module] = {}
    for key in ("torch", "convx", "native"):  # no copies, for which Networks.make has the reason
        layer: Any = _LAYERS[name]().to(device, DTYPES[dtype])
        layers[key] = layer.to(memory_format=memory_format)
    convx.convert_(layers["convx"])
    convx.convert_(layers["native"], algorithm="native")
    x = torch.randn(1, _CHANNELS, _SIZE, _SIZE, device=device, dtype=DTYPES[dtype])
    x = x.contiguous(memory_format=memory_format)
    records = []
    for kind in KINDS:
        if kind == "autocast" and dtype != "float32":
            continue
        with _one_thread(), _mode(kind, device):
            calls = {key: _call(kind, layer, x) for key, layer in layers.items()}
            compare(calls, device, 1, _REPEATS)  # for nothing
            compared = compare(calls, device, _TURNS * rounds, _REPEATS, host_alone=True)
        times = {key: float(f"{each:.3g}") for key, each in compared.us.items()}
        records.append(
            {
                "case": name,
                "operation": kind,
                "dtype": dtype,
                "tf32": False,
                "layout": layout,
                "batch": 1,
                "shape": {"channels": _CHANNELS, "size": _SIZE},
                "warm": True,
                "convx_us": times.pop("convx"),
                "method": "call",
                "chosen_by": "auto",
                "peers_us": times,
                "over_torch": over_torch(compared),
            }
        )
    return records


def _run_network(case: str, device: torch.device, rounds: int) -> list[Record]:
    made = Networks(case, device)
    native, converted = made.make(), made.converted()
    records = []
    for kind in NETWORK_KINDS:
        calls = {"torch": call(kind, native, made.images), "convx": call(kind, converted, made.images)}
        compare(calls, device, 2, 1)  # cuDNN's and convx's choices, and memory
        compared = compare(calls, device, _TURNS * rounds, 1, host_alone=True)
        records.append(networks.record(case, kind, compared))
    return records


def _mode(kind: str, device: torch.device) -> AbstractContextManager[object]:
    if kind == "inference_mode":
        return torch.inference_mode()
    if kind == "no_grad":
        return torch.no_grad()
    if kind == "autocast":  # of a training step: forward, with gradients to come
        return torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext()


def _call(kind: str, layer: nn.Module, x: Tensor) -> Callable[[], object]:
    if kind in ("inference_mode", "no_grad"):
        return lambda: layer(x)
    leaf = x.detach().requires_grad_()
    if kind != "forward_backward":
        return lambda: layer(leaf)
    tensors, grad = [leaf, *layer.parameters()], torch.ones_like(layer(leaf))
    return lambda: torch.autograd.grad(layer(leaf), tensors, grad)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def table(records: list[Record]) -> str:
    """Microseconds of each call, torch's first, and how much of torch's time convx's takes."""
    lines = [
        slower_rows(records),
        "",
        "| microseconds, layers at 14x14 | kind | torch | convx | convx / torch | between | left to torch |",
        "|---|---|---:|---:|---:|---|---:|",
    ]
    for record in records:
        fast, peers = record["convx_us"], record["peers_us"]
        left = f"{peers['native']:.1f}" if "native" in peers else ""
        lines.append(
            f"| {case_of(record)} | {record['operation']} | "
            f"{peers['torch']:.1f} | {fast:.1f} | {fast / peers['torch']:.2f} "
            f"| {between(record)} | {left} |"
        )
    return "\n".join(lines)
