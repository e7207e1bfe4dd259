"""Swapping a model's convolutions for convx's and back, in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn import Module
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

import convx.nn
from convx import _layers, _planning
from convx._arguments import DTYPES
from convx._errors import require_name
from convx.dispatch.packed import PackedFilters
from convx.explain import aligned

__all__ = ["ConversionReport", "LayerReport", "convert_", "revert_"]

# The class of a layer is changed in place, so that the layer keeps its identity: parameters, buffers, hooks,
# the names it is shared under, and references that others hold. Its old class is kept here.
_ORIGINAL = "_convx_original_class"
_REPLACEMENTS: dict[type[Module], type[Module]] = {
    torch.nn.Conv1d: convx.nn.Conv1d,
    torch.nn.Conv2d: convx.nn.Conv2d,
}
FilterFunction = Callable[[Module, str], bool]


@dataclass(frozen=True)
class LayerReport:
    """What became of one convolution layer."""

    name: str
    shape: str
    converted: bool
    method: str
    """The method planned for the example input, or "decided at the call"; empty where the layer was left."""
    reason: str
    """Why the layer was left; empty where it was converted."""


@dataclass(frozen=True)
class ConversionReport:
    """The layers of a model that convert_ looked at; prints as a table."""

    rows: tuple[LayerReport, ...]
    algorithm: str

    @property
    def converted(self) -> tuple[LayerReport, ...]:
        return tuple(row for row in self.rows if row.converted)

    @property
    def left(self) -> tuple[LayerReport, ...]:
        return tuple(row for row in self.rows if not row.converted)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"algorithm": self.algorithm, "layers": [asdict(row) for row in self.rows]}

    def __str__(self) -> str:
        table = [("layer", "shape", "method")]
        table += [
            (row.name, row.shape, row.method if row.converted else f"left: {row.reason}") for row in self.rows
        ]
        total = f"{len(self.converted)} of {len(self.rows)} convolution layers converted"
        return "\n".join([*aligned(table), total])


def cannot_swap(layer: Module) -> str:
    """Why this layer's class can't be changed, or nothing."""
    kind = type(layer)
    if isinstance(layer, (convx.nn.Conv1d, convx.nn.Conv2d)):
        return "already a convx layer"
    if kind.__module__.startswith("torch.ao.nn"):
        return f"{kind.__module__}.{kind.__name__} is quantized; convx has floating point kernels alone"
    if not isinstance(layer, (torch.nn.Conv1d, torch.nn.Conv2d)):
        return f"{kind.__name__}: convx has Conv1d and Conv2d alone"
    if getattr(layer, "qconfig", None) is not None:
        return (
            "it has a qconfig: torch.ao.quantization is about to quantize it; convx has floating point alone"
        )
    if any(is_lazy(parameter) for parameter in layer.parameters(recurse=False)):
        return "lazy: run the model once, then convert"
    if parametrize.is_parametrized(layer):
        return "parametrized: its class belongs to torch.nn.utils.parametrize; convert before parametrizing"
    if "forward" in vars(layer) or "_conv_forward" in vars(layer):
        return "its forward was replaced on the instance"
    if kind not in _REPLACEMENTS:
        base = torch.nn.Conv1d if isinstance(layer, torch.nn.Conv1d) else torch.nn.Conv2d
        for method in ("forward", "_conv_forward", "__call__"):
            if getattr(kind, method) is not getattr(base, method):
                return f"{kind.__name__} overrides {base.__name__}.{method}"
        return f"{kind.__name__} is a subclass of {base.__name__}; its class is kept"
    if layer.weight.dtype not in DTYPES:
        return f"dtype {layer.weight.dtype}; supported: float32, float64, float16, bfloat16"
    return ""


def _why_not(problem: Any, device: Any, algorithm: str) -> str:
    """The conditions that keep convx from running a problem, or nothing where it can."""
    core = _planning.core()
    first, *others = algorithm.split("|")
    if others:
        reasons = [_why_not(problem, device, each) for each in (first, *others)]
        return "" if "" in reasons else "; ".join(reasons)
    if algorithm != "auto":
        method = algorithm.split("/", 1)[0]
        able, reason = core.supports(method, problem, device)
        if not able:
            return f"{method}: {reason}"
        try:
            core.select(problem, device, algorithm)
        except ValueError as error:
            return str(error)
        return ""
    reasons = []
    for method in (row["name"] for row in core.methods()):
        if method == "native":
            continue
        able, reason = core.supports(method, problem, device)
        if able:
            return ""
        reasons.append(f"{method}: {reason}")
    return "; ".join(reasons)


def _without_tilings(algorithm: str) -> str:
    return "|".join(each.partition(" ")[0] for each in algorithm.split("|"))


def _decide(layer: Any, names: list[str], calls: list[_layers.Call] | None, algorithm: str) -> LayerReport:
    name = ", ".join(names)
    shape = shape_of(layer, calls)
    reason = cannot_swap(layer)
    if reason:
        return LayerReport(name, shape, False, "", reason)
    core = _planning.core()
    planned: list[str] = []
    for call in calls or [None]:  # type: ignore[list-item]
        try:
            problem = _layers.problem(layer, call)
            device = _planning.device(layer.weight.device if call is None else call.device)
        except (TypeError, ValueError) as error:
            return LayerReport(name, shape, False, "", str(error))
        # Tilings are of sizes, which nobody knows before a call.
        reason = _why_not(problem, device, algorithm if call is not None else _without_tilings(algorithm))
        if reason:
            return LayerReport(name, shape, False, "", reason)
        if call is not None:
            plan = core.select(problem, device, algorithm).plan
            planned.append(f"{plan.method}/{plan.candidate}" if plan.candidate else plan.method)
    if calls is None:
        method = "decided at the call"
    elif not calls:
        method = "decided at the call (the example input did not reach it)"
    else:
        method = ", ".join(dict.fromkeys(planned))
    return LayerReport(name, shape, True, method, "")


def shape_of(layer: Any, calls: list[_layers.Call] | None) -> str:
    """ "3->32 3x3 s2 on 1x3x224x224"."""
    if not isinstance(layer, _ConvNd):
        return type(layer).__name__
    taps = "x".join(str(extent) for extent in layer.kernel_size)
    text = f"{layer.in_channels}->{layer.out_channels} {taps}"
    for symbol, value in (("s", layer.stride), ("d", layer.dilation)):
        if any(step != 1 for step in value):
            text += f" {symbol}" + "x".join(str(step) for step in dict.fromkeys(value))
    if layer.groups != 1:
        text += f" g{layer.groups}"
    sizes = dict.fromkeys("x".join(str(extent) for extent in call.size) for call in calls or [])
    return text + (" on " + ", ".join(sizes) if sizes else "")


def convert_(
    model: Module,
    filter_fn: FilterFunction | None = None,
    algorithm: str = "auto",
    example_input: Any = None,
) -> ConversionReport:
    """Swap a model's torch.nn.Conv2d and Conv1d layers for convx's, in place; convx.revert_ undoes it.

    The layers keep their parameters (the same objects), buffers, hooks and names; the state_dict stays as it
    is. Converted are the layers that a method of convx beside "native" can run. The others are left with a
    reason, and so are subclasses of Conv2d, parametrized, lazy and quantized layers, and what torch.jit or
    torch.export has compiled. torch.jit.script can't take converted layers (revert_ first); torch.jit.trace,
    torch.export, torch.compile and torch.fx can. torch.ao.quantization finds layers by their class, in eager
    and in FX graph mode: revert_ before it prepares the model, or it raises. What quantizes by operators or
    by a mapping of types of yours (quantize_dynamic) passes over converted layers.

    Args:
        model: any module, a Conv2d too.
        filter_fn: called with (layer, name); only layers for which it is true are converted.
        algorithm: what the converted layers are told to use, see convx.functional.conv2d. Layers that a named
            method can't run are left.
        example_input: a tensor, a tuple of positional or a dict of keyword arguments. The model is run on it
            once, in evaluation mode without gradients, to learn the layers' input sizes; the report then
            names the method each layer takes for them. Without it the sizes, so the methods, are known at
            the call.

    Returns:
        ConversionReport, one row per convolution layer; prints as a table.

    Raises:
        TypeError: model is not a module. convx.InvalidArgument: no such algorithm. ImportError: the planner
        is missing.

    >>> import torch, convx
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1, groups=8), torch.nn.Conv2d(8, 16, 1))
    >>> report = convx.convert_(model)
    >>> [row.name for row in report.converted], convx.revert_(model)
    (['0', '1'], 2)
    >>> report = convx.convert_(model, algorithm="depthwise")
    >>> [row.name for row in report.converted], [row.name for row in report.left]
    (['0'], ['1'])
    """
    _layers.require_module("model", model)
    if filter_fn is not None and not callable(filter_fn):
        raise TypeError(
            f"filter_fn must be a function of (layer, name), got {type(filter_fn).__name__}; inputs go to "
            f"example_input"
        )
    require_name("algorithm", algorithm)
    _planning.core().check_algorithm(algorithm)
    layers = _layers.convolutions(model)
    calls = (
        None
        if example_input is None
        else _layers.record_calls(model, list(layers), *_layers.arguments_of(example_input))
    )
    rows = []
    compiled = [LayerReport(name, "", False, "", reason) for name, reason in _compiled_convolutions(model)]
    for layer, names in layers.items():
        if filter_fn is not None and not any(filter_fn(layer, name) for name in names):
            shape = shape_of(layer, None if calls is None else calls[layer])
            rows.append(LayerReport(", ".join(names), shape, False, "", "filter_fn is false for it"))
        else:
            rows.append(_decide(layer, names, None if calls is None else calls[layer], algorithm))
    # Changed only now: an error above leaves the model as it was.
    for layer, row in zip(layers, rows, strict=True):
        if row.converted:
            _swap(layer, algorithm)
    return ConversionReport((*rows, *compiled), algorithm)


def _compiled_convolutions(model: Module) -> Iterator[tuple[str, str]]:
    """What was a convolution layer before torch compiled the model: its name, and why it stays."""
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule) and "Conv" in str(module.original_name):
            yield name or "(model)", "scripted or traced by torch.jit; convert the model before"
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if node.op == "call_function" and str(node.target).startswith("aten.conv"):
                    path = ".".join(filter(None, (name, node.name)))
                    yield path, "a call in a graph, no layer; convert the model before it is exported"


def _swap(layer: Module, algorithm: str) -> None:
    original = type(layer)
    layer.__class__ = _REPLACEMENTS[original]
    vars(layer)[_ORIGINAL] = original
    vars(layer)["algorithm"] = algorithm
    vars(layer)["_packed"] = PackedFilters()


def revert_(model: Module) -> int:
    """Undo convx.convert_, in place: the layers get their old classes back. Returns how many there were.

    Layers that were made as convx.nn.Conv2d or Conv1d stay. A fused `activation` that was set on a converted
    layer afterwards has no place in torch's layer: RuntimeError, as for layers parametrized since; nothing is
    changed then.

    >>> import torch, convx
    >>> layer = torch.nn.Conv2d(8, 8, 3, groups=8)
    >>> _ = convx.convert_(layer)
    >>> convx.revert_(layer), type(layer)
    (1, <class 'torch.nn.modules.conv.Conv2d'>)
    """
    _layers.require_module("model", model)
    converted = [(name, module) for name, module in model.named_modules() if _ORIGINAL in vars(module)]
    for name, module in converted:
        if type(module) not in _REPLACEMENTS.values():
            raise RuntimeError(
                f"layer '{name}' has become a {type(module).__name__} since it was converted; undo "
                f"that "
                f"first (torch.nn.utils.parametrize.remove_parametrizations)"
            )
        if vars(module).get("activation", "none") != "none":
            raise RuntimeError(
                f"layer '{name}' has a fused activation {module.activation!r}, which torch's layer "
                f"can't "
                f"have; set it to 'none' first"
            )
    for _, module in converted:
        module.__class__ = vars(module).pop(_ORIGINAL)
        for name in ("algorithm", "activation", "_packed"):
            vars(module).pop(name, None)
    return len(converted)
