"""`python -m convx bench MODEL`: what convx gains on a network."""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from convx._arguments import CONVOLUTIONS, PRODUCTS, tf32_setting
from convx._named_models import (
    LAYOUTS,
    Given,
    add_arguments,
    models_and_images,
    require_positive,
    tf32_of,
)
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
    """One way to run the network on one batch in one layout."""

    layout: str
    """Of the network and the images, as given."""
    batch: int
    way: str
    us: float
    """Of a call, host and device together."""
    over_torch: tuple[float, float]
    """Between which its time over that of torch's eager network lies with 95 % confidence."""
    error: float
    """Of the results, against float64, in the norm over all."""


@dataclass(frozen=True)
class Measured:
    """All ways on one batch in one layout."""

    layout: str
    batch: int
    rows: Sequence[Row]
    report: OptimizationReport

    @property
    def title(self) -> str:
        """Of its layers."""
        return f"Optimized, {self.layout}, {self.batch} image{'' if self.batch == 1 else 's'}"

    def report_to_dict(self) -> dict[str, Any]:
        return {"given_layout": self.layout, "batch": self.batch, **self.report.to_dict()}


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


def measure(given: Given, rounds: int, compiled: bool) -> tuple[Measured, dict[str, str]]:
    """What all ways take, and of engines that could not run it why."""
    layout, model, x = given
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
        Row(layout, len(x), name, us, compared.over_first[name], errors[name])
        for name, us in compared.us.items()
    ]
    return Measured(layout, len(x), rows, report), problems


def setting_of(x: Tensor) -> str:
    """What images are measured, and in which precision: TF32 where torch's settings allow it now."""
    tf32 = tf32_setting(x.is_cuda, x.dtype)
    allowed = [
        what
        for setting, what in ((CONVOLUTIONS, "convolutions"), (PRODUCTS, "matrix products"))
        if tf32 & setting
    ]
    size = "x".join(map(str, x.shape[1:]))
    precision = str(x.dtype).removeprefix("torch.")
    return f"{size}, {x.device}, {precision}" + (f", TF32 in {' and '.join(allowed)}" if allowed else "")


_HEAD = ("way", "layout", "batch", "us", "over torch", "surely between", "error")


def lines_of(rows: Sequence[Row]) -> list[Sequence[str]]:
    """The cells of a table of them, all of one batch in one layout."""
    torch_us = next(row.us for row in rows if row.way == "torch")
    lines: list[Sequence[str]] = []
    for row in rows:
        low, high = row.over_torch
        times = f"{row.us:.0f}", f"{row.us / torch_us:.2f}", f"{low:.2f} and {high:.2f}"
        lines.append((row.way, row.layout, str(row.batch), *times, f"{row.error:.1e}"))
    return lines


def text(name: str, setting: str, measured: Sequence[Measured]) -> str:
    """What the command prints."""
    lines = [line for each in measured for line in lines_of(each.rows)]
    layers = (f"\n\n{each.title}\n{each.report}" for each in measured)
    return "\n".join([f"{name}, {setting}", *aligned([_HEAD, *lines])]) + "".join(layers)


def page(name: str, setting: str, measured: Sequence[Measured]) -> str:
    """The same as a page."""
    lines = [line for each in measured for line in lines_of(each.rows)]
    sections = [f"<p>{escape(setting)}</p>", html.table(_HEAD, lines, len(_HEAD) - 2)]
    for each in measured:
        sections += [f"<h2>{each.title}</h2>", html.summary(each.report), html.layers(each.report)]
    return html.page(f"convx: {name}", *sections)


def to_dict(name: str, setting: str, measured: Sequence[Measured]) -> dict[str, Any]:
    """The same as plain data, for JSON."""
    rows = [asdict(row) for each in measured for row in each.rows]
    reports = [each.report_to_dict() for each in measured]
    return {"model": name, "setting": setting, "rows": rows, "reports": reports}


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
    parser.add_argument(
        "--layout",
        default="nchw",
        help="of the network and the images: nchw, channels_last, or both separated by a comma "
        "(default: nchw)",
    )
    parser.add_argument("--compile", action="store_true", help="torch.compile too, by inductor and by convx")
    parser.add_argument("--rounds", type=int, default=30, help="turns of each way (default: 30)")
    parser.add_argument("--json", type=Path, help="also write everything to this file")
    parser.add_argument("--html", type=Path, help="also write a page with it")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def _checked(options: argparse.Namespace, parser: argparse.ArgumentParser) -> list[Given]:
    """What is to be measured, each once; ends the command where the options mean nothing."""
    batches, layouts = options.batch.split(","), dict.fromkeys(options.layout.split(","))
    if not all(part.isdecimal() and int(part) > 0 for part in batches):
        parser.error(f"--batch takes numbers of images separated by commas, got {options.batch}")
    if not layouts.keys() <= LAYOUTS.keys():
        parser.error(f"--layout takes {' and '.join(LAYOUTS)} separated by commas, got {options.layout}")
    require_positive(parser, options, "size", "channels", "rounds")
    try:
        return models_and_images(options, list(layouts), list(dict.fromkeys(map(int, batches))))
    except ValueError as error:
        parser.error(str(error))


def _measured(cases: Sequence[Given], options: argparse.Namespace) -> list[Measured]:
    """All of them, with a progress bar; says which engines could not run one."""
    found = []
    with progress_bar(len(cases), "case", not options.quiet) as bar:
        for case in cases:
            measured, problems = measure(case, options.rounds, options.compile)
            found.append(measured)
            for name, problem in problems.items():
                print(f"\nnot timed: {name}, {len(case.images)} images: {problem}", file=sys.stderr)
            if bar is not None:
                bar.update()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, and returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    cases = _checked(options, parser)
    try:
        with tf32_of(options.dtype):
            setting = setting_of(cases[0].images)
            measured = _measured(cases, options)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    print(text(options.model, setting, measured))
    if options.json:
        options.json.write_text(json.dumps(to_dict(options.model, setting, measured), indent=1))
    if options.html:
        options.html.write_text(page(options.model, setting, measured), encoding="utf-8")
    return 0
