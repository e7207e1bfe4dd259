"""Whether an optimized model says what the model says."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

_LARGEST = 0.1  # distance from a model whose own error is not known
_FACTORS = (-1.0, 0.9, 0.8, 1.1)  # of the example, which make others like it
_LARGEST_OF_GPUS_IN_DOUBLE = 1e-6  # torch's hardswish multiplies by float32's sixth there


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
        softmax. One that has more than is allowed is looked at with others like it."""
        if self._allows(error, self.error):
            return ""
        if self._exact is not None:
            others = [
                Reference(self._model, *tree_map(partial(_times, each), self._given)) for each in _FACTORS
            ]
            reached = [error, *(each.error_of(model) for each in others)]
            if self._allows(_rms(reached), _rms([self.error, *(each.error for each in others)])):
                return ""
        return (
            f"its error on the example input is {error:.1e} of the results, the model's own {self.error:.1e}"
        )

    def _allows(self, error: float, own_error: float) -> bool:
        own = next(iter(_floats(self._own)), torch.empty(0))
        luck = 4 * torch.finfo(own.dtype).eps
        if own.is_cuda and own.dtype == torch.float64:
            luck = _LARGEST_OF_GPUS_IN_DOUBLE
        return error <= (_LARGEST if self._exact is None else 2 * own_error + luck)


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
