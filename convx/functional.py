"""Convolutions as torch.nn.functional has them, run by the method that convx expects to be fastest.

Differences to torch's: padding may differ between the sides, an activation can be fused, and `algorithm`
names the method. Results have the layout (NCHW or channels_last) and the dtype of the input; float16 and
bfloat16 accumulate in float32. float32 is exact unless torch's setting for convolutions
(torch.backends.cudnn.allow_tf32) allows TF32 and a method that uses it is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from convx import dispatch
from convx._arguments import Padding, integer, padding_1d, padding_2d, pair, single, sizes
from convx._errors import InvalidArgument, blame, require_tensors, require_weight_1d, shape
from convx.dispatch.packed import PackedFilters
from convx.images.functional import filter2d, separable_filter2d

__all__ = [
    "PackedFilters",
    "conv1d",
    "conv2d",
    "conv2d_input_grad",
    "conv2d_weight_grad",
    "filter2d",
    "separable_filter2d",
]


def _require_packed(packed: object) -> None:
    if packed is not None and not isinstance(packed, PackedFilters):
        raise TypeError(f"packed must be a PackedFilters, got {type(packed).__name__}")


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    activation: str = "none",
    algorithm: str = "auto",
    packed: PackedFilters | None = None,
    residual: Tensor | None = None,
    residual_after_activation: bool = False,
) -> Tensor:
    """2D convolution.

    Args:
        input: (batch, in_channels, height, width) or (in_channels, height, width); float32, float64, float16
            or bfloat16; any strides. A channels_last input gives a channels_last result.
        weight: (out_channels, in_channels / groups, filter_height, filter_width), dtype and device of input.
        bias: (out_channels,) or None.
        stride: step of the filter in pixels, an int or (height, width).
        padding: zeros around the input in pixels: an int, (height, width), ((top, bottom), (left, right)),
            "valid" (none) or "same" (output as large as the input; stride 1 only).
        dilation: distance of the filter's taps in pixels, an int or (height, width).
        groups: groups of channels that are convolved apart; in_channels makes it depthwise.
        activation: "none", "relu", "relu6", "silu", "hardswish" or "gelu" (the erf form), applied to the
            result. Where a gradient is needed silu, hardswish and gelu run as torch's own operators after the
            convolution, since their derivatives need their input; elsewhere all are fused.
        algorithm: "auto", a method ("depthwise", "native"; see convx.methods()) or one of its kernels
            ("depthwise/direct"), or several in order, "hntmp|auto", of which the first that can run counts.
            convx.explain shows what each would do. Gradients take the method where it has that gradient,
            with a kernel of their own, and "auto" elsewhere. With torch.backends.cudnn.benchmark "auto" times
            the likeliest at the first call of a problem.
        packed: keeps the filters from call to call in the order that the kernel reads, while the weight does
            not change and no gradient is needed, and remembers which calls are native's, which torch then
            serves straight away. convx.nn.Conv2d has one of its own. One object for each weight. Writes that
            the weight's version counter does not see (weight.data) need packed.forget().
        residual: a tensor of the result's shape, dtype and device that is added before the activation, or
            None; a skip connection. Kernels read it as they write the result; where a gradient is needed, or
            within torch.func's transforms, it is added by torch.
        residual_after_activation: adds the residual behind the activation instead.

    Returns:
        (batch, out_channels, out_height, out_width), or without batch as the input.

    Raises:
        convx.InvalidArgument, a ValueError and a RuntimeError: shapes, dtypes or devices that do not fit,
            arguments of another form than above, an unknown activation or algorithm, or a named algorithm
            that can't run this problem; the message says which condition fails.
        TypeError: arguments of another type than above; bools are no ints.

    Differentiable any number of times, in reverse and forward mode. Follows torch.autocast as nn.Conv2d does.
    Methods: see convx.methods(); depthwise is after Liu et al. 2024 and Lu, Zhang, Wang 2020.

    >>> import torch, convx
    >>> x = torch.randn(1, 32, 56, 56)
    >>> w = torch.randn(32, 1, 3, 3)
    >>> convx.functional.conv2d(x, w, stride=2, padding=1, groups=32, activation="relu6").shape
    torch.Size([1, 32, 28, 28])
    >>> same = {"padding": 1, "groups": 32, "activation": "relu"}
    >>> y = convx.functional.conv2d(x, w, residual=x, **same)
    >>> bool((y - torch.relu(convx.functional.conv2d(x, w, padding=1, groups=32) + x)).abs().max() < 1e-5)
    True
    """
    if not (isinstance(input, Tensor) and isinstance(weight, Tensor)):
        if has_torch_function((input, weight, bias)):  # a torch.fx.Proxy, say
            return handle_torch_function(
                conv2d,
                (input, weight, bias),
                input,
                weight,
                bias,
                stride,
                padding,
                dilation,
                groups,
                activation=activation,
                algorithm=algorithm,
                residual=residual,
                residual_after_activation=residual_after_activation,
            )
        require_tensors(input=input, weight=weight, bias=bias)
    _require_packed(packed)
    try:
        # Plain ints, the common case, spare the calls.
        strides: Any = (stride, stride) if stride.__class__ is int else pair("stride", stride)
        dilations: Any = (dilation, dilation) if dilation.__class__ is int else pair("dilation", dilation)
        if padding.__class__ is int:
            paddings: Any = (padding, padding, padding, padding)
        else:
            paddings = padding_2d(padding, weight.shape, strides, dilations)
        if groups.__class__ is not int:
            groups = integer("groups", groups)
        rest = (strides, paddings, dilations, groups, activation, algorithm, packed)
        if input.dim() != 3:
            return dispatch.convolve(input, weight, bias, *rest, residual, residual_after_activation)
        added = None if residual is None else residual.unsqueeze(0)
        output = dispatch.convolve(input.unsqueeze(0), weight, bias, *rest, added, residual_after_activation)
        return output.squeeze(0)
    except (AttributeError, RuntimeError, ValueError) as error:
        tensors = {"input": input, "weight": weight, "bias": bias, "residual": residual}
        geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        blame(error, tensors, geometry, activation=activation, algorithm=algorithm)
        raise


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    activation: str = "none",
    algorithm: str = "auto",
    packed: PackedFilters | None = None,
    residual: Tensor | None = None,
    residual_after_activation: bool = False,
) -> Tensor:
    """1D convolution: conv2d with a height of one.

    Args:
        input: (batch, in_channels, width) or (in_channels, width).
        weight: (out_channels, in_channels / groups, filter_width).
        padding: an int, (int,), ((left, right),), "valid" or "same".
        bias, stride, dilation, groups, activation, algorithm, packed, residual, residual_after_activation: as
            in conv2d, stride and dilation being an int or (int,), the residual of the result's shape.

    Returns:
        (batch, out_channels, out_width), or without batch as the input. Errors as in conv2d.

    >>> import torch, convx
    >>> x = torch.randn(4, 16, 100)
    >>> convx.functional.conv1d(x, torch.randn(16, 1, 4), padding="same", groups=16).shape
    torch.Size([4, 16, 100])
    """
    if not (isinstance(input, Tensor) and isinstance(weight, Tensor)):
        require_tensors(input=input, weight=weight)
    if weight.dim() != 3:
        require_weight_1d(weight.shape)
    if input.dim() not in (2, 3):
        raise InvalidArgument(
            f"input of a 1D convolution needs 3 dimensions (batch, in_channels, width) or 2 without "
            f"batch, got {input.dim()}: shape {shape(input.shape)}"
        )
    _require_packed(packed)
    try:
        step, spread = single("stride", stride), single("dilation", dilation)
        paddings = padding_1d(padding, weight.shape[2:], step, spread)
        if groups.__class__ is not int:
            groups = integer("groups", groups)
        rest = ((1, step), paddings, (1, spread), groups, activation, algorithm, packed)
        if input.dim() == 3:
            return dispatch.convolve(input, weight, bias, *rest, residual, residual_after_activation)
        added = None if residual is None else residual.unsqueeze(0)
        output = dispatch.convolve(input.unsqueeze(0), weight, bias, *rest, added, residual_after_activation)
        return output.squeeze(0)
    except (AttributeError, RuntimeError, ValueError) as error:
        tensors = {"input": input, "weight": weight, "bias": bias, "residual": residual}
        geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        blame(error, tensors, geometry, activation=activation, algorithm=algorithm)
        raise


def conv2d_input_grad(
    output_grad: Tensor,
    weight: Tensor,
    input_size: Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    algorithm: str = "auto",
) -> Tensor:
    """Gradient of conv2d at its input, of shape input_size: (batch, in_channels, height, width).

    output_grad is the gradient at conv2d's result; the rest and the errors are as in conv2d. Takes the
    layout of output_grad. Also the transposed convolution of output_grad.

    >>> import torch, convx
    >>> g, w = torch.randn(1, 8, 7, 7), torch.randn(8, 1, 3, 3)
    >>> convx.functional.conv2d_input_grad(g, w, (1, 8, 14, 14), stride=2, padding=1, groups=8).shape
    torch.Size([1, 8, 14, 14])
    """
    if not (isinstance(output_grad, Tensor) and isinstance(weight, Tensor)):
        require_tensors(output_grad=output_grad, weight=weight)
    try:
        size = sizes("input_size", input_size)
        strides, dilations = pair("stride", stride), pair("dilation", dilation)
        paddings = padding_2d(padding, weight.shape, strides, dilations)
        if groups.__class__ is not int:
            groups = integer("groups", groups)
        geometry = (strides, paddings, dilations, groups)
        return dispatch.gradient("conv2d_input_grad", output_grad, weight, size, *geometry, algorithm)
    except (AttributeError, RuntimeError, ValueError) as error:
        given = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        blame(
            error,
            {"output_grad": output_grad, "weight": weight},
            {"input_size": input_size, **given},
            algorithm=algorithm,
        )
        raise


def conv2d_weight_grad(
    input: Tensor,
    output_grad: Tensor,
    weight_size: Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    algorithm: str = "auto",
) -> Tensor:
    """Gradient of conv2d at its weight, of shape weight_size.

    output_grad is the gradient at conv2d's result; the rest and the errors are as in conv2d. Takes the layout
    of the images.

    >>> import torch, convx
    >>> x, g = torch.randn(2, 8, 14, 14), torch.randn(2, 8, 14, 14)
    >>> convx.functional.conv2d_weight_grad(x, g, (8, 1, 3, 3), padding=1, groups=8).shape
    torch.Size([8, 1, 3, 3])
    """
    if not (isinstance(input, Tensor) and isinstance(output_grad, Tensor)):
        require_tensors(input=input, output_grad=output_grad)
    try:
        size = sizes("weight_size", weight_size)
        strides, dilations = pair("stride", stride), pair("dilation", dilation)
        paddings = padding_2d(padding, size, strides, dilations)
        if groups.__class__ is not int:
            groups = integer("groups", groups)
        geometry = (strides, paddings, dilations, groups)
        return dispatch.gradient("conv2d_weight_grad", input, output_grad, size, *geometry, algorithm)
    except (AttributeError, RuntimeError, ValueError) as error:
        given = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        blame(
            error,
            {"input": input, "output_grad": output_grad},
            {"weight_size": weight_size, **given},
            algorithm=algorithm,
        )
        raise
