"""Writes the committed results as tables: `python -m benchmarks.summary` (--check only compares).

README.md gets one row per device, suite, operation and type; results/README.md every group of cases.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import host, memory, modules, networks, wild
from benchmarks.choices import problem_of
from benchmarks.fit import planned_device
from benchmarks.planner import plan_of
from benchmarks.results import (
    README,
    RESULTS,
    Record,
    Results,
    between,
    load,
    over_peers,
    overall,
    summarize,
)
from benchmarks.suites import SUITES

TABLES = RESULTS / "README.md"
BEGIN, END = "<!-- results: written by python -m benchmarks.summary -->", "<!-- results: end -->"
_RESULTS_HEAD = f"""# Results

{BEGIN}

All contenders of a record are timed in the same run. *Of the floor*: the least time that the bytes and
multiply-adds of the layer take on that device, divided by the time taken, geomean over the cases; 1 is as
fast as the device allows. *Peers' best* is the fastest of torch's ways in the same layout and precision.
*Slower on*: records on which that wins by more than 2 %. On GPUs operands are cold; on CPUs they are where
the round before left them, in the caches if they fit, and then a layer can beat the floor of memory.

Files of all candidates are what the planner was fitted to: what `auto` took in them is not shown. On GPUs
those of times in a network count (`--in-network`), where kernels that begin early hide less than they do in
these suites, one call after another: `auto` leaves some layers to torch that are faster here. And torch's
matrix products count there as no shorter than their calls take the host: `auto` leaves them where the
kernels of a convolution end sooner than that, though theirs may end sooner still.
"""


@dataclass(frozen=True)
class _File:
    path: Path
    results: Results
    changed: str  # as _changed has it


def _committed() -> list[_File]:
    """All committed results of what auto takes, GPUs first, of those the machine that was last measured."""
    kinds = ("_ablations", "_by_name", "_candidates", "_in_network")
    paths = [path for path in RESULTS.glob("*/*.json") if not path.stem.endswith(kinds)]
    files = [
        _File(path, results, _changed(results)) for path, results in ((path, load(path)) for path in paths)
    ]
    newest: dict[str, str] = {}
    for file in files:
        machine, date = file.path.parent.name, str(file.results.environment["date"])
        newest[machine] = max(date, newest.get(machine, ""))
    files.sort(key=lambda file: (file.path.parent.name, file.path))
    files.sort(key=lambda file: newest[file.path.parent.name], reverse=True)
    files.sort(key=lambda file: not file.results.on_gpu)
    return files


def short(files: Sequence[_File]) -> str:
    """README's tables."""
    lines = [
        "| device | suite | operation | dtype | times faster | slower on |",
        "|---|---|---|---|---:|---:|",
    ]
    first: list[str] = []
    last: list[str] = []
    older = []
    for file in files:
        results, device = file.results, file.results.environment["device"]
        link = f"[{results.suite}]({TABLES.relative_to(README.parent)}#{_anchor(file.path)})"
        if results.suite in _SPECIAL:
            if heading := _IN_README.get(results.suite):
                title, table = heading
                among = first if results.suite in ("networks", "wild") else last
                among.append(f"{title}, {device} ({link}):\n\n{table(list(results.records.values()))}")
            continue
        lines += [
            f"| {device} | {link} | {row.label[0]} | {row.label[1]} | {row.speedup:.2f} "
            f"| {row.slower} of {row.count} |"
            for row in overall(results.records.values())
        ]
        if file.changed:
            older.append(f"{file.changed} of {results.suite} ({device})")
    if older:
        last.insert(0, f"Rows for which `auto` takes another kernel by now: {', '.join(older)}.")
    return "\n\n".join([*first, "\n".join(lines), *last])


def _changed(results: Results) -> str:
    """How many rows auto would take another kernel for, if there are any: "8 of 2712". Of GPUs that the
    planner knows, whatever machine this is."""
    rows = [each for each in results.records.values() if each["chosen_by"] == "auto"]
    if results.suite not in SUITES or not results.on_gpu:
        return ""
    device = planned_device(results)
    changed = sum(plan_of(problem_of(each), device) != each["method"] for each in rows)
    return f"{changed} of {len(rows)}" if changed else ""


def long(files: Sequence[_File]) -> str:
    """The text of results/README.md."""
    return _RESULTS_HEAD + "".join(map(_section, files))


def _anchor(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def _section(file: _File) -> str:
    path, results = file.path, file.results
    environment = results.environment
    versions = f"{environment['date']}, torch {environment['torch']}"
    if environment.get("cudnn"):
        versions += f", cuDNN {environment['cudnn']}"
    where = path.relative_to(RESULTS)
    head = f'\n<a id="{_anchor(path)}"></a>\n\n## {environment["device"]}: {results.suite}\n\n'
    if special := _SPECIAL.get(results.suite):
        body = special(list(results.records.values()))
    else:
        changed = f"Rows for which `auto` takes another kernel by now: {file.changed}."
        note = f"{changed}\n\n" if file.changed else ""
        body = f"{note}{_groups(results)}\n\n{_peers(results)}"
    return f"{head}{versions}, [{where}]({where}), {results.origin()}\n\n{body}\n"


def _groups(results: Results) -> str:
    lines = [
        "| operation | dtype | layout | cases | of the floor | peers' best | times faster | slower on |",
        "|---|---|---|---|---:|---:|---:|---:|",
    ]
    for row in summarize(results.records.values()):
        operation, dtype, layout, group = row.label
        lines.append(
            f"| {operation} | {dtype} | {layout} | {group} | {row.fraction_of_floor:.2f} "
            f"| {row.peer_fraction:.2f} | {row.speedup:.2f} | {row.slower} of {row.count} |"
        )
    return "\n".join(lines)


def _peers(results: Results) -> str:
    """How convx stands to each of them."""
    groups = over_peers(results.records.values())
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    lines = [
        "Times faster than each peer, geomean over the cases that it can run:",
        "",
        "| operation | dtype | layout | " + " | ".join(names) + " |",
        "|---|---|---|" + "---:|" * len(names),
    ]
    for label, group in groups.items():
        cells = [f"{group[name]:.2f}" if name in group else "" for name in names]
        lines.append("| " + " | ".join((*label, *cells)) + " |")
    return "\n".join(lines)


# What is no layer.
_SPECIAL: dict[str, Callable[[list[Record]], str]] = {
    "wild": wild.table,
    "host": host.table,
    "memory": memory.table,
    "modules": modules.table,
    "networks": networks.table,
}
# What README has of it: under which title, and its table there.
_IN_README: dict[str, tuple[str, Callable[[list[Record]], str]]] = {
    "wild": ("Random layers of all kinds", wild.in_short),
    "memory": ("Memory of training converted networks", memory.table),
    "networks": ("Networks of torchvision's, converted by one call", networks.short_table),
}


def updated(text: str, files: Sequence[_File]) -> str:
    """README's text with the tables of today's results."""
    return between(text, BEGIN, END, short(files))


def main(arguments: Sequence[str]) -> int:
    files = _committed()
    wanted = {README: updated(README.read_text(), files), TABLES: long(files)}
    if arguments == ["--check"]:
        stale = [path.name for path, text in wanted.items() if not path.is_file() or path.read_text() != text]
        for name in stale:
            print(f"{name} does not show the committed results: run python -m benchmarks.summary")
        return int(bool(stale))
    for path, text in wanted.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
