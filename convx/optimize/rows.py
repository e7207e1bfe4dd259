"""What becomes of each layer, for the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

import convx.nn
from convx import _layers, _planning
from convx.convert import cannot_swap, shape_of
from convx.optimize.conditions import Conditions
from convx.optimize.inputs import Inputs, tensors_in
from convx.optimize.model import OptimizedModel
from convx.optimize.operations import operations_of, places_of
from convx.optimize.parts import in_parts
from convx.optimize.report import FusionReport, Operation
from convx.tune import records

if TYPE_CHECKING:
    from convx.compile.rewriting import Rewritten

_TORCHS = "torch's own in the compiled network"


@dataclass(frozen=True)
class Network:
    """What runs instead of a model."""

    module: Any
    inputs: Inputs | None  # that it takes; None where it takes what the model does
    fused: dict[str, tuple[str, ...]]  # into each layer, by its name in the model
    reason: str = ""  # why nothing is
    names: dict[str, str] = field(default_factory=dict)  # in the model, of layers that are in blocks
    conditions: Conditions | None = None  # for which the module is; always where there are none
    stops_autocast: bool = False  # OptimizedModel.stops_autocast
    otherwise: Any = None  # what runs where they do not hold


def given(optimized: OptimizedModel, args: Any, kwargs: Any) -> Any:
    """What its network is called with, positional and keyword arguments; by image, for one."""
    args, kwargs = optimized.in_own_layout(*optimized.arguments(args, kwargs))
    if not optimized.programs.by_image:
        return args, kwargs
    batch = max(len(each) for each in args if each.dim() > 0)
    return [each[:1] if each.dim() > 0 and len(each) == batch else each for each in args], kwargs


def rows_of(optimized: OptimizedModel, network: Network, args: Any, kwargs: Any) -> tuple[FusionReport, ...]:
    served = in_parts(optimized.network)  # and has rows of its own
    found_layers = _layers.convolutions(optimized.network)
    layers = {layer: names for layer, names in found_layers.items() if layer not in served}
    places = _places(optimized)
    rows = _block_rows(optimized, places, args, kwargs)
    calls = _layers.record_calls(optimized.network, list(layers), *given(optimized, args, kwargs))
    for layer, found in layers.items():
        names = [network.names.get(name, name) for name in found]
        if network.inputs is not None and not calls[layer]:
            continue  # the graph reads something of it, and calls a fused layer instead
        is_convx = isinstance(layer, (convx.nn.Conv1d, convx.nn.Conv2d))
        reason = "" if is_convx else cannot_swap(layer) or network.reason or "no method of convx runs it"
        method = "" if reason else _methods(layer, calls[layer])
        shape = shape_of(layer, calls[layer])
        times = (None, None) if reason else _measured_times(layer, calls[layer])
        fused, place = network.fused.get(names[0], ()), _place(places, found[0])
        rows.append(FusionReport(", ".join(names), shape, fused, method, reason, *times, place))
    return tuple(rows)


def operations_beside(
    optimized: OptimizedModel, network: Network, args: Any, kwargs: Any
) -> tuple[Operation, ...]:
    """What is in no convolution's kernel; nothing is known of layers that are run one by one."""
    if not isinstance(optimized.network, fx.GraphModule):
        return ()
    device = next((each.device.type for each in tensors_in(args, kwargs)), "cpu")
    return tuple(operations_of(optimized.network, device, network.reason))


def compiled_rows(
    optimized: OptimizedModel, compiled: Sequence[Rewritten], args: Any, kwargs: Any
) -> tuple[FusionReport, ...]:
    """Of a network that is compiled; compiled: what the backend said of its graphs for this input."""
    layers = _layers.convolutions(optimized.network)
    calls = _layers.record_calls(optimized.network, list(layers), *given(optimized, args, kwargs))
    names_of = {id(layer.weight): names[0] for layer, names in layers.items()}
    places = _places(optimized)
    where = next((each.device for each in tensors_in(args, kwargs)), torch.device("cpu"))
    rows = [row for each in compiled for row in _compiled_blocks(each, names_of, places, where)]
    by_itself = [row for each in compiled for row in each.rows if not row.within]
    for layer, names in layers.items():
        found = [row for row in by_itself if row.weight == id(layer.weight)]
        within = any(row.within and row.weight == id(layer.weight) for each in compiled for row in each.rows)
        if not calls[layer] or (within and not found):
            continue
        is_convxs = bool(found) and all(row.problem is not None for row in found)
        fused = dict.fromkeys(each for row in found for each in row.fused)
        method = ", ".join(dict.fromkeys(row.plan for row in found)) if is_convxs else ""
        problems = [row.problem for row in found] if is_convxs else []
        times = _remembered_times(problems, calls[layer][0].device)
        reason = "" if is_convxs else _TORCHS
        shape, place = shape_of(layer, calls[layer]), _place(places, names[0])
        rows.append(FusionReport(", ".join(names), shape, tuple(fused), method, reason, *times, place))
    return tuple(rows)


def _compiled_blocks(
    compiled: Rewritten, names_of: dict[int, str], places: dict[str, int], where: torch.device
) -> Iterator[FusionReport]:
    """What one operator does of a graph."""
    for block in compiled.blocks:
        weights = (row.weight for row in compiled.rows if row.within == block.name)
        names = [names_of[weight] for weight in weights if weight in names_of]
        times = _remembered_times([block.problem], where)
        place = min((_place(places, name) for name in names), default=0)
        yield FusionReport(_shared(names), block.shape, block.parts, block.plan, "", *times, place)


def _shared(names: Sequence[str]) -> str:
    """The name of the module that has them all."""
    parts = zip(*(name.split(".") for name in names), strict=False)
    same = takewhile(lambda each: len(set(each)) == 1, parts)
    return ".".join(each[0] for each in same) or ", ".join(names)


def _places(optimized: OptimizedModel) -> dict[str, int]:
    network = optimized.network
    return places_of(network) if isinstance(network, fx.GraphModule) else {}


def _place(places: dict[str, int], name: str) -> int:
    """Of a layer, or of the block that it is in."""
    while name and name not in places:
        name = name.rpartition(".")[0]
    return places.get(name, 0)


def _block_rows(
    optimized: OptimizedModel, places: dict[str, int], args: Any, kwargs: Any
) -> list[FusionReport]:
    """Of blocks that are one kernel for the example input."""
    names = {module: name for name, module in optimized.network.named_modules()}
    rows = []
    if in_parts(optimized.network):
        return []
    arguments = given(optimized, args, kwargs)
    for block, calls in _layers.record_block_calls(optimized.network, *arguments).items():
        for call in calls:
            problem = block.problem(call.size, call.dtype, call.channels_last)
            device = _planning.device(call.device)
            plan = _planning.core().select(problem, device).plan
            record = records.remembered(problem, device)
            if plan.method == "native" or record is None:
                continue
            name, shape = names[block], block.shape(call.size)
            times, place = (record.us, record.candidates.get("native")), _place(places, names[block])
            rows.append(FusionReport(name, shape, block.parts, plan.method, "", *times, place))
    return rows


def _measured_times(layer: Any, calls: list[_layers.Call]) -> tuple[float | None, float | None]:
    """Of all calls, by the plans that were chosen and by torch's."""
    problems = [_layers.problem(layer, call) for call in calls]
    return _remembered_times(problems, calls[0].device) if calls else (None, None)


def _remembered_times(problems: Sequence[Any], where: torch.device) -> tuple[float | None, float | None]:
    found = [records.remembered(each, _planning.device(where)) for each in problems]
    times = [(each.us, each.candidates.get("native")) for each in found if each is not None]
    if not times or len(times) < len(problems):
        return None, None
    torchs = [us for _, us in times if us is not None]
    return sum(us for us, _ in times), sum(torchs) if len(torchs) == len(times) else None


def _methods(layer: Any, calls: list[_layers.Call]) -> str:
    select = _planning.core().select
    plans = [
        select(_layers.problem(layer, call), _planning.device(call.device), layer.algorithm).plan
        for call in calls
    ]
    return ", ".join(dict.fromkeys(f"{plan.method}/{plan.candidate}".rstrip("/") for plan in plans))
