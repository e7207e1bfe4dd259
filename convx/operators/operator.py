"""What Python registers for an operator whose kernels a library brings, from one declaration of it.

The order of an operator's arguments, and what they default to, is in its schema alone
(csrc/torch/schema.cpp): declarations take and give them by name.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch._C import _AutoDispatchBelowAutograd as BelowAutograd
from torch.autograd import forward_ad
from torch.utils.flop_counter import register_flop_formula

from convx import _libraries
from convx._arguments import has_channels_last_order
from convx.operators.autocast import without

Gradients = Mapping[str, Tensor | None]
available: bool = _libraries.load()["cpu"].loaded
"""Whether the operators exist: the CPU library brings their schemas. `python -m convx info` says why not."""


@dataclass(frozen=True)
class Facts:
    """What of a call is kept beside tensors."""

    sizes: Mapping[str, list[Any]]  # of every tensor that it was given, and of its output
    output_strides: Sequence[Any]
    output: Tensor | None = None  # where Derivative.saves has asked for it

    @property
    def output_is_channels_last(self) -> bool:
        return has_channels_last_order(self.sizes["output"], self.output_strides)


@dataclass(frozen=True)
class Derivative:
    """How an operator is differentiated.

    `calls` has the operators as attributes: convx.operators, or convx.dispatch for what torch.func's
    transforms and forward mode are to go through.
    """

    # What the backward pass needs, by argument, from (arguments, output, which are needed); "output" is the
    # operator's result.
    saves: Callable[[Any, Tensor, Any], Mapping[str, Tensor | None]]
    # (calls, arguments with what was saved, which are needed, gradient, facts): gradients by argument.
    backward: Callable[[Any, Any, Any, Tensor, Facts], Gradients]
    # (calls, arguments, tangents by argument, facts): the tangent.
    tangent: Callable[[Any, Any, Any, Facts], Tensor | None]


@dataclass(frozen=True)
class Operator:
    """A declaration; functions beside it take the arguments as `arguments` has them."""

    name: str
    fake: Callable[[Any], Tensor]
    derivative: Derivative | None = None
    # (call, copies, dimensions by argument, arguments): the result and its mapped dimension.
    vmap: Callable[[Callable[..., Tensor], int, Any, Any], tuple[Tensor, int]] | None = None
    # (shapes by argument, shape of the result): floating-point operations.
    flops: Callable[[Any, Sequence[int]], int] | None = None
    # (dtype, arguments): as autocast makes them; None where it has no say.
    autocast: Callable[[torch.dtype, Any], Any] | None = None

    @cached_property
    def call(self) -> Any:
        """By the dispatcher."""
        return getattr(torch.ops.convx, self.name).default if available else not_loaded("cpu")

    @cached_property
    def arguments(self) -> Any:
        """The type of its arguments: a named tuple, with the schema's defaults."""
        _libraries.require("cpu")
        schema = self.call._schema.arguments
        defaults = [each.default_value for each in schema if each.has_default_value()]
        return namedtuple(self.name, [each.name for each in schema], defaults=defaults)

    def function(self, calls: Callable[[], Any], run: Callable[..., Tensor], transforms: bool) -> Any:
        """A torch.autograd.Function of the arguments, and of what `run` takes after them.

        transforms: for torch.func and forward mode, which need every tensor, a tangent and a rule of vmap.
        """
        derivative = self.derivative
        assert derivative is not None
        of = self.arguments
        count = len(of._fields)

        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            arguments = of(*inputs[:count])
            needs = of(*(transforms or need for need in ctx.needs_input_grad[:count]))
            tensors = tensors_of(arguments)
            saved = derivative.saves(arguments, output, needs)
            ctx.saved_names = tuple(saved)
            ctx.save_for_backward(*saved.values())
            if transforms:
                ctx.save_for_forward(*saved.values())
            ctx.further = len(inputs) - count
            ctx.arguments = arguments._replace(**dict.fromkeys(tensors))
            sizes = {name: list(each.shape) for name, each in (*tensors.items(), ("output", output))}
            ctx.facts = Facts(sizes, output.stride())

        def restored(ctx: Any) -> tuple[Any, Facts]:
            saved = dict(zip(ctx.saved_names, ctx.saved_tensors, strict=True))
            facts = Facts(ctx.facts.sizes, ctx.facts.output_strides, saved.pop("output", None))
            return ctx.arguments._replace(**saved), facts

        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
            arguments, facts = restored(ctx)
            needs = of(*ctx.needs_input_grad[:count])
            found = derivative.backward(calls(), arguments, needs, grad, facts)
            return (*map(found.get, of._fields), *(None,) * ctx.further)

        members: dict[str, Any] = {
            "forward": staticmethod(run),
            "setup_context": staticmethod(setup_context),
            "backward": staticmethod(backward),
        }
        if transforms:

            def jvp(ctx: Any, *tangents: Any) -> Tensor | None:
                arguments, facts = restored(ctx)
                return derivative.tangent(calls(), arguments, of(*tangents[:count]), facts)

            def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Tensor, int]:
                return self.map(getattr(calls(), self.name), info, in_dims, *inputs)

            members |= {"jvp": staticmethod(jvp), "vmap": staticmethod(vmap)}
        return type(f"Convx_{self.name}", (torch.autograd.Function,), members)

    def transformed(self, calls: Callable[[], Any]) -> Callable[..., Tensor]:
        """The operator for torch.func's transforms and forward mode, which know torch.autograd.Functions
        alone."""

        def run(*inputs: Any) -> Tensor:
            with BelowAutograd():
                return self.call(*inputs)  # type: ignore[no-any-return]

        apply = self.function(calls, run, transforms=True).apply
        return lambda *inputs: apply(*self.arguments(*inputs))

    def map(self, call: Callable[..., Tensor], info: Any, in_dims: Any, *inputs: Any) -> tuple[Tensor, int]:
        """torch.vmap's rule."""
        assert self.vmap is not None
        dimensions = self.arguments(*in_dims, *(None,) * (len(self.arguments._fields) - len(in_dims)))
        return self.vmap(call, info.batch_size, dimensions, self.arguments(*inputs))

    def _autograd_kernel(self, calls: Callable[[], Any]) -> Callable[..., Tensor]:
        """As torch.library.register_autograd makes one, but such that torch.func's transforms can be
        recorded, and that forward mode, for which nothing is registered, is an error and no tangent of
        zeros."""

        def run(*inputs_and_keys: Any) -> Tensor:
            *inputs, keys = inputs_and_keys
            with BelowAutograd():
                return self.call.redispatch(keys, *inputs)  # type: ignore[no-any-return]

        apply = self.function(calls, run, transforms=False).apply

        def kernel(keyset: Any, *inputs: Any) -> Tensor:
            keys = keyset & torch._C._after_autograd_keyset
            if forward_ad._current_level >= 0 and any(map(_has_tangent, inputs)):
                raise NotImplementedError(
                    f"{self.call.name()} has no forward-mode derivative by itself, nor in what torch.compile "
                    "records; convx.functional has one"
                )
            if torch.is_grad_enabled() and torch._C._any_requires_grad(*inputs):
                return apply(*self.arguments(*inputs), keys)  # type: ignore[no-any-return]
            return run(*inputs, keys)

        return kernel

    def _autocast_kernel(self, device_type: str) -> Callable[..., Tensor]:
        def kernel(*inputs: Any, **named: Any) -> Tensor:
            assert self.autocast is not None
            with without(device_type):
                dtype = torch.get_autocast_dtype(device_type)
                return self.call(*self.autocast(dtype, self.arguments(*inputs, **named)))  # type: ignore[no-any-return]

        return kernel

    def register(self, library: torch.library.Library, calls: Callable[[], Any]) -> None:
        """Everything; calls: as Derivative has them."""
        of, name = self.arguments, f"convx::{self.name}"
        torch.library.register_fake(name, lambda *inputs, **named: self.fake(of(*inputs, **named)))
        if self.vmap is not None:
            torch.library.register_vmap(name, partial(self.map, self.call))
        if self.flops is not None:
            flops = self.flops

            def formula(*shapes: Any, out_shape: Any, **named: Any) -> int:
                return flops(of(*shapes, **named), out_shape)

            register_flop_formula(getattr(torch.ops.convx, self.name))(formula)
        if self.derivative is not None:
            front, kernel = _libraries.front(), self._autograd_kernel(calls)
            if front is None:
                library.impl(self.name, kernel, "Autograd", with_keyset=True)
            else:
                front.register_derivative(self.name, kernel)
        if self.autocast is not None:  # not register_autocast, which fixes one dtype
            library.impl(self.name, self._autocast_kernel("cpu"), "AutocastCPU")
            library.impl(self.name, self._autocast_kernel("cuda"), "AutocastCUDA")
        if not _libraries.load()["gpu"].loaded:
            library.impl(self.name, not_loaded("cuda"), "CUDA")


def tensors_of(arguments: Any) -> dict[str, Tensor]:
    """Those that were given, by name."""
    return {name: each for name, each in arguments._asdict().items() if isinstance(each, Tensor)}


def linear_tangent(call: Callable[..., Tensor], arguments: Any, tangents: Any, *names: str) -> Tensor | None:
    """The tangent of an operator that is linear in each of the named tensors."""
    terms = [
        call(*arguments._replace(**{name: getattr(tangents, name)}))
        for name in names
        if getattr(tangents, name) is not None
    ]
    return sum(terms[1:], terms[0]) if terms else None


def not_loaded(device_type: str) -> Callable[..., Tensor]:
    def call(*_: Any, **__: Any) -> Tensor:
        _libraries.require(device_type)
        raise AssertionError("unreachable: the library is not loaded")

    return call


def _has_tangent(value: Any) -> bool:
    return isinstance(value, Tensor) and forward_ad.unpack_dual(value).tangent is not None
