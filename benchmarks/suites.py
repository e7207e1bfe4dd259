"""What is measured: cases, and the problems that they make with an operation, type, layout and batch."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase

import torch

from benchmarks import layers
from convx._arguments import CONVOLUTIONS, PRODUCTS

OPERATIONS = ("forward", "input_grad", "weight_grad")
LAYOUTS = ("nchw", "channels_last")
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


Pair = tuple[int, int]  # height, width


class Layer(ABC):
    """A convolution without its batch."""

    in_channels: int
    out_channels: int
    groups: int

    @property
    @abstractmethod
    def maps(self) -> Pair: ...
    @property
    @abstractmethod
    def filters(self) -> Pair: ...
    @property
    @abstractmethod
    def strides(self) -> Pair: ...
    @property
    @abstractmethod
    def paddings(self) -> Pair: ...
    @property
    def dilations(self) -> Pair:
        return 1, 1

    @property
    def sides(self) -> tuple[int, int, int, int]:
        """Padding: top, bottom, left, right."""
        top, left = self.paddings
        return top, top, left, left

    @property
    def out_maps(self) -> Pair:
        (height, width), (down, across) = self.maps, self.filters
        (top, left), (tall, wide) = self.paddings, self.dilations
        return (
            (height + 2 * top - tall * (down - 1) - 1) // self.strides[0] + 1,
            (width + 2 * left - wide * (across - 1) - 1) // self.strides[1] + 1,
        )

    @property
    def weight_size(self) -> tuple[int, int, int, int]:
        return (self.out_channels, self.in_channels // self.groups, *self.filters)

    def input_size(self, batch: int) -> tuple[int, int, int, int]:
        return (batch, self.in_channels, *self.maps)

    def output_size(self, batch: int) -> tuple[int, int, int, int]:
        return (batch, self.out_channels, *self.out_maps)


@dataclass(frozen=True)
class Shape(Layer):
    """Of the papers' kind: square maps, filters and strides, 'same' padding."""

    in_channels: int
    size: int
    out_channels: int
    filter: int
    stride: int
    groups: int

    @property
    def padding(self) -> int:
        return self.filter // 2

    @property
    def out_size(self) -> int:
        return self.out_maps[0]

    @property
    def maps(self) -> Pair:
        return self.size, self.size

    @property
    def filters(self) -> Pair:
        return self.filter, self.filter

    @property
    def strides(self) -> Pair:
        return self.stride, self.stride

    @property
    def paddings(self) -> Pair:
        return self.padding, self.padding


@dataclass(frozen=True)
class Case:
    name: str
    group: str  # cases that the summary takes together
    shape: Shape
    batches: tuple[int, ...]
    cpu_batches: tuple[int, ...]  # none: too large for a CPU unless --batch asks for it


@dataclass(frozen=True)
class Problem:
    case: Case
    operation: str
    dtype: str
    layout: str
    batch: int
    tf32: bool = False  # float32 whose products may be rounded to TF32, for every contender alike

    @property
    def shape(self) -> Shape:
        return self.case.shape

    @property
    def tf32_setting(self) -> int:
        """As convx's operators take it: convolutions and matrix products alike."""
        return CONVOLUTIONS + PRODUCTS if self.tf32 else 0

    @property
    def element_size(self) -> int:
        return DTYPES[self.dtype].itemsize

    @property
    def elements(self) -> tuple[int, int, int]:
        """Of the input, the output and the weight."""
        shape = self.shape
        sizes = (shape.input_size(self.batch), shape.output_size(self.batch), shape.weight_size)
        return math.prod(sizes[0]), math.prod(sizes[1]), math.prod(sizes[2])

    @property
    def bytes(self) -> int:
        """The fewest an operation can move: both operands read once, the result written once."""
        return sum(self.elements) * self.element_size

    @property
    def flops(self) -> int:
        return 2 * self.elements[1] * math.prod(self.shape.weight_size[1:])

    def fields(self) -> dict[str, object]:
        """How a record names this problem."""
        return {
            "case": self.case.name,
            "operation": self.operation,
            "dtype": self.dtype,
            "tf32": self.tf32,
            "layout": self.layout,
            "batch": self.batch,
            "shape": asdict(self.shape),
        }

    def arguments(self, suite: str, device: str) -> str:
        """The command line that repeats this record."""
        dtype = "tf32" if self.tf32 else self.dtype
        return (
            f"python -m benchmarks --suite {suite} --case {self.case.name} --operation {self.operation} "
            f"--dtype {dtype} --layout {self.layout} --batch {self.batch} --device {device}"
        )


def _depthwise(channels: int, size: int, filter_size: int, stride: int) -> Shape:
    return Shape(channels, size, channels, filter_size, stride, channels)


def depthwise_cases() -> list[Case]:
    cases = [
        Case(
            f"CONV{number}-{filter_size}x{filter_size}",
            f"CONV1-13 {filter_size}x{filter_size}",
            _depthwise(channels, size, filter_size, 1),
            (layers.TRANSACTIONS_BATCH,),
            (),
        )
        for filter_size in layers.TRANSACTIONS_FILTERS
        for number, (channels, size) in enumerate(layers.TRANSACTIONS, 1)
    ]
    cases += [
        Case(
            f"D{number}", "D1-30", _depthwise(*layer), layers.SEPARABLE_BATCHES, layers.SEPARABLE_BATCHES[:2]
        )
        for number, layer in enumerate(layers.SEPARABLE, 1)
    ]
    return cases


def pointwise_cases() -> list[Case]:
    return [
        Case(
            f"P{number}",
            "P1-45",
            Shape(in_channels, size, out_channels, 1, 1, 1),
            layers.POINTWISE_BATCHES,
            layers.POINTWISE_BATCHES[:1],
        )
        for number, (in_channels, size, out_channels) in enumerate(layers.POINTWISE, 1)
    ]


def small_batch_cases() -> list[Case]:
    cases = [
        Case(f"R{number}", "ResNet 3x3", Shape(channels, size, filters, 3, 1, 1), (1,), (1,))
        for number, (channels, size, filters) in enumerate(layers.RESNET, 1)
    ]
    cases += [
        Case(
            f"C{in_channels}-{size}-{filter_size}x{filter_size}-{filters}",
            f"cuConv {filter_size}x{filter_size}",
            Shape(in_channels, size, filters, filter_size, 1, 1),
            layers.CUCONV_BATCHES,
            layers.CUCONV_BATCHES[:1],
        )
        for size, filter_size, filters, in_channels in layers.cuconv()
    ]
    cases += [
        Case(
            f"S{in_channels}-{size}-{filter_size}x{filter_size}-{filters}",
            "stride 2",
            Shape(in_channels, size, filters, filter_size, 2, 1),
            layers.CUCONV_BATCHES,
            layers.CUCONV_BATCHES[:1],
        )
        for in_channels, size, filters, filter_size in layers.STRIDED
    ]
    return cases


def drawn(draw: random.Random, least: int, most: int, multiple: int = 1) -> int:
    """As many of every octave."""
    value = round(math.exp(draw.uniform(math.log(least), math.log(most))) / multiple) * multiple
    return min(max(value, least), most)


def spread_cases() -> list[Case]:
    """Layers drawn at random between the papers': channels and maps of any number, for the planner to know
    them. Each at one batch."""
    draw = random.Random(20)
    cases = []
    for number in range(120):
        channels, out_channels = (drawn(draw, 16, 768, draw.choice((1, 4, 8, 16))) for _ in range(2))
        size, batch, stride = draw.randint(7, 64) + draw.choice((0, 0, 48)), 2 ** draw.randrange(7), 1
        depthwise = number % 2 == 0
        side = draw.choice((3, 3, 5) if depthwise else (1, 1, 3))
        if draw.random() < (0.5 if depthwise else 0.2):
            stride = 2
        shape = Shape(
            *(channels, size, channels if depthwise else out_channels, side, stride),
            channels if depthwise else 1,
        )
        group = f"{'depthwise' if depthwise else 'dense'} {side}x{side}"
        name = f"{'XD' if depthwise else 'X'}{number}"
        cases.append(Case(name, group, shape, (batch,), (min(batch, 16),)))
    return cases


SUITES: dict[str, Callable[[], list[Case]]] = {
    "depthwise": depthwise_cases,
    "pointwise": pointwise_cases,
    "small_batch": small_batch_cases,
    "spread": spread_cases,
}


def select_cases(cases: Iterable[Case], patterns: str | None) -> list[Case]:
    """Those that match one of the comma-separated patterns ("D1,CONV*-5x5"), in the suite's order."""
    cases = list(cases)
    if patterns is None:
        return cases
    chosen = [case for case in cases if any(fnmatchcase(case.name, part) for part in patterns.split(","))]
    if not chosen:
        names = ", ".join(case.name for case in cases[:3])
        raise ValueError(
            f"--case {patterns}: no case has such a name; names are {names} ... {cases[-1].name}"
        )
    return chosen


def problems(
    cases: Iterable[Case],
    operations: Iterable[str],
    dtypes: Iterable[str],
    layouts: Iterable[str],
    batches: Iterable[int] | None,
    on_gpu: bool,
) -> Iterator[Problem]:
    """The problems of the cases, those of one case and batch together. "tf32" is a dtype here."""
    wanted = None if batches is None else tuple(batches)
    for case in cases:
        default = case.batches if on_gpu else case.cpu_batches
        for batch in default if wanted is None else wanted:
            for dtype in dtypes:
                for layout in layouts:
                    for operation in operations:
                        yield Problem(
                            case,
                            operation,
                            "float32" if dtype == "tf32" else dtype,
                            layout,
                            batch,
                            dtype == "tf32",
                        )
