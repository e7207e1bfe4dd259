"""The GPU makers' run-time compilers, NVRTC and hipRTC, through ctypes. Neither needs a GPU."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OPTIONS = {
    "nvrtc": ("--gpu-architecture={target}", "--std=c++17"),
    "hiprtc": ("--offload-arch={target}", "-std=c++17", "-O3"),
}


class CompilerMissing(RuntimeError):
    """No run-time compiler was found; the message says where it was looked for and how to get one."""


class CompileError(RuntimeError):
    """The compiler refused a source; the message is its log."""


@dataclass(frozen=True)
class Compiler:
    """A loaded NVRTC or hipRTC."""

    kind: str
    """ "nvrtc" or "hiprtc"; also the prefix of its functions."""
    version: str
    path: str
    _library: Any

    def options(self, target: str) -> list[str]:
        return [option.format(target=target) for option in _OPTIONS[self.kind]]

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, self.kind + name)(*arguments)
        if status != 0:
            error_text = getattr(self._library, f"{self.kind}GetErrorString")
            error_text.restype = ctypes.c_char_p
            raise CompileError(f"{self.kind}{name}: {error_text(status).decode()}")

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", program, buffer)
        return buffer.raw

    def compile(self, text: str, target: str) -> bytes:
        """The binary for a target ("sm_90", "gfx90a"); CompileError with the log where there is none."""
        options = [option.encode() for option in self.options(target)]
        program = ctypes.c_void_p()
        self._call(
            "CreateProgram", ctypes.byref(program), text.encode(), b"convx_generated.cu", 0, None, None
        )
        try:
            try:
                self._call(
                    "CompileProgram", program, len(options), (ctypes.c_char_p * len(options))(*options)
                )
            except CompileError as error:
                log = self._bytes(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
                raise CompileError(f"{error} for {target}\n{log}") from None
            return self._bytes(program, "CUBIN" if self.kind == "nvrtc" else "Code")
        finally:
            self._call("DestroyProgram", ctypes.byref(program))


def target_of(device: Any) -> str:
    """The compilers' name for a _core.Device."""
    return f"gfx{device.architecture:x}" if device.backend == "hip" else f"sm_{device.architecture}"


def _packaged(*patterns: str) -> Iterator[Path]:
    """Libraries in the nvidia packages, where torch's CUDA builds and nvidia-cuda-nvrtc bring them."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or [] if spec is not None else []:
        for pattern in patterns:
            yield from sorted(Path(folder).glob(pattern), reverse=True)


def _places(kind: str) -> Iterator[str]:
    """Paths and names to try, the likeliest first."""
    if kind == "nvrtc":
        yield from map(str, _packaged("cu*/lib/libnvrtc.so.*", "cuda_nvrtc/lib/libnvrtc.so.*"))
        roots, names = ("CUDA_HOME", "CUDA_PATH"), ("libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12")
        default = Path("/usr/local/cuda")
    else:
        roots, names = ("ROCM_HOME", "ROCM_PATH"), ("libhiprtc.so", "libamdhip64.so", "libamdhip64.so.5")
        default = Path("/opt/rocm")
    for root in [*(Path(os.environ[each]) for each in roots if os.environ.get(each)), default]:
        for folder in ("lib64", "lib"):
            yield from (str(path) for name in names if (path := root / folder / name).exists())
    found = ctypes.util.find_library(names[0].removeprefix("lib").removesuffix(".so"))
    yield from ([found] if found else [])
    yield from names


@functools.cache
def find(backend: str) -> Compiler:
    """NVRTC for "cuda", hipRTC for "hip"; CompilerMissing where there is none."""
    kind = "hiprtc" if backend == "hip" else "nvrtc"
    reasons = []
    for place in dict.fromkeys(_places(kind)):
        try:
            library = ctypes.CDLL(place)
            major, minor = ctypes.c_int(), ctypes.c_int()
            if getattr(library, f"{kind}Version")(ctypes.byref(major), ctypes.byref(minor)) != 0:
                raise OSError("it does not tell its version")
        except (OSError, AttributeError) as error:
            reasons.append(f"{place}: {error}")
            continue
        return Compiler(kind, f"{major.value}.{minor.value}", place, library)
    package = (
        "nvidia-cuda-nvrtc (pip)" if kind == "nvrtc" else "libamdhip64-5 and libhiprtc-builtins5 (Debian)"
    )
    raise CompilerMissing(f"no {kind} found; {package} has it; tried {'; '.join(reasons)}")
