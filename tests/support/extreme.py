"""Convolutions whose stride, padding and dilation may be anything that 64 bits hold, on tensors that stay
small: run in a process of its own, where memory beyond what the tensors explain is not there to be had."""

from __future__ import annotations

import json
import math
import resource
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import convx
import convx.functional as F
from convx import _planning
from convx import operators as ops
from convx._arguments import gives_channels_last

OPERATIONS = ("forward", "input_grad", "weight_grad")
MOST = 2**63 - 1
SMALL, HUGE = 2**16, 2**30  # elements of an output that is computed, and of one that can't be had
SPARE_BYTES = 2**30


@dataclass(frozen=True)
class Extreme:
    """One convolution of arrays of a few kilobytes; padding is (top, bottom, left, right)."""

    channels: int
    filters: int
    groups: int
    size: tuple[int, int]
    filter: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    dtype: str = "float32"
    channels_last: bool = False
    batch: int = 2

    @property
    def out_size(self) -> tuple[int, int]:
        reach = [(taps - 1) * step + 1 for taps, step in zip(self.filter, self.dilation, strict=True)]
        height, width = ((self.padded[i] - reach[i]) // self.stride[i] + 1 for i in (0, 1))
        return height, width

    @property
    def padded(self) -> tuple[int, int]:
        top, bottom, left, right = self.padding
        return self.size[0] + top + bottom, self.size[1] + left + right

    @property
    def geometry(self) -> tuple[Any, ...]:
        return self.stride, self.padding, self.dilation, self.groups


def places(case: Extreme, axis: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The input position that each output of an axis meets at each tap, and where it is no padding."""
    outputs, before, extent = case.out_size[axis], case.padding[2 * axis], case.size[axis]
    rows = [
        [o * case.stride[axis] - before + t * case.dilation[axis] for t in range(case.filter[axis])]
        for o in range(outputs)
    ]
    inside = np.array([[0 <= place < extent for place in row] for row in rows])
    return np.array([[place if 0 <= place < extent else 0 for place in row] for row in rows]), inside


def taps_of(case: Extreme) -> Iterator[tuple[int, int, Any, Any, np.ndarray[Any, Any]]]:
    """Each tap with the rows and columns of the input that outputs meet there, and which are input."""
    (down, is_row), (across, is_column) = places(case, 0), places(case, 1)
    for f, g in np.ndindex(*case.filter):
        yield f, g, down[:, f, None], across[None, :, g], is_row[:, f, None] & is_column[None, :, g]


def reference(case: Extreme, operation: str, input: Tensor, weight: Tensor, grad: Tensor) -> Tensor:
    """In float64, from the definition: padding takes no part, beside infinities and NaN neither."""
    x, w, dy = (t.double().numpy() for t in (input, weight, grad))
    x = x.reshape(case.batch, case.groups, -1, *case.size)
    w = w.reshape(case.groups, case.filters // case.groups, -1, *case.filter)
    dy = dy.reshape(case.batch, case.groups, -1, *case.out_size)
    output, input_grad, weight_grad = np.zeros_like(dy), np.zeros_like(x), np.zeros_like(w)
    for f, g, row, column, inside in taps_of(case):
        seen = x[:, :, :, row, column]
        if operation == "forward":
            output += np.where(inside, np.einsum("ngchw,gkc->ngkhw", seen, w[..., f, g]), 0)
        elif operation == "weight_grad":
            joined = np.where(inside, seen, 0), np.where(inside, dy, 0)
            weight_grad[..., f, g] = np.einsum("ngchw,ngkhw->gkc", *joined)
        else:
            spread = np.where(inside, np.einsum("ngkhw,gkc->ngchw", dy, w[..., f, g]), 0)
            np.add.at(input_grad, (slice(None), slice(None), slice(None), row, column), spread)
    result = {"forward": output, "input_grad": input_grad, "weight_grad": weight_grad}[operation]
    shape = {"forward": grad.shape, "input_grad": input.shape, "weight_grad": weight.shape}[operation]
    return torch.from_numpy(result.reshape(shape))


def random(case: Extreme, *size: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(size))
    return torch.randn(*size, generator=generator).to(getattr(torch, case.dtype))


def images_of(case: Extreme, channels: int, size: tuple[int, int]) -> Tensor:
    layout = torch.channels_last if case.channels_last else torch.contiguous_format
    return random(case, case.batch, channels, *size).contiguous(memory_format=layout)


def weight_of(case: Extreme) -> Tensor:
    return random(case, case.filters, case.channels // case.groups, *case.filter)


def algorithms(case: Extreme, operation: str, input: Tensor, weight: Tensor, grad: Tensor) -> list[str]:
    """Every plan of convx's own for the problem, and auto where it takes one of them: torch's convolution
    may end the process by itself."""
    first = grad if operation == "input_grad" else input
    second = grad if operation == "weight_grad" else weight
    problem = _planning.problem(
        operation,
        getattr(torch, case.dtype),
        gives_channels_last(first, second),
        (case.batch, case.channels, *case.size),
        (case.filters, case.channels // case.groups, *case.filter),
        *case.geometry,
    )
    core, device = _planning.core(), _planning.device("cpu")
    own = [row["name"] for row in convx.methods() if row["name"] != "native"]
    plans = [plan.name for method in own for plan in core.candidates(method, problem, device)]
    return (["auto"] if core.select(problem, device).plan.method in own else []) + plans


def compute(
    case: Extreme, operation: str, algorithm: str, input: Tensor, weight: Tensor, grad: Tensor
) -> Tensor:
    if operation == "forward":
        return ops.conv2d(input, weight, None, *case.geometry, "none", algorithm, 0)
    if operation == "input_grad":
        return ops.conv2d_input_grad(grad, weight, list(input.shape), *case.geometry, algorithm, 0)
    return ops.conv2d_weight_grad(input, grad, list(weight.shape), *case.geometry, algorithm, 0)


def by_function(case: Extreme, operation: str, input: Tensor, weight: Tensor, grad: Tensor) -> Tensor:
    """As users call it: 1D where the height is nothing, gradients by autograd."""
    top, bottom, left, right = case.padding
    input, weight = input.clone().requires_grad_(), weight.clone().requires_grad_()
    if case.size[0] == case.filter[0] == 1 and top == bottom == 0:
        output = F.conv1d(
            input[:, :, 0],
            weight[:, :, 0],
            None,
            case.stride[1],
            ((left, right),),
            case.dilation[1],
            case.groups,
        )[:, :, None]
    else:
        pads = ((top, bottom), (left, right))
        output = F.conv2d(input, weight, None, case.stride, pads, case.dilation, case.groups)
    if operation == "forward":
        return output.detach()
    input_grad, weight_grad = torch.autograd.grad(output, (input, weight), grad)
    return input_grad if operation == "input_grad" else weight_grad


def check_refused(case: Extreme, error: type[Exception] | tuple[type[Exception], ...]) -> None:
    """Each operation says that it can't, where there is no output or no memory for it."""
    input, weight = images_of(case, case.channels, case.size), weight_of(case)
    shape = (case.batch, case.filters, *case.out_size)
    grad = input.new_zeros(1).expand(shape) if min(shape) > 0 and math.prod(shape) <= MOST // 8 else input
    for operation in OPERATIONS:
        try:
            compute(case, operation, "auto", input, weight, grad)
        except error as refusal:
            assert str(refusal)
        else:
            raise AssertionError(f"{operation} of what can't be")


def check(case: Extreme) -> None:
    """Right results where the tensors are small, by every algorithm; an error where there can be none."""
    elements = case.batch * case.filters * math.prod(case.out_size)
    if min(case.out_size) < 1 or max(case.padded) > MOST:
        return check_refused(case, ValueError)
    if elements >= HUGE:
        return check_refused(case, (RuntimeError, ValueError))
    if elements > SMALL:
        return  # only takes long
    input, weight = images_of(case, case.channels, case.size), weight_of(case)
    grad = images_of(case, case.filters, case.out_size)
    tolerance = {"float32": 1e-4, "float64": 1e-9, "bfloat16": 0.1}[case.dtype]
    names = {operation: algorithms(case, operation, input, weight, grad) for operation in OPERATIONS}
    is_own = all("auto" in names[operation] for operation in OPERATIONS)
    for operation in OPERATIONS:
        exact = reference(case, operation, input, weight, grad)
        results = {name: compute(case, operation, name, input, weight, grad) for name in names[operation]}
        if is_own:
            results["functional"] = by_function(case, operation, input, weight, grad)
        for name, result in results.items():
            assert torch.allclose(result.double(), exact, rtol=tolerance, atol=tolerance), (
                f"{operation} by {name}"
            )


def main() -> None:
    cases = [Extreme(**fields) for fields in json.loads(Path(sys.argv[1]).read_text())]
    torch.set_num_threads(2)
    check(
        Extreme(20, 20, 20, (9, 9), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1))
    )  # threads and libraries are there now
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE_BYTES, used + SPARE_BYTES))
    for case in cases:
        print("CASE", json.dumps(asdict(case)), flush=True)
        check(case)
    print("DONE")


if __name__ == "__main__":
    main()
