"""The user's cache folder, and files in it that are whole or not there."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
import warnings
from pathlib import Path

_warned: set[str] = set()


def cache_folder() -> Path:
    """Where tuning records and compiled kernels are kept: CONVX_CACHE_DIR, else the user's cache folder.

    Where the user has no home folder, one that can't be: nothing is found there, and writing warns.
    """
    try:
        return _cache_folder()
    except RuntimeError:
        return Path(os.devnull) / "convx"


def _cache_folder() -> Path:
    asked = os.environ.get("CONVX_CACHE_DIR", "").strip()
    if asked:
        return Path(asked).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "convx"
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(base) if base else Path.home() / ".cache") / "convx"


def warn_once(kind: str, message: str) -> None:
    """A RuntimeWarning, the first time in this process that something of this kind goes wrong."""
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def warn_where_unreadable(folder: Path) -> None:
    """For a folder that is there and may not be looked into; nothing would be found in it without a word."""
    try:
        os.scandir(folder).close()
    except PermissionError as error:
        warn_once(
            f"folder {folder}", f"convx can't read {folder} ({error}); CONVX_CACHE_DIR names another folder"
        )
    except OSError:
        pass


def files(folder: Path, pattern: str) -> list[tuple[int, int, Path]]:
    """Time of modification, bytes and path of each file of a folder, the oldest first; those that can't be
    looked at are left out: links to nothing, and what another process has removed meanwhile."""
    found = []
    with contextlib.suppress(OSError):
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, path))
    return sorted(found)


def read_file(path: Path, most_bytes: int) -> bytes:
    """What a file says. OSError where it can't be read; ValueError where it is too large, or no plain file:
    a pipe would be waited for, and a device may have no end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a regular file")
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError("it is too large")
    return data


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
