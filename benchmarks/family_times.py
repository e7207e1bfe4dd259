"""Whole networks of all families as their libraries have them, on one device: whether what convx.optimize
makes of them agrees, how long it takes beside torch, and how much memory."""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map
from tqdm import tqdm

import convx
from benchmarks import family_page, memory
from benchmarks.by_case import end_of, is_over
from benchmarks.environment import device_slug, environment
from benchmarks.family_networks import FamilyNetwork, networks
from benchmarks.options import repeating, some_of
from benchmarks.results import Record, Results, key
from benchmarks.suites import DTYPES, LAYOUTS
from benchmarks.turns import over_torch
from convx import _layers
from convx._errors import reason_of
from convx.optimize.check import Reference
from convx.optimize.model import OptimizedModel
from convx.optimize.values import asks_values
from convx.tune.replays import captured
from convx.tune.turns import compare, turn_of

FOLDER = Path(__file__).resolve().parent / "whole"
_ROUNDS = 11
_UNFINISHED = "the process ended before it was done"
Call = Callable[[], Any]


def label(network: FamilyNetwork, device: torch.device, dtype: str, layout: str) -> Record:
    """What a record is about."""
    return {
        "case": f"{network.library}/{network.name}",
        "operation": "optimized",
        "dtype": dtype,
        "tf32": False,
        "layout": layout,
        "batch": 1,
        "chosen_by": "auto",
        "method": "call",
        "warm": True,
    }


def measured(
    network: FamilyNetwork,
    device: torch.device,
    dtype: str,
    layout: str,
    *,
    rounds: int,
    **options: Any,
) -> Record:
    """One network, all contenders in turns. Raises what the library, torch or convx.optimize raises; options
    are for that."""
    begin = time.monotonic()
    model, example = network.made_in_full(device)
    format = torch.channels_last if layout == "channels_last" else torch.contiguous_format

    def moved(each: Any) -> Any:
        if not isinstance(each, Tensor) or not each.is_floating_point():
            return each
        of_format = {"memory_format": format} if each.dim() == 4 else {}
        return each.to(DTYPES[dtype]).contiguous(**of_format)

    example = tree_map(moved, example)
    args, kwargs = _layers.arguments_of(example)
    for each in (*model.parameters(), *model.buffers()):
        each.requires_grad_(False)
        each.data = moved(each.data)
    contenders = _Contenders(device, args, kwargs)
    contenders.add("torch", lambda: model)
    reason = contenders.add_graph(model) if device.type == "cuda" else ""
    contenders.add("convx", lambda: convx.optimize(model, example, **options))
    optimized: Any = contenders.models["convx"]
    report = optimized.report
    with torch.no_grad():
        reference = Reference(model, args, kwargs)
        own_error, error = reference.usual_errors(optimized)
    compared = contenders.compared(rounds)
    sizes = [list(each.shape) for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    return {
        "shape": {"inputs": sizes},
        "convx_us": float(f"{compared.us['convx']:.4g}"),
        "peers_us": {name: float(f"{us:.4g}") for name, us in compared.us.items() if name != "convx"},
        "over_torch": over_torch(compared),
        "error": {"torch": float(f"{own_error:.3g}"), "convx": float(f"{error:.3g}")},
        "is_within_twice": reference.allows(error, own_error),
        "peak_bytes": contenders.peaks,
        "parameters": sum(each.numel() for each in model.parameters()),
        "convolutions": len(report.rows),
        "left": len(report.left),
        "inside": report.layout,
        "compiled": report.compiled,
        "replayed": report.cuda_graphs,
        "reason": report.reason,
        "no_graph": reason,
        "seconds": round(time.monotonic() - begin, 1),
    }


class _Contenders:
    """Calls of one network, and the memory that each takes at its most, weights in it and inputs not."""

    def __init__(self, device: torch.device, args: Any, kwargs: Any) -> None:
        self._device = device
        self._args, self._kwargs = args, kwargs
        self._calls: dict[str, Call] = {}
        self.models: dict[str, nn.Module] = {}
        self.peaks: dict[str, int] = {}

    def add(self, name: str, make: Callable[[], nn.Module]) -> None:
        before = self._held()
        model = self.models[name] = make()
        call = self._calls[name] = self._call(model)
        call()
        self._note_peak(name, call, before, model)

    def add_graph(self, model: nn.Module) -> str:
        """The model as a CUDA graph, or why there is none."""
        with torch.no_grad():
            if asks_values(model, self._args, self._kwargs):
                return "it asks for values of tensors"
        try:
            self._calls["torch_graph"] = captured(self._call(model))
        except Exception as error:  # whatever a model does that no graph can
            return reason_of(error)
        return ""

    def compared(self, rounds: int) -> Any:
        compare(self._calls, self._device, 1, 3)
        repeats, _ = turn_of(self._calls.values(), self._device)
        return compare(self._calls, self._device, rounds, repeats)

    def _call(self, model: nn.Module) -> Call:
        def infer() -> Any:
            with torch.inference_mode():
                return model(*self._args, **self._kwargs)

        return infer

    def _held(self) -> int:
        gc.collect()
        if self._device.type != "cuda":
            return 0
        memory.forget_workspaces()
        return memory.used(self._device)

    def _note_peak(self, name: str, call: Call, before: int, model: nn.Module) -> None:
        if self._device.type != "cuda":
            return
        gc.collect()
        for each in model.modules():
            if isinstance(each, OptimizedModel):
                each.graphs.forget()  # the next call records it again
        own = sum(each.nbytes for each in {*model.parameters(), *model.buffers()}) if name == "torch" else 0
        self.peaks[name] = memory.peak(call, self._device) - before + own


def attempt(network: FamilyNetwork, *rest: Any, **options: Any) -> Record:
    """A record in any case: of what went wrong, if anything."""
    try:
        return measured(network, *rest, **options)
    except Exception as error:  # of whichever library
        return {"failed": reason_of(error)}


def is_answering(device: torch.device) -> bool:
    """No GPU does after an illegal access, in this process."""
    try:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except RuntimeError:
        return False
    return True


def _work(asked: argparse.Namespace) -> Iterator[tuple[str, str, FamilyNetwork]]:
    for dtype in asked.dtype:
        for layout in asked.layout:
            for network in networks():
                if network.library in asked.library and asked.network in (None, network.name):
                    yield dtype, layout, network


def run(asked: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Measures what is asked for, and writes the page of all that is known."""
    device = torch.device(asked.device)
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
    path = asked.output / f"{device_slug(device)}.json"
    command = repeating("benchmarks.families", arguments)
    results = Results("families", environment(device), command, {})
    if asked.resume or asked.network is not None:
        results.keep(path)
    until = end_of(asked.seconds)
    with tqdm(list(_work(asked)), unit="network", disable=None) as bar:
        for dtype, layout, network in bar:
            about = label(network, device, dtype, layout)
            if asked.resume and key(about) in results.records:
                continue
            if is_over(until, asked.seconds, bar):
                break
            results.add(about | {"failed": _UNFINISHED})
            results.write(path)
            chosen = {"compile": "auto" if asked.compile else False, "tune": not asked.no_tune}
            found = attempt(network, device, dtype, layout, rounds=asked.rounds, **chosen)
            results.add(about | found)
            results.write(path)
            if "failed" in found:
                bar.write(f"{about['case']} {dtype} {layout}: {found['failed']}")
            if not is_answering(device):
                bar.write(f"{device} answers no more; --resume goes on")
                break
            _clean_up(device, asked.compile)
    print(family_page.write(path))
    return 0


def _clean_up(device: torch.device, compile: bool) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    if compile:
        torch.compiler.reset()


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dtype", type=some_of(*DTYPES), default=("float32",), help=", ".join(DTYPES))
    add("--layout", type=some_of(*LAYOUTS), default=LAYOUTS[:1], help=", ".join(LAYOUTS))
    libraries = tuple(dict.fromkeys(each.library for each in networks()))
    add("--library", type=some_of(*libraries), default=libraries[:2], help=f"of {', '.join(libraries)}")
    add("--compile", action="store_true", help="let optimize try inductor too: some seconds for each network")
    add("--no-tune", action="store_true", help="optimize by predictions, which takes less time")
    add("--rounds", type=int, default=_ROUNDS, help=f"turns of each contender (default {_ROUNDS})")
    add("--resume", action="store_true", help="keep what the file has, and measure the rest")
    add("--seconds", type=float, help="stop after this time; what is measured by then is written")
    add("--output", type=Path, default=FOLDER, help="folder of the measured times, and of the page beside it")
