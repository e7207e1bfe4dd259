"""Builds convx's binaries beside the installed torch: see build_tools/."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from build_tools.compile import BuildError  # noqa: E402
from build_tools.targets import OBJECTS, Build  # noqa: E402
from build_tools.toolchain import find_cuda, find_hip, find_torch  # noqa: E402

os.chdir(ROOT)


class BuildLibraries(build_ext):
    """Makes all binaries in one parallel run; the operator libraries are not Python modules."""

    def get_ext_filename(self, fullname: str) -> str:
        *package, name = fullname.split(".")
        if name.startswith("libconvx_"):
            return os.path.join(*package, f"{name}.so")
        return str(super().get_ext_filename(fullname))

    def build_extensions(self) -> None:
        build = Build(torch, cuda, hip, OBJECTS)
        outputs = {
            each.name.rsplit(".", 1)[-1]: Path(self.get_ext_fullpath(each.name)) for each in self.extensions
        }
        try:
            build.build(outputs)
        except BuildError as error:
            sys.exit(f"convx: {error}")


try:
    torch = find_torch()
    cuda = find_cuda(torch)
    hip = find_hip(torch)
except BuildError as error:
    sys.exit(f"convx: {error}")

names = ["convx._core", "convx.lib.libconvx_cpu"]
if cuda is not None or hip is not None:
    names.append("convx.lib.libconvx_gpu")
(ROOT / "convx" / "lib").mkdir(exist_ok=True)

setup(
    ext_modules=[Extension(name, sources=[]) for name in names],
    cmdclass={"build_ext": BuildLibraries},
)
