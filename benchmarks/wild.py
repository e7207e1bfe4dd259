"""Random layers, of kinds that networks have and the suites lack as much as of theirs: what auto takes beside
torch's convolution, which tries all of cuDNN's algorithms (torch.backends.cudnn.benchmark); auto by its
predictions alone, and as it chooses at the first call with that setting.

A seed makes the same problems everywhere. Nothing is fitted to them: one that was looked at once has served.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from benchmarks.convolution import Report, Settings, measure_surely
from benchmarks.operands import operands
from benchmarks.peers import tf32, torch_function
from benchmarks.planner import Planner, core_problem
from benchmarks.results import Record, geomean
from benchmarks.suites import LAYOUTS, OPERATIONS, Case, Layer, Pair, Problem, drawn
from convx.tune import first_call
from convx.tune.records import Record as TuningRecord

PEERS = ("torch", "torch_again")
MOST_BYTES = {"cuda": 1 << 29, "cpu": 1 << 24}  # of a problem
MOST_FLOPS = {"cuda": 2e11, "cpu": 1e9}  # there torch may take 100 ns for a product in 16 bits


@dataclass(frozen=True)
class AnyShape(Layer):
    in_channels: int
    height: int
    width: int
    out_channels: int
    filter: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int

    @property
    def maps(self) -> Pair:
        return self.height, self.width

    @property
    def filters(self) -> Pair:
        return self.filter

    @property
    def strides(self) -> Pair:
        return self.stride

    @property
    def paddings(self) -> Pair:
        return self.padding

    @property
    def dilations(self) -> Pair:
        return self.dilation


def _same(filters: Pair, dilation: int = 1) -> Pair:
    return filters[0] // 2 * dilation, filters[1] // 2 * dilation


def _depthwise(
    draw: random.Random, filters: Pair, stride: int = 1, dilation: int = 1, multiplier: int = 1
) -> AnyShape:
    channels = drawn(draw, 16, 1024, draw.choice((1, 8, 16)))
    size = drawn(draw, 7, 112)
    return AnyShape(
        *(channels, size, size, channels * multiplier, filters, (stride, stride)),
        *(_same(filters, dilation), (dilation, dilation), channels),
    )


def _line(draw: random.Random) -> AnyShape:
    """1D, depthwise."""
    channels, width, taps = (
        drawn(draw, 64, 4096, 32),
        drawn(draw, 128, 8192),
        draw.choice((3, 4, 7, 15, 31)),
    )
    return AnyShape(channels, 1, width, channels, (1, taps), (1, 1), (0, taps // 2), (1, 1), channels)


def _turned(draw: random.Random, taps: int) -> Pair:
    return (1, taps) if draw.random() < 0.5 else (taps, 1)


def _dense(
    draw: random.Random,
    filters: Pair,
    stride: int = 1,
    dilation: int = 1,
    sizes: Pair = (7, 112),
    groups: int = 1,
) -> AnyShape:
    step = draw.choice((1, 8, 16)) * groups
    channels, out_channels = (max(step, drawn(draw, 16, 768, step) // groups * groups) for _ in range(2))
    size = drawn(draw, *sizes)
    return AnyShape(
        *(channels, size, size, out_channels, filters, (stride, stride)),
        *(_same(filters, dilation), (dilation, dilation), groups),
    )


def _wide(draw: random.Random) -> AnyShape:
    """Of 64 to 128 channels on maps of 64 to 128."""
    shape = _dense(draw, (3, 3), sizes=(64, 128))
    return replace(shape, in_channels=drawn(draw, 64, 128, 8), out_channels=drawn(draw, 64, 128, 8))


_ODD = (3, 5, 7, 9, 11)
KINDS: dict[str, Callable[[random.Random], AnyShape]] = {
    "depthwise 3x3": lambda draw: _depthwise(draw, (3, 3), draw.choice((1, 2))),
    "depthwise 5x5": lambda draw: _depthwise(draw, (5, 5), draw.choice((1, 2))),
    "depthwise 7x7": lambda draw: _depthwise(draw, (7, 7)),
    "depthwise 7x7, stride 2, twice the channels": lambda draw: _depthwise(draw, (7, 7), 2, multiplier=2),
    "depthwise 1xk, kx1": lambda draw: _depthwise(draw, _turned(draw, draw.choice(_ODD))),
    "depthwise 1D": _line,
    "depthwise dilated": lambda draw: _depthwise(draw, (3, 3), dilation=draw.choice((2, 3, 4))),
    "depthwise 13x13": lambda draw: _depthwise(draw, (13, 13)),
    "depthwise 31x31": lambda draw: _depthwise(draw, (31, 31)),
    "2x2, stride 2": lambda draw: replace(_dense(draw, (2, 2), 2), padding=(0, 0)),
    "depthwise 2x2, stride 2": lambda draw: replace(_depthwise(draw, (2, 2), 2), padding=(0, 0)),
    "dense 1xk, kx1": lambda draw: _dense(draw, _turned(draw, draw.choice(_ODD[:3]))),
    "dense dilated": lambda draw: _dense(draw, (3, 3), dilation=draw.choice((2, 3, 4))),
    "dense 3x3": lambda draw: _dense(draw, (3, 3), draw.choice((1, 1, 2))),
    "dense 3x3, wide": _wide,
    "dense 5x5": lambda draw: _dense(draw, (5, 5)),
    "grouped 3x3": lambda draw: _dense(draw, (3, 3), groups=draw.choice((2, 4, 8, 32))),
    "1x1": lambda draw: _dense(draw, (1, 1), draw.choice((1, 1, 1, 2))),
}


class RandomProblem(Problem):
    @property
    def shape(self) -> Any:
        return self.case.shape

    def arguments(self, suite: str, device: str) -> str:
        raise NotImplementedError("a problem of a seed is repeated with all of them")


def problems(seed: int, count: int, device: str = "cuda") -> Iterator[RandomProblem]:
    """Kinds take turns; everything else is drawn, up to sizes that the device has time for."""
    draw = random.Random(seed)
    kinds = list(KINDS.items())
    number = 0
    while number < count:
        name, make = kinds[number % len(kinds)]
        precision = draw.choice(("float32", "float32", "tf32", "bfloat16", "bfloat16", "float16"))
        dtype = "float32" if precision == "tf32" else precision
        shape: Any = make(draw)
        case = Case(f"{seed}-{number}", name, shape, (), ())
        batch = 2 ** draw.randrange(7)
        problem = RandomProblem(
            case, draw.choice(OPERATIONS), dtype, draw.choice(LAYOUTS), batch, precision == "tf32"
        )
        fits = problem.bytes <= MOST_BYTES[device] and problem.flops <= MOST_FLOPS[device]
        if min(shape.out_maps) >= 1 and fits:
            number += 1
            yield problem


def run(problem: RandomProblem, settings: Settings, planner: Planner, report: Report) -> Iterator[Record]:
    """What auto takes beside torch, and what it takes once it has measured."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        with tf32(problem.tf32):
            torchs_ms = _ms(first_call_of_torch(problem, settings.device))
            chosen: list[TuningRecord] = []
            ms = _ms(lambda: chosen.append(first_call.found(core_problem(problem), settings.device)))
        plan = chosen[0].algorithm
        # By name, lest the front measure too.
        predicted = planner.plan(problem)
        measured = measure_surely(problem, settings, report, list(dict.fromkeys((predicted, plan))))
    finally:
        torch.backends.cudnn.benchmark = before
    if "convx" in measured.times:
        record = measured.record("convx", _kernel(predicted), "auto")
        yield record | {
            "shape": asdict(problem.shape),
            "measured_us": float(f"{measured.times.get(plan, measured.times['convx']):.4g}"),
            "measured_method": _kernel(plan),
            "first_call_ms": round(ms, 1),
            "torchs_first_call_ms": round(torchs_ms, 1),
        }


def _ms(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


def first_call_of_torch(problem: Problem, device: torch.device) -> Callable[[], object]:
    """In which cuDNN makes its choice."""
    ((first, second),) = operands(problem, 1, device)
    call = torch_function(problem, problem.layout, device)

    def run() -> None:
        with torch.no_grad():
            call(first, second)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return run


def _kernel(plan: str) -> str:
    """A plan's name without its tiling."""
    return plan.partition(" ")[0]


def table(records: list[Record]) -> str:
    """By kind of layer: the problems that take a kernel of convx, and those that take torch's convolution,
    where what differs is chance, as much as where torch is measured twice; then the choice by measured
    times."""
    head = ["kind", "layers", "by convx", "times faster", "slower", "by torch", "slower"]
    head += ["measured: by convx", "times faster", "slower", "first call, ms", "torch's, ms"]
    head += ["torch again, slower"]
    lines = [
        "Slower: by more than 2 %, and by more than 10 %; also torch, measured twice, than itself. "
        "*Measured*: as auto chooses at the first call where torch.backends.cudnn.benchmark is set, and what "
        "that takes in the median, once torch's own first call, in which cuDNN chooses, was made; the "
        "columns before it are of predictions alone.",
        "",
        f"| {' | '.join(head)} |",
        "|---|" + "---:|" * (len(head) - 1),
    ]
    kinds = list(dict.fromkeys(str(record["group"]) for record in records))
    rows = [(kind, [record for record in records if record["group"] == kind]) for kind in kinds]
    for name, members in (*rows, ("all", records)):
        by_torch = [record for record in members if _is_torchs(record["method"])]
        by_convx = [record for record in members if not _is_torchs(record["method"])]
        cells: list[object] = [
            name,
            len(members),
            len(by_convx),
            _faster(by_convx),
            _slower(by_convx),
            len(by_torch),
        ]
        cells += [_slower(by_torch), *_measured_cells(members), _slower(members, "torch_again")]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


_CHOICES = {
    "convx": ("method", "predictions"),
    "measured": ("measured_method", "what the first call chooses with torch.backends.cudnn.benchmark"),
}


def in_short(records: list[Record]) -> str:
    """What all of them show."""

    def said(name: str) -> str:
        field, by = _CHOICES[name]
        own = [record for record in records if not _is_torchs(record[field])]
        return (
            f"{_faster(records, name)} times as fast by {by} ({slower(name)}; of the {len(own)} that take a "
            f"kernel of convx {_slower(own, name).replace(', ', ' and ')})"
        )

    def slower(name: str) -> str:
        shares = (sum(_over_torch(record, name) > bound for record in records) for bound in (1.02, 1.1))
        two, ten = (f"{share / len(records):.1%}" for share in shares)
        return f"slower by more than 2 % on {two}, by more than 10 % on {ten}"

    return (
        f"{len(records)} layers that nothing was tuned to, beside torch (on GPUs with all of cuDNN's "
        f"algorithms tried): {said('convx')}, {said('measured')}; torch measured twice than itself: "
        f"{slower('torch_again')}."
    )


def _is_torchs(method: str) -> bool:
    return method == "native"


def _measured_cells(members: list[Record]) -> list[object]:
    own = [record for record in members if not _is_torchs(record["measured_method"])]
    found: list[object] = [len(own), _faster(own, "measured"), _slower(members, "measured")]
    for name in ("first_call_ms", "torchs_first_call_ms"):
        found.append(f"{statistics.median(record[name] for record in members):.0f}")
    return found


def _faster(records: list[Record], name: str = "convx") -> str:
    return f"{1 / geomean(_over_torch(record, name) for record in records):.2f}" if records else ""


def _over_torch(record: Record, name: str) -> float:
    """Of convx, what it measured, or a peer."""
    us = record["peers_us"].get(name) or record[f"{name}_us"]
    return float(us) / float(record["peers_us"]["torch"])


def _slower(records: list[Record], name: str = "convx") -> str:
    """How many are by more than 2 and 10 %."""
    ratios = [_over_torch(record, name) for record in records]
    return f"{sum(ratio > 1.02 for ratio in ratios)}, {sum(ratio > 1.1 for ratio in ratios)}"
