"""What blocks of layers do, without their weights: what the planner and the operators are told of one."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from convx import _planning

SQUEEZE_EXCITE, INVERTED_RESIDUAL = "squeeze_excite", "inverted_residual"


class Excitation(NamedTuple):
    """The input times gates of its channels, which come from the mean of each plane by two 1x1
    convolutions."""

    squeezed_channels: int
    activation: str
    """Between the two."""
    gate: str

    @property
    def method(self) -> str:
        """By which the planner knows the kernel."""
        return SQUEEZE_EXCITE

    @property
    def parts(self) -> tuple[str, ...]:
        """What it does, for reports."""
        return "mean", "squeeze", "excite", self.gate, "product"

    @property
    def options(self) -> tuple[Any, ...]:
        """The operator's arguments between the weights and the algorithm."""
        return self.activation, self.gate

    def problem(self, size: tuple[int, ...], dtype: torch.dtype, channels_last: bool) -> Any:
        """The planner's, for an input of that size and layout."""
        return _planning.core().ExciteProblem(
            dtype=_planning.dtype_name(dtype),
            layout="channels_last" if channels_last else "nchw",
            activation=self.activation,
            gate=self.gate,
            batch=size[0],
            channels=size[1],
            height=size[2],
            width=size[3],
            squeezed_channels=self.squeezed_channels,
        )

    def shape(self, size: tuple[int, ...]) -> str:
        """Of its layers on an input, for reports."""
        return f"{size[1]}->{self.squeezed_channels}->{size[1]} on {'x'.join(map(str, size))}"


class Inversion(NamedTuple):
    """An inverted residual block, or a network's first layers of that form; members as Excitation's."""

    expanded_channels: int
    out_channels: int
    expand_filter: int
    expand_stride: int
    filter: int
    stride: int
    activation: str
    """Of the first two convolutions."""
    output_activation: str
    residual: bool
    excitation: Excitation | None

    @property
    def method(self) -> str:
        return INVERTED_RESIDUAL

    @property
    def parts(self) -> tuple[str, ...]:
        inner = () if self.excitation is None else self.excitation.parts
        return "expand", "depthwise", *inner, "project", *(("residual",) if self.residual else ())

    @property
    def reads_patches(self) -> bool:
        """Of images of either layout, for a result in channels_last."""
        return self.expand_filter != 1

    @property
    def options(self) -> tuple[Any, ...]:
        return (
            *(self.expand_stride, self.stride, self.activation, *self._gating.options),
            *(self.output_activation, self.residual),
        )

    @property
    def _gating(self) -> Excitation:
        """Any where it has none."""
        return self.excitation or Excitation(0, "relu", "sigmoid")

    def problem(self, size: tuple[int, ...], dtype: torch.dtype, channels_last: bool) -> Any:
        return _planning.core().BlockProblem(
            dtype=_planning.dtype_name(dtype),
            layout="channels_last" if channels_last else "nchw",
            activation=self.activation,
            output_activation=self.output_activation,
            residual=self.residual,
            batch=size[0],
            channels=size[1],
            height=size[2],
            width=size[3],
            expanded_channels=self.expanded_channels,
            out_channels=self.out_channels,
            expand_filter=self.expand_filter,
            expand_stride=self.expand_stride,
            filter=self.filter,
            stride=self.stride,
            squeezed_channels=self._gating.squeezed_channels,
            squeeze_activation=self._gating.activation,
            gate=self._gating.gate,
        )

    def shape(self, size: tuple[int, ...]) -> str:
        more = f" s{self.stride}" if self.stride != 1 else ""
        channels = f"{size[1]}->{self.expanded_channels}->{self.out_channels}"
        if self.excitation is not None:
            more += f", excited by {self.excitation.squeezed_channels},"
        return f"{channels} {self.filter}x{self.filter}{more} on {'x'.join(map(str, size))}"
