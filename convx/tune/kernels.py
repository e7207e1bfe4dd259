"""Compiled kernels on disk, by what they were made from: source, target, compiler and options."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from convx.tune import compiler
from convx.tune.folder import cache_folder, files, read_file, write_whole

FORMAT = "convx kernel 1"
MOST_BYTES = 256 << 20  # of all kernels; those that were used least recently go first


def folder() -> Path:
    return cache_folder() / "kernels"


def key_of(text: str, target: str, using: compiler.Compiler) -> str:
    parts = [FORMAT, text, target, using.kind, using.version, *using.options(target)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def read(key: str) -> bytes | None:
    """The binary of that key; None where there is none that is whole and its own."""
    if not key.isalnum():  # from a record that anyone may have written
        return None
    path = folder() / f"{key}.bin"
    try:
        head, image = read_file(path, MOST_BYTES).split(b"\n", 1)
        facts = json.loads(head)
        if facts != _facts(key, image):
            return None
    except (OSError, ValueError, RecursionError):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return image


def _facts(key: str, image: bytes) -> dict[str, Any]:
    return {"format": FORMAT, "key": key, "sha256": hashlib.sha256(image).hexdigest(), "bytes": len(image)}


def write(key: str, image: bytes) -> bool:
    """Keeps a binary, and lets the oldest go where there are too many bytes. False where it can't."""
    head = json.dumps(_facts(key, image)).encode()
    if not write_whole(folder() / f"{key}.bin", head + b"\n" + image):
        return False
    _prune()
    return True


def _prune() -> None:
    kept = files(folder(), "*.bin")  # not what others are just writing, which ends in .part
    total = sum(size for _, size, _ in kept)
    for _, size, path in kept:
        if total <= MOST_BYTES:
            break
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


def compiled(text: str, device: Any) -> tuple[str, bytes]:
    """The key and the binary of a generated source for a _core.Device, from disk or compiled now.

    Raises compiler.CompilerMissing where it would have to be compiled and no compiler is installed, and
    compiler.CompileError where the compiler refuses it.
    """
    using, target = compiler.find(device.backend), compiler.target_of(device)
    key = key_of(text, target, using)
    image = read(key)
    if image is None:
        image = using.compile(text, target)
        write(key, image)
    return key, image
