"""The GPU library made of the checks' own objects: that it links, with nothing left undefined."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from build_tools import targets
from build_tools.ninja_build import Made, make
from build_tools.toolchain import Torch, cxx

HOST = Path("build/targets/host")


def compiled(source: Path, folder: Path, command: list[str], reports: bool = False) -> Made:
    """One object, by a compiler that writes dependencies as gcc does."""
    output = folder / source.with_name(source.name + ".o")
    depfile = output.with_suffix(".d")
    arguments = [f"-I{targets.CSRC}", "-MD", "-MF", str(depfile), "-c", str(source), "-o", str(output)]
    return Made(output, [*command, *arguments], [source], depfile, reports)


def link(torch: Torch, kernels: list[Made], libraries: list[str], library: Path) -> None:
    """Compiles all that is missing, the planner too, and links the library; says how large it is."""
    host = [*cxx(), "-fPIC", *targets.CXX_FLAGS]
    shared = [*cxx(), "-shared", *targets.LINK_FLAGS]
    # Linked and never run, so not optimized: setup.py compiles it as users have it.
    quick = [*host, "-fvisibility=default", "-O0"]
    planner = [compiled(path, HOST, quick) for path in targets.planner_sources()]
    plan = _linked(HOST / "libconvx_plan.so", shared, planner)
    flags = [*host, f"-isystem{torch.root / 'include'}", *targets.STABLE_ABI, *targets.GPU_DEFINES]
    operators = [compiled(path, HOST, flags) for path in targets.gpu_host_sources()]
    # By themselves, with records of their own: they are the same for CUDA and for HIP.
    make([*planner, plan, *operators], HOST)
    torch_libraries = [f"-L{torch.root / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"]
    whole = _linked(library, shared, [*kernels, *operators, plan], [*torch_libraries, *libraries])
    make([*kernels, whole], library.parent)
    print(f"{library}: {library.stat().st_size / 2**20:.1f} MiB")


def _linked(library: Path, command: list[str], parts: list[Made], libraries: Sequence[str] = ()) -> Made:
    objects = [each.output for each in parts]
    return Made(library, [*command, *map(str, objects), *libraries, "-o", str(library)], objects)
