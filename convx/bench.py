"""`python -m convx bench MODEL`: what convx gains on a network."""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from convx._named_models import add_arguments, model_and_images, require_positive
from convx._peers import peers
from convx._progress import progress_bar
from convx.convert import convert_
from convx.explain import aligned
from convx.optimize import OptimizationReport, html, optimize
from convx.optimize.check import Reference
from convx.tune.replays import captured
from convx.tune.turns import Contender, compare, turn_of


@dataclass(frozen=True)
class Row:
    """One way to run the network on one batch."""

    batch: int
    way: str
    us: float
    """Of a call, host and device together."""
    over_torch: tuple[float, float]
    """Between which its time over that of torch's eager network lies with 95 % confidence."""
    error: float
    """Of the results, against float64, in the norm over all."""


def ways(model: nn.Module, x: Tensor, compiled: bool) -> tuple[dict[str, Any], OptimizationReport]:
    """The ways to run a model, torch's first, and the report of the optimized one. All are copies: calls of a
    copy's modules take a little longer."""
    native, converted = copy.deepcopy(model), copy.deepcopy(model)
    convert_(converted)
    optimized = optimize(model, x)
    found: dict[str, Any] = {"torch": native}
    if compiled:
        mode = "reduce-overhead" if x.is_cuda else "default"
        for name, backend in (("torch.compile", "inductor"), ("torch.compile, convx", "convx")):
            found[name] = torch.compile(copy.deepcopy(model), backend=backend, mode=mode)
    assert optimized.report is not None
    return {**found, "converted": converted, "optimized": optimized}, optimized.report


def measure(
    model: nn.Module, x: Tensor, rounds: int, compiled: bool
) -> tuple[list[Row], OptimizationReport, dict[str, str]]:
    """The rows, the report of the optimized one, and of engines that could not run it why."""
    with torch.inference_mode(), peers(model, x) as (engines, problems):
        found, report = ways(model, x, compiled)
        reference = Reference(model, (x,), {})
        errors = {name: reference.error_of(way) for name, way in found.items()}
        errors |= {name: reference.error_of_results(engine.result) for name, engine in engines.items()}
        calls: dict[str, Contender] = {name: partial(way, x) for name, way in found.items()}
        if x.is_cuda:
            for name in ("torch", "converted"):
                calls[f"{name}, CUDA graph"] = captured(partial(found[name], x))
                errors[f"{name}, CUDA graph"] = errors[name]
        calls |= engines
        compare(calls, x.device, 1, 3)
        repeats, _ = turn_of(calls.values(), x.device)
        compared = compare(calls, x.device, rounds, repeats)
    rows = [
        Row(len(x), name, us, compared.over_first[name], errors[name]) for name, us in compared.us.items()
    ]
    return rows, report, problems


_HEAD = ("way", "batch", "us", "over torch", "surely between", "error")


def lines_of(rows: Sequence[Row]) -> list[Sequence[str]]:
    """The cells of a table of them."""
    torchs = {row.batch: row.us for row in rows if row.way == "torch"}
    lines: list[Sequence[str]] = []
    for row in rows:
        low, high = row.over_torch
        ratio = f"{row.us / torchs[row.batch]:.2f}"
        lines.append(
            (row.way, str(row.batch), f"{row.us:.0f}", ratio, f"{low:.2f} and {high:.2f}", f"{row.error:.1e}")
        )
    return lines


def page(name: str, rows: Sequence[Row], reports: Sequence[OptimizationReport]) -> str:
    """What the command prints, and the layers for every batch."""
    sections = [html.table(_HEAD, lines_of(rows), len(_HEAD) - 1)]
    for batch, report in zip(dict.fromkeys(row.batch for row in rows), reports, strict=True):
        images = "image" if batch == 1 else "images"
        sections += [f"<h2>Optimized, {batch} {images}</h2>", html.summary(report), html.layers(report)]
    return html.page(f"convx: {name}", *sections)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m convx bench",
        description="Times a network at inference in turns: torch's, converted, optimized, on a GPU as CUDA "
        "graphs too, with the error of each; then what became of each convolution.",
    )
    add_arguments(parser)
    parser.add_argument(
        "--batch", default="1", help="images at once, several separated by commas (default: 1)"
    )
    parser.add_argument("--compile", action="store_true", help="torch.compile too, by inductor and by convx")
    parser.add_argument("--rounds", type=int, default=30, help="turns of each way (default: 30)")
    parser.add_argument("--json", type=Path, help="also write everything to this file")
    parser.add_argument("--html", type=Path, help="also write a page with it")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, and returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not all(part.isdecimal() and int(part) > 0 for part in options.batch.split(",")):
        parser.error(f"--batch takes numbers of images separated by commas, got {options.batch}")
    require_positive(parser, options, "size", "channels", "rounds")
    try:
        model, images = model_and_images(options, [int(part) for part in options.batch.split(",")])
    except ValueError as error:
        parser.error(str(error))
    rows: list[Row] = []
    reports: list[OptimizationReport] = []
    try:
        with progress_bar(len(images), "batch", not options.quiet) as bar:
            for x in images:
                measured, report, problems = measure(model, x, options.rounds, options.compile)
                rows += measured
                reports.append(report)
                for name, problem in problems.items():
                    print(f"\nnot timed: {name}, {len(x)} images: {problem}", file=sys.stderr)
                if bar is not None:
                    bar.update()
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    print("\n".join(aligned([_HEAD, *lines_of(rows)])))
    print(f"\n{reports[-1]}")
    if options.json:
        everything = {"rows": list(map(asdict, rows)), "reports": [report.to_dict() for report in reports]}
        options.json.write_text(json.dumps(everything, indent=1))
    if options.html:
        options.html.write_text(page(options.model, rows, reports), encoding="utf-8")
    return 0
