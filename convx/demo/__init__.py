"""The main job: real networks on a real photo: optimized, native and converted. `python -m convx demo`."""

from __future__ import annotations

from collections.abc import Sequence

_PACKAGES = {
    "torchvision": "torchvision",
    "skimage": "scikit-image",
    "matplotlib": "matplotlib",
    "tqdm": "tqdm",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo; returns the exit status. What it needs beside torch is only asked for here."""
    from importlib.util import find_spec

    missing = [package for module, package in _PACKAGES.items() if find_spec(module) is None]
    if missing:
        print(f"The demo needs more packages: pip install {' '.join(missing)}")
        return 1
    from convx.demo.cli import run

    return run(arguments)
