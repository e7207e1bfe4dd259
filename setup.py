"""Builds convx's binaries beside the installed torch: see build_tools/."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from build_tools.toolchain import BuildError, find_cuda, find_hip, find_torch  # noqa: E402

os.chdir(ROOT)
try:
    torch = find_torch()
    from build_tools import extensions  # which imports it

    cuda, hip = find_cuda(torch), find_hip(torch)
    extensions.find_ninja()
except BuildError as error:
    sys.exit(f"convx: {error}")
(ROOT / "convx" / "lib").mkdir(exist_ok=True)

setup(
    ext_modules=extensions.extensions(torch, cuda, hip, ROOT / "build" / "generated"),
    cmdclass={"build_ext": extensions.command(cuda, hip)},
)
