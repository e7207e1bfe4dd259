"""A problem's operands, and the calls that run it by each plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from convx import _planning, operators
from convx._blocks import GATES
from convx.tune.replays import Call

_DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
_CACHE_BYTES = 8 << 20  # a few cores' private caches; a shared one is rarely one process's alone
_MOST_SETS = 32
_MOST_BYTES = 1 << 30  # of all sets together


def _sets(problem: Any, device: torch.device) -> int:
    """As many as it takes to keep a CPU's cache cold; on a GPU one, as replays.InNetwork has it."""
    if device.type != "cpu":
        return 1
    bytes = float(problem.bytes)
    wanted = 1 + math.ceil(2 * _CACHE_BYTES / bytes)
    return max(1, min(wanted, _MOST_SETS, int(_MOST_BYTES // bytes)))


def _normal(problem: Any, device: torch.device) -> Callable[..., Tensor]:
    """Makes tensors of a size, the same ones in the same order."""
    generator = torch.Generator(device).manual_seed(0)
    return lambda *size: torch.randn(size, dtype=_DTYPES[problem.dtype], device=device, generator=generator)


def _format(problem: Any) -> torch.memory_format:
    return torch.channels_last if problem.layout == "channels_last" else torch.contiguous_format


class FilterOperands:
    """Random tensors for a _core.FilterProblem, in as many sets."""

    def __init__(self, problem: Any, device: torch.device) -> None:
        self.problem = problem
        self.sets = _sets(problem, device)
        size = (problem.images, problem.height, problem.width)
        bank = (problem.filters, problem.filter_height, problem.filter_width)
        generator = torch.Generator(device).manual_seed(0)
        dtype = _DTYPES.get(problem.dtype, torch.float32)  # uint8 has filters of float32

        def image() -> Tensor:
            if problem.dtype == "uint8":
                return torch.randint(256, size, dtype=torch.uint8, device=device, generator=generator)
            return torch.randn(size, dtype=dtype, device=device, generator=generator)

        filters = torch.randn(bank, dtype=dtype, device=device, generator=generator)
        self.filters = filters / (bank[1] * bank[2])
        self.images = [image() for _ in range(self.sets)]

    def call(self, algorithm: str) -> Call:
        """Runs the problem by one plan on the set of that index."""
        border = self.problem.border
        return lambda index: operators.filter2d(self.images[index], self.filters, border, algorithm)


class BlockOperands:
    """Random tensors for a _core.BlockProblem, in as many sets."""

    def __init__(self, problem: Any, device: torch.device) -> None:
        self.problem = p = problem
        self.sets = _sets(problem, device)
        values = _normal(p, device)
        size = (p.batch, p.channels, p.height, p.width)
        self.inputs = [values(*size).to(memory_format=_format(p)) for _ in range(self.sets)]
        expanded, taps, first = p.expanded_channels, p.filter * p.filter, p.expand_filter
        weights = (
            values(expanded, p.channels, first, first) / math.sqrt(p.channels * first * first),
            values(expanded, 1, p.filter, p.filter) / math.sqrt(taps),
            values(p.out_channels, expanded, 1, 1) / math.sqrt(expanded),
        )
        # As layers of a network in channels_last have them.
        self.weights = [each.to(memory_format=torch.channels_last) for each in weights]
        self.biases = _biases(self.weights)
        self.excitation = None if p.excitation is None else _Excitation(p.excitation, values)

    def call(self, algorithm: str) -> Call:
        """Runs the block by one plan on the set of that index, with filters packed beforehand."""
        if algorithm == "native":
            return self._by_layers()
        p = self.problem
        inner: Sequence[Tensor | None] = (None,) * 4
        if self.excitation is not None:
            inner = _in_turns(self.excitation.weights, self.excitation.biases)
        options = (p.expand_stride, p.stride, p.activation, p.squeeze_activation, p.gate, p.output_activation)
        rest = (*_in_turns(self.weights, self.biases), *inner, *options, p.residual, algorithm)
        packed = operators.pack_inverted_residual(self.inputs[0], *rest)
        return lambda index: operators.inverted_residual(self.inputs[index], *rest, 0, packed)

    def _by_layers(self) -> Call:
        p = self.problem
        one, none = [1, 1], [0, 0, 0, 0]
        geometries = (
            ([p.expand_stride] * 2, [p.expand_filter // 2] * 4, one, 1, p.activation),
            ([p.stride] * 2, [p.filter // 2] * 4, one, p.expanded_channels, p.activation),
            (one, none, one, 1, p.output_activation),
        )
        expand, depthwise, project = (
            _Convolution(weight, bias, geometry)
            for weight, bias, geometry in zip(self.weights, self.biases, geometries, strict=True)
        )

        excited = None
        if self.excitation is not None:  # as a network's is, by its own plan
            plan = _planning.core().select(p.excitation, _planning.device(self.inputs[0].device)).plan
            excited = self.excitation.by(plan.name)

        def call(index: int) -> Tensor:
            given = self.inputs[index]
            filtered = depthwise(expand(given))
            if excited is not None:
                filtered = excited(filtered)
            return project(filtered, given if p.residual else None)

        call(0)
        return call


class ExciteOperands:
    """Random tensors for a _core.ExciteProblem, in as many sets."""

    def __init__(self, problem: Any, device: torch.device) -> None:
        self.problem = p = problem
        self.sets = _sets(problem, device)
        values = _normal(p, device)
        layout, size = _format(p), (p.batch, p.channels, p.height, p.width)
        self.inputs = [values(*size).to(memory_format=layout) for _ in range(self.sets)]
        self.excitation = _Excitation(p, values)

    def call(self, algorithm: str) -> Call:
        """Runs it by one plan on the set of that index."""
        run = self.excitation.by(algorithm)
        run(self.inputs[0])
        return lambda index: run(self.inputs[index])


class _Excitation:
    """Random filters for a _core.ExciteProblem."""

    def __init__(self, problem: Any, values: Callable[..., Tensor]) -> None:
        self.problem = problem
        squeezed, channels = problem.squeezed_channels, problem.channels
        sizes = ((squeezed, channels, 1, 1), (channels, squeezed, 1, 1))
        layout = _format(problem)
        self.weights = [(values(*each) / math.sqrt(each[1])).to(memory_format=layout) for each in sizes]
        self.biases = _biases(self.weights)

    def by(self, algorithm: str) -> Callable[[Tensor], Tensor]:
        """Runs it by one plan."""
        p = self.problem
        if algorithm != "native":
            rest = (*_in_turns(self.weights, self.biases), p.activation, p.gate, algorithm, 0)
            return lambda input: operators.squeeze_excite(input, *rest)
        geometry = ([1, 1], [0, 0, 0, 0], [1, 1], 1)
        squeeze, excite = (
            _Convolution(weight, bias, (*geometry, activation))
            for weight, bias, activation in zip(
                self.weights, self.biases, (p.activation, "none"), strict=True
            )
        )
        gate = GATES[p.gate]
        return lambda input: input * gate(excite(squeeze(F.adaptive_avg_pool2d(input, 1))))


def _biases(weights: Sequence[Tensor]) -> list[Tensor]:
    return [each.new_zeros(each.size(0)) for each in weights]


def _in_turns(weights: Sequence[Tensor], biases: Sequence[Tensor]) -> list[Tensor]:
    """As operators take them."""
    return [each for both in zip(weights, biases, strict=True) for each in both]


class _Convolution:
    """As a layer calls it: with filters packed at its first call."""

    def __init__(self, weight: Tensor, bias: Tensor, geometry: tuple[Any, ...]) -> None:
        self._rest = (weight, bias, *geometry, "auto", 0)
        self._packed: Tensor | None = None
        self._is_packed = False

    def __call__(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        more = (residual, None, True)
        if not self._is_packed:
            filters = operators.pack_weight(input, *self._rest, *more)
            self._packed = filters if filters.numel() > 0 else None
            self._is_packed = True
        return operators.conv2d(input, *self._rest, self._packed, *more)  # type: ignore[no-any-return]


class Operands:
    """Random tensors for a _core.Problem, in as many sets."""

    def __init__(self, problem: Any, device: torch.device) -> None:
        self.problem = problem
        self.sets = _sets(problem, device)
        per_group = problem.in_channels // problem.groups
        self.input_size = (problem.batch, problem.in_channels, problem.in_height, problem.in_width)
        self.output_size = (problem.batch, problem.out_channels, problem.out_height, problem.out_width)
        self.weight_size = (problem.out_channels, per_group, problem.filter_height, problem.filter_width)
        generator = torch.Generator(device).manual_seed(0)

        def image(size: tuple[int, ...]) -> Tensor:
            values = torch.randn(size, dtype=_DTYPES[problem.dtype], device=device, generator=generator)
            return values.to(memory_format=_format(problem))

        taps = per_group * problem.filter_height * problem.filter_width
        weight = torch.randn(
            self.weight_size, dtype=_DTYPES[problem.dtype], device=device, generator=generator
        )
        self.weight = weight / math.sqrt(taps)
        # As a model in channels_last has it. Layers keep what convx's kernels read; gradients get it so.
        self.native_weight = self.weight.to(memory_format=_format(problem))
        self.bias = torch.zeros(problem.out_channels, dtype=weight.dtype, device=device)
        forward = problem.operation != "input_grad"
        backward = problem.operation != "forward"
        self.inputs = [image(self.input_size) for _ in range(self.sets if forward else 0)]
        self.output_grads = [image(self.output_size) for _ in range(self.sets if backward else 0)]
        self.scale = torch.ones_like(self.bias) if problem.scale else None
        self.residuals = [image(self.output_size) for _ in range(self.sets)] if problem.residual else []

    def call(self, algorithm: str) -> Call:
        """Runs the problem by one plan on the set of that index, with filters packed beforehand."""
        p = self.problem
        geometry = (list(p.stride), list(p.padding), list(p.dilation), p.groups)
        if p.operation == "input_grad":
            return lambda index: operators.conv2d_input_grad(
                self.output_grads[index], self.native_weight, self.input_size, *geometry, algorithm, p.tf32
            )
        if p.operation == "weight_grad":
            return lambda index: operators.conv2d_weight_grad(
                self.inputs[index],
                self.output_grads[index],
                self.weight_size,
                *geometry,
                algorithm,
                p.tf32,
            )
        weight = self.native_weight if algorithm.partition("/")[0] == "native" else self.weight
        rest = (weight, self.bias if p.bias else None, *geometry, p.activation, algorithm, p.tf32)
        residuals: list[Any] = self.residuals or [None] * self.sets

        def more(index: int) -> tuple[Any, ...]:
            return residuals[index], self.scale, p.residual_after_activation

        packed: Tensor | None = operators.pack_weight(self.inputs[0], *rest, *more(0))
        if packed is not None and packed.numel() == 0:
            packed = None
        return lambda index: operators.conv2d(self.inputs[index], *rest, packed, *more(index))

    def require_nan(self, call: Call) -> None:
        """Raises RuntimeError where NaN is lost: the relu in some of cuDNN's fused kernels makes it zero."""
        if torch.backends.cudnn.benchmark:
            raise RuntimeError("with torch.backends.cudnn.benchmark other processes may take other kernels")
        given = self.inputs[0]
        self.inputs[0] = torch.full_like(given, math.nan)
        try:
            result, expected = (each(0).isnan() for each in (call, self.call("native")))
        finally:
            self.inputs[0] = given
        if not torch.equal(result, expected):
            raise RuntimeError("it makes zero of NaN")

    def require_right(self, call: Call) -> None:
        """Raises RuntimeError where a call's result is far from torch's, for kernels made just now. Rounding
        errors are the tests' to judge."""
        result, expected = (each(0).double() for each in (call, self.call("native")))
        error = float((result - expected).norm() / expected.norm().clamp_min(1e-30))
        if not error < 0.02:
            raise RuntimeError(f"its result differs from torch's by {error:.2g} of the norm")
