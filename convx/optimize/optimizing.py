"""convx.optimize itself: follow the model, fuse, choose a layout, check."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from convx import _layers, _planning
from convx._blocks import Block
from convx._errors import InvalidArgument, reason_of
from convx.convert import convert_
from convx.optimize.affine import take_affine
from convx.optimize.blocks import fuse_blocks
from convx.optimize.by_parts import FoundPart, by_parts, faster_parts
from convx.optimize.check import Reference, copied
from convx.optimize.compiled import CompiledNetwork, can_inductor
from convx.optimize.conditions import drop_checks, take_conditions
from convx.optimize.constants import fold_factors, make_layers
from convx.optimize.cuda_graphs import CudaGraphs
from convx.optimize.fuse import fuse
from convx.optimize.graph import STOPS_AUTOCAST, Reader, trace
from convx.optimize.inputs import Inputs, tensors_in
from convx.optimize.layouts import candidates_of, moved
from convx.optimize.linears import take_linears
from convx.optimize.model import FORMATS, OptimizedModel
from convx.optimize.moves import fuse_moves
from convx.optimize.pads import decide_pads, take_pads
from convx.optimize.parallel import merge
from convx.optimize.parts import Part
from convx.optimize.permutes import take_permutes
from convx.optimize.pools import fuse_flattening, fuse_means, fuse_pools
from convx.optimize.report import FusionReport, OptimizationReport
from convx.optimize.rows import Network, compiled_rows, given, operations_beside, rows_of
from convx.optimize.shapes import Shapes
from convx.optimize.stretches import mixture_of
from convx.optimize.volumes import fold_volumes
from convx.optimize.worth import could_gain
from convx.tune.choosing import choose
from convx.tune.records import Record
from convx.tune.turns import compare, turn_of

_LAYOUTS = ("auto", "as given", *FORMATS)
_GAIN = 1.03  # that another candidate than the first has to have, which is what measurements differ by
_TURNS = 9
_OWN, _MIXED = "torch's own layers", "mixed"
_UNCOMPILED, _COMPILED = "uncompiled", "compiled"
_CANNOT_BE_COMPILED = "torch.fx can't follow the model, or a call leaves something changed"
_ASKS_VALUES = "it asks for values of tensors"
_TORCH_IS_FASTER = "torch's own layers take less time together"


@dataclass(frozen=True)
class _Asked:
    """The options of optimize."""

    layout: str
    tune: bool
    compile: bool | str
    cuda_graphs: int


@dataclass(frozen=True)
class _Found:
    """The fastest so far, and what the report says of it."""

    model: OptimizedModel
    network: Network
    native_us: float
    us: float
    layout: str  # that a compiled network is to have
    several: str = ""  # layouts, in words, where the model has more than one
    rows: tuple[FusionReport, ...] | None = None  # of a compiled one
    not_replayed: str = ""
    not_compiled: str = ""
    to_compile: nn.Module | None = None  # of torch's layers, where that is worth a try
    choices: tuple[Record, ...] = ()  # which it would have then


def optimize(
    model: nn.Module,
    example_input: Any,
    *,
    layout: str = "auto",
    tune: bool = True,
    compile: bool | str = "auto",
    cuda_graphs: int = 8,
) -> OptimizedModel:
    """A copy of a model that is faster at inference; the model stays as it is.

    Batch norms go into the filters of the convolutions before them, and convolutions of the same images whose
    results are added become one; activations and skip connections are done by the convolution's kernel as it
    writes its result. Convolutions are run by convx, each by the plan that is the fastest with all that it
    has to do, torch's own among them; and inverted residual blocks (1x1, or the network's first convolution,
    then depthwise, a squeeze-and-excitation or none, 1x1) in channels_last, of float32 and 16 bits on NVIDIA
    GPUs by one kernel, or of 16 bits by three with squeeze-and-excitation, of float32 on CPUs by strips of
    rows that stay in a core's caches, where that is measured to be faster than their layers; so are squeeze-
    and-excitations alone, with their means and product. On GPUs classifiers, linear layers of up to some
    hundred rows, are convolutions of single pixels, max pooling (and averages of 2x2 and 3x3) writes no
    places of what it found, and the whole is replayed as a CUDA graph. On CPUs convolutions, blocks, means of
    planes, linear layers, and concatenations, slices and shuffles of channels that follow one another are one
    call, in memory that is kept, and the images of a batch go through them one by one where that is faster on
    the example input. What is no convolution is torch's own, or compiled by inductor where that is measured
    to be faster (compile). The copy is run on the example input beside the model and checked against float64.

    Args:
        model: any module; it is looked at as it is in evaluation mode, and without what torch.compile has put
            around it. What torch.fx can't follow, as branches on values, is run layer by layer as by
            convx.convert_, but for the largest parts that it can follow, as a detector's backbone, where
            these are faster so; the report has the reason.
        example_input: a tensor, a tuple of positional or a dict of keyword arguments, on the model's device.
            Other sizes work too; choices by time are made with this one. What the model decides by sizes is
            fused as it is for this one, and run layer by layer for sizes that it decides otherwise for.
        layout: the one that images have inside: "nchw", "channels_last", "as given" (the input's), or "auto":
            as given or the other one, or, with tune, one for each stretch of the network, with conversions
            between, whichever is the fastest on the example input. Results have the layout that the input has
            where it is not "as given".
        tune: measure the likely plans of every layer and block, some 0.2 s for each size that they have (on
            CPUs also for one image of a batch); else the planner's predictions count, and blocks are run
            layer by layer. What is found holds in this process, and in those that load the optimized model;
            records of convx.tune, which measures all plans of layers, go before it.
        compile: measure the network as torch.compile(backend="convx") makes it too, and take that where it is
            faster than all else by 3 %. That costs some 3 to 20 s on a GPU, and where it is taken as much at
            the first call with inputs of each new kind, up to eight. True, False or "auto": on GPUs that
            inductor compiles for, with tune, where measured convolutions leave at least a fifth of the time
            and the network has more than convolutions, linear layers, poolings, activations, sums and views:
            norms, products, GELU, softmax, concatenations.
        cuda_graphs: how many graphs are kept, one for each kind of input; 0 for none. Nothing on CPUs.

    Returns:
        convx.OptimizedModel, in evaluation mode; `print(optimized.report)` says what was done and gained.

    Raises:
        TypeError: model is not a module. convx.InvalidArgument: no such layout, tune, compile or number
            of graphs.
        RuntimeError: results differ from the model's by more than twice the model's own error, on the example
            input and over others made of it.

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
    if not isinstance(compile, bool) and compile != "auto":
        raise InvalidArgument(f"compile must be True, False or 'auto'; got {compile!r}")
    if isinstance(cuda_graphs, bool) or not isinstance(cuda_graphs, int) or cuda_graphs < 0:
        raise InvalidArgument(f"cuda_graphs must be a number of graphs, 0 or more; got {cuda_graphs!r}")
    asked = _Asked(layout, tune, compile, cuda_graphs)
    made = torch.compiler.disable(_made)  # within torch.compile a break in the graph
    return made(model, example_input, asked)  # type: ignore[no-any-return]


def _made(model: nn.Module, example_input: Any, asked: _Asked) -> OptimizedModel:
    with torch.inference_mode(False), torch.no_grad():
        optimized = _optimized(_uncompiled(model), example_input, asked)
    gc.collect()  # candidates hold weights and CUDA graphs, and are in cycles, as torch.fx makes them
    return optimized


def _optimized(model: nn.Module, example_input: Any, asked: _Asked) -> OptimizedModel:
    native = copy.deepcopy(model).eval().requires_grad_(False)
    args, kwargs = _layers.arguments_of(tree_map(copied, example_input))
    reference = Reference(native, args, kwargs)
    network = followed(native, reference, args, kwargs)
    parts: list[FoundPart] = []
    if network.inputs is None:
        parts = faster_parts(native, args, kwargs, partial(_found_for, asked=asked))
        network = by_parts(network, parts)
    found = _found(native, network, reference, asked, args, kwargs)
    optimized = found.model
    own_error, error = reference.errors_of(optimized)
    if wrong := reference.disagrees(optimized, error):
        raise RuntimeError(f"the optimized model is not used: {wrong}; convx.convert_ may do for this model")
    looked_at = (optimized, found.network, args, kwargs)
    own = rows_of(*looked_at) if found.rows is None else found.rows
    optimized.report = OptimizationReport(
        rows=(*(row for each in parts for row in each.rows), *own),
        reason=found.network.reason,
        layout=found.several or optimized.layout,
        cuda_graphs=any(len(each.graphs) for each in _optimized_models(optimized)),
        native_us=found.native_us,
        optimized_us=found.us,
        native_error=own_error,
        optimized_error=error,
        compiled=optimized.compiled is not None,
        not_compiled=found.not_compiled,
        not_replayed=found.not_replayed,
        by_image=optimized.programs.by_image,
        operations=operations_beside(*looked_at) if found.rows is None else (),
    )
    return optimized


def _found(
    native: nn.Module, network: Network, reference: Reference, asked: _Asked, args: Any, kwargs: Any
) -> _Found:
    found = _fastest(native, network, reference, asked, args, kwargs)
    if found.to_compile is None:
        return found
    gc.collect()  # the weights of those that were slower
    return _compiled_if_faster(found, native, reference, args, kwargs)


def _found_for(part: Part, asked: _Asked) -> _Found | None:
    """Of a model that can't be followed as a whole."""
    call = part.args, part.kwargs
    try:
        reference = Reference(part.module, *call)
    except Exception:  # of a module that is no use by itself
        return None
    network = followed(part.module, reference, *call)
    if network.inputs is None:
        return None
    # Graphs and compiled code are of sizes that were met: nothing for a part whose inputs always have others.
    own = asked if part.has_one_size else replace(asked, cuda_graphs=0, compile=False)
    return _found(part.module, network, reference, own, *call)


def _optimized_models(model: nn.Module) -> list[OptimizedModel]:
    return [each for each in model.modules() if isinstance(each, OptimizedModel)]


def _fastest(
    native: nn.Module, network: Network, reference: Reference, asked: _Asked, args: Any, kwargs: Any
) -> _Found:
    """Of what needs no compiler."""
    # A CUDA graph is run several times before its first replay, on tensors of its own.
    can_repeat = network.inputs is not None and not Reader(network.module).has_effects()
    not_replayed = ""
    if can_repeat and any(each.is_cuda for each in tensors_in(args, kwargs)) and reference.asks_values:
        can_repeat = False  # nor do they wait for values
        not_replayed = _ASKS_VALUES if asked.cuda_graphs else ""
    graphs = asked.cuda_graphs if can_repeat else 0
    make = _maker(network)
    candidates = candidates_of(network, asked.layout, graphs, make, args, kwargs)
    layouts = [name for name, each in candidates.items() if not each.programs.by_image]
    mixture = None
    if asked.tune:
        for each in candidates.values():
            each.choices = choose(each.network, *given(each, args, kwargs))
        mixture = mixture_of(network, [*candidates.values()], args, kwargs, _GAIN) if can_repeat else None
    if mixture is not None:
        mixed = make(mixture.module, network.inputs, mixture.layout, graphs, by_image=mixture.by_image)
        mixed.choices = choose(mixed.network, *given(mixed, args, kwargs))
        candidates[_MIXED] = mixed
    own = None
    if network.inputs is not None:
        own = trace(copy.deepcopy(native), network.inputs, network.inputs.tensors(args, kwargs))
        drop_checks(own)
        candidates[_OWN] = make(own, network.inputs, "as given", graphs)
    models: dict[str, nn.Module] = {"native": native, **candidates}
    calls = {name: partial(each, *args, **kwargs) for name, each in models.items()}
    try:
        times = _times(calls, args, kwargs)
    except Exception as error:  # of copies from the CPU, say; what is no capture's is raised again below
        if graphs == 0:
            raise
        not_replayed = reason_of(error)
        for each in candidates.values():
            each.graphs = CudaGraphs(0)
        times = _times(calls, args, kwargs)
    chosen = _choose(times, list(candidates))
    told = replace(network, module=None)  # whose weights may not be those that are chosen
    if chosen == _OWN:
        told = replace(told, fused={}, reason=_TORCH_IS_FASTER)
    fused = min(layouts, key=lambda name: times[name])
    found = _Found(candidates[chosen], told, times["native"], times[chosen], candidates[chosen].layout)
    found = replace(found, not_replayed=not_replayed)
    if mixture is not None and chosen == _MIXED:
        found = replace(found, layout=fused, several=mixture.told)
    is_tried = asked.compile is True
    if asked.compile == "auto" and asked.tune and can_repeat and can_inductor(args, kwargs):
        rows = rows_of(candidates[fused], network, args, kwargs)
        is_tried = could_gain(candidates[fused].network, rows, times[fused])
    if is_tried and not can_repeat:
        return replace(found, not_compiled=_CANNOT_BE_COMPILED)
    return replace(found, to_compile=own, choices=candidates[fused].choices) if is_tried else found


def _maker(network: Network) -> Callable[..., OptimizedModel]:
    """Of models that run one of its forms, and for inputs that it does not hold for what it has for them."""
    return partial(
        OptimizedModel,
        conditions=network.conditions,
        stops_autocast=network.stops_autocast,
        otherwise=network.otherwise,
    )


def _compiled_if_faster(
    found: _Found, native: nn.Module, reference: Reference, args: Any, kwargs: Any
) -> _Found:
    """The network of torch's layers by inductor and convx, in the layout that was the faster one, or what was
    found before, and why."""
    before = found.model
    layout = found.layout
    network: Any = moved(found.to_compile, layout)  # type: ignore[arg-type]
    compiled = CompiledNetwork()
    made = _maker(found.network)(network, found.network.inputs, layout, before.graphs.most, compiled)
    made.choices = found.choices
    found = replace(found, to_compile=None)
    try:
        compiled.compile(network, given(made, args, kwargs)[0])
        graphs = list(compiled.graphs)  # before calls of another kind
        wrong = reference.disagrees(made, reference.error_of(made))
    except Exception as error:  # whatever inductor raises, and those whom it asks
        wrong = reason_of(error)
    if not wrong and not graphs:
        wrong = "torch.compile makes no graph of it"
    if not wrong:
        models = {"native": native, _UNCOMPILED: before, _COMPILED: made}
        times = _times({name: partial(each, *args, **kwargs) for name, each in models.items()}, args, kwargs)
        found = replace(found, native_us=times["native"], us=times[_UNCOMPILED])
        if _choose(times, [_UNCOMPILED, _COMPILED]) == _COMPILED:
            rows = compiled_rows(made, [each.rewritten for each in graphs], args, kwargs)
            told = replace(found.network, fused={}, reason="")
            return replace(found, model=made, network=told, us=times[_COMPILED], several="", rows=rows)
        wrong = f"{times[_COMPILED]:.0f} us compiled, {times[_UNCOMPILED]:.0f} as it is"
    compiled.forget()
    return replace(found, not_compiled=wrong)


def _uncompiled(model: nn.Module) -> nn.Module:
    """What torch.compile has wrapped."""
    from torch._dynamo.eval_frame import OptimizedModule  # with what torch.compile needs: a second

    return _uncompiled(model._orig_mod) if isinstance(model, OptimizedModule) else model


def followed(model: nn.Module, reference: Reference, args: Any, kwargs: Any) -> Network:
    """What is fused of a model, with all its convolutions; the reference is of the same call."""
    unfused = copy.deepcopy(model)
    try:
        inputs = Inputs(model, args, kwargs)
        example = inputs.tensors(args, kwargs)
        module = trace(unfused, inputs, example)
        decide_pads(module)
        conditions = take_conditions(module, example)
        make_layers(module)
        fold_factors(module)
        Shapes(module).propagate(*map(copied, example))
        take_affine(module)
        take_pads(module)
        if take_permutes(module):
            Shapes(module).propagate(*map(copied, example))
        merged = merge(module)
        fused = fuse(module) | fold_volumes(module)
        fused |= {name: ("parallel layers", *fused[name]) for name in merged if name in fused}
        names = {new: old for old, new in fuse_blocks(module, _can_be_one_kernel).items()}
        devices = {each.device.type for each in example}
        if devices == {"cpu"}:
            fuse_moves(module)
        elif devices == {"cuda"}:
            take_linears(module)
        if devices in ({"cpu"}, {"cuda"}):
            fuse_pools(module, *devices)
        fuse_means(module)
        if devices == {"cpu"}:
            fuse_flattening(module)
        # torch.fx takes `x += y` for `x = x + y`, which is something else where x has another name too.
        fused_model = OptimizedModel(module, inputs, "as given", 0)
        wrong = reference.disagrees(fused_model, reference.error_of(fused_model))
    except Exception as error:  # whatever a model's own code raises when it is given a proxy
        wrong = reason_of(error)
    if wrong:
        converted = copy.deepcopy(model)
        convert_(converted)
        return Network(converted, None, {}, f"layers are run one by one: {wrong}")
    convert_(module)
    stops_autocast = bool(module.meta[STOPS_AUTOCAST])
    if conditions is None and not stops_autocast:
        return Network(module, inputs, fused, names=names)
    convert_(unfused)
    return Network(module, inputs, fused, "", names, conditions, stops_autocast, unfused)


def _can_be_one_kernel(block: Block, input: Any) -> bool:
    """With the example input."""
    weight = block.layers[0].weight
    if weight.device.type not in block.devices or input is None or input.dtype != weight.dtype:
        return False
    problem = block.problem(tuple(input.shape), input.dtype)
    able, _ = _planning.core().supports(block.method, problem, _planning.device(weight.device))
    return bool(able)


def _times(calls: dict[str, Any], args: Any, kwargs: Any) -> dict[str, float]:
    device = next((each.device for each in tensors_in(args, kwargs)), torch.device("cpu"))
    compare(calls, device, 1, 2)  # choices, packed filters and graphs are made
    repeats, _ = turn_of(calls.values(), device)
    return compare(calls, device, _TURNS, repeats).us


def _choose(times: dict[str, float], candidates: list[str]) -> str:
    own, *others = candidates
    return min([own, *others], key=lambda name: times[name] * (1.0 if name == own else _GAIN))
