"""The arguments that users may write, brought to the form the operators take.

Operators take stride and dilation as two ints and padding as four: (top, bottom, left, right).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from convx._errors import MOST, InvalidArgument, require_dimensions, require_length

Pair = tuple[int, int]
Four = tuple[int, int, int, int]
Padding = str | int | Sequence[int] | Sequence[Sequence[int]]

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
ACTIVATIONS = ("none", "relu", "relu6", "silu", "hardswish", "gelu")


def integer(name: str, value: Any) -> int:
    """The int of an integer of any kind: Python's, numpy's, a symbolic one. Bools are none, as for torch."""
    if value.__class__ is int:
        return value
    if not isinstance(value, bool) and not (isinstance(value, torch.Tensor) and value.dtype == torch.bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name} takes ints, got {value!r} ({type(value).__name__})")


def _is_plain(value: Any) -> bool:
    """Two of Python's own ints, as torch's layers have them: they spare the calls."""
    return (
        value.__class__ is tuple
        and len(value) == 2
        and value[0].__class__ is int
        and value[1].__class__ is int
    )


def pair(name: str, value: Any) -> Pair:
    """(height, width) from an int or from a sequence of one or two ints."""
    if _is_plain(value):
        return value  # type: ignore[no-any-return]
    if isinstance(value, (tuple, list)):
        if len(value) == 2:
            return integer(name, value[0]), integer(name, value[1])
        if len(value) == 1:
            single = integer(name, value[0])
            return single, single
        raise InvalidArgument(f"{name} takes an int or a pair of ints (height, width), got {value!r}")
    single = integer(name, value)
    return single, single


def sizes(name: str, values: Any) -> list[Any]:
    """The four sizes of a tensor that is not there; symbolic ones stay as they are."""
    try:
        listed = list(values)
    except TypeError:
        raise TypeError(f"{name} takes 4 ints, one per dimension, got {values!r}") from None
    if len(listed) != 4:
        require_length(name, listed, 4, "one per dimension")
    for place, each in enumerate(listed):
        if each.__class__ is not int and not isinstance(each, torch.SymInt):
            listed[place] = integer(name, each)
    return listed


def _both_sides(value: Any) -> Pair:
    """(before, after) of one dimension's padding: an int pads both sides alike."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise InvalidArgument(f"padding of one dimension takes an int or (before, after), got {value!r}")
        return integer("padding", value[0]), integer("padding", value[1])
    both = integer("padding", value)
    return both, both


def _same(filter_extent: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> list[int]:
    if any(step != 1 for step in stride):
        raise InvalidArgument(
            f"padding='same' needs stride 1, got stride {tuple(stride)}; give the padding as numbers"
        )
    sides = []
    for extent, step in zip(filter_extent, dilation, strict=True):
        total = step * (extent - 1)
        if total > MOST:
            raise InvalidArgument(
                f"padding='same' for a filter of size {extent} with dilation {step} overflows 64 bits; use "
                f"less dilation"
            )
        sides += [total // 2, total - total // 2]  # an even filter's extra row or column goes to the end
    return sides


def padding_2d(padding: Any, weight_size: Sequence[int], stride: Pair, dilation: Pair) -> Four:
    """(top, bottom, left, right) from an int, a pair, 'same', 'valid' or ((top, bottom), (left, right)).

    weight_size: of the weight, whatever its number of dimensions; 'same' alone looks at it.
    """
    if _is_plain(padding):
        return padding[0], padding[0], padding[1], padding[1]
    if isinstance(padding, str):
        if padding == "valid":
            return 0, 0, 0, 0
        if padding == "same":
            require_dimensions("weight", weight_size)
            top, bottom, left, right = _same(weight_size[2:], stride, dilation)
            return top, bottom, left, right
        raise InvalidArgument(f"padding takes numbers, 'same' or 'valid', got {padding!r}")
    if isinstance(padding, (tuple, list)) and len(padding) == 2:
        return (*_both_sides(padding[0]), *_both_sides(padding[1]))
    if isinstance(padding, (tuple, list)) and len(padding) != 1:
        raise InvalidArgument(
            f"padding takes an int, (height, width), ((top, bottom), (left, right)), 'same' or "
            f"'valid', "
            f"got {padding!r}"
        )
    top, left = pair("padding", padding)
    return top, top, left, left


def single(name: str, value: Any) -> int:
    """The one int of a one-dimensional argument."""
    if isinstance(value, (tuple, list)):
        if len(value) != 1:
            raise InvalidArgument(f"{name} of a 1D convolution takes one int, got {value!r}")
        value = value[0]
    return integer(name, value)


def padding_1d(padding: Any, filter_extent: Sequence[int], stride: int, dilation: int) -> Four:
    """As padding_2d for one dimension: an int, (int,), ((left, right),), 'same' or 'valid'."""
    if isinstance(padding, str):
        if padding == "valid":
            return 0, 0, 0, 0
        if padding == "same":
            left, right = _same(filter_extent, (stride,), (dilation,))
            return 0, 0, left, right
        raise InvalidArgument(f"padding takes numbers, 'same' or 'valid', got {padding!r}")
    if isinstance(padding, (tuple, list)):
        if len(padding) != 1:
            raise InvalidArgument(
                f"padding of a 1D convolution takes an int, ((left, right),), 'same' or 'valid', got "
                f"{padding!r}"
            )
        padding = padding[0]
    left, right = _both_sides(padding)
    return 0, 0, left, right


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Whether a 4D tensor's strides are in the order of channels_last: suggest_memory_format of torch's
    tensors, which tells by the strides where sizes of 1 leave the order open."""
    return has_channels_last_order(tensor.shape, tensor.stride())


def has_channels_last_order(size: Sequence[int], stride: Sequence[int]) -> bool:
    if stride[1] == 0:
        return False
    least = 0
    for dimension in (1, 3, 2, 0):
        if size[dimension] == 0 or stride[dimension] < least:
            return False
        if dimension == 0 and least == stride[1]:
            return False
        least = stride[dimension] * size[dimension]
    return True


def gives_channels_last(first: torch.Tensor, second: torch.Tensor) -> bool:
    """torch's rule for the layout of a convolution's result, from its two operands."""
    return is_channels_last(first) or is_channels_last(second)


def _assume_constant_result(function: Callable[[], bool]) -> Callable[[], bool]:
    """torch.compiler's, which does no more and imports all of torch.compile's front end for it: half of the
    time that `import convx` took."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@_assume_constant_result
def _convolutions_allow_tf32() -> bool:
    try:
        return bool(torch._C._get_cudnn_allow_tf32())
    except RuntimeError:  # set by torch.backends.cudnn.conv.fp32_precision, which the older switch can't tell
        return bool(torch.backends.cudnn.conv.fp32_precision == "tf32")  # type: ignore[attr-defined]


@_assume_constant_result
def _products_allow_tf32() -> bool:
    try:
        return bool(torch._C._get_cublas_allow_tf32())
    except RuntimeError:  # set by torch.backends.cuda.matmul.fp32_precision
        return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


CONVOLUTIONS, PRODUCTS = 1, 2  # what rounds float32 to TF32, as the operators take it


def tf32_setting(on_gpu: bool, dtype: torch.dtype) -> int:
    """What torch's settings let be rounded there: CONVOLUTIONS, PRODUCTS (of matrices), their sum or 0."""
    if not on_gpu or dtype is not torch.float32:
        return 0
    return (CONVOLUTIONS if _convolutions_allow_tf32() else 0) + products_setting()


def products_setting() -> int:
    """PRODUCTS where torch's setting lets matrix products of float32 round to TF32, else 0."""
    return PRODUCTS if _products_allow_tf32() else 0
