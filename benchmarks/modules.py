"""Layers of the paper on depthwise separable convolution as the modules that users call: torch's, the same
converted, and on GPUs converted to the form that the paper published, with the host's cost of a call."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean

import torch
from torch import nn

import convx
from benchmarks import layers, published
from benchmarks.peers import tf32
from benchmarks.results import Record, geomean
from benchmarks.suites import Case, Problem, Shape, depthwise_cases, pointwise_cases
from benchmarks.turns import over_torch, slower_rows
from convx.tune.turns import Compared, Contender, compare, turn_of

DEPTHWISE, POINTWISE = "D1-30", "P1-45"
PUBLISHED = "published"  # the paper's form, as a contender
# forward: calls one after another, until the device has done all of them: the longer of what the host and the
# device take for one. forward_latency: each alone, from when the host begins it until the device has done it.
# On a CPU both are the same.
KINDS = {"cuda": ("forward", "forward_latency"), "cpu": ("forward",)}
_LONG_TURN_US, _LONG_TURNS = 30000, 4
_PUBLISHED_FORM = (
    "The paper's form: `depthwise/shared_rows`, and of the tilings by exact divisors the fastest kernel."
)


def _layers() -> dict[str, Case]:
    every = (*depthwise_cases(), *pointwise_cases())
    return {case.name: case for case in every if case.group in (DEPTHWISE, POINTWISE)}


def cases(batches: Sequence[int] | None = None) -> tuple[str, ...]:
    """ "D1 b1", "P45 b64"."""
    return tuple(f"{name} b{batch}" for name in _layers() for batch in batches or layers.MODULE_BATCHES)


def run(case: str, device: torch.device, rounds: int, kinds: Sequence[str]) -> list[Record]:
    """A record for each kind, of layers without bias in inference mode, without TF32; warm, as every call has
    the same operands. The published form is by name, of its plans the fastest.

    The paper does not say what it timed. Its authors' tests of modules (github.com/HIT-HPC-Group/
    DSCOptimization, .../Extension/Test_*) are what forward_latency repeats: layers without bias and without
    gradients, an event before a call and one after it, then torch.cuda.synchronize().
    """
    name, batch = case.split(" b")
    layer = _layers()[name]
    problem = Problem(layer, "forward", "float32", "nchw", int(batch))
    plan = published.fastest(problem, device)
    algorithms = {"convx": "auto"} | ({PUBLISHED: plan} if plan else {})
    x = torch.randn(layer.shape.input_size(problem.batch), device=device)
    modules = {contender: _module(layer.shape, device) for contender in ("torch", *algorithms)}
    records = []
    with tf32(False), torch.inference_mode(), _older_objects_kept():
        for contender, algorithm in algorithms.items():
            modules[contender].load_state_dict(modules["torch"].state_dict())
            converted = convx.convert_(modules[contender], algorithm=algorithm, example_input=x)
            if converted.left:
                raise RuntimeError(f"{case}: {contender} would be torch's own: {converted.left[0].reason}")
        for kind in kinds:
            calls = {contender: _call(kind, module, x) for contender, module in modules.items()}
            records.append(_record(case, kind, problem, _compared(calls, device, rounds), plan))
    return records


def _module(shape: Shape, device: torch.device) -> nn.Module:
    sizes = (shape.in_channels, shape.out_channels, shape.filters, shape.strides, shape.paddings)
    return nn.Conv2d(*sizes, groups=shape.groups, bias=False, device=device)


@contextmanager
def _older_objects_kept() -> Iterator[None]:
    """The collector goes through new objects alone: through all of them it takes longer than a comparison."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _call(kind: str, module: nn.Module, x: torch.Tensor) -> Contender:
    def call() -> object:
        return module(x)

    return call if kind == "forward" else _Alone(call)


class _Alone:
    """Calls of which each finds the device idle."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def us(self, repeats: int) -> float:
        ms = 0.0
        for _ in range(repeats):
            self._begin.record()
            self._call()
            self._end.record()
            torch.cuda.synchronize()
            ms += self._begin.elapsed_time(self._end)
        return ms * 1e3 / repeats


def _compared(calls: Mapping[str, Contender], device: torch.device, rounds: int) -> Compared:
    compare(calls, device, 1, 2)  # cuDNN's and convx's choices, and memory
    repeats, turn_us = turn_of(calls.values(), device)
    turns = rounds + rounds % 2  # each comes first as often
    return compare(calls, device, turns if turn_us < _LONG_TURN_US else min(turns, _LONG_TURNS), repeats)


def _record(case: str, kind: str, problem: Problem, compared: Compared, plan: str = "") -> Record:
    """plan: the published form's."""
    fields = problem.fields() | {"case": case, "operation": kind}
    us = compared.us.get(PUBLISHED)
    theirs = {f"{PUBLISHED}_us": float(f"{us:.4g}"), "plan": plan} if us else {}
    return fields | {
        "group": problem.case.group,
        "warm": True,
        "convx_us": float(f"{compared.us['convx']:.4g}"),
        "method": "module",
        "chosen_by": "auto",
        "peers_us": {"torch": float(f"{compared.us['torch']:.4g}")},
        "over_torch": over_torch(compared),
        **theirs,
    }


@dataclass(frozen=True)
class Means:
    """Over the layers that were measured of a group, at one batch."""

    count: int
    torch_us: float
    convx_us: float  # or of another that is beside torch
    speedup: float  # the mean of the layers', as the paper has it
    geomean: float
    slower: int  # layers, by more than 2 %


def means(records: Sequence[Record], ours: str = "convx") -> dict[tuple[str, int, str], Means]:
    """By group, batch and kind, of the records that have the times of this contender beside torch."""
    groups: dict[tuple[str, int, str], list[tuple[float, float]]] = {}
    for record in records:
        if f"{ours}_us" in record:
            label = (record["group"], record["batch"], record["operation"])
            groups.setdefault(label, []).append((record["peers_us"]["torch"], record[f"{ours}_us"]))
    found = {}
    for label, times in sorted(groups.items()):
        gains = [theirs / ours for theirs, ours in times]
        both = (mean(theirs for theirs, _ in times), mean(ours for _, ours in times))
        slower = sum(gain < 1 / 1.02 for gain in gains)
        found[label] = Means(len(times), *both, mean(gains), geomean(gains), slower)
    return found


def table(records: list[Record]) -> str:
    theirs = means(records, PUBLISHED)
    lines = [
        slower_rows(records),
        "",
        "Means over the layers. Forward: calls one after another, until all are done; forward latency: a "
        "call on a device that waits for it." + (f" {_PUBLISHED_FORM}" if theirs else ""),
        "",
        "| layers | batch | run | torch us | convx us | times faster | geomean | slower on |"
        + (" the paper's form, us | times faster |" if theirs else ""),
        "|---|---:|---|---:|---:|---:|---:|---:|" + ("---:|---:|" if theirs else ""),
    ]
    for label, found in means(records).items():
        group, batch, kind = label
        line = (
            f"| {group} | {batch} | {kind.replace('_', ' ')} | {found.torch_us:.1f} | {found.convx_us:.1f} "
            f"| {found.speedup:.2f} | {found.geomean:.2f} | {found.slower} of {found.count} |"
        )
        if theirs:
            its = theirs.get(label)
            line += f" {its.convx_us:.1f} | {its.speedup:.2f} |" if its else " - | - |"
        lines.append(line)
    return "\n".join(lines)
