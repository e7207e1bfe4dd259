"""What convx raises for arguments that it can't take."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

MOST = (1 << 63) - 1  # of what operators take as an int


class InvalidArgument(ValueError, RuntimeError):
    """A value, shape, dtype, layout or device that convx can't take; the message says what it can.

    It is a ValueError, as Python has it, and a RuntimeError, as torch's own convolutions raise: code that was
    written for either meets what it expects. Arguments of another type are a TypeError.

    >>> import torch, convx
    >>> try:
    ...     convx.functional.conv2d(torch.randn(1, 4, 6, 6), torch.randn(4, 3, 3, 3))
    ... except RuntimeError as error:
    ...     print(type(error).__name__, isinstance(error, ValueError))
    InvalidArgument True
    """


# As a public name: where it is printed, and what a pickle of it looks for.
InvalidArgument.__module__ = "convx"


def reason_of(error: BaseException) -> str:
    """In one line; of what torch.compile has wrapped, the cause."""
    while isinstance(inner := getattr(error, "inner_exception", None), BaseException):
        error = inner
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def check(condition: Any, message: str) -> None:
    """InvalidArgument where the condition is false; symbolic ones become guards, as by torch._check."""
    try:
        torch._check_value(condition, lambda: message)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None


def shape(size: Any) -> str:
    return f"({', '.join(str(extent) for extent in size)}{',' if len(size) == 1 else ''})"


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def require_dimensions(name: str, size: Any) -> None:
    if len(size) != 4:
        raise InvalidArgument(
            f"{name} must have 4 dimensions, got {len(size)}: shape {shape(size)}; convx.functional takes "
            f"unbatched and 1D inputs too"
        )


def require_weight_1d(size: Any) -> None:
    if len(size) != 3:
        raise InvalidArgument(
            f"weight of a 1D convolution needs 3 dimensions (out_channels, in_channels / groups, "
            f"filter_width), got {len(size)}: shape {shape(size)}"
        )


def require_batched_or_not(input: Tensor, weight: Tensor) -> None:
    """Before torch pads an input: its error for other numbers of dimensions is about the padding."""
    rank = weight.dim()
    if input.dim() not in (rank - 1, rank):
        raise InvalidArgument(
            f"input must have {rank} dimensions, or {rank - 1} without batch, got {input.dim()}: shape "
            f"{shape(input.shape)}"
        )


def require_length(name: str, values: Any, length: int, meaning: str) -> None:
    if len(values) != length:
        raise InvalidArgument(
            f"{name} must hold {length} integers ({meaning}), got {len(values)}: {shape(values)}"
        )


def require_tensors(**tensors: object) -> None:
    """Bias and residual may be None."""
    for name, value in tensors.items():
        if not isinstance(value, Tensor) and not (name in ("bias", "residual") and value is None):
            raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")


def require_name(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be of type str, got {value!r}")


def require_int64(name: str, value: object) -> None:
    """That the ints in value, which may be nested, fit into 64 bits."""
    if isinstance(value, Integral) and not -MOST - 1 <= int(value) <= MOST:
        raise InvalidArgument(f"{name} takes ints that fit into 64 bits, got {value}")
    if isinstance(value, (tuple, list)):
        for each in value:
            require_int64(name, each)


def require_strided(name: str, tensor: Tensor) -> None:
    if tensor.layout != torch.strided:
        raise InvalidArgument(
            f"{name} must be a dense tensor (torch.strided), got {tensor.layout}; convert it with .to_dense()"
        )
    if tensor.is_quantized:
        raise InvalidArgument(
            f"{name} must be in floating point, got {dtype_name(tensor.dtype)}; convert it with .dequantize()"
        )


def require_residual(residual: Tensor, output: Tensor) -> None:
    """Refuses a residual that is not like the convolution's output."""
    if residual.shape != output.shape:
        raise InvalidArgument(
            f"residual must have the shape of the output, {shape(output.shape)}, got "
            f"{shape(residual.shape)}; check the sizes, stride, padding and dilation"
        )
    if residual.dtype != output.dtype or residual.device != output.device:
        raise InvalidArgument(
            f"residual must have the dtype and device of the output ({dtype_name(output.dtype)}, "
            f"{output.device}), got {dtype_name(residual.dtype)} on {residual.device}; convert it with .to()"
        )


def blame(
    error: Exception, tensors: Mapping[str, object], integers: Mapping[str, object], **names: object
) -> None:
    """For a call that went wrong: raises what names the argument at fault, which torch's errors do not.

    Where this returns the error itself is to be raised again. What operators throw arrives as a ValueError.
    """
    if isinstance(error, InvalidArgument):
        return
    try:
        require_tensors(**tensors)
        for name, value in names.items():
            require_name(name, value)
        for name, value in integers.items():
            require_int64(name, value)
        for name, tensor in tensors.items():
            if isinstance(tensor, Tensor):
                require_strided(name, tensor)
    except (InvalidArgument, TypeError) as named:
        raise named from None
    if type(error) is ValueError:
        raise InvalidArgument(str(error)) from None
