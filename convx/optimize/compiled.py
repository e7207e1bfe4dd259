"""A network as inductor compiles it, with convx's convolutions."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from inspect import unwrap
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, fx
from torch.overrides import TorchFunctionMode
from torch.utils._triton import has_triton

from convx import functional
from convx._arguments import DTYPES, tf32_setting
from convx._errors import reason_of
from convx.compile.watch import CompiledGraph, watched
from convx.dispatch.situation import Situation, situation
from convx.operators import autocast
from convx.optimize.inputs import tensors_in

_compiling = threading.RLock()  # torch.compile refuses calls while another thread compiles
_IS_TRACED = "using FX to symbolically trace"  # what it says then
_MOST = 8  # kinds of input that are compiled, as many as torch.compile takes of one function
_OPERATORS: dict[Any, Callable[..., Any]] = {
    torch.conv1d: functional.conv1d,
    torch.conv2d: functional.conv2d,
}


class CompiledNetwork:
    """Runs a network by torch.compile's backend "convx", which compiles it for each kind of input at the
    first such call. Copies and pickles begin without anything compiled.

    What is not compiled is run layer by layer: calls that autograd, torch.compile or torch.func look into,
    those under autocast, kinds of input past the eighth, and those that could not be compiled; on CPUs also
    calls while another thread compiles. torch.export gets convx's operators in the place of convolutions,
    for what it makes meets no backend that would put them there.
    """

    def __init__(self) -> None:
        self._kinds: dict[Any, Callable[..., Any] | None] = {}  # what runs each; None: it can't be compiled
        self.graphs: list[CompiledGraph] = []  # held for CUDA graphs, which read memory of theirs

    def __reduce__(self) -> tuple[type[CompiledNetwork], tuple[()]]:
        return CompiledNetwork, ()

    def forget(self) -> None:
        """Gives back what was compiled, with all that is kept for it."""
        for run in filter(None, self._kinds.values()):
            # What torch.compile has of a code holds that code: it would stay as long as the network.
            torch._dynamo.reset_code(unwrap(run).__code__)  # type: ignore[attr-defined]
        CompiledNetwork.__init__(self)

    def call(self, network: fx.GraphModule, tensors: Sequence[Tensor]) -> Any:
        kind = self._kind(tensors)
        is_known, run = kind in self._kinds, self._kinds.get(kind)
        if kind is None or (is_known and run is None):
            return network(*tensors)
        is_on_gpu = any(each.is_cuda for each in tensors)
        is_captured = is_on_gpu and torch.cuda.is_current_stream_capturing()
        if not is_known and (len(self._kinds) >= _MOST or is_captured):
            return network(*tensors)
        try:
            if run is not None and not is_on_gpu:
                return self._result(run, tensors)
            # In turns, for on a GPU the call is one of those that a graph is made of: it can wait.
            return self.compile(network, tensors)
        except Exception as error:
            is_busy = _IS_TRACED in str(error)
            if is_known and not is_busy:
                raise
            result = network(*tensors)  # which raises what is the call's own fault
            if not is_busy:
                self._kinds[kind] = None
                warnings.warn(f"the network is run layer by layer: {reason_of(error)}", stacklevel=2)
            return result

    @staticmethod
    def exported(network: fx.GraphModule, tensors: Sequence[Tensor]) -> Any:
        """A call that torch.export records."""
        with _ByConvx():
            return network(*tensors)

    def compile(self, network: fx.GraphModule, tensors: Sequence[Tensor]) -> Any:
        """A call that may be the first of its kind; raises where it can't be compiled."""
        kind = self._kind(tensors)
        if kind is None:
            return network(*tensors)
        with _compiling:
            # Not as a whole at any price: past torch.compile's own limits calls are to go on.
            run = self._kinds.get(kind) or torch.compile(_own(network), backend="convx", dynamic=False)
            result = self._result(run, tensors)
            self._kinds[kind] = run
        return result

    def _result(self, run: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
        # One mode, so that nothing is compiled once more for another.
        with watched() as found, torch.inference_mode(False), torch.no_grad():
            result = run(*tensors)
        self.graphs += found
        return result

    @staticmethod
    def _kind(tensors: Sequence[Tensor]) -> Any:
        """None where the call is not to be compiled."""
        if situation(*tensors) is not Situation.PLAIN:
            return None
        if any(autocast.is_on(each) for each in {each.device.type for each in tensors}):
            return None
        tf32 = tf32_setting(True, torch.float32)
        return (
            tf32,
            torch.are_deterministic_algorithms_enabled(),
            *((each.shape, each.stride(), each.dtype, each.device, each.is_inference()) for each in tensors),
        )


class _ByConvx(TorchFunctionMode):
    """Has torch's convolutions done by convx's operators, where those know the dtype."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in _OPERATORS and all(each.dtype in DTYPES for each in tensors_in(args, kwargs)):
            function = _OPERATORS[function]
        return function(*args, **kwargs)


def _own(network: fx.GraphModule) -> Callable[..., Any]:
    """Its forward with code of its own, which torch.compile keeps what it compiles with.

    What belongs to one code it looks through at each call and puts what fits first, so that of threads that
    call it with several kinds one may pass over its own, and it would be compiled once more.
    """
    forward: Any = type(network).forward
    code = forward.__code__.replace()
    own = FunctionType(code, forward.__globals__, forward.__name__, forward.__defaults__, forward.__closure__)
    return MethodType(own, network)


def can_inductor(args: Any, kwargs: Any) -> bool:
    """Whether it has a compiler for the GPU of these arguments."""
    return any(each.is_cuda for each in tensors_in(args, kwargs)) and bool(has_triton())
