"""NVIDIA Performance Primitives' filter of one image, from the CUDA toolkit (libnppif) by ctypes."""

from __future__ import annotations

import ctypes
import functools
import sysconfig
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

MAJORS = (13, 12)  # toolkits whose functions take a stream context: from 13 on there are no others
_REPLICATE = 2  # NPP_BORDER_REPLICATE, the only border that nppiFilterBorder has
_BLOCK = (1024, 48 << 10)  # threads and bytes of shared memory of a block, on every GPU


class _Pair(ctypes.Structure):
    """NppiSize (width, height) and NppiPoint (x, y)."""

    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_int))


class _StreamContext(ctypes.Structure):
    """NppStreamContext, of nppdefs.h."""

    _fields_ = (
        ("stream", ctypes.c_void_p),
        ("device", ctypes.c_int),
        ("multiprocessors", ctypes.c_int),
        ("threads_of_multiprocessor", ctypes.c_int),
        ("threads_of_block", ctypes.c_int),
        ("shared_bytes_of_block", ctypes.c_size_t),
        ("capability_major", ctypes.c_int),
        ("capability_minor", ctypes.c_int),
        ("stream_flags", ctypes.c_uint),
        ("reserved", ctypes.c_int),
    )


# source, step in bytes, size, offset; result, step, size; filter, size, anchor, border, stream context
_ARGUMENTS = (
    *(ctypes.c_void_p, ctypes.c_int, _Pair, _Pair),
    *(ctypes.c_void_p, ctypes.c_int, _Pair),
    *(ctypes.c_void_p, _Pair, _Pair, ctypes.c_int, _StreamContext),
)
_FUNCTIONS = {
    torch.float32: "nppiFilterBorder_32f_C1R_Ctx",
    torch.uint8: "nppiFilterBorder32f_8u_C1R_Ctx",  # weights are floats
}


@functools.cache
def library() -> ctypes.CDLL:
    """Raises ImportError where there is none."""
    packages = Path(sysconfig.get_path("purelib")) / "nvidia"
    for major in MAJORS:
        folders = ("", f"{packages}/cu{major}/lib/", f"{packages}/npp/lib/", "/usr/local/cuda/lib64/")
        for folder in folders:
            try:
                if folder:  # libnppif needs it, and would not look there
                    ctypes.CDLL(f"{folder}libnppc.so.{major}", mode=ctypes.RTLD_GLOBAL)
                return ctypes.CDLL(f"{folder}libnppif.so.{major}")
            except OSError:
                continue
    raise ImportError("libnppif is neither on the loader's path nor in an nvidia-npp package")


def filter2d(images: list[Tensor], weights: Tensor) -> Callable[[int], Tensor]:
    """A correlation of image index % len(images) with square weights, on the current stream. NPP repeats the
    pixels at the edge where the others see zeros, which it can't; it reads as much."""
    like = images[0]
    function = getattr(library(), _FUNCTIONS[like.dtype])
    function.argtypes, function.restype = _ARGUMENTS, ctypes.c_int
    reversed_taps = weights.flip(0, 1).contiguous()  # as NPP wants them
    facts = torch.cuda.get_device_properties(like.device)
    height, width = like.shape
    step, size, extent = width * like.element_size(), _Pair(width, height), weights.shape[-1]

    def call(index: int) -> Tensor:
        image = images[index % len(images)]
        result = torch.empty_like(image)
        context = _StreamContext(
            torch.cuda.current_stream().cuda_stream,
            like.device.index or 0,
            facts.multi_processor_count,
            facts.max_threads_per_multi_processor,
            *_BLOCK,
            *(facts.major, facts.minor),
            *(1, 0),  # cudaStreamNonBlocking, as torch's own streams are
        )
        source = (image.data_ptr(), step, size, _Pair(0, 0))
        taps = (reversed_taps.data_ptr(), _Pair(extent, extent), _Pair(extent // 2, extent // 2))
        status = function(*source, result.data_ptr(), step, size, *taps, _REPLICATE, context)
        if status < 0:  # above 0 are warnings
            raise RuntimeError(f"{_FUNCTIONS[like.dtype]} returned {status}")
        return result

    return call
