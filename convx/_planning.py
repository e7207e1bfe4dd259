"""From tensors (their shapes alone) to the planner's problems and devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from convx._arguments import CONVOLUTIONS, DTYPES, PRODUCTS, Four, Pair, gives_channels_last, tf32_setting
from convx._errors import InvalidArgument, require_int64
from convx._libraries import core as core
from convx._libraries import require

_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in DTYPES}


def dtype_name(dtype: torch.dtype) -> str:
    """ "float32" for torch.float32; InvalidArgument for a dtype that no method takes."""
    if dtype not in _NAMES:
        raise InvalidArgument(f"dtype {dtype} is not supported; supported: {', '.join(_NAMES.values())}")
    return _NAMES[dtype]


def problem(
    operation: str,
    dtype: torch.dtype,
    channels_last: bool,
    input_size: Sequence[int],
    weight_size: Sequence[int],
    stride: Pair,
    padding: Four,
    dilation: Pair,
    groups: int,
    bias: bool = False,
    activation: str = "none",
    tf32: int = PRODUCTS,
    packs_each_call: bool = False,
    residual: bool = False,
    residual_after_activation: bool = False,
) -> Any:
    """A _core.Problem; sizes are those of the 4D operators. packs_each_call: of a forward call whose packed
    filters nobody keeps. tf32: as tf32_setting has it; matrix products count as set where nobody says.
    channels_last: of both images."""
    if groups < 1 or input_size[1] != weight_size[1] * groups:
        raise InvalidArgument(
            f"weight of shape {list(weight_size)} with groups = {groups} needs "
            f"{weight_size[1] * groups} input channels, got {input_size[1]}"
        )
    try:
        return core().Problem(
            operation=operation,
            dtype=dtype_name(dtype),
            batch=input_size[0],
            in_channels=input_size[1],
            in_height=input_size[2],
            in_width=input_size[3],
            out_channels=weight_size[0],
            filter_height=weight_size[2],
            filter_width=weight_size[3],
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            bias=bias and operation == "forward",
            activation=activation if operation == "forward" else "none",
            allow_tf32=bool(tf32 & CONVOLUTIONS),
            packs_each_call=packs_each_call and operation == "forward",
            exact_products=not tf32 & PRODUCTS,
            layout="channels_last" if channels_last else "nchw",
            residual=residual and operation == "forward",
            residual_after_activation=residual_after_activation and operation == "forward",
        )
    except TypeError:
        for name, value in (("stride", stride), ("padding", padding), ("dilation", dilation)):
            require_int64(name, value)
        raise


def filter_problem(
    dtype: torch.dtype, image_size: Sequence[int], filter_size: Sequence[int], border: str
) -> Any:
    """A _core.FilterProblem; sizes are those of the operator: (images, height, width) and (filters, height,
    width)."""
    return core().FilterProblem(
        dtype="uint8" if dtype == torch.uint8 else dtype_name(dtype),
        border=border,
        images=image_size[0],
        height=image_size[1],
        width=image_size[2],
        filters=filter_size[0],
        filter_height=filter_size[1],
        filter_width=filter_size[2],
    )


def problem_of(
    operation: str,
    where: Any,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Pair,
    padding: Four,
    dilation: Pair,
    groups: int,
    activation: str,
    packs_each_call: bool = False,
) -> Any:
    """The problem of a call with these 4D tensors on a _core.Device."""
    return problem(
        operation,
        input.dtype,
        gives_channels_last(input, weight),
        input.shape,
        weight.shape,
        stride,
        padding,
        dilation,
        groups,
        bias is not None,
        activation,
        tf32_setting(where.backend != "cpu", input.dtype),
        packs_each_call,
    )


def _torch_device(name: str) -> torch.device:
    try:
        return torch.device(name)
    except RuntimeError:
        known = ", ".join(core().Device.known_names())
        raise InvalidArgument(f"device must be a torch device or one of {known}, got {name!r}") from None


def device(where: torch.device | str) -> Any:
    """The _core.Device of a torch device, or one that the planner knows by name ("h200", "mi300", ...).

    A tensor on "meta" is planned for this machine's CPU.
    """
    if not isinstance(where, (str, torch.device)):
        raise TypeError(f"device must be a torch.device or a str, got {where!r} ({type(where).__name__})")
    if isinstance(where, str):
        if where in core().Device.known_names():
            return core().Device.known_device(where)
        where = _torch_device(where)
    if where.type in ("cpu", "meta"):
        return core().Device.host_cpu(torch.get_num_threads())
    if where.type == "cuda":
        require("cuda")
        return core().Device.gpu(torch.cuda.current_device() if where.index is None else where.index)
    raise InvalidArgument(f"no plans for device '{where}'; supported: cpu, cuda (NVIDIA and AMD)")
