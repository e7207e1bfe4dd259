"""References in float64 and the rule of agreement: an error of at most twice torch's own on the same problem.

The reference is torch's own convolution in float64 on the CPU, and the definition in extended precision for
float64 itself; test_depthwise holds the one against the other.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
OPERATIONS = ("forward", "input_grad", "weight_grad")
ACTIVATIONS = ("none", "relu", "relu6", "silu", "hardswish", "gelu")


@dataclass(frozen=True)
class Case:
    """One convolution; padding is (top, bottom, left, right)."""

    batch: int = 2
    channels: int = 5
    multiplier: int = 1
    height: int = 9
    width: int = 11
    filter: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (1, 1, 1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 0
    """0: as many as channels, so depthwise."""
    bias: bool = False
    activation: str = "none"

    @property
    def group_count(self) -> int:
        return self.groups or self.channels

    @property
    def out_channels(self) -> int:
        return self.channels * self.multiplier

    @property
    def out_size(self) -> tuple[int, int]:
        top, bottom, left, right = self.padding
        reach = [d * (f - 1) + 1 for d, f in zip(self.dilation, self.filter, strict=True)]
        return (
            (self.height + top + bottom - reach[0]) // self.stride[0] + 1,
            (self.width + left + right - reach[1]) // self.stride[1] + 1,
        )

    def terms(self, operation: str) -> int:
        """Products that one result sums, padding not counted out."""
        if operation == "weight_grad":
            return self.batch * math.prod(self.out_size)
        per_group = self.multiplier if operation == "input_grad" else 1
        return per_group * math.prod(self.filter) * (self.channels // self.group_count)

    @property
    def runnable(self) -> bool:
        return min(self.out_size) >= 1

    def __str__(self) -> str:
        text = f"{self.batch}x{self.channels}x{self.height}x{self.width}"
        if self.multiplier != 1:
            text += f"m{self.multiplier}"
        text += "f" + "x".join(map(str, self.filter))
        if self.stride != (1, 1):
            text += "s" + "x".join(map(str, self.stride))
        if self.dilation != (1, 1):
            text += "d" + "x".join(map(str, self.dilation))
        text += "p" + "".join(map(str, self.padding))
        return text + (f"g{self.groups}" if self.groups else "")

    def with_(self, **changes: object) -> Case:
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Dense(Case):
    """A convolution over channels; channels and filters are those of all groups together."""

    channels: int = 10
    filters: int = 12
    groups: int = 1

    @property
    def out_channels(self) -> int:
        return self.filters

    def terms(self, operation: str) -> int:
        if operation == "weight_grad":
            return super().terms(operation)
        channels = self.filters if operation == "input_grad" else self.channels
        return channels // self.groups * self.filter[0] * self.filter[1]

    def __str__(self) -> str:
        return f"{super().__str__()}k{self.filters}"


@dataclass
class Tensors:
    input: Tensor
    weight: Tensor
    bias: Tensor | None
    output_grad: Tensor


def make(
    case: Case, dtype: torch.dtype = torch.float32, device: str = "cpu", channels_last: bool = False
) -> Tensors:
    """Random tensors of a case, the same on every device."""
    generator = torch.Generator().manual_seed(zlib.crc32(str(case).encode()))

    def random(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64).to(dtype).to(device)

    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    return Tensors(
        random(case.batch, case.channels, case.height, case.width).contiguous(memory_format=memory_format),
        random(case.out_channels, case.channels // case.group_count, *case.filter),
        random(case.out_channels) if case.bias else None,
        random(case.batch, case.out_channels, *case.out_size).contiguous(memory_format=memory_format),
    )


def torch_result(operation: str, case: Case, tensors: Tensors) -> Tensor:
    """torch's own answer in the tensors' dtype, on their device; asymmetric padding by padding first."""
    top, bottom, left, right = case.padding
    input = tensors.input.detach().clone().requires_grad_(operation != "forward")
    weight = tensors.weight.detach().clone().requires_grad_(operation != "forward")
    symmetric = top == bottom and left == right
    padded = input if symmetric else F.pad(input, (left, right, top, bottom))
    padding = (top, left) if symmetric else (0, 0)
    output = F.conv2d(padded, weight, tensors.bias, case.stride, padding, case.dilation, case.group_count)
    if operation == "forward":
        return output if case.activation == "none" else getattr(F, case.activation)(output)
    output.backward(tensors.output_grad)
    result = input.grad if operation == "input_grad" else weight.grad
    assert result is not None
    return result


def to_float64(tensors: Tensors) -> Tensors:
    bias = None if tensors.bias is None else tensors.bias.detach().cpu().double()
    return Tensors(
        tensors.input.detach().cpu().double(),
        tensors.weight.detach().cpu().double(),
        bias,
        tensors.output_grad.detach().cpu().double(),
    )


def _taps(case: Case) -> Iterator[tuple[int, int, tuple[slice, ...]]]:
    """Every tap (row, column) of the filter, and where the padded input meets it."""
    rows, columns = case.out_size
    for row, column in np.ndindex(*case.filter):
        top, left = row * case.dilation[0], column * case.dilation[1]
        down = slice(top, top + (rows - 1) * case.stride[0] + 1, case.stride[0])
        across = slice(left, left + (columns - 1) * case.stride[1] + 1, case.stride[1])
        yield row, column, (slice(None), slice(None), down, across)


def depthwise_reference(operation: str, case: Case, tensors: Tensors) -> Tensor:
    """The definition of a depthwise convolution, in extended precision, rounded to float64 at the end."""
    input, weight, grad = (
        t.detach().cpu().double().numpy().astype(np.longdouble)
        for t in (tensors.input, tensors.weight, tensors.output_grad)
    )
    top, bottom, left, right = case.padding
    padded = np.pad(input, ((0, 0), (0, 0), (top, bottom), (left, right))).repeat(case.multiplier, axis=1)
    if operation == "forward":
        output = np.zeros(grad.shape, np.longdouble)
        for row, column, where in _taps(case):
            output += padded[where] * weight[:, 0, row, column, None, None]
        if tensors.bias is not None:
            output += tensors.bias.detach().cpu().double().numpy()[:, None, None]
        result = torch.from_numpy(output.astype(np.float64))
        return result if case.activation == "none" else getattr(F, case.activation)(result)  # type: ignore[no-any-return]
    if operation == "weight_grad":
        gradient = np.zeros(weight.shape, np.longdouble)
        for row, column, where in _taps(case):
            gradient[:, 0, row, column] = (padded[where] * grad).sum((0, 2, 3))
        return torch.from_numpy(gradient.astype(np.float64))
    spread = np.zeros(padded.shape, np.longdouble)
    for row, column, where in _taps(case):
        spread[where] += grad * weight[:, 0, row, column, None, None]
    spread = spread.reshape(case.batch, case.channels, case.multiplier, *spread.shape[2:]).sum(2)
    inside = spread[:, :, top : top + case.height, left : left + case.width]
    return torch.from_numpy(inside.astype(np.float64))


def is_garbage(operation: str, case: Case, tensors: Tensors) -> bool:
    """What torch's own convolution computes: oneDNN 3.12's bfloat16 weight gradient reads memory that
    nobody wrote where padded rows are shorter than the stride."""
    input = tensors.input
    misread = operation == "weight_grad" and input.dtype == torch.bfloat16 and input.device.type == "cpu"
    return misread and case.group_count == 1 and case.width < case.stride[1]


def reference(operation: str, case: Case, tensors: Tensors) -> Tensor:
    """The answer in float64, from the very values that the tensors hold.

    By torch; for float64 itself by the definition, since torch would be its own reference there.
    """
    if tensors.input.dtype == torch.float64 and not case.groups:
        return depthwise_reference(operation, case, tensors)
    return torch_result(operation, case, to_float64(tensors))


def max_error(result: Tensor, exact: Tensor) -> float:
    return (result.detach().cpu().double() - exact).abs().max().item() if exact.numel() else 0.0


def tolerance(own: Tensor, exact: Tensor, terms: int = 1) -> float:
    """Twice torch's own error, and no less than the last place of the largest value, which rounding may take.

    terms is how many products each result sums. Among some thousand results torch's largest error is luck:
    there the sum's expected rounding counts too, some sqrt(terms) / 4 last places. In float64 exact has
    errors of its own: sqrt(terms) places.
    """
    if not exact.numel():
        return 0.0
    largest = max(exact.abs().max().item(), torch.finfo(own.dtype).tiny)
    places = max(1.0, math.sqrt(terms) / 4) if exact.numel() < 8192 else 1.0
    if own.dtype == torch.float64:
        places = math.sqrt(terms)
    return 2 * max_error(own, exact) + places * torch.finfo(own.dtype).eps * largest


def assert_agrees(result: Tensor, own: Tensor, exact: Tensor, what: str = "", terms: int = 1) -> None:
    """result is as good as torch's own, in its dtype and shape, against float64."""
    assert result.dtype == own.dtype, (what, result.dtype, own.dtype)
    assert result.shape == exact.shape, (what, result.shape, exact.shape)
    error, allowed = max_error(result, exact), tolerance(own, exact, terms)
    assert error <= allowed, f"{what}: error {error:.3g} where {allowed:.3g} is allowed"
    assert bool(torch.isfinite(result).all()) or not exact.numel(), what
