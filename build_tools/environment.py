"""Makes the virtual environment of a checkout: torch, build tools, what the tests and the demo need.

    python3 build_tools/environment.py .venv

Needs Python 3.10 alone. Safe to repeat: what is there already is kept. Packages come from where pip is
configured to look. A Python whose own torch has a GPU to run on shares that torch with the environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
TORCH_FLOOR = (2, 11)

# Prints the version of a torch that can use a GPU, or nothing.
FIND_GPU_TORCH = """
import torch
if torch.cuda.is_available():
    print(torch.__version__)
"""


def say(text: str) -> None:
    print(f"== {text}", flush=True)


def missing_packages() -> list[str]:
    """System packages to install first, as Debian and Ubuntu name them, with what each is for."""
    missing = []
    for module in ("venv", "ensurepip"):
        try:
            __import__(module)
        except ImportError:
            missing.append("python3-venv (Python's venv and ensurepip)")
            break
    if not os.environ.get("CXX") and not any(shutil.which(name) for name in ("g++", "c++", "clang++")):
        missing.append("g++ (a C++17 compiler; or set CXX)")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        missing.append("python3-dev (Python.h)")
    return missing


def check_machine() -> None:
    """Ends with a message that says what to install where something is missing."""
    if sys.version_info < (3, 10):  # noqa: UP036 (this file is run before anything is checked)
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        sys.exit(
            f"convx needs Python 3.10 or later and this is {version}; name another: make PYTHON=python3.12 …"
        )
    missing = missing_packages()
    if missing:
        names = " ".join(each.split()[0] for each in missing)
        lines = "".join(f"  {each}\n" for each in missing)
        sys.exit(f"Missing on this machine:\n{lines}Debian, Ubuntu: sudo apt install {names}")


def gpu_torch() -> str:
    """Version of this Python's own torch if it has a GPU to run on and convx can serve it."""
    done = subprocess.run([sys.executable, "-c", FIND_GPU_TORCH], capture_output=True, text=True)
    version = done.stdout.strip()
    if done.returncode != 0 or not version:
        return ""
    major, minor = (int(part) for part in version.split(".")[:2])
    return version if (major, minor) >= TORCH_FLOOR else ""


class Environment:
    """The virtual environment in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = str(folder / "bin" / "python")

    def create(self, with_system_packages: bool) -> None:
        if self._runs():
            say(f"{self.folder} is there already")
            return
        say(f"making a virtual environment in {self.folder}")
        command = [sys.executable, "-m", "venv", "--clear", str(self.folder)]
        if with_system_packages:
            command.append("--system-site-packages")
        subprocess.run(command, check=True)

    def _runs(self) -> bool:
        if not Path(self.python).exists():
            return False
        return subprocess.run([self.python, "-m", "pip", "--version"], capture_output=True).returncode == 0

    def install(self, what: str, arguments: list[str]) -> None:
        say(f"installing {what}")
        command = [self.python, "-m", "pip", "install", "--disable-pip-version-check", *arguments]
        if subprocess.run(command).returncode != 0:
            sys.exit(f"pip could not install {what}; see above. Repeat the command to go on from here.")

    def has(self, module: str) -> bool:
        command = [
            self.python,
            "-c",
            f"import importlib.util as u, sys; sys.exit(u.find_spec('{module}') is None)",
        ]
        return subprocess.run(command).returncode == 0


def main() -> None:
    """Command line."""
    if len(sys.argv) != 2:
        sys.exit("usage: python3 build_tools/environment.py FOLDER")
    check_machine()
    environment = Environment(Path(sys.argv[1]))
    present = gpu_torch()
    environment.create(with_system_packages=bool(present))
    if present:
        say(f"using this Python's torch {present}, which has a GPU")
    else:
        environment.install("torch", ["-r", str(REQUIREMENTS / "torch.txt")])
    files = [f"-r{REQUIREMENTS / name}.txt" for name in ("build", "demo", "test")]
    environment.install("build tools and what the demo and the tests need", files)
    for name in ("torchvision", "timm"):
        if not environment.has(name):
            arguments = ["--no-deps", f"-r{REQUIREMENTS / name}.txt"]
            environment.install(f"{name} (without its dependencies)", arguments)
    if not environment.has("transformers"):
        environment.install("transformers", [f"-r{REQUIREMENTS / 'transformers.txt'}"])
    say("the environment is ready")


if __name__ == "__main__":
    main()
