"""The GPU library made of the checks' own objects: that it links, with nothing left undefined."""

from __future__ import annotations

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
    operators = [*host, f"-isystem{torch.root / 'include'}", *targets.STABLE_ABI, *targets.GPU_DEFINES]
    planner = [compiled(path, HOST, [*host, "-fvisibility=default"]) for path in targets.planner_sources()]
    parts = [*kernels, *(compiled(path, HOST, operators) for path in targets.gpu_host_sources())]
    plan = HOST / "libconvx_plan.so"
    torch_libraries = [f"-L{torch.root / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"]
    shared = [*cxx(), "-shared", *targets.LINK_FLAGS]
    plan_objects, objects = [each.output for each in planner], [each.output for each in parts]
    links = [
        Made(plan, [*shared, *map(str, plan_objects), "-o", str(plan)], plan_objects),
        Made(
            library,
            [*shared, *map(str, [*objects, plan]), *torch_libraries, *libraries, "-o", str(library)],
            [*objects, plan],
        ),
    ]
    make([*kernels, *planner, *parts[len(kernels) :], *links], library.parent)
    print(f"{library}: {library.stat().st_size / 2**20:.1f} MiB")
