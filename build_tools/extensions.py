"""The extensions that setup.py builds, and what torch.utils.cpp_extension has no word for.

That is: libraries that are no Python modules; a planner that others are linked with; CUDA beside a torch that
has none; HIP from sources as they are. CUDAExtension would do none of the last three: it names torch's CUDA
libraries, which a CPU torch lacks, links the shared runtime, and rewrites sources for ROCm.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ninja
import pybind11
import torch
from setuptools import Extension
from torch.utils import cpp_extension
from torch.utils.cpp_extension import BuildExtension, CppExtension

from build_tools import targets
from build_tools.toolchain import Cuda, Hip, Torch, nvcc_release

PLANNER = "convx.lib.libconvx_plan"


def extensions(torch_found: Torch, cuda: Cuda | None, hip: Hip | None, generated: Path) -> list[Extension]:
    """All of them; the planner first, since the others are linked with it."""
    facts = targets.information(torch_found, cuda, hip)
    cxx = targets.CXX_FLAGS
    # As system headers: their warnings are not ours.
    with_torch = [*cxx, *(f"-isystem{path}" for path in cpp_extension.include_paths())]
    beside = [*targets.LINK_FLAGS, "-Wl,-rpath,$ORIGIN"]
    found = [
        _extension(
            Extension,
            PLANNER,
            targets.planner_sources(),
            {"cxx": [*cxx, "-fvisibility=default"]},
            [*targets.LINK_FLAGS, "-Wl,-soname,libconvx_plan.so"],
        ),
        _extension(
            CppExtension,
            "convx.lib.libconvx_cpu",
            targets.cpu_sources(),
            {"cxx": [*with_torch, *targets.STABLE_ABI]},
            beside,
            py_limited_api=True,  # it knows no Python, and so serves every one
        ),
    ]
    if cuda is not None or hip is not None:
        flags = targets.gpu_flags(cuda, hip)
        if hip is not None:
            flags.append(f"-DCONVX_HEADERS={_digest_of_headers()}")  # torch's rule for HIP names no headers
        found.append(
            _extension(
                CppExtension,
                "convx.lib.libconvx_gpu",
                # The longest to compile first, so that all workers are busy to the end.
                targets.sources(*targets.GPU_KERNELS) + targets.gpu_host_sources(),
                {"cxx": [*with_torch, *targets.STABLE_ABI, *targets.GPU_DEFINES], "nvcc": flags},
                [*beside, *targets.gpu_libraries(torch_found, cuda, hip)],
                py_limited_api=True,
            )
        )
    found.append(
        _extension(
            Extension,
            "convx._core",
            targets.sources(*targets.MODULE),
            {
                "cxx": [
                    *cxx,
                    f"-isystem{pybind11.get_include()}",
                    f"-I{targets.write_information(generated, facts)}",
                ]
            },
            ["-Wl,-rpath,$ORIGIN/lib"],
        )
    )
    found.append(
        _extension(
            CppExtension,
            "convx._front",
            targets.sources(*targets.FRONT),
            {"cxx": with_torch},
            ["-Wl,-rpath,$ORIGIN/lib"],
        )
    )
    return found


def _extension(
    kind: Any, name: str, files: list[Path], flags: dict[str, list[str]], link: list[str], **more: Any
) -> Extension:
    made: Extension = kind(
        name,
        [str(path) for path in files],
        include_dirs=[str(targets.ROOT / targets.CSRC)],
        extra_compile_args=flags,
        extra_link_args=link,
        language="c++",
        **more,
    )
    return made


def _digest_of_headers() -> str:
    names = targets.sources("**/*.h", "**/*.cuh")
    text = b"".join((targets.ROOT / name).read_bytes() for name in names)
    return hashlib.sha256(text).hexdigest()[:16]


def command(cuda: Cuda | None, hip: Hip | None) -> type[BuildExtension]:
    """setuptools' build_ext for these compilers."""

    class BuildLibraries(BuildExtension):
        def get_ext_filename(self, fullname: str) -> str:
            *package, name = fullname.split(".")
            if name.startswith("libconvx_"):
                return os.path.join(*package, f"{name}.so")
            return str(super().get_ext_filename(fullname))  # type: ignore[no-untyped-call]

        def build_extensions(self) -> None:
            with _gpu_compiler(cuda, hip):
                super().build_extensions()

        def build_extension(self, extension: Extension) -> None:
            if extension.name != PLANNER:
                extension.extra_objects = [self.get_ext_fullpath(PLANNER)]
            # A folder for each: some share sources and not the flags, and ninja's records lie there.
            whole = str(self.build_temp)  # type: ignore[has-type]
            self.build_temp = os.path.join(whole, extension.name)
            try:
                super().build_extension(extension)
            finally:
                self.build_temp = whole

    return BuildLibraries


def find_ninja() -> None:
    """Puts the environment's ninja where BuildExtension looks: pip does not when it builds."""
    os.environ["PATH"] = os.pathsep.join([ninja.BIN_DIR, os.environ.get("PATH", "")])


@contextmanager
def _gpu_compiler(cuda: Cuda | None, hip: Hip | None) -> Iterator[None]:
    """Lets BuildExtension compile .cu files, for a CPU torch too, for which it knows no CUDA."""
    if cuda is None and hip is None:
        yield
        return
    named = os.environ.get("PYTORCH_NVCC")
    before = (cpp_extension.CUDA_HOME, torch.version.cuda)
    os.environ.setdefault("PYTORCH_NVCC", shlex.join(targets.gpu_compiler(cuda, hip)))
    if cuda is not None and torch.version.cuda is None:
        cpp_extension.CUDA_HOME, torch.version.cuda = str(cuda.home), nvcc_release(cuda)
    try:
        yield
    finally:
        cpp_extension.CUDA_HOME, torch.version.cuda = before
        if named is None:
            del os.environ["PYTORCH_NVCC"]
