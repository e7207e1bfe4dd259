"""convx.optimize itself: follow the model, fuse, choose a layout, check."""

from __future__ import annotations

import copy
import gc
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.utils._pytree import tree_leaves, tree_map

import convx.nn
from convx import _layers, _planning
from convx._blocks import InvertedResidual
from convx._errors import InvalidArgument
from convx.convert import cannot_swap, convert_, shape_of
from convx.optimize.blocks import fuse_blocks
from convx.optimize.check import Reference, copied
from convx.optimize.fuse import fuse
from convx.optimize.graph import Reader, trace
from convx.optimize.inputs import Inputs
from convx.optimize.model import FORMATS, OptimizedModel, is_channels_last_image
from convx.optimize.report import FusionReport, OptimizationReport
from convx.tune import records
from convx.tune.choosing import choose
from convx.tune.turns import compare, turn_of

_LAYOUTS = ("auto", "as given", *FORMATS)
_GAIN = 1.03  # that another candidate than the first has to have, which is what measurements differ by
_TURNS = 9
_OWN = "torch's own layers"
_TORCH_IS_FASTER = "torch's own layers take less time together"


@dataclass(frozen=True)
class _Network:
    """What runs instead of a model."""

    module: Any
    inputs: Inputs | None  # that it takes; None where it takes what the model does
    fused: dict[str, tuple[str, ...]]  # into each layer, by its name in the model
    reason: str = ""  # why nothing is
    names: dict[str, str] = field(default_factory=dict)  # in the model, of layers that are in blocks


def optimize(
    model: nn.Module, example_input: Any, *, layout: str = "auto", tune: bool = True, cuda_graphs: int = 8
) -> OptimizedModel:
    """A copy of a model that is faster at inference; the model stays as it is.

    Batch norms go into the filters of the convolutions before them; activations and skip connections are done
    by the convolution's kernel as it writes its result. Convolutions are run by convx, each by the plan that
    is the fastest with all that it has to do, torch's own among them; and on NVIDIA GPUs inverted residual
    blocks (1x1, or the network's first convolution, then depthwise, 1x1) of 16 bits by one kernel, in
    channels_last, where that is measured to be faster than its three layers. On GPUs the whole is replayed as
    a CUDA graph. The copy is run on the example input beside the model and checked against float64.

    Args:
        model: any module; it is looked at as it is in evaluation mode. What torch.fx can't follow, as
            branches on values, is run layer by layer as by convx.convert_; the report has the reason.
        example_input: a tensor, a tuple of positional or a dict of keyword arguments, on the model's device.
            Other sizes work too; choices by time are made with this one.
        layout: the one that images have inside: "nchw", "channels_last", "as given" (the input's), or "auto":
            as given or the other one, whichever is faster on the example input. Results have the layout that
            the input has where it is not "as given".
        tune: measure the likely plans of every layer and block, some 0.2 s for each size that they have; else
            the planner's predictions count, and blocks are run layer by layer. What is found holds in this
            process, and in those that load the optimized model; records of convx.tune, which measures all
            plans of layers, go before it.
        cuda_graphs: how many graphs are kept, one for each kind of input; 0 for none. Nothing on CPUs.

    Returns:
        convx.OptimizedModel, in evaluation mode; `print(optimized.report)` says what was done and gained.

    Raises:
        TypeError: model is not a module. convx.InvalidArgument: no such layout, number of graphs or tune.
        RuntimeError: results differ from the model's by more than twice the model's own error.

    >>> import torch, convx
    >>> model = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 16, 3, padding=1, bias=False), torch.nn.BatchNorm2d(16), torch.nn.ReLU6()
    ... ).eval()
    >>> x = torch.randn(1, 3, 32, 32)
    >>> optimized = convx.optimize(model, x)
    >>> optimized.report.rows[0].fused
    ('batch norm', 'relu6')
    >>> bool((optimized(x) - model(x)).abs().max() < 1e-4)
    True
    """
    _layers.require_module("model", model)
    if layout not in _LAYOUTS:
        raise InvalidArgument(f"layout must be one of {', '.join(_LAYOUTS)}; got {layout!r}")
    if not isinstance(tune, bool):
        raise InvalidArgument(f"tune must be True or False; got {tune!r}")
    if isinstance(cuda_graphs, bool) or not isinstance(cuda_graphs, int) or cuda_graphs < 0:
        raise InvalidArgument(f"cuda_graphs must be a number of graphs, 0 or more; got {cuda_graphs!r}")
    with torch.inference_mode(False), torch.no_grad():
        optimized = _optimized(model, example_input, layout, tune, cuda_graphs)
    gc.collect()  # candidates hold weights and CUDA graphs, and are in cycles, as torch.fx makes them
    return optimized


def _optimized(
    model: nn.Module, example_input: Any, layout: str, tune: bool, cuda_graphs: int
) -> OptimizedModel:
    native = copy.deepcopy(model).eval().requires_grad_(False)
    args, kwargs = _layers.arguments_of(tree_map(copied, example_input))
    reference = Reference(native, args, kwargs)
    network = _network(native, reference, args, kwargs)
    # A CUDA graph is run several times before its first replay, on tensors of its own.
    can_replay = network.inputs is not None and not Reader(network.module).has_effects()
    graphs = cuda_graphs if can_replay else 0
    layouts = _candidates(layout, args, kwargs)
    candidates = {
        name: OptimizedModel(_moved(network.module, name), network.inputs, name, graphs) for name in layouts
    }
    if network.inputs is not None and _is_batch_on_cpu(args, kwargs):
        candidates |= {
            f"{name} by image": OptimizedModel(each.network, network.inputs, name, graphs, by_image=True)
            for name, each in candidates.items()
        }
    if tune:
        for each in candidates.values():
            each.choices = choose(each.network, *_given(each, args, kwargs))
    if network.inputs is not None:
        unchanged = trace(copy.deepcopy(native), network.inputs)
        candidates[_OWN] = OptimizedModel(unchanged, network.inputs, "as given", graphs)
    models: dict[str, nn.Module] = {"native": native, **candidates}
    times = _times({name: partial(each, *args, **kwargs) for name, each in models.items()}, args, kwargs)
    chosen = _choose(times, list(candidates))
    optimized = candidates[chosen]
    if chosen == _OWN:
        network = replace(network, fused={}, reason=_TORCH_IS_FASTER)
    error = reference.error_of(optimized)
    if wrong := reference.disagrees(error):
        raise RuntimeError(f"the optimized model is not used: {wrong}; convx.convert_ may do for this model")
    optimized.report = OptimizationReport(
        rows=_rows(optimized, network, args, kwargs),
        reason=network.reason,
        layout=optimized.layout,
        cuda_graphs=len(optimized.graphs) > 0,
        by_image=optimized.programs.by_image,
        native_us=times["native"],
        optimized_us=times[chosen],
        native_error=reference.error,
        optimized_error=error,
    )
    return optimized


def _network(model: nn.Module, reference: Reference, args: Any, kwargs: Any) -> _Network:
    try:
        inputs = Inputs(model, args, kwargs)
        module = trace(copy.deepcopy(model), inputs)
        ShapeProp(module).propagate(*map(copied, inputs.tensors(args, kwargs)))
        fused = fuse(module)
        names = {new: old for old, new in fuse_blocks(module, _can_be_one_kernel).items()}
        # torch.fx takes `x += y` for `x = x + y`, which is something else where x has another name too.
        wrong = reference.disagrees(reference.error_of(OptimizedModel(module, inputs, "as given", 0)))
    except Exception as error:  # whatever a model's own code raises when it is given a proxy
        wrong = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    if wrong:
        converted = copy.deepcopy(model)
        convert_(converted)
        return _Network(converted, None, {}, f"layers are run one by one: {wrong}")
    convert_(module)
    return _Network(module, inputs, fused, names=names)


def _can_be_one_kernel(block: InvertedResidual, input: Any) -> bool:
    """With the example input."""
    weight = block.expand.weight
    if not weight.is_cuda or input is None or input.dtype != weight.dtype:
        return False
    problem = block.problem(tuple(input.shape), input.dtype)
    able, _ = _planning.core().supports("inverted_residual", problem, _planning.device(weight.device))
    return bool(able)


def _candidates(layout: str, args: Any, kwargs: Any) -> list[str]:
    if layout != "auto":
        return [layout]
    images = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor) and each.dim() == 4]
    if not images:
        return ["as given"]
    return ["as given", "nchw" if any(map(is_channels_last_image, images)) else "channels_last"]


def _moved(module: nn.Module, layout: str) -> nn.Module:
    """With filters in the layout."""
    if layout not in FORMATS:
        return module
    moved: nn.Module = copy.deepcopy(module).to(memory_format=FORMATS[layout])  # type: ignore[call-overload]
    return moved


def _times(calls: dict[str, Any], args: Any, kwargs: Any) -> dict[str, float]:
    tensors = (each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor))
    device = next((each.device for each in tensors), torch.device("cpu"))
    compare(calls, device, 1, 2)  # choices, packed filters and graphs are made
    repeats, _ = turn_of(calls.values(), device)
    return compare(calls, device, _TURNS, repeats).us


def _choose(times: dict[str, float], candidates: list[str]) -> str:
    own, *others = candidates
    return min([own, *others], key=lambda name: times[name] * (1.0 if name == own else _GAIN))


def _is_batch_on_cpu(args: Any, kwargs: Any) -> bool:
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    images = [each for each in tensors if each.dim() == 4]
    return bool(images) and len(images[0]) > 1 and all(each.device.type == "cpu" for each in tensors)


def _given(optimized: OptimizedModel, args: Any, kwargs: Any) -> Any:
    """What its network is called with, positional and keyword arguments; by image, for one."""
    args, kwargs = optimized.in_own_layout(*optimized.arguments(args, kwargs))
    if not optimized.programs.by_image:
        return args, kwargs
    batch = max(len(each) for each in args if each.dim() > 0)
    return [each[:1] if each.dim() > 0 and len(each) == batch else each for each in args], kwargs


def _rows(optimized: OptimizedModel, network: _Network, args: Any, kwargs: Any) -> tuple[FusionReport, ...]:
    layers = _layers.convolutions(optimized.network)
    rows = _block_rows(optimized, args, kwargs)
    calls = _layers.record_calls(optimized.network, list(layers), *_given(optimized, args, kwargs))
    for layer, found in layers.items():
        names = [network.names.get(name, name) for name in found]
        if network.inputs is not None and not calls[layer]:
            continue  # the graph reads something of it, and calls a fused layer instead
        is_convx = isinstance(layer, (convx.nn.Conv1d, convx.nn.Conv2d))
        reason = "" if is_convx else cannot_swap(layer) or network.reason or "no method of convx runs it"
        method = "" if reason else _methods(layer, calls[layer])
        shape = shape_of(layer, calls[layer])
        times = (None, None) if reason else _measured_times(layer, calls[layer])
        rows.append(
            FusionReport(", ".join(names), shape, network.fused.get(names[0], ()), method, reason, *times)
        )
    return tuple(rows)


def _block_rows(optimized: OptimizedModel, args: Any, kwargs: Any) -> list[FusionReport]:
    """Of blocks that are one kernel for the example input."""
    names = {module: name for name, module in optimized.network.named_modules()}
    rows = []
    given = _given(optimized, args, kwargs)
    for block, calls in _layers.record_block_calls(optimized.network, *given).items():
        for call in calls:
            problem = block.problem(call.size, call.dtype, call.channels_last)
            device = _planning.device(call.device)
            plan = _planning.core().select(problem, device).plan
            record = records.remembered(problem, device)
            if plan.method == "native" or record is None:
                continue
            parts = ("expand", "depthwise", "project", *(("residual",) if block.residual else ()))
            rows.append(
                FusionReport(names[block], _shape_of(problem), parts, plan.method, "", record.us, None)
            )
    return rows


def _shape_of(problem: Any) -> str:
    p = problem
    stride = f" s{p.stride}" if p.stride != 1 else ""
    channels = f"{p.channels}->{p.expanded_channels}->{p.out_channels}"
    size = f"{p.batch}x{p.channels}x{p.height}x{p.width}"
    return f"{channels} {p.filter}x{p.filter}{stride} on {size}"


def _measured_times(layer: Any, calls: list[_layers.Call]) -> tuple[float | None, float | None]:
    """Of all calls, by the plans that were chosen and by torch's."""
    found = [
        records.remembered(_layers.problem(layer, call), _planning.device(call.device)) for call in calls
    ]
    times = [(each.us, each.candidates.get("native")) for each in found if each is not None]
    if not times or len(times) < len(calls):
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
