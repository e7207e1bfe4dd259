"""The three binaries and the commands that make them."""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from build_tools import toolchain
from build_tools.compile import Step, run_steps
from build_tools.toolchain import Cuda, Hip, Torch

ROOT = Path(__file__).resolve().parent.parent
CSRC = Path("csrc")
# One folder for every way of building, so that only what changed is compiled again.
OBJECTS = Path("build/objects")

CXX_FLAGS = ["-O3", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-DNDEBUG"]
NVCC_FLAGS = ["-O3", "-std=c++17", "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC,-fvisibility=hidden"]
HIP_FLAGS = ["-O3", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-D__HIP_PLATFORM_AMD__=1"]
# Registers, shared memory and spills of each kernel.
NVCC_REPORT = ["-Xptxas=-v"]
HIP_REPORT = ["-Rpass-analysis=kernel-resource-usage"]

# A launcher that nobody wrote fails here rather than at import.
NO_UNDEFINED = "-Wl,--no-undefined"


def sources(*patterns: str) -> list[Path]:
    """Files under csrc that match, in a fixed order, relative to the checkout."""
    return sorted(path.relative_to(ROOT) for pattern in patterns for path in (ROOT / CSRC).glob(pattern))


# Planning needs neither torch nor a GPU: it is in all three binaries.
PLANNER = ("problem/*.cpp", "select/*.cpp", "methods/**/plan*.cpp", "methods/*/generator/*.cpp")
CPU_KERNELS = ("methods/**/cpu/*.cpp",)
OPERATORS = ("torch/*.cpp",)
GPU_KERNELS = ("platform/*.cu", "methods/**/*.cu")
# From a plan to the launcher of its kernel: no kernels, so no GPU compiler.
GPU_DISPATCH = ("methods/**/gpu.cpp",)


@dataclass
class Build:
    """Commands for one torch and one set of compilers, with objects under one folder.

    Builds for other targets may share the folder: what does not depend on the target is compiled once.
    """

    torch: Torch
    cuda: Cuda | None
    hip: Hip | None
    folder: Path
    reports: bool = False  # GPU compilers report what each kernel uses, in the logs of kernel_steps

    def __post_init__(self) -> None:
        self.cxx = toolchain.cxx()
        self.cxx_flags = CXX_FLAGS + shlex.split(os.environ.get("CXXFLAGS", ""))
        self.link_flags = shlex.split(os.environ.get("LDFLAGS", ""))
        self._steps: dict[Path, Step] = {}

    @property
    def has_gpu(self) -> bool:
        return self.cuda is not None or self.hip is not None

    def information(self) -> dict[str, str]:
        """What `python -m convx info` says about the build."""
        facts = {
            "torch": self.torch.version,
            "compiler": toolchain.compiler_version(self.cxx),
            "flags": shlex.join(self.cxx_flags),
            "gpu": "none",
        }
        if self.cuda is not None:
            facts["gpu"] = "cuda"
            facts["gpu_compiler"] = toolchain.compiler_version([str(self.cuda.nvcc)])
            facts["gpu_architectures"] = ";".join(self.cuda.architectures)
            facts["gpu_flags"] = shlex.join(NVCC_FLAGS)
        elif self.hip is not None:
            facts["gpu"] = "hip"
            facts["gpu_compiler"] = toolchain.compiler_version([str(self.hip.hipcc)])
            facts["gpu_architectures"] = ";".join(self.hip.architectures)
            facts["gpu_flags"] = shlex.join(HIP_FLAGS)
        return facts

    def build(self, outputs: dict[str, Path]) -> None:
        """Makes the binaries named: "_core", "libconvx_cpu", "libconvx_gpu"."""
        makers = {"_core": self._core, "libconvx_cpu": self._cpu, "libconvx_gpu": self._gpu}
        links = {path: makers[name](self.folder / "linked" / path.name) for name, path in outputs.items()}
        run_steps(list(self._steps.values()))
        run_steps(list(links.values()))
        for path, step in links.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # not overwritten: a running program may have it mapped
            shutil.copy(step.output, path)

    def kernel_steps(self, only: str = "") -> list[Step]:
        """What compiles the GPU sources whose path contains `only`."""
        return [self._steps[self._kernel_object(path)] for path in sources(*GPU_KERNELS) if only in str(path)]

    def _core(self, output: Path) -> Step:
        python = ["-isystem", sysconfig.get_paths()["include"], f"-I{self._write_information()}"]
        module = sources("python/*.cpp")
        objects = self._objects(sources(*PLANNER)) + self._objects(
            module, [*self.torch.include_flags, *python]
        )
        return self._link(output, objects, [])

    def _cpu(self, output: Path) -> Step:
        files = sources(*PLANNER, *CPU_KERNELS, "methods/**/cpu.cpp")
        objects = self._objects(list(dict.fromkeys(files)))
        operators = [path for path in sources(*OPERATORS) if path.stem != "backend_gpu"]
        objects += self._objects(operators, [*self.torch.include_flags, toolchain.TORCH_TARGET])
        return self._link(output, objects, [NO_UNDEFINED, *self._torch_libraries()])

    def _gpu(self, output: Path) -> Step:
        # The longest first, so that all workers are busy to the end.
        objects = [self._kernel_object(path) for path in sources(*GPU_KERNELS)]
        objects += self._objects(sources(*PLANNER, *GPU_DISPATCH))
        operators = [path for path in sources(*OPERATORS) if path.stem not in ("backend_cpu", "schema")]
        defines = [*self.torch.include_flags, toolchain.TORCH_TARGET, "-DUSE_CUDA", "-DCONVX_GPU"]
        objects += self._objects(operators, defines, variant="gpu")
        if self.cuda is not None:
            return self._link_cuda(output, objects, self.cuda)
        assert self.hip is not None
        libraries = [
            NO_UNDEFINED,
            *self._torch_libraries(),
            self._torch_gpu_library_folder("torch_hip"),
            "-ltorch_hip",
            f"-L{self.hip.home / 'lib'}",
            "-lamdhip64",
        ]
        return self._link(output, objects, libraries)

    def _objects(self, files: list[Path], flags: list[str] | None = None, variant: str = "cpp") -> list[Path]:
        return [self._object(path, [*self.cxx, *self.cxx_flags, *(flags or [])], variant) for path in files]

    def _kernel_object(self, path: Path) -> Path:
        if self.cuda is not None:
            architectures = self.cuda.architectures
            command = [str(self.cuda.nvcc), *NVCC_FLAGS, *self.cuda.architecture_flags]
            name, report, depend = "cuda", NVCC_REPORT, "-MD"
        else:
            assert self.hip is not None
            architectures = self.hip.architectures
            # hipcc takes nvcc where it finds one, unless it is told otherwise.
            command = ["env", "HIP_PLATFORM=amd", str(self.hip.hipcc), *HIP_FLAGS, "-x", "hip"]
            command += [f"--offload-arch={each}" for each in architectures]
            name, report, depend = "hip", HIP_REPORT, "-MMD"
        variant = "-".join([name, *architectures, *(["reported"] if self.reports else [])])
        return self._object(path, command + (report if self.reports else []), variant, depend, self.reports)

    def _object(
        self, path: Path, command: list[str], variant: str, depend: str = "-MMD", reports: bool = False
    ) -> Path:
        output = self.folder / variant / path.with_suffix(path.suffix + ".o")
        depfile = output.with_suffix(".d")
        arguments = [f"-I{CSRC}", depend, "-MF", str(depfile), "-c", str(path), "-o", str(output)]
        title = f"compiling {path}"
        self._steps[output] = Step(title, [*command, *arguments], output, [path], depfile, reports)
        return output

    def _torch_libraries(self) -> list[str]:
        return [f"-L{self.torch.root / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"]

    def _link(self, output: Path, objects: list[Path], libraries: list[str]) -> Step:
        command = [*self.cxx, "-shared", *map(str, objects), *self.link_flags, *libraries, "-o", str(output)]
        return Step(f"linking {output.name}", command, output, objects)

    def _link_cuda(self, output: Path, objects: list[Path], cuda: Cuda) -> Step:
        # nvcc knows where its own runtime is; the static one can't clash with the runtime that torch loaded.
        command = [str(cuda.nvcc), "-shared", "-cudart", "static", *map(str, objects)]
        libraries = ["-Xlinker", "--no-undefined", *self._torch_libraries()]
        libraries += [
            "-Xlinker",
            "--no-as-needed",
            self._torch_gpu_library_folder("torch_cuda"),
            "-ltorch_cuda",
        ]
        for flag in self.link_flags:
            command += ["-Xcompiler", flag]
        return Step(f"linking {output.name}", [*command, *libraries, "-o", str(output)], output, objects)

    def _torch_gpu_library_folder(self, name: str) -> str:
        """Where torch's GPU library is; a CPU torch has none: a stand-in satisfies the linker."""
        if self.torch.cuda is not None or self.torch.hip is not None:
            return f"-L{self.torch.root / 'lib'}"
        source = self.folder / "stub" / f"{name}.c"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text("void aoti_torch_get_current_cuda_stream(void) {}\n")
        library = source.with_name(f"lib{name}.so")
        soname = f"-Wl,-soname,{library.name}"
        command = [*self.cxx, "-shared", "-fPIC", "-x", "c", soname, str(source), "-o", str(library)]
        self._steps[library] = Step(f"making a stand-in for {library.name}", command, library, [source])
        return f"-L{library.parent}"

    def _write_information(self) -> Path:
        lines = [f'    {{"{name}", R"({value})"}},' for name, value in self.information().items()]
        text = "\n".join(["static constexpr const char* kBuildInformation[][2] = {", *lines, "};", ""])
        header = self.folder / "generated" / "build_information.h"
        header.parent.mkdir(parents=True, exist_ok=True)
        if not header.exists() or header.read_text() != text:
            header.write_text(text)
        return header.parent
