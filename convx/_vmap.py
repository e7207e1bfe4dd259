"""torch.vmap over the operators: mapped images join the batch, mapped weights the groups.

`call` is the operator, by the dispatcher or by the eager path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

Dimensions = Sequence[int | None]


def _into_batch(tensor: Tensor, dimension: int) -> Tensor:
    """(copies, batch, ...) as (copies * batch, ...)."""
    return tensor.movedim(dimension, 0).flatten(0, 1)


def _into_channels(tensor: Tensor, dimension: int | None, copies: int) -> Tensor:
    """(batch, channels, ...) per copy as (batch, copies * channels, ...), the copies outermost."""
    stacked = (
        tensor.unsqueeze(1).expand(-1, copies, *tensor.shape[1:])
        if dimension is None
        else tensor.movedim(dimension, 1)
    )
    return stacked.flatten(1, 2)


def _into_filters(tensor: Tensor, dimension: int | None, copies: int) -> Tensor:
    """(out_channels, ...) per copy as (copies * out_channels, ...)."""
    stacked = tensor.expand(copies, *tensor.shape) if dimension is None else tensor.movedim(dimension, 0)
    return stacked.flatten(0, 1)


def conv2d(
    call: Callable[..., Tensor],
    info: Any,
    in_dims: Dimensions,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    activation: str,
    algorithm: str,
    tf32: int,
    packed_weight: Tensor | None = None,
    residual: Tensor | None = None,
    scale: Tensor | None = None,
    residual_after_activation: bool = False,
) -> tuple[Tensor, int]:
    copies = info.batch_size
    input_dim, weight_dim, bias_dim = in_dims[:3]
    residual_dim, scale_dim = (*in_dims[11:], None, None)[:2]  # what has its default may be left out
    rest: tuple[Any, ...] = (activation, algorithm, tf32)  # filters packed for one copy don't serve all
    if input_dim is not None and weight_dim is None and bias_dim is None and scale_dim is None:
        if residual is not None or scale is not None:
            if residual is not None and residual_dim is None:
                residual, residual_dim = residual.expand(copies, *residual.shape), 0
            if residual is not None and residual_dim is not None:
                residual = _into_batch(residual, residual_dim)
            rest += (None, residual, scale, residual_after_activation)
        output = call(_into_batch(input, input_dim), weight, bias, stride, padding, dilation, groups, *rest)
        return output.unflatten(0, (copies, output.size(0) // copies)), 0
    # One input read by every copy's filters is a wider dense convolution; anything else is more groups.
    share_input = input_dim is None and groups == 1
    if residual is not None or scale is not None:
        if residual is not None:
            residual = _into_channels(residual, residual_dim, copies)
        if scale is not None:
            scale = _into_filters(scale, scale_dim, copies)
        rest += (None, residual, scale, residual_after_activation)
    output = call(
        input if share_input else _into_channels(input, input_dim, copies),
        _into_filters(weight, weight_dim, copies),
        None if bias is None else _into_filters(bias, bias_dim, copies),
        stride,
        padding,
        dilation,
        1 if share_input else groups * copies,
        *rest,
    )
    return output.unflatten(1, (copies, output.size(1) // copies)), 1


def conv2d_input_grad(
    call: Callable[..., Tensor],
    info: Any,
    in_dims: Dimensions,
    output_grad: Tensor,
    weight: Tensor,
    input_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    algorithm: str,
    tf32: int,
) -> tuple[Tensor, int]:
    copies = info.batch_size
    grad_dim, weight_dim = in_dims[:2]
    batch, channels, height, width = input_size
    if weight_dim is None and grad_dim is not None:
        size = [batch * copies, channels, height, width]
        folded = _into_batch(output_grad, grad_dim)
        result = call(folded, weight, size, stride, padding, dilation, groups, algorithm, tf32)
        return result.unflatten(0, (copies, batch)), 0
    result = call(
        _into_channels(output_grad, grad_dim, copies),
        _into_filters(weight, weight_dim, copies),
        [batch, channels * copies, height, width],
        stride,
        padding,
        dilation,
        groups * copies,
        algorithm,
        tf32,
    )
    return result.unflatten(1, (copies, channels)), 1


def conv2d_weight_grad(
    call: Callable[..., Tensor],
    info: Any,
    in_dims: Dimensions,
    input: Tensor,
    output_grad: Tensor,
    weight_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    algorithm: str,
    tf32: int,
) -> tuple[Tensor, int]:
    copies = info.batch_size
    filters, *rest = weight_size
    result = call(
        _into_channels(input, in_dims[0], copies),
        _into_channels(output_grad, in_dims[1], copies),
        [filters * copies, *rest],
        stride,
        padding,
        dilation,
        groups * copies,
        algorithm,
        tf32,
    )
    return result.unflatten(0, (copies, filters)), 0
