"""What convx's binaries are made of, for setup.py and the compile checks: sources, flags and libraries."""

from __future__ import annotations

import shlex
import subprocess
import sysconfig
from pathlib import Path

from build_tools import generated, toolchain
from build_tools.toolchain import Cuda, Hip, Torch

ROOT = Path(__file__).resolve().parent.parent
CSRC = Path("csrc")

# No debug information, and overflow as C++ has it: Python's own flags, which setuptools adds, would have
# kernels compiled with -g and -fwrapv.
CXX_FLAGS = ["-O3", "-fvisibility=hidden", "-Wall", "-Wextra", "-g0", "-fno-wrapv"]
# torch forbids its extensions the conversions of half types; kernels use them. On the host there is nothing
# but launches: its compiler's -O3 would take a sixth of all the time.
NVCC_FLAGS = [
    *("-O3", "-std=c++17", "--expt-relaxed-constexpr", "-Xcompiler", "-O2,-fPIC,-fvisibility=hidden"),
    *(f"-U__CUDA_NO_{each}__" for each in ("HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS")),
    "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
]
HIP_FLAGS = [
    *("-O3", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-D__HIP_PLATFORM_AMD__=1"),
    *("-U__HIP_NO_HALF_OPERATORS__", "-U__HIP_NO_HALF_CONVERSIONS__"),
]
# Registers, shared memory and spills of each kernel.
NVCC_REPORT = ["-Xptxas=-v"]
HIP_REPORT = ["-Rpass-analysis=kernel-resource-usage"]

# A launcher that nobody wrote fails when the library is linked rather than at import; torch's libraries are
# named even where the linker sees no need.
LINK_FLAGS = ["-Wl,--no-undefined", "-Wl,--no-as-needed"]
STABLE_ABI = [toolchain.TORCH_TARGET]
GPU_DEFINES = ["-DCONVX_GPU", "-DUSE_CUDA"]


def sources(*patterns: str) -> list[Path]:
    """Files under csrc, and of those that the build writes, that match, in a fixed order, relative to the
    checkout."""
    written = set(generated.write())
    found = set()
    for folder in (CSRC, generated.FOLDER):
        here = {path.relative_to(ROOT) for pattern in patterns for path in (ROOT / folder).glob(pattern)}
        found |= here if folder == CSRC else here & written
    return sorted(found)


# Planning needs neither torch nor a GPU. One library has it, which the others share: one registry, one table
# of plans, one of what was tuned.
PLANNER = (
    "platform/cpu/*.cpp",
    "problem/*.cpp",
    "plan/*.cpp",
    "choose/*.cpp",
    "methods/**/plan*.cpp",
    "methods/*/generator/*.cpp",
)
CPU_KERNELS = ("methods/**/cpu/*.cpp", "methods/cpu.cpp")
GPU_KERNELS = ("platform/gpu/*.cu", "methods/**/*.cu")
# From a plan to the launcher of its kernel: no kernels, so no GPU compiler.
GPU_DISPATCH = ("methods/**/gpu.cpp",)
MODULE = ("python/*.cpp",)
FRONT = ("front/*.cpp",)


def planner_sources() -> list[Path]:
    return sources(*PLANNER)


def cpu_sources() -> list[Path]:
    kernels = [path for path in sources(*CPU_KERNELS) if path not in planner_sources()]
    return kernels + [path for path in sources("torch/*.cpp") if path.stem != "backend_gpu"]


def gpu_host_sources() -> list[Path]:
    operators = [path for path in sources("torch/*.cpp") if path.stem not in ("backend_cpu", "schema")]
    return sources(*GPU_DISPATCH) + operators


def gpu_compiler(cuda: Cuda | None, hip: Hip | None) -> list[str]:
    """The command that compiles a .cu file, up to the flags."""
    if cuda is not None:
        return [str(cuda.nvcc)]
    assert hip is not None
    # hipcc takes nvcc where it finds one, unless it is told otherwise.
    return ["env", "HIP_PLATFORM=amd", str(hip.hipcc), "-x", "hip"]


def gpu_flags(cuda: Cuda | None, hip: Hip | None) -> list[str]:
    if cuda is not None:
        return [*NVCC_FLAGS, *cuda.architecture_flags]
    assert hip is not None
    return [*HIP_FLAGS, *(f"--offload-arch={each}" for each in hip.architectures)]


def gpu_libraries(torch: Torch, cuda: Cuda | None, hip: Hip | None) -> list[str]:
    """What a library with GPU code is linked with beside what torch has for CPUs."""
    runtime = _gpu_runtime(cuda, hip)
    name = "torch_cuda" if hip is None else "torch_hip"
    if torch.cuda is not None or torch.hip is not None:
        return [f"-L{torch.root / 'lib'}", f"-l{name}", *runtime]
    # A CPU torch lacks the library that has the current stream: one of its name satisfies the linker.
    folder = ROOT / "build" / "stand-in"
    folder.mkdir(parents=True, exist_ok=True)
    source, library = folder / f"{name}.c", folder / f"lib{name}.so"
    source.write_text("void aoti_torch_get_current_cuda_stream(void) {}\n")
    soname = f"-Wl,-soname,{library.name}"
    command = [*toolchain.cxx(), "-shared", "-fPIC", "-x", "c", soname, str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return [f"-L{folder}", f"-l{name}", *runtime]


def _gpu_runtime(cuda: Cuda | None, hip: Hip | None) -> list[str]:
    if cuda is not None:
        # The static runtime can't clash with the one that torch loaded.
        return [*toolchain.nvcc_library_flags(cuda), "-lcudart_static", "-lrt", "-ldl", "-lpthread"]
    assert hip is not None
    return [f"-L{hip.home / 'lib'}", "-lamdhip64"]


def information(torch: Torch, cuda: Cuda | None, hip: Hip | None) -> dict[str, str]:
    """What `python -m convx info` says about the build."""
    facts = {
        "torch": torch.version,
        "compiler": toolchain.compiler_version(toolchain.cxx()),
        "flags": shlex.join([*shlex.split(sysconfig.get_config_var("CFLAGS") or ""), *CXX_FLAGS]),
        "gpu": "none",
    }
    if cuda is not None:
        facts["gpu"] = "cuda"
        facts["gpu_compiler"] = toolchain.compiler_version([str(cuda.nvcc)])
        facts["gpu_architectures"] = cuda.architectures
        facts["gpu_flags"] = shlex.join(NVCC_FLAGS)
    elif hip is not None:
        facts["gpu"] = "hip"
        facts["gpu_compiler"] = toolchain.compiler_version([str(hip.hipcc)])
        facts["gpu_architectures"] = ";".join(hip.architectures)
        facts["gpu_flags"] = shlex.join(HIP_FLAGS)
    return facts


def write_information(folder: Path, facts: dict[str, str]) -> Path:
    """The header that tells convx._core, in a folder to be searched for headers."""
    lines = [f'    {{"{name}", R"({value})"}},' for name, value in facts.items()]
    text = "\n".join(["static constexpr const char* kBuildInformation[][2] = {", *lines, "};", ""])
    header = folder / "build_information.h"
    folder.mkdir(parents=True, exist_ok=True)
    if not header.exists() or header.read_text() != text:
        header.write_text(text)
    return folder
