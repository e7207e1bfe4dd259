"""convx::conv2d_weight_grad."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from convx._errors import require_length
from convx.operators import checks
from convx.operators.gradients import choice_of_gradients, flops, geometry, into_channels
from convx.operators.operator import Derivative, Facts, Gradients, Operator, linear_tangent


def _fake(a: Any) -> Tensor:
    checks.check_image("input", a.input)
    checks.check_image("output_grad", a.output_grad)
    checks.check_like("output_grad", a.output_grad, "input", a.input)
    require_length("weight_size", a.weight_size, 4, "one per dimension")
    size = checks.output_size(a.input.shape, a.weight_size, a.stride, a.padding, a.dilation, a.groups)
    checks.check_output_shape("output_grad", a.output_grad, size)
    checks.check_algorithm(a.algorithm)
    return checks.empty(a.weight_size, a.input, a.output_grad)


def _saves(a: Any, output: Tensor, needs: Any) -> Mapping[str, Tensor | None]:
    return {
        "input": a.input if needs.output_grad else None,
        "output_grad": a.output_grad if needs.input else None,
    }


def _backward(calls: Any, a: Any, needs: Any, grad: Tensor, facts: Facts) -> Gradients:
    asked, shared = choice_of_gradients(a), geometry(a)
    found: dict[str, Tensor | None] = {}
    if needs.input:
        size = facts.sizes["input"]
        found["input"] = calls.conv2d_input_grad(a.output_grad, grad, size, *shared, *asked)
    if needs.output_grad:
        found["output_grad"] = calls.conv2d(a.input, grad, None, *shared, "none", *asked)
    return found


def _tangent(calls: Any, a: Any, tangents: Any, facts: Facts) -> Tensor | None:
    algorithm, tf32 = choice_of_gradients(a)
    a = a._replace(algorithm=algorithm, tf32=tf32)
    return linear_tangent(calls.conv2d_weight_grad, a, tangents, "input", "output_grad")


def _vmap(call: Callable[..., Tensor], copies: int, dimensions: Any, a: Any) -> tuple[Tensor, int]:
    filters, *rest = a.weight_size
    joined = a._replace(
        input=into_channels(a.input, dimensions.input, copies),
        output_grad=into_channels(a.output_grad, dimensions.output_grad, copies),
        weight_size=[filters * copies, *rest],
        groups=a.groups * copies,
    )
    return call(*joined).unflatten(0, (copies, filters)), 0


def _flops(shapes: Any, output: Sequence[int]) -> int:
    return flops(shapes.output_grad, shapes.weight_size)


conv2d_weight_grad = Operator(
    "conv2d_weight_grad", _fake, Derivative(_saves, _backward, _tangent), _vmap, _flops
)
