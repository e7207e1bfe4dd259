"""Compiling for targets that this machine need not have, with the compiler's report kept in a file."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from build_tools.compile import BuildError, Step


@dataclass(frozen=True)
class ReportedStep(Step):
    """A step whose output, the compiler's report, goes to a file beside what it makes."""

    environment: dict[str, str] = field(default_factory=dict)

    @property
    def report(self) -> Path:
        return self.output.with_name(self.output.name + ".report")

    def up_to_date(self) -> bool:
        return self.report.exists() and super().up_to_date()

    def run(self) -> None:
        self.output.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        if done.returncode != 0:
            raise BuildError(f"{self.title} failed:\n{shlex.join(self.command)}\n{done.stdout}")
        self.report.write_text(done.stdout)
        self._record.write_text(shlex.join(self.command))


def reported(
    title: str, command: list[str], source: Path, output: Path, environment: dict[str, str]
) -> ReportedStep:
    """A step that compiles one source with the include path and a depfile added."""
    depfile = output.with_suffix(".d")
    arguments = ["-Icsrc", "-MD", "-MF", str(depfile), "-c", str(source), "-o", str(output)]
    return ReportedStep(title, [*command, *arguments], output, [source], depfile, environment)
