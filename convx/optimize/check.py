"""Whether an optimized model says what the model says."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from convx._arguments import CONVOLUTIONS, PRODUCTS, tf32_setting

_LARGEST = 0.1  # distance from a model whose own error is not known
_FACTORS = (-1.0, 0.9, 0.8, 1.1)  # of the example, which make others like it
_LARGEST_OF_GPUS_IN_DOUBLE = 1e-6  # torch's hardswish multiplies by float32's sixth there
_aten = torch.ops.aten
# What may round its operands to TF32: by which of torch's settings, and which of its arguments they are.
_ROUNDED = {
    _aten.convolution.default: (CONVOLUTIONS, (0, 1)),
    _aten.mm.default: (PRODUCTS, (0, 1)),
    _aten.bmm.default: (PRODUCTS, (0, 1)),
    _aten.addmm.default: (PRODUCTS, (1, 2)),
    _aten.baddbmm.default: (PRODUCTS, (1, 2)),
}


def copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


class Reference:
    """What a model gives for the example input, and what it would give in float64."""

    def __init__(self, model: nn.Module, args: Any, kwargs: Any) -> None:
        self._model = model
        self._given = tree_map(copied, (args, kwargs))
        self._own = self._results(model)
        try:
            self._exact = self._results(copy.deepcopy(model).double(), tree_map(_double, self._given))
        except Exception:  # a model with a dtype in its code
            self._exact = None
        self.error = math.nan if self._exact is None else _distance(self._own, self._exact)

    def _results(self, model: nn.Module, given: Any = None) -> Any:
        args, kwargs = tree_map(copied, given or self._given)  # a model may write to them
        return model(*args, **kwargs)

    def error_of(self, model: nn.Module) -> float:
        """Against float64, or the distance to the model itself where that can't be run in float64."""
        return self.error_of_results(self._results(model))

    def error_of_results(self, results: Any) -> float:
        """Those that something else has for the example input."""
        return _distance(results, self._own if self._exact is None else self._exact)

    def disagrees(self, model: nn.Module, error: float) -> str:
        """What is wrong with a model of such an error, or nothing. Fewer roundings than the model's own as a
        rule; but how they add up on one example is chance, above all where few values decide much, as in a
        softmax. One that has more than is allowed is looked at with others like it. Where torch's settings
        allow TF32, what that makes of the model is its own error as much as what torch has chosen to do."""
        if self._allows(error, self.error):
            return ""
        if self._exact is not None:
            others = [
                Reference(self._model, *tree_map(partial(_times, each), self._given)) for each in _FACTORS
            ]
            reached = [error, *(each.error_of(model) for each in others)]
            own = [max(each.error, each._tf32_error()) for each in (self, *others)]
            if self._allows(_rms(reached), _rms(own)):
                return ""
        return (
            f"its error on the example input is {error:.1e} of the results, the model's own {self.error:.1e}"
        )

    def _tf32_error(self) -> float:
        """What the model's error would be if all that may be rounded to TF32 were; 0 where nothing may."""
        setting = tf32_setting(self._some.is_cuda, self._some.dtype)
        if not setting or self._exact is None:
            return 0.0
        with _RoundingToTf32(setting):
            rounded = self._results(copy.deepcopy(self._model).double(), tree_map(_double, self._given))
        return _distance(rounded, self._exact)

    @property
    def _some(self) -> Tensor:
        """One of the results."""
        return next(iter(_floats(self._own)), torch.empty(0))

    def _allows(self, error: float, own_error: float) -> bool:
        own = self._some
        luck = 4 * torch.finfo(own.dtype).eps
        if own.is_cuda and own.dtype == torch.float64:
            luck = _LARGEST_OF_GPUS_IN_DOUBLE
        return error <= (_LARGEST if self._exact is None else 2 * own_error + luck)


class _RoundingToTf32(TorchDispatchMode):
    """Operators of float64 read operands as tensor cores read those of float32."""

    def __init__(self, setting: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._setting = setting

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        allowed, places = _ROUNDED.get(func, (0, ()))
        if allowed & self._setting:
            args = [_tf32(each) if place in places else each for place, each in enumerate(args)]
        return func(*args, **(kwargs or {}))


def _tf32(value: Tensor) -> Tensor:
    """Rounded to 10 bits behind the first."""
    bits = value.float().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32).to(value.dtype)


def _times(factor: float, value: Any) -> Any:
    return value * factor if isinstance(value, Tensor) and value.is_floating_point() else value


def _rms(errors: Sequence[float]) -> float:
    return math.sqrt(math.fsum(each * each for each in errors) / len(errors))


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def _floats(results: Any) -> list[Tensor]:
    return [each for each in tree_leaves(results) if isinstance(each, Tensor) and each.is_floating_point()]


def _distance(results: Any, exact: Any) -> float:
    """Of all results from the exact ones, in the norm over all; what is not finite in both alike does not
    count."""
    apart, size = 0.0, 0.0
    for one, other in zip(_floats(results), _floats(exact), strict=True):
        one, other = one.double(), other.double()
        same = (one == other) | (one.isnan() & other.isnan())
        apart += float((one - other).masked_fill(same, 0).square().sum())
        size += float(other.masked_fill(~other.isfinite(), 0).square().sum())
    return math.sqrt(apart / max(size, torch.finfo(torch.float64).tiny))
