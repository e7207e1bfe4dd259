"""The user's cache folder, and files in it that are whole or not there."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import warnings
from pathlib import Path

_warned: set[str] = set()


def cache_folder() -> Path:
    """Where tuning records and compiled kernels are kept: CONVX_CACHE_DIR, else the user's cache folder."""
    asked = os.environ.get("CONVX_CACHE_DIR", "").strip()
    if asked:
        return Path(asked)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "convx"
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(base) if base else Path.home() / ".cache") / "convx"


def warn_once(kind: str, message: str) -> None:
    """A RuntimeWarning, the first time in this process that something of this kind goes wrong."""
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def write_whole(path: Path, data: bytes) -> bool:
    """Writes a file so that readers see the old one or the new one. False, with a warning, where it can't."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
        return True
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        warn_once("write", f"convx can't write {path} ({error}); CONVX_CACHE_DIR names another folder")
        return False
