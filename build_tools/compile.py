"""A small parallel compiler driver: recompiles what changed, stops at the first error.

It replaces torch.utils.cpp_extension.BuildExtension, which would make Python modules of the operator
libraries, needs a CUDA torch to run nvcc and rewrites sources for ROCm. Compiled here, the libraries are
plain shared objects, and nvcc's part also builds beside a CPU torch.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

WORTH_A_SUMMARY = 30.0  # seconds that steps must have taken for their times to be shown


class BuildError(RuntimeError):
    """A command of the build failed; the message holds what it printed."""


@dataclass(frozen=True)
class Step:
    """One command that makes one file, from sources that it names and headers that a depfile names."""

    title: str
    command: list[str]
    output: Path
    inputs: list[Path]
    depfile: Path | None = None
    reports: bool = False  # what the command prints is a report, to be read from `log` and not shown

    @property
    def log(self) -> Path:
        """The report on the output."""
        return self.output.with_name(self.output.name + ".log")

    @property
    def _record(self) -> Path:
        return self.output.with_name(self.output.name + ".command")

    def _dependencies(self) -> list[Path]:
        if self.depfile is None:
            return self.inputs
        if not self.depfile.exists():
            return [self.depfile]  # missing: out of date
        text = self.depfile.read_text().replace("\\\n", " ")
        return self.inputs + [Path(name) for name in text.split(":", 1)[-1].split()]

    def up_to_date(self) -> bool:
        """Whether the output is newer than everything it was made from, by this very command."""
        if not self.output.exists() or not self._record.exists() or (self.reports and not self.log.exists()):
            return False
        if self._record.read_text() != shlex.join(self.command):
            return False
        made = self.output.stat().st_mtime
        return all(path.exists() and path.stat().st_mtime <= made for path in self._dependencies())

    def run(self) -> None:
        """Runs the command; what it prints is shown where it fails, and its warnings."""
        self.output.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise BuildError(f"{self.title} failed:\n{shlex.join(self.command)}\n{done.stdout}")
        if self.reports:
            self.log.write_text(done.stdout)
        elif done.stdout.strip():
            print(done.stdout, end="", flush=True)
        self._record.write_text(shlex.join(self.command))


def worker_count() -> int:
    """Commands to run at once: MAX_JOBS, else the CPUs this process may use."""
    text = os.environ.get("MAX_JOBS", "").strip()
    if text:
        if not text.isdigit() or int(text) < 1:
            raise BuildError(f"MAX_JOBS must be a positive number, got '{text}'")
        return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_steps(steps: list[Step]) -> None:
    """Runs independent steps in parallel, skipping those that are up to date; says which took longest."""
    pending = [step for step in steps if not step.up_to_date()]
    began = time.monotonic()
    with ThreadPoolExecutor(worker_count()) as pool:
        futures = []
        for number, step in enumerate(pending, 1):
            futures.append(pool.submit(_run_one, step, f"[{number}/{len(pending)}]"))
        done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
        for future in waiting:
            future.cancel()
        for future in done:
            future.result()
        seconds = {step.title: future.result() for step, future in zip(pending, futures, strict=True)}
    if time.monotonic() - began > WORTH_A_SUMMARY:
        longest = sorted(seconds, key=lambda title: -seconds[title])[:5]
        shown = ", ".join(f"{title} {seconds[title]:.0f} s" for title in longest)
        print(
            f"{len(pending)} steps took {sum(seconds.values()):.0f} s in all, longest: {shown}",
            file=sys.stderr,
        )


def _run_one(step: Step, prefix: str) -> float:
    print(f"{prefix} {step.title}", file=sys.stderr, flush=True)
    began = time.monotonic()
    step.run()
    return time.monotonic() - began
