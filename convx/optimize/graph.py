"""A model as a torch.fx graph, and what its nodes mean, whether they are modules, functions or methods."""

from __future__ import annotations

import dataclasses
import inspect
import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.utils._pytree import tree_leaves

import convx.nn
from convx._arguments import padding_2d, pair
from convx._blocks import Block
from convx.convert import cannot_swap
from convx.operators import autocast
from convx.optimize.branches import BranchTracer
from convx.optimize.folding import Norm
from convx.optimize.inputs import Inputs
from convx.optimize.layers import PlaneMeans, PooledPlanes, Pooling
from convx.optimize.nodes import is_image, shape_of
from convx.optimize.ranks import drop_asserts

_CALLS = ("call_module", "call_function", "call_method")
STOPS_AUTOCAST = "stops_autocast"  # in the metadata of a graph whose model turns it off for a part
_ADDITIONS: tuple[Any, ...] = (operator.add, operator.iadd, torch.add, "add", "add_")
_MODULES_OF_ACTIVATIONS: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.SiLU: "silu",
    nn.Hardswish: "hardswish",
    nn.GELU: "gelu",
}
_FUNCTIONS_OF_ACTIVATIONS: dict[Any, str] = {
    F.relu: "relu",
    torch.relu: "relu",
    torch.relu_: "relu",
    "relu": "relu",
    "relu_": "relu",
    F.relu6: "relu6",
    F.silu: "silu",
    F.hardswish: "hardswish",
    F.gelu: "gelu",
}
_SUBTRACTIONS: tuple[Any, ...] = (operator.sub, torch.sub, "sub")
_PRODUCTS: tuple[Any, ...] = (operator.mul, torch.mul, "mul")
_MODULES_OF_GATES: dict[type[nn.Module], str] = {nn.Sigmoid: "sigmoid", nn.Hardsigmoid: "hardsigmoid"}
_FUNCTIONS_OF_GATES: dict[Any, str] = {
    torch.sigmoid: "sigmoid",
    F.sigmoid: "sigmoid",
    "sigmoid": "sigmoid",
    F.hardsigmoid: "hardsigmoid",
}
_POOLING = {
    "max": "kernel_size stride padding dilation ceil_mode return_indices",
    "average": "kernel_size stride padding ceil_mode count_include_pad divisor_override",
}
_NAMES_OF_POOLING = {
    "ceil_mode": "ceil_mode",
    "count_include_pad": "counts_padding",
    "divisor_override": "divisor",
}
_MODULES_OF_POOLING: dict[type[nn.Module], str] = {nn.MaxPool2d: "max", nn.AvgPool2d: "average"}
_FUNCTIONS_OF_POOLING: dict[Any, str] = {F.max_pool2d: "max", F.avg_pool2d: "average"}
BATCH_NORM = "input running_mean running_var weight bias training momentum eps"
# Functions that give memory of their own, whatever they are given: what they return is nobody else's.
_FRESH: frozenset[Any] = frozenset(
    (
        *(operator.add, operator.sub, operator.mul, operator.truediv),
        *(torch.add, torch.sub, torch.mul, torch.cat),
        *(torch.zeros, torch.ones, torch.empty, torch.full, torch.arange, torch.zeros_like, torch.ones_like),
        *(F.adaptive_avg_pool2d, F.avg_pool2d, F.max_pool2d, F.linear, F.conv2d, F.conv3d, F.interpolate),
        torch.repeat_interleave,
        *(F.batch_norm, F.group_norm, F.layer_norm),
    )
)

_FRESH_LAYERS = (
    *(Block, PlaneMeans, PooledPlanes, _ConvNd, _NormBase, nn.Linear, nn.LayerNorm, nn.GroupNorm),
    *(nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d),
    *(nn.MaxPool3d, nn.AvgPool3d, nn.AdaptiveAvgPool3d),
)


class _Tracer(BranchTracer):
    """torch's own layers stay modules, as convx's do; what others made of them is looked into."""

    proxy_buffer_attributes = True  # what is done to buffers is seen too

    def create_arg(self, a: Any) -> Any:
        """Dicts with an order, as torchvision's models return, and with fields, as transformers', stay what
        they are."""
        if type(a) is OrderedDict:
            made = self.create_node("call_function", OrderedDict, (self.create_arg([*a.items()]),), {})
            made.meta["is_wrapped"] = True
            return made
        if not isinstance(a, dict) or not dataclasses.is_dataclass(a):
            return super().create_arg(a)
        fields = {each.name: self.create_arg(getattr(a, each.name)) for each in dataclasses.fields(a)}
        made = self.create_node("call_function", type(a), (), fields)
        made.meta["is_wrapped"] = True  # a pickle is traced once more when it is loaded
        return made

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        package = type(module).__module__.partition(".")[0]
        return package in ("torch", "convx") and not isinstance(module, nn.Sequential)


def trace(model: nn.Module, inputs: Inputs, example: Sequence[Tensor] = ()) -> fx.GraphModule:
    """A module of the tensors of such calls alone, which decides by sizes as for the example. Raises what fx
    raises where it can't follow the model. A graph has nothing of autocast in it: that the model turns it off
    for a part, which makes a difference where the caller has it on, is in the metadata."""
    tracer = _Tracer(example)
    if "forward" in vars(model):
        raise TypeError("the model's forward was replaced on the instance")
    for name, module in model.named_modules():
        if has_hooks(module) and (module is model or not tracer.is_leaf_module(module, name)):
            raise TypeError(f"{name or 'the model'} has hooks, which would see one call alone, the tracer's")
    names = ", ".join(f"tensor_{place}" for place in range(len(inputs)))
    space: dict[str, Any] = {"arguments": inputs.arguments}
    # By a function that has so many parameters: torch.fx makes a proxy for each.
    exec(
        f"def forward(self, {names}):\n"
        f"    args, kwargs = arguments([{names}])\n"
        f"    return super(type(self), self).forward(*args, **kwargs)\n",
        space,
    )
    kind = type(model)
    model.__class__ = type(kind.__name__, (kind,), {"forward": space["forward"]})
    try:
        with autocast.watched() as turned, tracer.following_tensors(), _as_it_is(model):
            graph = tracer.trace(model)
    finally:
        model.__class__ = kind
    if any(turned):
        raise fx.proxy.TraceError("the model turns autocast on for a part")
    module = fx.GraphModule(model, graph, kind.__name__)
    module.meta[STOPS_AUTOCAST] = bool(turned)
    if example and drop_asserts(module):
        inputs.require_ranks(example)
    return module


@contextmanager
def _as_it_is(model: nn.Module) -> Iterator[None]:
    """What a tracer gives it does not stay where the model's code has left it for itself to read."""
    before = [(module.__dict__, dict(vars(module))) for module in model.modules()]
    try:
        yield
    finally:
        for own, was in before:
            for name, value in list(own.items()):
                if any(isinstance(each, fx.Proxy) for each in tree_leaves(value)):
                    del own[name]
                    own |= {name: was[name]} if name in was else {}


@dataclass(frozen=True)
class Convolution:
    """A convolution of images with padding of zeros."""

    node: fx.Node
    name: str
    layer: nn.Conv2d

    @property
    def input(self) -> fx.Node:
        """As the graph has it by now."""
        return _first(self.node)  # type: ignore[no-any-return]

    @property
    def operands(self) -> tuple[fx.Node, ...]:
        """What the graph computes of what it reads."""
        return (self.input,)

    @property
    def keeps_weights(self) -> bool:
        """Whether its weights stay, so that what is made of them can be kept."""
        return True

    @property
    def activation(self) -> str:
        """Its own."""
        return getattr(self.layer, "activation", "none")


class Reader:
    """Says what nodes of a graph module are."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module

    def layer(self, node: fx.Node) -> nn.Module | None:
        return self.module.get_submodule(str(node.target)) if node.op == "call_module" else None

    def convolutions(self) -> Iterator[Convolution]:
        for node in self.module.graph.nodes:
            layer = self.layer(node)
            if not isinstance(layer, nn.Conv2d) or has_hooks(layer) or layer.padding_mode != "zeros":
                continue
            if type(layer) is convx.nn.Conv2d or not cannot_swap(layer):
                yield Convolution(node, str(node.target), layer)

    def has_effects(self) -> bool:
        """Whether a call may leave something changed: its input, or the model's buffers."""
        layers = map(self.layer, self.module.graph.nodes)
        if any(layer is not None and layer.training for layer in layers):  # statistics, random numbers
            return True
        return any(True for _ in self.writes_outside())

    def writes_outside(self) -> Iterator[fx.Node]:
        """Nodes that write to memory which this call may not have made."""
        own: set[fx.Node] = set()  # whose memory this call made: new, or that of what it was computed of
        for node in self.module.graph.nodes:
            if self.writes(node):
                if self.written(node) not in own:
                    yield node
                    continue
                own.add(node)
            elif self.is_fresh(node) or (node.op in _CALLS and own.issuperset(node.all_input_nodes)):
                own.add(node)

    def linear(self, node: fx.Node) -> nn.Linear | None:
        layer = self.layer(node)
        return layer if type(layer) is nn.Linear and not has_hooks(layer) else None

    def norm(self, node: fx.Node) -> Norm[Tensor] | None:
        """A batch norm, or a factor for each channel."""
        layer: Any = self.layer(node)
        if layer is not None:
            known = type(layer) in (nn.BatchNorm2d, nn.SyncBatchNorm) and not has_hooks(layer)
            if not known or layer.training or layer.running_mean is None:
                return None
            statistics = layer.running_mean, layer.running_var
            return Norm(_first(node), *statistics, layer.weight, layer.bias, layer.eps)
        if node.op != "call_function" or node.target is not F.batch_norm:
            return self._scale(node)
        of = bound(node, BATCH_NORM)
        mean, variance = self.constant(of.get("running_mean")), self.constant(of.get("running_var"))
        if of.get("training", False) is not False or mean is None or variance is None:
            return None
        weight, bias = self.constant(of.get("weight")), self.constant(of.get("bias"))
        if (weight is None) != (of.get("weight") is None) or (bias is None) != (of.get("bias") is None):
            return None  # one that the graph computes
        return Norm(of["input"], mean, variance, weight, bias, of.get("eps", 1e-5))

    def _scale(self, node: fx.Node) -> Norm[Tensor] | None:
        factors = self.product(node)
        for image, factor in (factors, factors[::-1]) if factors is not None else ():
            scale = self.constant(factor)
            channels = shape_of(image)[1:2] if is_image(image) else ()
            if scale is not None and tuple(scale.shape[-3:]) == (*channels, 1, 1) and scale.dim() <= 4:
                flat = scale.detach().flatten()
                mean, variance = torch.zeros_like(flat), torch.ones_like(flat)
                return Norm(image, mean, variance, flat, None, 0.0, "scale")
        return None

    def activation(self, node: fx.Node) -> str | None:
        """Of one operand."""
        layer = self.layer(node)
        if layer is not None:
            if has_hooks(layer):
                return None
            if isinstance(layer, nn.GELU) and layer.approximate != "none":
                return None
            if type(layer) is nn.Hardtanh and (layer.min_val, layer.max_val) == (0, 6):
                return "relu6"
            return _MODULES_OF_ACTIVATIONS.get(type(layer))
        if node.op not in ("call_function", "call_method"):
            return None
        if node.target is F.hardtanh:
            of = bound(node, "input min_val max_val inplace")
            return "relu6" if (of.get("min_val"), of.get("max_val")) == (0, 6) else None
        if node.target is F.gelu and node.kwargs.get("approximate", "none") != "none":
            return None
        return _FUNCTIONS_OF_ACTIVATIONS.get(node.target)

    def sum(self, node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
        """Of two tensors that the graph computes. Whether they have one shape is not known."""
        return _both(node, _ADDITIONS)

    def difference(self, node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
        """As sum; which writes to neither."""
        return _both(node, _SUBTRACTIONS)

    def adds_nothing(self, node: fx.Node) -> bool:
        """Whether it is the sum of a tensor and the number 0."""
        if node.op not in ("call_function", "call_method") or node.target not in _ADDITIONS or node.kwargs:
            return False
        numbers = [each for each in node.args if not isinstance(each, fx.Node)]
        return len(node.args) == 2 and numbers in ([0], [0.0])

    def product(self, node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
        """Of two tensors that the graph computes."""
        return _both(node, _PRODUCTS)

    def gate(self, node: fx.Node) -> str | None:
        """Which of GATES it is."""
        layer = self.layer(node)
        if layer is not None:
            return None if has_hooks(layer) else _MODULES_OF_GATES.get(type(layer))
        if node.op not in ("call_function", "call_method") or len(node.args) != 1 or self.writes(node):
            return None
        return _FUNCTIONS_OF_GATES.get(node.target)

    def plane_means(self, node: fx.Node) -> fx.Node | None:
        """The images of whose planes it is the means, each as one pixel."""
        layer: Any = self.layer(node)
        if layer is not None:
            is_mean = type(layer) is nn.AdaptiveAvgPool2d and layer.output_size in (1, (1, 1))
            return _first(node) if is_mean and not has_hooks(layer) else None
        if node.op == "call_function" and node.target is F.adaptive_avg_pool2d:
            of = bound(node, "input output_size")
            return of["input"] if of.get("output_size") in (1, (1, 1), [1, 1]) else None
        return self._means(node, keepdim=True)

    def pooling(self, node: fx.Node) -> tuple[fx.Node, Pooling] | None:
        """The images whose planes it pools, and how."""
        layer: Any = self.layer(node)
        if layer is not None:
            kind = _MODULES_OF_POOLING.get(type(layer))
            names = "" if kind is None else _POOLING[kind]
            of = {"input": _first(node)} | {name: getattr(layer, name) for name in names.split()}
            kind = None if has_hooks(layer) else kind
        else:
            kind = _FUNCTIONS_OF_POOLING.get(node.target) if node.op == "call_function" else None
            of = {} if kind is None else bound(node, f"input {_POOLING[kind]}")
        if kind is None or of.pop("return_indices", False) is not False:
            return None
        input = of.pop("input")
        computed: list[fx.Node] = []
        fx.node.map_arg(of, computed.append)
        if computed:  # of sizes that are known at the call
            return None
        filter = pair("kernel_size", of.pop("kernel_size"))
        stride, padding = of.pop("stride", None), pair("padding", of.pop("padding", 0))
        windows = (filter, filter if stride in (None, [], ()) else pair("stride", stride), padding)
        dilation = pair("dilation", of.pop("dilation", 1))
        return input, Pooling(kind, *windows, dilation, **{_NAMES_OF_POOLING[name]: of[name] for name in of})

    def flat_plane_means(self, node: fx.Node) -> fx.Node | None:
        """The same without the pixels' dimensions."""
        means = self.flattened(node)
        if means is None:
            return self._means(node, keepdim=False)
        return self.plane_means(means) if len(means.users) == 1 else None

    def flattened(self, node: fx.Node) -> fx.Node | None:
        """Of which it flattens all but the batch."""
        return _first(node) if self._flattens(node) else None

    def _means(self, node: fx.Node, keepdim: bool) -> fx.Node | None:
        if (node.op, node.target) not in (("call_function", torch.mean), ("call_method", "mean")):
            return None
        of = bound(node, "input dim keepdim")
        dims = of.pop("dim", None)
        is_planes = isinstance(dims, (tuple, list)) and sorted(d % 4 for d in dims) == [2, 3]
        keeps = of.pop("keepdim", False)
        return of["input"] if is_planes and keeps is keepdim and len(of) == 1 else None

    def _flattens(self, node: fx.Node) -> bool:
        """All but the batch."""
        layer = self.layer(node)
        if layer is not None:
            is_flatten = type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)
            return is_flatten and not has_hooks(layer)
        if (node.op, node.target) not in (("call_function", torch.flatten), ("call_method", "flatten")):
            return False
        of = bound(node, "input start_dim end_dim")
        return (of.get("start_dim"), of.get("end_dim", -1)) == (1, -1) and isinstance(of["input"], fx.Node)

    def can_be_added(self, residual: fx.Node, node: fx.Node) -> bool:
        """Whether the two have one shape, with the example input."""
        shapes = [getattr(each.meta.get("tensor_meta"), "shape", None) for each in (residual, node)]
        return shapes[0] is not None and shapes[0] == shapes[1]

    def can_add_after_activation(self, node: fx.Node) -> bool:
        """Whether a sum behind an activation is to be done by the convolution."""
        return True

    def is_like(self, node: fx.Node, convolution: fx.Node) -> bool:
        """Whether its result is of the convolution's kind, so that the convolution can give it."""
        return True

    def is_barrier(self, node: fx.Node) -> bool:
        """Whether a convolution that is moved past it may become another."""
        return False

    def is_identity(self, node: fx.Node) -> bool:
        """What does nothing in evaluation."""
        layer = self.layer(node)
        if layer is not None:
            drops = isinstance(layer, nn.modules.dropout._DropoutNd) and not layer.training
            return (drops or type(layer) is nn.Identity) and not has_hooks(layer)
        if node.op != "call_function":
            return False
        if node.target in (F.dropout, F.dropout2d):
            return bound(node, "input p training").get("training", True) is False
        if getattr(node.target, "__name__", "") == "stochastic_depth":
            return bound(node, "input p mode training").get("training", True) is False
        return False

    def writes(self, node: fx.Node) -> bool:
        """Whether it changes a tensor in place, as far as can be told."""
        if self.is_identity(node):
            return False
        layer = self.layer(node)
        if layer is not None:
            return bool(getattr(layer, "inplace", False)) or layer.training
        if node.op == "call_method":
            name = str(node.target)
            return name.endswith("_") and not name.endswith("__")
        if node.op != "call_function":
            return False
        name = getattr(node.target, "__name__", "")
        if getattr(operator, name, None) is node.target:  # `iadd`, but neither `and_` nor `invert`
            in_place = name.startswith("i") and hasattr(operator, f"__{name[1:]}__")
        else:
            in_place = name.endswith("_") or node.kwargs.get("out") is not None or _is_told_in_place(node)
        return in_place or name == "setitem"

    def nothing_writes(self, chain: Sequence[fx.Node]) -> bool:
        """Between the first and the last but what is in it, which may read its input again at its end."""
        node = chain[0].next
        while node is not chain[-1]:
            if node not in chain and self.writes(node):
                return False
            node = node.next
        return True

    def erase(self, nodes: Iterable[fx.Node]) -> None:
        """Takes them out, with what was there for them alone and does nothing else."""
        unused = list(nodes)
        while unused:
            node = unused.pop()
            before = node.all_input_nodes
            self.module.graph.erase_node(node)
            free = (each for each in before if not each.users and not each.is_impure())
            unused += [each for each in free if not self.writes(each)]

    @staticmethod
    def written(node: fx.Node) -> fx.Node | None:
        """What a node that writes writes to."""
        found = node.kwargs.get("out", node.args[0] if node.args else None)
        return found if isinstance(found, fx.Node) else None

    def is_fresh(self, node: fx.Node) -> bool:
        """Whether its memory is its own when it has been computed."""
        layer = self.layer(node)
        if layer is not None:
            activates = self.activation(node) is not None
            return isinstance(layer, _FRESH_LAYERS) or (activates and not self.writes(node))
        if node.op != "call_function":
            return False
        return node.target in _FRESH or (self.activation(node) is not None and not self.writes(node))

    def constant(self, value: Any) -> Tensor | None:
        """A tensor of the module's own."""
        if not (isinstance(value, fx.Node) and value.op == "get_attr"):
            return None
        owner, _, name = str(value.target).rpartition(".")
        found = getattr(self.module.get_submodule(owner), name)
        return found if isinstance(found, Tensor) else None


def is_centred(layer: nn.Conv2d) -> bool:
    """Whether its filter is odd, padded by half of it, without dilation."""
    (height, width), stride = layer.kernel_size, pair("stride", layer.stride)
    dilation = pair("dilation", layer.dilation)
    sides = (height // 2, height // 2, width // 2, width // 2)
    is_odd = height % 2 == 1 and width % 2 == 1
    return (
        is_odd
        and dilation == (1, 1)
        and padding_2d(layer.padding, layer.weight.shape, stride, dilation) == sides
    )


def has_hooks(layer: nn.Module) -> bool:
    return any(
        getattr(layer, name)
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    )


def _is_told_in_place(node: fx.Node) -> bool:
    """By an argument, which may have its place alone."""
    if "inplace" in node.kwargs or len(node.args) < 2:
        return node.kwargs.get("inplace") is True
    try:
        names = list(inspect.signature(node.target).parameters)  # type: ignore[arg-type]
    except ValueError:  # of a builtin, which has none
        return False
    return "inplace" in names and bound(node, " ".join(names)).get("inplace") is True


def _both(node: fx.Node, targets: tuple[Any, ...]) -> tuple[fx.Node, fx.Node] | None:
    """What it computes of two nodes, where it is a call of one of these."""
    if node.op not in ("call_function", "call_method") or node.target not in targets:
        return None
    if len(node.args) != 2 or node.kwargs:
        return None
    first, second = node.args
    return (first, second) if isinstance(first, fx.Node) and isinstance(second, fx.Node) else None


def _first(node: fx.Node) -> Any:
    return node.args[0] if node.args else next(iter(node.kwargs.values()))


def bound(node: fx.Node, names: str) -> dict[str, Any]:
    """The arguments of a function by name."""
    return {**dict(zip(names.split(), node.args, strict=False)), **node.kwargs}
