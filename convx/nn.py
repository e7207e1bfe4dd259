"""torch.nn.Conv2d and Conv1d run by convx: same arguments, parameters and state_dict.

>>> import torch, convx
>>> layer = convx.nn.Conv2d(32, 32, 3, padding=1, groups=32, activation="relu6")
>>> layer(torch.randn(1, 32, 14, 14)).shape
torch.Size([1, 32, 14, 14])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling, is_dynamo_compiling
from torch.fx import Proxy

from convx import functional
from convx._arguments import ACTIVATIONS
from convx._errors import InvalidArgument, require_batched_or_not
from convx.dispatch.packed import PackedFilters
from convx.images.layers import Filter2d, GaussianBlur2d, Sobel2d

__all__ = ["Conv1d", "Conv2d", "Filter2d", "GaussianBlur2d", "Sobel2d"]


def _refuse_quantization(layer: torch.nn.Module) -> None:
    kind = type(layer).__name__
    raise RuntimeError(
        f"torch.ao.quantization finds layers by their exact class and would leave this convx.nn.{kind} in "
        f"floating point: call convx.revert_(model) before it quantizes the model (a layer that was made as "
        f"convx.nn.{kind} has to be made as torch.nn.{kind}); to keep the layer as it is, set its qconfig to "
        f"None"
    )


def _one_node(layer: torch.nn.Module, input: Any) -> Any:
    """What torch.fx records of torch's own layers: their names."""
    if type(input.tracer).__module__.startswith("torch.ao.quantization"):
        _refuse_quantization(layer)
    return input.tracer.create_proxy("call_module", input.tracer.path_of_module(layer), (input,), {})


class _RunByConvx(torch.nn.modules.conv._ConvNd):
    """What convx's layers have beside torch's."""

    # Class attributes too, so that layers whose class convert_ has changed have them.
    activation: str = "none"
    algorithm: str = "auto"
    _packed: PackedFilters | None = None
    _function: Callable[..., Tensor]

    def __init__(self, *args: Any, activation: str = "none", algorithm: str = "auto", **kwargs: Any) -> None:
        if activation not in ACTIVATIONS:
            raise InvalidArgument(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        super().__init__(*args, **kwargs)
        self.activation = activation
        self.algorithm = algorithm
        self._packed = PackedFilters()

    @property
    def qconfig(self) -> Any:
        """Set by torch.ao.quantization on each layer that it is to quantize; here it can be None alone."""
        if "qconfig" not in vars(self):
            raise AttributeError("qconfig")
        return vars(self)["qconfig"]

    @qconfig.setter
    def qconfig(self, value: Any) -> None:
        if value is not None:
            _refuse_quantization(self)
        vars(self)["qconfig"] = None

    @qconfig.deleter
    def qconfig(self) -> None:
        vars(self).pop("qconfig", None)

    def forward(self, input: Tensor) -> Tensor:
        packed = self._packed
        if packed is not None and not is_dynamo_compiling():
            result = packed.calls(self, input, packed)
            if result is not None:
                return result  # type: ignore[no-any-return]
        kind: Any = input.__class__
        if kind is Proxy:
            return _one_node(self, input)  # type: ignore[no-any-return]
        return self._conv_forward(input, self.weight, self.bias)

    def _filters_of_call(self) -> PackedFilters | None:
        """Where a call keeps them: nowhere while it is recorded, which is to have no side effects."""
        packed = None if is_compiling() else self._packed
        if packed is not None:
            packed.keeps = not self.training
        return packed

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        packed = self._filters_of_call()
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            if isinstance(input, Tensor):
                require_batched_or_not(input, weight)
            input = torch.nn.functional.pad(
                input, self._reversed_padding_repeated_twice, mode=self.padding_mode
            )
            padding = 0
        return self._function(
            input,
            weight,
            bias,
            self.stride,
            padding,
            self.dilation,
            self.groups,
            activation=self.activation,
            algorithm=self.algorithm,
            packed=packed,
        )

    def train(self, mode: bool = True) -> Any:
        self._forget_packed()
        return super().train(mode)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Any:
        self._forget_packed()  # of weights that go elsewhere
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def _load_from_state_dict(self, *args: Any) -> None:
        self._forget_packed()
        super()._load_from_state_dict(*args)

    def _forget_packed(self) -> None:
        if self._packed is not None:
            self._packed.forget()

    def _replicate_for_data_parallel(self) -> Any:
        replica = super()._replicate_for_data_parallel()  # type: ignore[no-untyped-call]
        replica._packed = PackedFilters()  # each replica has weights of its own
        return replica

    def extra_repr(self) -> str:
        text: str = super().extra_repr()  # type: ignore[no-untyped-call]
        if self.activation != "none":
            text += f", activation={self.activation}"
        if self.algorithm != "auto":
            text += f", algorithm={self.algorithm}"
        return text


class Conv2d(_RunByConvx, torch.nn.Conv2d):
    """torch.nn.Conv2d run by convx.

    Args:
        activation: fused activation, see convx.functional.conv2d. Default "none".
        algorithm: the method, see convx.functional.conv2d. Default "auto".
        The rest is torch.nn.Conv2d's. Padding modes other than "zeros" pad first, as torch does.

    Input (batch, in_channels, height, width) or (in_channels, height, width); dtypes and errors as
    convx.functional.conv2d. activation and algorithm are attributes and may be changed later; they are no
    part of the state_dict, which is torch.nn.Conv2d's.

    In eval mode, where no gradient is needed, filters that a kernel reads in an order of its own are kept
    packed until the weight changes: its version counter, steps of torch's optimizers, load_state_dict, to(),
    train() and eval() tell. Writes that nobody tells of (weight.data.add_(1), an array that shares the
    weight's memory) need eval() again. Weights that processes share are packed at each call. CUDA graphs pack
    at every replay, unless they are captured within convx.constant_filters().
    """

    _function = staticmethod(functional.conv2d)


class Conv1d(_RunByConvx, torch.nn.Conv1d):
    """torch.nn.Conv1d run by convx: as convx.nn.Conv2d, for (batch, in_channels, width) or (in_channels,
    width).

    >>> import torch, convx
    >>> convx.nn.Conv1d(8, 8, 5, padding="same", groups=8)(torch.randn(2, 8, 50)).shape
    torch.Size([2, 8, 50])
    """

    _function = staticmethod(functional.conv1d)
