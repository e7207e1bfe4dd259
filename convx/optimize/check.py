"""Whether an optimized model says what the model says."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from convx._arguments import CONVOLUTIONS, PRODUCTS, tf32_setting
from convx.optimize.pieces import look_at_calls, pieces_of
from convx.optimize.values import asks_values

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
    """What a model gives for the example input, and what it would give in float64.

    Of a model that decides by values which results there are, as detectors choose boxes, results may be none,
    or others where two are so near to each other that rounding decides; others can't be run in float64. Each
    piece of those that something else serves is looked at instead, with what the model itself gives the
    piece; of what is served as a whole there are none.
    """

    def __init__(self, model: nn.Module, args: Any, kwargs: Any) -> None:
        self._model = model
        self._given = tree_map(copied, (args, kwargs))
        self._own = self._results(model)
        try:
            self._exact = self._results(copy.deepcopy(model).double(), tree_map(_double, self._given))
        except Exception:  # a model with a dtype in its code
            self._exact = None
        self.error = math.nan if self._exact is None else _distance(self._own, self._exact)
        self._looked_at: nn.Module | None = None
        self._looked: list[_Looked] = []

    def _results(self, model: nn.Module, given: Any = None) -> Any:
        args, kwargs = tree_map(copied, given or self._given)  # a model may write to them
        return model(*args, **kwargs)

    def error_of(self, model: nn.Module) -> float:
        """Against float64, or the distance to the model itself where that can't be run in float64."""
        return self.error_of_results(self._results(model))

    def errors_of(self, model: nn.Module) -> tuple[float, float]:
        """The model's own and that of another, of all results, or of the pieces where those decide."""
        return self._errors_over(list, model)

    def usual_errors(self, model: nn.Module) -> tuple[float, float]:
        """The same over the example and others like it: in one, luck has a part."""
        return self._errors_over(list if self._exact is None else self._others, model)

    def _errors_over(self, others: Callable[[], list[Reference]], model: nn.Module) -> tuple[float, float]:
        looked = self._look_at_pieces(model)
        known = [each for each in looked if not math.isnan(each.own_error)] or looked
        if known:
            return _rms([each.own_error for each in known]), _rms([each.error for each in known])
        every = [self, *others()]
        return _rms([each.error for each in every]), _rms([each.error_of(model) for each in every])

    def _others(self) -> list[Reference]:
        return [Reference(self._model, *tree_map(partial(_times, each), self._given)) for each in _FACTORS]

    def error_of_results(self, results: Any) -> float:
        """Those that something else has for the example input."""
        return _distance(results, self._own if self._exact is None else self._exact)

    def disagrees(self, model: nn.Module, error: float) -> str:
        """What is wrong with a model of such an error, or nothing. Fewer roundings than the model's own as a
        rule; but how they add up on one example is chance, above all where few values decide much, as in a
        softmax. One that has more than is allowed is looked at with others like it. Where torch's settings
        allow TF32, what that makes of the model is its own error as much as what torch has chosen to do."""
        if looked := self._look_at_pieces(model):
            return next((each.wrong for each in looked if each.wrong), "")
        is_chance = self.error > _LARGEST and self.asks_values
        if self.allows(error, self.error) and not is_chance:
            return ""
        if self._exact is not None and not is_chance:
            others = self._others()
            reached = [error, *(each.error_of(model) for each in others)]
            own = [max(each.error, each._tf32_error()) for each in (self, *others)]
            if self.allows(_rms(reached), _rms(own)):
                return ""
        return (
            f"its error on the example input is {error:.1e} of the results, the model's own {self.error:.1e}"
        )

    @cached_property
    def asks_values(self) -> bool:
        """Whether the model decides by values, or gives a number to Python."""
        return asks_values(self._model, *tree_map(copied, self._given))

    def _look_at_pieces(self, optimized: Any) -> list[_Looked]:
        """At a model that stays as it is: once."""
        if self._looked_at is not optimized:
            self._looked_at, self._looked = optimized, self._looks(optimized)
        return self._looked

    def _looks(self, optimized: Any) -> list[_Looked]:
        """Each call of each of them; none where the results tell."""
        pieces = pieces_of(self._model, optimized)
        if not pieces or not (self._exact is None or self.asks_values):
            return []
        found = []

        def look(name: str, piece: nn.Module, by: nn.Module, args: Any, kwargs: Any) -> None:
            reference = Reference(piece, args, kwargs)
            error = reference.error_of(by)
            wrong = reference.disagrees(by, error)
            found.append(_Looked(reference.error, error, f"{name}: {wrong}" if wrong else ""))

        args, kwargs = tree_map(copied, self._given)
        look_at_calls(self._model, pieces, args, kwargs, look)
        return found

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

    def allows(self, error: float, own_error: float) -> bool:
        """Whether an error is near enough to the model's own."""
        own = self._some
        luck = 4 * torch.finfo(own.dtype).eps
        if own.is_cuda and own.dtype == torch.float64:
            luck = _LARGEST_OF_GPUS_IN_DOUBLE
        if self._exact is None:
            return error <= _LARGEST
        # Infinite where float64 gives another number of results.
        return error <= 2 * own_error + luck and math.isfinite(own_error)


@dataclass(frozen=True)
class _Looked:
    """A call of a piece."""

    own_error: float
    error: float
    wrong: str


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
    count. Infinite where they are others in number or size."""
    apart, size = 0.0, 0.0
    given, wanted = _floats(results), _floats(exact)
    if [each.shape for each in given] != [each.shape for each in wanted]:
        return math.inf
    for one, other in zip(given, wanted, strict=True):
        one, other = one.double(), other.double()
        same = (one == other) | (one.isnan() & other.isnan())
        apart += float((one - other).masked_fill(same, 0).square().sum())
        size += float(other.masked_fill(~other.isfinite(), 0).square().sum())
    return math.sqrt(apart / max(size, torch.finfo(torch.float64).tiny))
