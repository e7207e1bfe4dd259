"""torch.nn.Conv2d and Conv1d run by convx: same arguments, parameters and state_dict.

>>> import torch, convx
>>> layer = convx.nn.Conv2d(32, 32, 3, padding=1, groups=32, activation="relu6")
>>> layer(torch.randn(1, 32, 14, 14)).shape
torch.Size([1, 32, 14, 14])
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from convx import functional

__all__ = ["Conv1d", "Conv2d"]


def _described(text: str, module: Conv1d | Conv2d) -> str:
    if module.activation != "none":
        text += f", activation={module.activation}"
    if module.algorithm != "auto":
        text += f", algorithm={module.algorithm}"
    return text


class Conv2d(torch.nn.Conv2d):
    """torch.nn.Conv2d run by convx.

    Args:
        activation: fused activation, see convx.functional.conv2d. Default "none".
        algorithm: the method, see convx.functional.conv2d. Default "auto".
        The rest is torch.nn.Conv2d's. Padding modes other than "zeros" pad first, as torch does.

    Input (batch, in_channels, height, width) or (in_channels, height, width); dtypes and errors as
    convx.functional.conv2d. activation and algorithm are attributes and may be changed later; they are no
    part of the state_dict, which is torch.nn.Conv2d's.
    """

    # Class attributes too, so that layers whose class convert_ has changed have them.
    activation: str = "none"
    algorithm: str = "auto"

    def __init__(self, *args: Any, activation: str = "none", algorithm: str = "auto", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.activation = activation
        self.algorithm = algorithm

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = torch.nn.functional.pad(
                input, self._reversed_padding_repeated_twice, mode=self.padding_mode
            )
            padding = 0
        return functional.conv2d(
            input,
            weight,
            bias,
            self.stride,
            padding,
            self.dilation,
            self.groups,
            activation=self.activation,
            algorithm=self.algorithm,
        )

    def extra_repr(self) -> str:
        return _described(super().extra_repr(), self)  # type: ignore[no-untyped-call]


class Conv1d(torch.nn.Conv1d):
    """torch.nn.Conv1d run by convx: as convx.nn.Conv2d, for (batch, in_channels, width) or (in_channels,
    width).

    >>> import torch, convx
    >>> convx.nn.Conv1d(8, 8, 5, padding="same", groups=8)(torch.randn(2, 8, 50)).shape
    torch.Size([2, 8, 50])
    """

    activation: str = "none"
    algorithm: str = "auto"

    def __init__(self, *args: Any, activation: str = "none", algorithm: str = "auto", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.activation = activation
        self.algorithm = algorithm

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = torch.nn.functional.pad(
                input, self._reversed_padding_repeated_twice, mode=self.padding_mode
            )
            padding = 0
        return functional.conv1d(
            input,
            weight,
            bias,
            self.stride,
            padding,
            self.dilation,
            self.groups,
            activation=self.activation,
            algorithm=self.algorithm,
        )

    def extra_repr(self) -> str:
        return _described(super().extra_repr(), self)  # type: ignore[no-untyped-call]
