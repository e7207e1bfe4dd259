"""convx::conv2d_input_grad, the transposed convolution."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from convx._errors import require_length
from convx.operators import checks
from convx.operators.gradients import (
    choice_of_gradients,
    flops,
    geometry,
    into_batch,
    into_channels,
    into_filters,
)
from convx.operators.operator import Derivative, Facts, Gradients, Operator, linear_tangent


def _fake(a: Any) -> Tensor:
    checks.check_image("output_grad", a.output_grad)
    checks.check_image("weight", a.weight)
    checks.check_like("weight", a.weight, "output_grad", a.output_grad)
    require_length("input_size", a.input_size, 4, "one per dimension")
    size = checks.output_size(a.input_size, a.weight.shape, a.stride, a.padding, a.dilation, a.groups)
    checks.check_output_shape("output_grad", a.output_grad, size)
    checks.check_algorithm(a.algorithm)
    return checks.empty(a.input_size, a.output_grad, a.weight)


def _saves(a: Any, output: Tensor, needs: Any) -> Mapping[str, Tensor | None]:
    return {
        "output_grad": a.output_grad if needs.weight else None,
        "weight": a.weight if needs.output_grad else None,
    }


def _backward(calls: Any, a: Any, needs: Any, grad: Tensor, facts: Facts) -> Gradients:
    asked, shared = choice_of_gradients(a), geometry(a)
    found: dict[str, Tensor | None] = {}
    if needs.output_grad:
        found["output_grad"] = calls.conv2d(grad, a.weight, None, *shared, "none", *asked)
    if needs.weight:
        size = facts.sizes["weight"]
        found["weight"] = calls.conv2d_weight_grad(grad, a.output_grad, size, *shared, *asked)
    return found


def _tangent(calls: Any, a: Any, tangents: Any, facts: Facts) -> Tensor | None:
    algorithm, tf32 = choice_of_gradients(a)
    a = a._replace(algorithm=algorithm, tf32=tf32)
    return linear_tangent(calls.conv2d_input_grad, a, tangents, "output_grad", "weight")


def _vmap(call: Callable[..., Tensor], copies: int, dimensions: Any, a: Any) -> tuple[Tensor, int]:
    batch, channels, height, width = a.input_size
    if dimensions.weight is None and dimensions.output_grad is not None:
        folded = into_batch(a.output_grad, dimensions.output_grad)
        size = [batch * copies, channels, height, width]
        result = call(*a._replace(output_grad=folded, input_size=size))
        return result.unflatten(0, (copies, batch)), 0
    joined = a._replace(
        output_grad=into_channels(a.output_grad, dimensions.output_grad, copies),
        weight=into_filters(a.weight, dimensions.weight, copies),
        input_size=[batch, channels * copies, height, width],
        groups=a.groups * copies,
    )
    return call(*joined).unflatten(1, (copies, channels)), 1


def _flops(shapes: Any, output: Sequence[int]) -> int:
    return flops(shapes.output_grad, shapes.weight)


conv2d_input_grad = Operator(
    "conv2d_input_grad", _fake, Derivative(_saves, _backward, _tangent), _vmap, _flops
)
