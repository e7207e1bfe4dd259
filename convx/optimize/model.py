"""The module that convx.optimize returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves, tree_map

from convx._arguments import is_channels_last
from convx._blocks import InvertedResidual
from convx.operators import autocast
from convx.optimize.compiled import CompiledNetwork
from convx.optimize.conditions import Conditions
from convx.optimize.cpu_programs import CpuPrograms
from convx.optimize.cuda_graphs import CudaGraphs, Prepared
from convx.optimize.inputs import Inputs
from convx.optimize.report import OptimizationReport
from convx.tune import records
from convx.tune.records import Record

FORMATS = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}


class OptimizedModel(nn.Module):
    """A model for inference alone, as convx.optimize has made it; called as the model that it was made of.

    Tensors of any size and layout that the model takes, in the places where the example input had them; other
    arguments have to be those of the example, for the model may do something else with others
    (convx.InvalidArgument says so). On a GPU, where no gradient is needed, a call replays a CUDA graph: the
    first call with inputs of a new kind (sizes, strides, dtype) captures one, and the least recently used is
    given up where there are more than asked for. On a CPU, convolutions and blocks that follow one another
    are one call of C++, in memory that the model keeps; the first call with inputs of a new kind prepares it,
    and hooks that layers get later are not called there. Results are the caller's own. Weights may be written
    to: what was captured or prepared is made anew then. What inductor compiles is compiled at the first call
    with inputs of each kind, and anew in copies, pickles and after a move. Copies, pickles and state_dict
    work as of any module; the state_dict has the folded weights, but where the network is compiled, which
    folds them beside it.

    Attributes:
        network: what is run, a torch.fx.GraphModule, or a converted copy of the model where torch.fx could
            not follow it.
        layout: the one that images have as network reads them, which may convert them between its layers.
        conditions: for which kinds of input the network does what the model does, which is looked at once for
            each; None of a model that decides nothing by sizes.
        stops_autocast: the model turns autocast off for a part; where it is on, otherwise is run.
        otherwise: the converted layers, one by one, for inputs for which conditions do not hold.
        report: convx.OptimizationReport.
        compiled: what runs network by inductor, with convx's convolutions; None where that is not taken.
        choices: measured times by which layers take their plans; those who load a pickle take them too, on a
            machine and with versions like those here.
    """

    def __init__(
        self,
        network: nn.Module,
        inputs: Inputs | None,
        layout: str,
        graphs: int,
        compiled: CompiledNetwork | None = None,
        *,
        by_image: bool = False,
        conditions: Conditions | None = None,
        stops_autocast: bool = False,
        otherwise: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.conditions = conditions
        self.stops_autocast = stops_autocast
        self.register_module("otherwise", otherwise)
        self.layout = layout
        self.report: OptimizationReport | None = None
        self.choices: tuple[Record, ...] = ()
        self.graphs = CudaGraphs(graphs)
        self.compiled = compiled
        self.programs = CpuPrograms(by_image)
        self._inputs = inputs  # that network takes; None where it takes what the model does
        self._takes_either = _takes_either_layout(network)
        super().train(False)

    def arguments(self, args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """What network is called with, but for the layout."""
        return (args, kwargs) if self._inputs is None else (self._inputs.tensors(args, kwargs), {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._modules.setdefault("otherwise", None)  # pickles of older versions have none of these
        made: dict[str, Any] = {
            "compiled": None,
            "programs": CpuPrograms(),
            "_takes_either": (),
            "conditions": None,
            "stops_autocast": False,
        }
        for name, value in made.items():
            self.__dict__.setdefault(name, value)
        for each in self.choices:
            if records.is_of_here(each) and not records.is_remembered(each):
                records.restore(each)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        is_one = len(args) == 1 and not kwargs and not torch.compiler.is_compiling()
        if is_one and self.programs.run_whole is not None:
            found = self.programs.run_whole(args[0])
            if found is not None:
                return found
        if self._inputs is None:
            return self._run(*args, **kwargs)
        tensors = self._inputs.tensors(args, kwargs)
        if self.otherwise is not None and not self._does_the_same(tensors):
            return self.otherwise(*args, **kwargs)  # type: ignore[operator]
        if self.graphs.can_serve(tensors):
            return self.graphs.call(self.network, self._prepared, tensors)
        result = self._run(*tensors)
        if is_one and self._is_as_it_is(args[0], tensors, result):
            self.programs.keep_whole(args[0])
        return result

    def _does_the_same(self, tensors: Sequence[Tensor]) -> bool:
        """The network as the model, for such a call."""
        if self.stops_autocast and any(autocast.is_on(each.device.type) for each in tensors):
            return False
        return self.conditions is None or self.conditions.hold(tensors)

    def _is_as_it_is(self, given: Any, tensors: Sequence[Tensor], result: Any) -> bool:
        """Whether network reads what the model is given, and gives what the model does."""
        if len(tensors) != 1 or tensors[0] is not given or not isinstance(result, Tensor):
            return False
        if self.layout not in FORMATS:
            return True
        (own,), _ = self.in_own_layout((given,), {})
        return own is given and result.dim() != 4

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if self.layout not in FORMATS:
            return self._call(args, kwargs)
        given = _layout_of((args, kwargs) if kwargs else args)
        args, kwargs = self.in_own_layout(args, kwargs)
        return _in_layout(self._call(args, kwargs), given)

    def _prepared(self, tensors: Sequence[Tensor]) -> Prepared:
        """For a graph: images come in the network's layout, by the copy that each call makes of them."""
        if self.layout not in FORMATS:
            return Prepared([torch.empty_like(each) for each in tensors], self._run)
        given, own = _layout_of(tensors), FORMATS[self.layout]
        formats = [own if each.dim() == 4 else torch.preserve_format for each in tensors]
        inputs = [
            torch.empty_like(each, memory_format=format)
            for each, format in zip(tensors, formats, strict=True)
        ]
        return Prepared(inputs, lambda *args: _in_layout(self._call(args, {}), given))

    def _call(self, args: Any, kwargs: Any) -> Any:
        if self.compiled is not None and torch.compiler.is_exporting():
            return self.compiled.exported(self.network, args)  # type: ignore[arg-type]
        if kwargs or torch.compiler.is_compiling():
            return self.network(*args, **kwargs)
        if self.compiled is not None:
            return self.compiled.call(self.network, args)  # type: ignore[arg-type]
        return self.programs.call(self.network, args)

    def in_own_layout(self, args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """What network reads: images in its layout, or as they are where they are read once, as patches, on
        a CPU: a copy takes longer than that."""
        if self.layout not in FORMATS:
            return args, kwargs
        if self.layout == "channels_last" and len(self._takes_either) == len(args) and not kwargs:
            moved = [
                each if either and each.device.type == "cpu" else _in_layout(each, self.layout)
                for each, either in zip(args, self._takes_either, strict=True)
            ]
            return moved, {}
        return _in_layout(args, self.layout), _in_layout(kwargs, self.layout)

    def train(self, mode: bool = True) -> OptimizedModel:
        if mode:
            raise RuntimeError(
                "an optimized model is for inference, with batch norms in its filters; train the model that "
                "it was made of, and optimize that again"
            )
        super().train(False)
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._forget()
        if self.compiled is None:
            return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        before = self._places()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self._places() != before:
            self.compiled.forget()
        return self

    def _places(self) -> list[Any]:
        """Where its weights are."""
        every = (*self.parameters(), *self.buffers())
        return [(each.device, each.dtype, each.stride(), each.data_ptr()) for each in every]

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        self._forget()
        return super().load_state_dict(*args, **kwargs)

    def _forget(self) -> None:
        self.graphs.forget()
        self.programs.forget()


def is_channels_last_image(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 4 and is_channels_last(value)


def _takes_either_layout(network: nn.Module) -> tuple[bool, ...]:
    """Of each input of a graph, whether nobody but blocks that read patches of either layout have it."""
    if not isinstance(network, fx.GraphModule):
        return ()

    def reads_patches(node: fx.Node) -> bool:
        layer = network.get_submodule(str(node.target)) if node.op == "call_module" else None
        return isinstance(layer, InvertedResidual) and layer.reads_patches

    inputs = network.graph.find_nodes(op="placeholder")
    return tuple(all(map(reads_patches, each.users)) for each in inputs)


def _layout_of(values: Any) -> str:
    """That results are to have."""
    leaves = values if _are_tensors(values) else tree_leaves(values)
    return "channels_last" if any(map(is_channels_last_image, leaves)) else "nchw"


def _in_layout(values: Any, layout: str) -> Any:
    """With all images in it; everything else as it is."""

    def moved(each: Any) -> Any:
        is_image = isinstance(each, Tensor) and each.dim() == 4
        return each.contiguous(memory_format=FORMATS[layout]) if is_image else each

    if isinstance(values, Tensor):
        return moved(values)
    return type(values)(map(moved, values)) if _are_tensors(values) else tree_map(moved, values)


def _are_tensors(values: Any) -> bool:
    """Most calls: there is no need to look for tensors in anything."""
    return type(values) in (list, tuple) and all(isinstance(each, Tensor) for each in values)
