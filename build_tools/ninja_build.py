"""Runs ninja for what no setup.py makes: the compile checks and the host executor's programs."""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ninja
from ninja import ninja_syntax

from build_tools.toolchain import BuildError


@dataclass(frozen=True)
class Made:
    """One file, the command that makes it and what it is made from."""

    output: Path
    command: list[str]
    inputs: list[Path]
    depfile: Path | None = None  # where the command names the headers that it read
    reports: bool = False  # what the command prints is a report, to be read from `log` and not shown

    @property
    def log(self) -> Path:
        """The report on the output."""
        return self.output.with_name(self.output.name + ".log")


def make(files: Iterable[Made], folder: Path) -> None:
    """Makes what is missing or older than what it is made from, MAX_JOBS at once, and stops at the first
    failure. The rules and ninja's own records go to the folder, in which one process at a time makes
    something. Raises BuildError."""
    folder.mkdir(parents=True, exist_ok=True)
    rules, jobs = folder / "build.ninja", os.environ.get("MAX_JOBS", "")
    command = [os.path.join(ninja.BIN_DIR, "ninja"), "--quiet", "-f", str(rules)]
    command += [f"-j{jobs}"] if jobs.isdigit() else []
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with rules.open("w") as text:
            _write(_writer(text), list(files), folder)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise BuildError(done.stdout)
    print(done.stdout, end="", flush=True)


def _writer(file: Any) -> ninja_syntax.Writer:
    return ninja_syntax.Writer(file, width=1 << 20)


def _write(writer: ninja_syntax.Writer, files: list[Made], folder: Path) -> None:
    writer.variable("builddir", str(folder))
    # No `deps`: ninja's own copy of the headers' names forgets the files that one run does not ask for.
    writer.rule("plain", "$shown", depfile="$headers")
    reported = "($shown) > $report 2>&1 || (cat $report; rm -f $report; false)"
    writer.rule("reported", reported, depfile="$headers")
    for each in files:
        writer.build(
            [str(each.output)],
            "reported" if each.reports else "plain",
            [str(path) for path in each.inputs],
            implicit_outputs=[str(each.log)] if each.reports else None,
            variables={
                "shown": ninja_syntax.escape(shlex.join(each.command)),
                "headers": "" if each.depfile is None else str(each.depfile),
                "report": shlex.quote(str(each.log)),
            },
        )
