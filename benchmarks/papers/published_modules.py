"""Tables 7 and 8 of Liu et al. by the published forms as modules, with the host's cost of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.modules import KINDS, PUBLISHED, Means, means
from benchmarks.papers.measurements import Machine
from benchmarks.papers.module_calls import SUITE
from benchmarks.papers.text import NOT_MEASURED, Cell, table, us
from benchmarks.papers.verdicts import Reasons, outcomes, since

_STREAM, _ALONE = KINDS["cuda"]
_COMMAND = f"`python -m benchmarks --suite {SUITE}` measures it."
_MOST = 0.5  # of a call: what takes more is most of it
_Claims = Mapping[int, tuple[float, float, float]]  # by batch: the paper's module, PyTorch's, speedup


@dataclass(frozen=True)
class PublishedModules:
    """Of one group of layers on a GPU, by batch; empty where none was timed."""

    alone: dict[int, Means]
    stream: dict[int, Means]
    convx: dict[int, Means]  # alone

    @classmethod
    def of(cls, machine: Machine, group: str) -> PublishedModules:
        records = [
            record
            for _, results in machine.sources(SUITE)
            for record in results.records.values()
            if record["group"] == group and f"{PUBLISHED}_us" in record
        ]
        theirs, ours = means(records, PUBLISHED), means(records)

        def by_batch(every: dict[tuple[str, int, str], Means], kind: str) -> dict[int, Means]:
            return {batch: found for (_, batch, each), found in every.items() if each == kind}

        return cls(by_batch(theirs, _ALONE), by_batch(theirs, _STREAM), by_batch(ours, _ALONE))

    def paragraphs(self, plan: str, layers: int, number: int, claimed: _Claims) -> list[str]:
        """number: of the paper's table."""
        if not self.alone:
            return [f"The published form as a module (table {number}): {NOT_MEASURED.lower()} {_COMMAND}"]
        head = ["batch", "layers", "alone: torch", "published", "speedup", f"the paper, table {number}"]
        head += ["convx's", "stream: torch", "published", "speedup"]
        lines: list[list[Cell]] = []
        for batch, found in self.alone.items():
            line: list[Cell] = [batch, f"{found.count} of {layers}", us(found.torch_us), us(found.convx_us)]
            line += [found.speedup, claimed[batch][2] if batch in claimed else None]
            line.append(self.convx[batch].speedup)
            line += _stream(self.stream.get(batch))
            lines.append(line)
        return [
            f"`{plan}` as a module, its fastest plan of a layer by name, and `torch.nn.Conv2d`, with the "
            "host's cost of a call; both runs as in the table of modules above, microseconds. *convx's*: "
            "after `convx.convert_`, in the same turns.",
            table(head, lines, text_columns=0),
        ]

    def reasons(self, batch: int, claimed: tuple[float, float, float], kernel_us: float | None) -> Reasons:
        """kernel_us: the mean that the same layers' kernels take by replays, where they were timed."""
        own_us, peers_us, speedup = claimed
        found = self.alone[batch]
        lost, won = since("torch's module", own_us / found.convx_us, peers_us / found.torch_us)
        parts = [lost, _hosts_part(found, kernel_us)]
        return outcomes(speedup, "; ".join(part for part in parts if part), won)


def _stream(found: Means | None) -> list[Cell]:
    return [us(found.torch_us), us(found.convx_us), found.speedup] if found else ["-"] * 3


def _hosts_part(found: Means, kernel_us: float | None) -> str:
    if kernel_us is None or kernel_us > _MOST * found.convx_us:
        return ""
    return (
        f"of a call's {us(found.convx_us)} us the kernel takes {us(kernel_us)} by replays; the host's part "
        "and the wait for it are the rest, which torch's module has too"
    )
