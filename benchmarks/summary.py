"""Puts the committed results into README.md: `python -m benchmarks.summary` (--check only compares)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import RESULTS, Results, load, summarize

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- results: written by python -m benchmarks.summary -->", "<!-- results: end -->"


def tables() -> str:
    """Markdown of all committed results, GPUs first."""
    paths = sorted(
        (path for path in RESULTS.glob("*/*.json") if not path.stem.endswith("_candidates")),
        key=lambda path: (path.parent.name.startswith("cpu"), path),
    )
    if not paths:
        return "No results are committed yet."
    return "\n\n".join(_section(path, load(path)) for path in paths)


def _section(path: Path, results: Results) -> str:
    where = path.relative_to(README.parent)
    environment = results.environment
    versions = f"torch {environment['torch']}"
    if environment.get("cudnn"):
        versions += f", cuDNN {environment['cudnn']}"
    head = f"**{environment['device']}**, {results.suite}, {versions} ([{where}]({where}))\n\n"
    return head + (_host(results) if results.suite == "host" else _groups(results))


def _groups(results: Results) -> str:
    lines = [
        "| operation | dtype | layout | cases | of the floor | torch's best | times faster | slower on |",
        "|---|---|---|---|---:|---:|---:|---:|",
    ]
    for row in summarize(results.records.values()):
        operation, dtype, layout, group = row.label
        lines.append(
            f"| {operation} | {dtype} | {layout} | {group} | {row.fraction_of_floor:.2f} "
            f"| {row.peer_fraction:.2f} | {row.speedup:.2f} | {row.slower} of {row.count} |"
        )
    return "\n".join(lines)


def _host(results: Results) -> str:
    records = list(results.records.values())
    names = list(dict.fromkeys(name for record in records for name in record["peers_us"]))
    lines = [
        "| microseconds of a call | convx.functional | " + " | ".join(names) + " |",
        "|---|" + "---:|" * (len(names) + 1),
    ]
    for record in records:
        peers = [record["peers_us"].get(name) for name in names]
        cells = ["" if time is None else f"{time:.1f}" for time in peers]
        lines.append(f"| {record['case']} | {record['convx_us']:.1f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def updated(text: str) -> str:
    """README's text with the tables of today's results."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def main(arguments: Sequence[str]) -> int:
    old = README.read_text()
    new = updated(old)
    if arguments == ["--check"]:
        if old != new:
            print("README.md does not show the committed results: run python -m benchmarks.summary")
        return int(old != new)
    README.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
