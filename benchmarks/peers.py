"""The ways to do one problem: convx's functions, and torch's own convolutions by every road to one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

import convx.functional
from benchmarks import cudnn
from benchmarks.operands import Pair
from benchmarks.suites import DTYPES, LAYOUTS, Problem
from convx.functional import PackedFilters

Function = Callable[[Tensor, Tensor], Tensor]

# torch: what torch's choice takes in the problem's layout. torch_other_layout, in results torch_nchw or
# torch_channels_last: the same on operands in the other layout. cudnn: cuDNN by name (none for weight_grad,
# where torch has no way to ask for it; channels_last goes to cuDNN anyway). native: torch's own depthwise
# kernels, cuDNN switched off. matmul: one product per image, for filters of one tap. im2col: unfolded columns
# and a product. cudnn_algorithms: each of cuDNN's by name (cudnn_winograd); torch has no way to ask for one.
# onednn: torch's CPU convolution with filters that oneDNN has put into its own order beforehand, as inductor
# does when it freezes a model; its results are in channels_last. onednn_off: torch's without oneDNN.
# inductor: torch.compile. torch_again: torch once more, to tell what differs by chance.
GPU_PEERS = ("torch", "torch_other_layout", "cudnn", "native", "matmul")
CPU_PEERS = ("torch", "torch_other_layout", "matmul")
PEERS = (*GPU_PEERS, "im2col", "cudnn_algorithms", "onednn", "onednn_off", "inductor", "torch_again")


def other_layout(layout: str) -> str:
    return LAYOUTS[1 - LAYOUTS.index(layout)]


def use_tf32(allowed: bool) -> None:
    """The precision of float32 convolutions and products, for every contender."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """use_tf32 for a while."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    use_tf32(allowed)
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def convx_function(problem: Problem, algorithm: str, on_gpu: bool) -> Function:
    """The public functions, as users call them; packed filters are kept, as a layer keeps them."""
    shape, batch, at = problem.shape, problem.batch, convx.functional
    options: Any = {
        "stride": shape.strides,
        "padding": shape.paddings,
        "dilation": shape.dilations,
        "groups": shape.groups,
        "algorithm": algorithm,
    }
    if problem.operation == "forward":
        if on_gpu:
            return _KeepingPacked(problem, algorithm)
        packed = PackedFilters()
        return lambda x, w: at.conv2d(x, w, **options, packed=packed)
    if problem.operation == "input_grad":
        size = shape.input_size(batch)
        return lambda dy, w: at.conv2d_input_grad(dy, w, size, **options)
    return lambda x, dy: at.conv2d_weight_grad(x, dy, shape.weight_size, **options)


class _KeepingPacked:
    """conv2d with filters packed at the first call, which is never within a CUDA graph: in one, a layer packs
    anew, so that replays see what its weight holds then."""

    def __init__(self, problem: Problem, algorithm: str) -> None:
        shape = problem.shape
        self._rest = (
            shape.strides,
            shape.sides,
            shape.dilations,
            shape.groups,
            "none",
            algorithm,
            problem.tf32_setting,
        )
        self._packed: Tensor | None = None

    def __call__(self, x: Tensor, w: Tensor) -> Tensor:
        if self._packed is None:
            self._packed = torch.ops.convx.pack_weight(x, w, None, *self._rest)
        packed = self._packed if self._packed.numel() else None
        result: Tensor = torch.ops.convx.conv2d(x, w, None, *self._rest, packed)
        return result


def torch_function(problem: Problem, layout: str, device: torch.device) -> Function:
    """torch's own convolution; gradients one at a time, as aten.convolution_backward gives them."""
    shape, batch = problem.shape, problem.batch
    step, sides, dilation, groups = shape.strides, shape.paddings, shape.dilations, shape.groups
    if problem.operation == "forward":
        return lambda x, w: torch.nn.functional.conv2d(x, w, None, step, sides, dilation, groups)
    options = (step, sides, dilation, False, [0, 0], groups)
    dtype = DTYPES[problem.dtype]
    if problem.operation == "input_grad":
        # Only the size and layout of the input matter.
        wanted = torch.channels_last if layout == "channels_last" else torch.contiguous_format
        like = torch.empty(shape.input_size(batch), dtype=dtype, device=device, memory_format=wanted)
        return lambda dy, w: _backward(dy, like, w, options, 0)
    weight = torch.empty(shape.weight_size, dtype=dtype, device=device)
    return lambda x, dy: _backward(dy, x, weight, options, 1)


def _backward(dy: Tensor, x: Tensor, w: Tensor, options: tuple[object, ...], wanted: int) -> Tensor:
    mask = [index == wanted for index in range(3)]
    result: Tensor = torch.ops.aten.convolution_backward(dy, x, w, None, *options, mask)[wanted]
    return result


def cudnn_function(problem: Problem) -> Function | None:
    shape = problem.shape
    step, sides, dilation = [shape.stride] * 2, [shape.padding] * 2, [1, 1]
    flags = (shape.groups, torch.backends.cudnn.benchmark, False, problem.tf32)
    if problem.operation == "forward":
        return lambda x, w: torch.ops.aten.cudnn_convolution(x, w, sides, step, dilation, *flags)
    if problem.operation == "input_grad":
        reached = (shape.out_size - 1) * shape.stride - 2 * shape.padding + shape.filter
        rest = [shape.size - reached] * 2
        transpose = torch.ops.aten.cudnn_convolution_transpose
        return lambda dy, w: transpose(dy, w, sides, rest, step, dilation, *flags)
    return None


def matmul_function(problem: Problem) -> Function | None:
    """One product per image; none where a filter has several taps or the operation is a gradient."""
    shape = problem.shape
    if problem.operation != "forward" or (shape.filter, shape.stride, shape.groups) != (1, 1, 1):
        return None
    size = shape.output_size(problem.batch)
    if problem.layout == "nchw":
        return lambda x, w: torch.matmul(w.flatten(1), x.flatten(2)).view(size)
    # The pixels of a channels_last image are rows of a matrix.
    return lambda x, w: torch.nn.functional.linear(x.permute(0, 2, 3, 1), w.flatten(1)).permute(0, 3, 1, 2)


def im2col_function(problem: Problem) -> Function | None:
    shape = problem.shape
    if problem.operation != "forward" or shape.groups != 1 or problem.layout != "nchw":
        return None
    size, unfold = shape.output_size(problem.batch), torch.nn.functional.unfold
    step, sides = shape.stride, shape.padding

    def call(x: Tensor, w: Tensor) -> Tensor:
        columns = unfold(x, shape.filter, padding=sides, stride=step)
        return torch.matmul(w.flatten(1), columns).view(size)

    return call


def cudnn_algorithms(problem: Problem, device: torch.device) -> dict[str, Function]:
    """Those that can run the problem."""
    if problem.operation != "forward" or problem.layout != "nchw":
        return {}
    shape, batch, found = problem.shape, problem.batch, {}
    sizes = (shape.input_size(batch), shape.weight_size, shape.output_size(batch))
    how = (shape.stride, shape.padding, shape.groups)
    for name in cudnn.ALGORITHMS:
        with suppress(cudnn.CudnnError):
            made = cudnn.convolution(name, *sizes, DTYPES[problem.dtype], device, *how, tf32=problem.tf32)
            found[f"cudnn_{name}"] = made
    return found


def onednn_function(problem: Problem) -> Function | None:
    if problem.operation != "forward" or not torch.backends.mkldnn.is_available():
        return None
    shape, packed = problem.shape, list[Tensor]()
    options = ([shape.padding] * 2, [shape.stride] * 2, [1, 1], shape.groups)
    size = shape.input_size(problem.batch)

    def call(x: Tensor, w: Tensor) -> Tensor:
        if not packed:
            packed.append(torch.ops.mkldnn._reorder_convolution_weight(w, *options, size))
        result: Tensor = torch.ops.mkldnn._convolution_pointwise(x, packed[0], None, *options, "none", [], "")
        return result

    return call


@contextmanager
def _without_cudnn() -> Iterator[None]:
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before


def _without_onednn() -> AbstractContextManager[None]:
    context: AbstractContextManager[None] = torch.backends.mkldnn.flags(enabled=False)
    return context


def _within(context: Callable[[], AbstractContextManager[None]], function: Function) -> Function:
    def call(first: Tensor, second: Tensor) -> Tensor:
        with context():
            return function(first, second)

    return call


def contenders(
    problem: Problem, algorithms: list[str], peers: tuple[str, ...], device: torch.device
) -> dict[str, tuple[Function, str]]:
    """Name -> (function, its operands' layout); "convx" is algorithms[0], others go by their names."""
    on_gpu = device.type == "cuda"
    layout = problem.layout
    same = torch_function(problem, layout, device)
    result: dict[str, tuple[Function, str]] = {}
    for index, algorithm in enumerate(algorithms):
        result[algorithm if index else "convx"] = (convx_function(problem, algorithm, on_gpu), layout)
    if "torch" in peers:
        result["torch"] = (same, layout)
    if "torch_again" in peers:
        result["torch_again"] = (same, layout)
    if "torch_other_layout" in peers:
        other = other_layout(layout)
        result[f"torch_{other}"] = (torch_function(problem, other, device), other)
    if "cudnn" in peers and on_gpu:
        forced = cudnn_function(problem)
        if forced is not None:
            result["cudnn"] = (forced, layout)
    if "native" in peers and on_gpu:
        result["native"] = (_within(_without_cudnn, same), layout)
    for name, made in (("matmul", matmul_function), ("im2col", im2col_function)):
        function = made(problem) if name in peers else None
        if function is not None:
            result[name] = (function, layout)
    if "cudnn_algorithms" in peers and on_gpu:
        for name, function in cudnn_algorithms(problem, device).items():
            result[name] = (function, layout)
    if "onednn" in peers and not on_gpu:
        prepared = onednn_function(problem)
        if prepared is not None:
            result["onednn"] = (prepared, layout)
    if "onednn_off" in peers and not on_gpu:
        result["onednn_off"] = (_within(_without_onednn, same), layout)
    if "inductor" in peers:
        torch.compiler.reset()
        result["inductor"] = (torch.compile(same, dynamic=False), layout)
    return result


def rotated(function: Function, pairs: list[Pair]) -> Callable[[int], Tensor]:
    return lambda index: function(*pairs[index % len(pairs)])
