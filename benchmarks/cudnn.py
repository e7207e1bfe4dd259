"""cuDNN's forward algorithms one by one, through its C interface: torch has no way to ask for one of them."""

from __future__ import annotations

import ctypes
import functools
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# cudnnConvolutionFwdAlgo_t. 3 would be "direct", which cuDNN names and does not have.
ALGORITHMS = {
    "implicit_gemm": 0,
    "implicit_precomp_gemm": 1,
    "gemm": 2,
    "fft": 4,
    "fft_tiling": 5,
    "winograd": 6,
    "winograd_nonfused": 7,
}
WORKSPACE_LIMIT = 1 << 30  # as in the paper on cuConv
_DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 9}  # cudnnDataType_t
_NCHW, _CROSS_CORRELATION, _DEFAULT_MATH, _TENSOR_OP_MATH, _FMA_MATH = 0, 1, 0, 1, 3


class CudnnError(RuntimeError):
    """cuDNN is not there, or has no such algorithm for a problem."""


class _Library:
    """The shared library; a call that fails raises."""

    def __init__(self) -> None:
        major = (torch.backends.cudnn.version() or 0) // 10000
        name = f"libcudnn.so.{major}"
        # torch has loaded it where it comes with the system; wheels keep it beside torch.
        beside = Path(sysconfig.get_path("purelib")) / "nvidia/cudnn/lib" / name
        for path in (name, str(beside)):
            try:
                self._functions = ctypes.CDLL(path)
                return
            except OSError:
                continue
        raise CudnnError(f"{name} is not found" if major else "this torch has no cuDNN")

    def call(self, function: str, *arguments: Any) -> None:
        """ctypes takes Python's integers for C's int; whatever is not one comes with its type."""
        status = getattr(self._functions, function)(*arguments)
        if status != 0:
            raise CudnnError(f"{function} returned {status}")

    def create(self, kind: str) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self.call(f"cudnnCreate{kind}", ctypes.byref(made))
        return made


@functools.cache
def library() -> _Library:
    return _Library()


@functools.cache
def _handle(device: torch.device) -> ctypes.c_void_p:
    with torch.cuda.device(device):
        return library().create("")


def convolution(
    algorithm: str,
    input_size: tuple[int, ...],
    weight_size: tuple[int, ...],
    output_size: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    tf32: bool = False,
) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of (x, w), both contiguous, that runs on the current stream.

    Raises CudnnError where the algorithm can't run the problem, or needs more than WORKSPACE_LIMIT.
    """
    cudnn, handle, kind = library(), _handle(device), _DTYPES[dtype]
    x, y = cudnn.create("TensorDescriptor"), cudnn.create("TensorDescriptor")
    w, how = cudnn.create("FilterDescriptor"), cudnn.create("ConvolutionDescriptor")
    cudnn.call("cudnnSetTensor4dDescriptor", x, _NCHW, kind, *input_size)
    cudnn.call("cudnnSetFilter4dDescriptor", w, kind, _NCHW, *weight_size)
    cudnn.call("cudnnSetTensor4dDescriptor", y, _NCHW, kind, *output_size)
    sums = kind if dtype == torch.float64 else _DTYPES[torch.float32]
    sides, steps = (padding, padding), (stride, stride)
    cudnn.call("cudnnSetConvolution2dDescriptor", how, *sides, *steps, 1, 1, _CROSS_CORRELATION, sums)
    cudnn.call("cudnnSetConvolutionGroupCount", how, groups)
    half = dtype in (torch.float16, torch.bfloat16)
    math = _TENSOR_OP_MATH if half else _DEFAULT_MATH if tf32 else _FMA_MATH
    cudnn.call("cudnnSetConvolutionMathType", how, math)
    number, needed = ALGORITHMS[algorithm], ctypes.c_size_t()
    cudnn.call("cudnnGetConvolutionForwardWorkspaceSize", handle, x, w, how, y, number, ctypes.byref(needed))
    if needed.value > WORKSPACE_LIMIT:
        raise CudnnError(f"{algorithm} would take {needed.value >> 20} MiB of workspace")
    workspace = torch.empty(needed.value, dtype=torch.uint8, device=device)
    scalar = ctypes.c_double if dtype == torch.float64 else ctypes.c_float
    one, zero = scalar(1), scalar(0)

    def run(source: Tensor, weight: Tensor) -> Tensor:
        result = torch.empty(output_size, dtype=dtype, device=device)
        stream = torch.cuda.current_stream(device).cuda_stream
        cudnn.call("cudnnSetStream", handle, ctypes.c_void_p(stream))
        cudnn.call(
            "cudnnConvolutionForward",
            handle,
            ctypes.byref(one),
            x,
            ctypes.c_void_p(source.data_ptr()),
            w,
            ctypes.c_void_p(weight.data_ptr()),
            how,
            number,
            ctypes.c_void_p(workspace.data_ptr()),
            needed,
            ctypes.byref(zero),
            y,
            ctypes.c_void_p(result.data_ptr()),
        )
        return result

    return run
