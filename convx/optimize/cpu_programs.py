"""What a graph does on a CPU for each kind of input: its layers, blocks, pooling and moves of channels, in
chains of C++."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.fx.immutable_collections import immutable_dict

from convx import _libraries
from convx._arguments import padding_2d, pair
from convx._blocks import Block, InvertedResidual
from convx.dispatch import packed
from convx.dispatch.situation import Situation, situation
from convx.operators import autocast
from convx.optimize.layers import (
    ChannelNorm,
    FlatPixels,
    FusedConv2d,
    MovedChannels,
    PlaneMeans,
    PooledPlanes,
)
from convx.optimize.shapes import Steps

_front = _libraries.front()
_WITH_WEIGHTS = (FusedConv2d, ChannelNorm, nn.Linear)  # of layers that links keep


@dataclass(frozen=True)
class _Step:
    """One node that Python calls, or a chain of layers that it need not come between."""

    run: Callable[..., Any]  # of the values there are
    results: tuple[fx.Node, ...]
    done: tuple[fx.Node, ...]  # values that nobody reads after it
    layers: tuple[fx.Node, ...] = ()  # of a chain


class _Linked(NamedTuple):
    """A link of a node, and what it reads: nodes, or the node's own links by their places."""

    link: Any
    reads: tuple[Any, ...]


@dataclass
class _Program:
    inputs: tuple[fx.Node, ...]
    steps: list[_Step]
    chains: list[Any] = field(default_factory=list)
    whole: Any = None  # of one that is a chain from its input to its result
    result: fx.Node | None = None  # where that is one value, and not made by the last step

    @property
    def bytes(self) -> int:
        """Of the memory that its chains work in."""
        return max((chain.bytes for chain in self.chains), default=0)


class CpuPrograms:
    """The most recently used programs of one model, and the memory that all of them work in. Copies and
    pickles begin without any.

    A program holds what was prepared for a kind of input and for the weights as they were: written to, they
    get another one. One call at a time has the memory; others meanwhile go layer by layer.
    """

    _MOST = 8

    def __init__(self, by_image: bool = False) -> None:
        self.by_image = by_image  # whether the images of a batch go through chains one by one
        self.forget()

    def forget(self) -> None:
        """After weights have been replaced by other tensors."""
        self._lock = threading.Lock()
        self._programs: OrderedDict[Any, _Program] = OrderedDict()
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._weights: list[dict[str, Tensor | None]] | None = None  # of layers that may be in chains
        self._state: int | None = None
        self._drop_whole()

    def _drop_whole(self) -> None:
        self._latest: _Program | None = None  # that served a call
        self.run_whole: Callable[[Any], Tensor | None] | None = None

    def keep_whole(self, tensor: Tensor) -> None:
        """Lets run_whole(tensor) be the call that was just made with it, in C++, where the network is one
        chain from this input to its result; None from it where it has to be made by `call`."""
        program = self._latest
        if program is None or len(program.steps) != 1 or len(program.chains) != 1 or len(program.inputs) != 1:
            return
        if program.steps[0].results != (program.result,) or self._state is None:
            return
        if program.whole is None:
            own = (program.chains[0], tensor, self._memory, self._weights, self._lock)
            program.whole = _front.WholeNetwork(*own)  # type: ignore[union-attr]
        self.run_whole = program.whole.run

    def __len__(self) -> int:
        return len(self._programs)

    def __reduce__(self) -> tuple[type[CpuPrograms], tuple[bool]]:
        return CpuPrograms, (self.by_image,)

    def call(self, network: nn.Module, tensors: Sequence[Any]) -> Any:
        """network(*tensors)."""
        self._latest = None
        if not _can_serve(network, tensors) or not self._lock.acquire(blocking=False):
            return network(*tensors)
        try:
            return self._call(network, tensors)  # type: ignore[arg-type]
        finally:
            self._lock.release()

    def _call(self, network: fx.GraphModule, tensors: Sequence[Tensor]) -> Any:
        self._check_weights(network)
        if self._state is None:
            return network(*tensors)
        shapes = [(each.shape, each.stride(), each.dtype) for each in tensors]
        key = (packed.generation(), torch.get_num_threads(), torch.is_grad_enabled(), *shapes)
        program = self._programs.get(key)
        if program is None:
            return self._record(key, network, tensors)
        self._latest = program
        self._programs.move_to_end(key)
        values: dict[fx.Node, Any] = dict(zip(program.inputs, tensors, strict=True))
        for step in program.steps:
            results = step.run(values, self._memory)
            values.update(zip(step.results, results, strict=True))
            for each in step.done:
                del values[each]
        return values.popitem()[1] if program.result is None else values[program.result]

    def _record(self, key: Any, network: fx.GraphModule, tensors: Sequence[Tensor]) -> Any:
        while len(self._programs) >= self._MOST:
            self._programs.popitem(last=False)
        recorder = _Recorder(network, self.by_image)
        result = _plain(recorder.run(*tensors))
        self._drop_whole()
        program = self._latest = self._programs[key] = recorder.program()
        if program.bytes > self._memory.numel():
            self._memory = torch.empty(program.bytes, dtype=torch.uint8)
            for each in self._programs.values():
                each.whole = None  # which work in the memory there was
        return result

    def _check_weights(self, network: nn.Module) -> None:
        """Programs hold packed filters."""
        if self._weights is None:
            layers = (each for each in network.modules() if isinstance(each, _WITH_WEIGHTS))
            self._weights = [each._parameters for each in layers]  # type: ignore[misc]
        try:
            state = packed.state_of(self._weights)
        except RuntimeError:  # of those that were made in inference mode nobody counts writes
            self._state = None
            return
        if state != self._state:
            self._programs.clear()
            self._drop_whole()
            self._state = state


def _can_serve(network: nn.Module, tensors: Sequence[Any]) -> bool:
    """A graph, of CPU tensors, with nothing about that wants to see operators."""
    if _front is None or not tensors or not isinstance(network, fx.GraphModule):
        return False
    if situation(*tensors) is not Situation.PLAIN or any(each.device.type != "cpu" for each in tensors):
        return False
    return not autocast.is_on("cpu")


class _Recorder(Steps):
    """Runs a graph, and prepares its convolutions, blocks and means for tensors like those that come by."""

    def __init__(self, network: fx.GraphModule, by_image: bool) -> None:
        super().__init__(network)
        self._nodes = list(network.graph.nodes)
        self.extra_traceback = False  # errors are the model's
        self._by_image = by_image
        self._links: dict[fx.Node, list[_Linked]] = {}  # of a block that its layers do, of each
        self._direct: dict[fx.Node, Callable[..., Any]] = {}  # calls of blocks without their checks
        self._batches: dict[fx.Node, int] = {}

    def run_node(self, node: fx.Node) -> Any:
        result = super().run_node(node)  # which says what is wrong with it
        links = self._linked(node, result) if node.op == "call_module" else []
        if links:
            self._links[node], self._batches[node] = links, len(result)
        return result

    def _linked(self, node: fx.Node, result: Any) -> list[_Linked]:
        """What the call is in a chain; nothing where Python has to make it."""
        layer: Any = self.fetch_attr(str(node.target))
        if _has_hooks(layer) or node.kwargs:
            return []
        if isinstance(layer, Block):
            return self._link_block(node, layer)
        link = self._link(node, layer, result)
        return [] if link is None else [_Linked(link, node.args)]

    def _link(self, node: fx.Node, layer: Any, result: Any) -> Any:
        front: Any = _front
        images = [self.env[each] for each in node.args]  # type: ignore[index]
        if type(layer) is nn.Linear:
            return None if self._by_image else front.linear_link(*images, layer.weight, layer.bias)
        is_like = all(each.shape == result.shape for each in images[1:])  # what is added
        if self._by_image:
            images = [each[:1] for each in images]
        if type(layer) is PlaneMeans:
            return front.mean_link(*images, layer.keeps_planes)
        if type(layer) is FlatPixels:  # a pixel is its own mean
            return front.mean_link(*images, False) if images[0].shape[2:] == (1, 1) else None
        if type(layer) is ChannelNorm:
            return front.norm_link(*images, layer.weight, layer.bias, layer.eps)
        if type(layer) is PooledPlanes:
            return front.pooled_link(*images, layer.pooling.asked)
        if type(layer) is MovedChannels:
            return front.moved_link(images[0], images[1] if len(images) > 1 else None, layer.order)
        if type(layer) is not FusedConv2d or layer.padding_mode != "zeros" or images[0].dim() != 4:
            return None
        return _link(layer, *images) if is_like else None

    def _link_block(self, node: fx.Node, layer: Block) -> list[_Linked]:
        """Blocks go over all images at once: what is between their layers stays in caches as it is."""
        input = self.env[node.args[0]]  # type: ignore[index]
        call = layer.prepared_call(input)
        if call is None:
            return self._link_layers(node, layer, input[:1] if self._by_image else input)
        link = None if self._by_image else layer.prepared_link(input)
        if link is not None:
            return [_Linked(link, node.args)]
        self._direct[node] = lambda given: layer(given) if given.requires_grad else call(given)
        return []

    def _link_layers(self, node: fx.Node, block: Block, input: Tensor) -> list[_Linked]:
        """Of a block without a kernel for such inputs."""
        if not isinstance(block, InvertedResidual) or block.excitation is not None:
            return []
        layers: Any = (block.expand, block.depthwise, block.project)
        if any(type(each) is not FusedConv2d or _has_hooks(each) for each in layers):
            return []
        expand, depthwise, project = layers
        expanded = expand(input)
        filtered = depthwise(expanded)
        added = (input,) if block.residual else ()
        links = _link(expand, input), _link(depthwise, expanded), _link(project, filtered, *added)
        reads = node.args, (0,), (1, *(node.args if block.residual else ()))
        return [] if None in links else list(map(_Linked, links, reads))

    def program(self) -> _Program:
        self.env.clear()
        last_use = {used: node for node in self._nodes for used in node.all_input_nodes}
        program = _Program(tuple(node for node in self._nodes if node.op == "placeholder"), [])
        run: list[fx.Node] = []
        for node in self._nodes:
            if run and (node not in self._links or self._batches[node] != self._batches[run[0]]):
                self._add_chain(program, run, last_use)
                run = []
            if node in self._links:
                run.append(node)
            elif node.op == "output" and isinstance(node.args[0], fx.Node):
                program.result = node.args[0]
            elif node.op != "placeholder":
                program.steps.append(self._called(node, last_use))
        return program

    def _called(self, node: fx.Node, last_use: dict[fx.Node, fx.Node]) -> _Step:
        function = self._function(node)
        args: Any = node.args
        kwargs: Any = node.kwargs
        every = (*args, *kwargs.values())
        if any(isinstance(each, (tuple, list, dict, slice)) for each in every):

            def run(values: dict[fx.Node, Any], memory: Tensor) -> tuple[Any]:
                given, named = _plain(fx.node.map_arg((args, kwargs), values.__getitem__))
                return (function(*given, **named),)

        else:

            def run(values: dict[fx.Node, Any], memory: Tensor) -> tuple[Any]:
                given = [values[each] if each.__class__ is fx.Node else each for each in args]
                named = {name: values.get(each, each) for name, each in kwargs.items()}
                return (function(*given, **named),)

        done = tuple(each for each in node.all_input_nodes if last_use[each] is node)
        return _Step(run, (node,), done)

    def _function(self, node: fx.Node) -> Callable[..., Any]:
        """What the node calls, as the interpreter would."""
        target: Any = node.target
        if node.op == "call_function":
            return target  # type: ignore[no-any-return]
        if node.op == "call_module":
            return self._direct.get(node) or self.fetch_attr(str(target))
        if node.op == "call_method":
            return lambda own, *args, **kwargs: getattr(own, target)(*args, **kwargs)
        if node.op == "get_attr":
            return lambda: self.fetch_attr(str(target))
        return lambda result: result  # the output

    def _add_chain(self, program: _Program, run: list[fx.Node], last_use: dict[fx.Node, fx.Node]) -> None:
        inside = set(run)
        outside = [each for node in run for each in node.all_input_nodes if each not in inside]
        given = tuple(dict.fromkeys(outside))
        places = {node: place for place, node in enumerate(given)}
        results = tuple(node for node in run if any(user not in inside for user in node.users))
        links: list[Any] = []
        operands: list[tuple[int, int]] = []
        for node in run:
            first = len(given) + len(links)
            for link, reads in self._links[node]:
                read = [first + each if isinstance(each, int) else places[each] for each in reads]
                links.append(link)
                operands.append((read[0], read[1] if len(read) > 1 else -1))
            places[node] = len(given) + len(links) - 1
        chain = _front.Chain(links, operands, len(given), [places[each] for each in results], self._by_image)  # type: ignore[union-attr]

        layers = [self.fetch_attr(str(node.target)) for node in run]

        def call(values: dict[fx.Node, Any], memory: Tensor) -> Any:
            found = chain.run([values[each] for each in given], memory)
            if found is not None:
                return found
            inner = {each: values[each] for each in given}  # of other sizes, or with a gradient
            for node, layer in zip(run, layers, strict=True):
                inner[node] = layer(*(inner[each] for each in node.args))  # type: ignore[index]
            return [inner[each] for each in results]

        done = tuple(each for each in given if last_use[each] in inside)
        program.steps.append(_Step(call, results, done, tuple(run)))
        program.chains.append(chain)


def _plain(value: Any) -> Any:
    """Without the lists and dicts of torch.fx, which refuse to be written to."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_plain, value))
    if isinstance(value, (tuple, list)):
        return (tuple if isinstance(value, tuple) else list)(map(_plain, value))
    if type(value) in (dict, immutable_dict):
        return {key: _plain(each) for key, each in value.items()}
    return value


def _has_hooks(layer: nn.Module) -> bool:
    return bool(layer._forward_hooks or layer._forward_pre_hooks)


def _link(layer: FusedConv2d, input: Tensor, residual: Tensor | None = None) -> Any:
    """The layer's call with such tensors, prepared; None where it has to be made by the layer."""
    stride, dilation = pair("stride", layer.stride), pair("dilation", layer.dilation)
    padding = padding_2d(layer.padding, layer.weight.shape, stride, dilation)
    rest = (stride, padding, dilation, layer.groups, layer.activation, layer.algorithm)
    after = layer.residual_after_activation
    operands = (input, layer.weight, layer.bias)
    filters = None
    if layer._packed is not None:
        layer._packed.keeps = True
        tf32 = 0  # which CPUs have not
        kept = {"residual": residual, "residual_after_activation": after}
        filters = layer._packed.of(*operands, *rest, tf32, **kept)  # type: ignore[arg-type]
    return _front.convolution_link(*operands, residual, after, *rest, filters)  # type: ignore[union-attr]
