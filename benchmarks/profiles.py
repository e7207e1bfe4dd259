"""The profile of HNTMP's table 3, of convx's kernels: `python -m benchmarks.profiles`.

For the paper's forms on its layer of 256x14x14: registers and shared memory as the compilers report them, and
instructions of the compiled kernels, for an NVIDIA and an AMD target; and the memory instructions that a
thread runs, counted on the host executor. No GPU is needed, but hipcc, llvm-objdump, nvcc and nvdisasm (of
nvidia-cuda-nvdisasm). Into results/profiles.json, which the paper's page reads.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import host_executor
from benchmarks.results import RESULTS
from build_tools import check_amd, check_cuda, targets
from build_tools.ninja_build import make
from build_tools.resources import KernelUse, demangle, parse_amd, parse_nvcc
from build_tools.toolchain import BuildError, cuda_for

PATH = RESULTS / "profiles.json"
NVIDIA, AMD = "sm_90a", "gfx906"  # the paper's GPU is of gfx906's family
LANES = 64  # of the paper's wavefronts
# By the plans' names: the kernel, and what the host executor calls the plan.
FORMS = {
    "hntmp/published": ("hntmp::forms::published_kernel<3, 4, 7>", "published rows=4 columns=7"),
    "hntmp/direct": ("hntmp::forms::direct_kernel<3, false>", "direct rows=8"),
    "hntmp/direct_cached": ("hntmp::forms::direct_kernel<3, true>", "direct_cached rows=8"),
}
# The first pattern that an instruction's name begins with.
CLASSES: dict[str, Mapping[str, str]] = {
    NVIDIA: {"memory": r"LDG|STG", "shared_memory": r"LDS|STS|LDGSTS", "multiply_add": r"FFMA", "other": r""},
    AMD: {
        "memory": r"global_|flat_|buffer_",
        "scalar_memory": r"s_load",  # what all lanes read alike
        "shared_memory": r"ds_",
        "multiply_add": r"v_(fma|fmac|mac|mad)_f32",
        "other_vector": r"v_",
        "other": r"",
    },
}
_LAYER = "dtype=float32 channels=256 groups=1 out_channels=256 size=14,14 filter=3 padding=1"
Profile = dict[str, Any]


def instructions(assembly: str, target: str) -> dict[str, dict[str, int]]:
    """How many of each class a disassembly has, by the mangled name of the kernel."""
    label, line = {
        NVIDIA: (r"^\.text\.(\w+):", r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)"),
        AMD: (r"^[0-9a-f]+ <(\w+)>:", r"^\s+([a-z]\w+)"),
    }[target]
    found: dict[str, Counter[str]] = {}
    kernel = ""
    for text in assembly.splitlines():
        if start := re.match(label, text):
            kernel = start[1]
        elif kernel and (instruction := re.match(line, text)):
            name = next(name for name, at in CLASSES[target].items() if re.match(at, instruction[1]))
            found.setdefault(kernel, Counter())[name] += 1
    return {kernel: dict(counts) for kernel, counts in found.items()}


def compiled(target: str) -> tuple[list[KernelUse], dict[str, dict[str, int]]]:
    """What the compiler reports of the forms' kernels, and their instructions."""
    (source,) = (each for each in targets.sources(*targets.GPU_KERNELS) if "hntmp/forms" in str(each))
    if target == AMD:
        check_amd.write_device_libraries(targets.ROOT / check_amd.FOLDER / "device-libraries")
        made = check_amd.device_object(source, target)
        make([made], check_amd.FOLDER / "rules")
        code = made.output.with_suffix(".elf")
        bundler = ["clang-offload-bundler-19", "--unbundle", "--type=o", f"--input={made.output}"]
        _output([*bundler, f"--targets=hipv4-amdgcn-amd-amdhsa--{target}", f"--output={code}"])
        command = ["llvm-objdump-19", "-d", "--no-show-raw-insn", str(code)]
        return parse_amd(made.log.read_text(), target), instructions(_output(command), target)
    nvcc = check_cuda.find_nvcc()
    if nvcc is None:
        raise BuildError("there is no nvcc")
    cubin = check_cuda.FOLDER / "forms.cubin"
    cubin.parent.mkdir(parents=True, exist_ok=True)
    flags = [flag for flag in targets.gpu_flags(cuda_for(nvcc, "9.0"), None) if "gencode" not in flag]
    command = [str(nvcc), *flags, *targets.NVCC_REPORT, f"-arch={target}", f"-I{targets.CSRC}"]
    command += ["-cubin", str(source), "-o", str(cubin)]
    ran = subprocess.run(command, cwd=targets.ROOT, capture_output=True, text=True, check=True)
    return parse_nvcc(ran.stdout + ran.stderr), instructions(_output([_nvdisasm(), "-c", str(cubin)]), target)


def _output(command: list[str]) -> str:
    done = subprocess.run(command, cwd=targets.ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def _nvdisasm() -> str:
    places = sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/*/bin/nvdisasm"))
    found = shutil.which("nvdisasm") or (str(places[0]) if places else None)
    if found is None:
        raise BuildError("there is no nvdisasm: pip install nvidia-cuda-nvdisasm, or the CUDA toolkit")
    return found


def profiles() -> list[Profile]:
    program = host_executor.built("hntmp")
    uses: dict[str, dict[str, dict[str, int]]] = {}
    for target in (NVIDIA, AMD):
        reports, counts = compiled(target)
        for use, name in zip(reports, _demangled(reports), strict=True):
            kernel = uses.setdefault(name, {})
            kernel[target] = {**use.values, **counts.get(use.kernel, {})}
    found = []
    for plan, (kernel_name, text) in FORMS.items():
        line = f"device=mi250 {_LAYER} only={text.replace(' ', '+')}+"
        ((name, ran),) = host_executor.counted(program, [line])
        blocks = _blocks(name)
        found.append(
            {
                "plan": plan,
                "blocks": blocks,
                "threads": LANES,
                "memory_instructions": (ran.loads + ran.stores) / blocks,  # a block is a wave
                "kilobytes": [ran.load_sectors * 32 // 1024, ran.store_sectors * 32 // 1024],
                "targets": uses[kernel_name],
            }
        )
    return found


def _blocks(name: str) -> int:
    """Of a plan by the host executor's name: of tiles of the layer's 14x14 pixels and of its 256 channels."""
    of = {key: int(value) for key, value in (part.split("=") for part in name.split()[1:])}
    return math.ceil(14 / of["rows"]) * math.ceil(14 / of["columns"]) * math.ceil(256 / of["block_channels"])


def _demangled(reports: list[KernelUse]) -> list[str]:
    names = demangle(use.kernel for use in reports)
    return [names[use.kernel] for use in reports]


def load(path: Path = PATH) -> list[Profile]:
    """The committed ones; none where there is no such file."""
    found: list[Profile] = json.loads(path.read_text()) if path.is_file() else []
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiles", description=__doc__)
    parser.add_argument("--output", type=Path, default=PATH)
    path = parser.parse_args().output
    if missing := check_amd.missing_tools():
        sys.exit(f"missing: {', '.join(missing)}")
    try:
        found = profiles()
    except BuildError as error:
        sys.exit(str(error))
    lines = ",\n ".join(json.dumps(each) for each in found)
    path.write_text(f"[\n {lines}\n]\n")


if __name__ == "__main__":
    main()
