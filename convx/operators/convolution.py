"""convx::conv2d and pack_weight. torch.vmap: mapped images join the batch, mapped weights the groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from convx._arguments import ACTIVATIONS, is_channels_last
from convx._errors import check
from convx.operators import checks
from convx.operators.autocast import cast
from convx.operators.gradients import (
    choice_of_gradients,
    flops,
    geometry,
    into_batch,
    into_channels,
    into_filters,
)
from convx.operators.operator import Derivative, Facts, Gradients, Operator, linear_tangent, tensors_of

aten = torch.ops.aten
FROM_OUTPUT = ("relu", "relu6")  # activations whose gradient is known from what they give


def _fake(a: Any) -> Tensor:
    checks.check_image("input", a.input)
    checks.check_image("weight", a.weight)
    checks.check_like("weight", a.weight, "input", a.input)
    size = checks.output_size(a.input.shape, a.weight.shape, a.stride, a.padding, a.dilation, a.groups)
    for name, values in (("bias", a.bias), ("scale", a.scale)):
        if values is not None:
            checks.check_like(name, values, "input", a.input)
            checks.check_per_channel(name, values, size[1])
    if a.residual is not None:
        checks.check_image("residual", a.residual)
        checks.check_like("residual", a.residual, "input", a.input)
        checks.check_output_shape("residual", a.residual, size)
    check(
        a.activation in ACTIVATIONS,
        f"activation must be one of {', '.join(ACTIVATIONS)}; got '{a.activation}'",
    )
    checks.check_algorithm(a.algorithm)
    return checks.empty(size, a.input, a.weight)


def _pack_weight_fake(a: Any) -> Tensor:
    """How many bytes there are is the plan's to know."""
    _fake(a)
    count = torch.library.get_ctx().new_dynamic_size()
    return a.input.new_empty(count, dtype=torch.uint8)  # type: ignore[no-any-return]


def _activation_grad(activation: str, grad: Tensor, output: Tensor | None, before: Tensor | None) -> Tensor:
    """Gradient at the activation's input, from its output (relu, relu6) or from its input (the others)."""
    if activation == "relu":
        return aten.threshold_backward(grad, output, 0)  # type: ignore[no-any-return]
    if activation == "relu6":
        return aten.hardtanh_backward(grad, output, 0, 6)  # type: ignore[no-any-return]
    if activation == "silu":
        if not torch.is_grad_enabled() or before is None:
            return aten.silu_backward(grad, before)  # type: ignore[no-any-return]
        gate = before.sigmoid()  # aten.silu_backward has no derivative of its own
        return grad * gate * (1 + before * (1 - gate))
    if activation == "hardswish":
        return aten.hardswish_backward(grad, before)  # type: ignore[no-any-return]
    return aten.gelu_backward(grad, before)  # type: ignore[no-any-return]


def _saves(a: Any, output: Tensor, needs: Any) -> Mapping[str, Tensor | None]:
    after = a.residual is not None and a.residual_after_activation
    from_output = a.activation in FROM_OUTPUT and not after
    again = a.activation != "none" and not from_output  # what the activation was given
    return {
        "input": a.input if needs.weight or needs.scale or again else None,
        "weight": a.weight if needs.input or needs.scale or again else None,
        "bias": a.bias if again else None,
        "scale": a.scale if needs.input or needs.weight or again else None,
        "residual": a.residual if again and not after else None,
        "output": output if from_output else None,
    }


def _backward(calls: Any, a: Any, needs: Any, grad: Tensor, facts: Facts) -> Gradients:
    algorithm, tf32 = choice_of_gradients(a)
    asked, shared = (algorithm, tf32), geometry(a)
    plain = a._replace(activation="none", algorithm=algorithm, tf32=tf32, packed_weight=None)
    found: dict[str, Tensor | None] = {}
    after = "residual" in facts.sizes and a.residual_after_activation
    if needs.residual and after:
        found["residual"] = grad
    if a.activation != "none":
        before = None if facts.output is not None else calls.conv2d(*plain)  # without the residual after it
        output = before if facts.output is None else facts.output  # relu and relu6 tell the same by either
        grad = _activation_grad(a.activation, grad, output, before)
    if needs.residual and not after:
        found["residual"] = grad
    # In the layout of the result, once for both gradients, which have the layout that their operands suggest.
    if not facts.output_is_channels_last:
        grad = grad.contiguous()
    elif not is_channels_last(grad):
        grad = grad.clone(memory_format=torch.channels_last)
    if needs.bias:
        found["bias"] = grad.sum((0, 2, 3))
    if needs.scale:
        sums = calls.conv2d(*plain._replace(bias=None, scale=None, residual=None))
        found["scale"] = (grad * sums).sum((0, 2, 3))
    if a.scale is not None:
        grad = grad * a.scale[:, None, None]
    if needs.input:
        found["input"] = calls.conv2d_input_grad(grad, a.weight, facts.sizes["input"], *shared, *asked)
    if needs.weight:
        found["weight"] = calls.conv2d_weight_grad(a.input, grad, facts.sizes["weight"], *shared, *asked)
    return found


def _tangent(calls: Any, a: Any, tangents: Any, facts: Facts) -> Tensor | None:
    """Of a call that sums, with a bias at most: what may come behind is torch's there (convx.dispatch)."""
    algorithm, tf32 = choice_of_gradients(a)
    sums = a._replace(bias=None, algorithm=algorithm, tf32=tf32)
    tangent = linear_tangent(calls.conv2d, sums, tangents, "input", "weight")
    if tangents.bias is None:
        return tangent
    by_bias: Tensor = tangents.bias.view(1, -1, 1, 1)
    return by_bias.expand(facts.sizes["output"]).clone() if tangent is None else tangent + by_bias


def _vmap(call: Callable[..., Tensor], copies: int, dimensions: Any, a: Any) -> tuple[Tensor, int]:
    a = a._replace(packed_weight=None)  # filters packed for one copy don't serve all
    if dimensions.input is not None and all(
        each is None for each in (dimensions.weight, dimensions.bias, dimensions.scale)
    ):
        residual, dimension = a.residual, dimensions.residual
        if residual is not None:
            residual = residual.expand(copies, *residual.shape) if dimension is None else residual
            residual = into_batch(residual, dimension or 0)
        output = call(*a._replace(input=into_batch(a.input, dimensions.input), residual=residual))
        return output.unflatten(0, (copies, output.size(0) // copies)), 0
    # One input read by every copy's filters is a wider dense convolution; anything else is more groups.
    shared = dimensions.input is None and a.groups == 1
    joined = a._replace(
        input=a.input if shared else into_channels(a.input, dimensions.input, copies),
        weight=into_filters(a.weight, dimensions.weight, copies),
        bias=None if a.bias is None else into_filters(a.bias, dimensions.bias, copies),
        scale=None if a.scale is None else into_filters(a.scale, dimensions.scale, copies),
        residual=None if a.residual is None else into_channels(a.residual, dimensions.residual, copies),
        groups=1 if shared else a.groups * copies,
    )
    output = call(*joined)
    return output.unflatten(1, (copies, output.size(1) // copies)), 1


def _flops(shapes: Any, output: Sequence[int]) -> int:
    return flops(output, shapes.weight)


def _autocast(dtype: torch.dtype, a: Any) -> Any:
    return a._replace(**{name: cast(each, dtype) for name, each in tensors_of(a).items()})


conv2d = Operator("conv2d", _fake, Derivative(_saves, _backward, _tangent), _vmap, _flops, _autocast)
pack_weight = Operator("pack_weight", _pack_weight_fake)
