"""Inverted residual blocks, as convx.optimize finds them: three convolution layers that one kernel may do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from convx import _libraries, _planning, operators
from convx._arguments import gives_channels_last, is_channels_last, pair, tf32_setting
from convx.dispatch import packed

_MOST = 16  # kinds of input of which a block keeps its choice and filters


class InvertedResidual(nn.Module):
    """A 1x1 convolution to more channels, a depthwise one with the same activation, a 1x1 one to fewer, and
    the input added where `residual` says so: MobileNetV2's block, for inference. Or a network's first
    convolution, of few channels and any odd filter, in the place of the first.

    Where it was measured to be faster (convx.optimize), one kernel does all of it and the expanded tensor is
    never in memory; otherwise, and wherever gradients are needed, the layers are called one after the other.
    """

    def __init__(self, expand: nn.Conv2d, depthwise: nn.Conv2d, project: nn.Conv2d, residual: bool) -> None:
        super().__init__()
        self.expand, self.depthwise, self.project = expand, depthwise, project
        self.residual = residual
        self._kept: dict[Any, tuple[Any, ...]] = {}

    def problem(self, size: tuple[int, ...], dtype: torch.dtype, channels_last: bool = True) -> Any:
        """The _core.BlockProblem of an input of that size and layout."""
        return _planning.core().BlockProblem(
            dtype=_planning.dtype_name(dtype),
            layout="channels_last" if channels_last else "nchw",
            activation=getattr(self.expand, "activation", "none"),
            output_activation=getattr(self.project, "activation", "none"),
            residual=self.residual,
            batch=size[0],
            channels=size[1],
            height=size[2],
            width=size[3],
            expanded_channels=self.expand.out_channels,
            out_channels=self.project.out_channels,
            expand_filter=self.expand.kernel_size[0],
            expand_stride=pair("stride", self.expand.stride)[0],
            filter=self.depthwise.kernel_size[0],
            stride=pair("stride", self.depthwise.stride)[0],
        )

    def can_be_one_kernel(self, input: Tensor) -> bool:
        """Whether there may be a kernel for it; which sizes there is one for, the planner knows."""
        if not input.is_cuda or input.dim() != 4 or not _libraries.load()["gpu"].loaded:
            return False
        return is_channels_last(input) or self._reads_patches(input)

    def _reads_patches(self, input: Tensor) -> bool:
        """Of an image of either layout, for a result in channels_last."""
        return self.expand.kernel_size != (1, 1) and gives_channels_last(input, self.expand.weight)

    def forward(self, input: Tensor) -> Tensor:
        if not self.training and not torch.compiler.is_compiling() and self.can_be_one_kernel(input):
            weights = self._weights()
            if not (torch.is_grad_enabled() and any(map(_needs_grad, (input, *weights)))):
                algorithm, filters = self._prepared(input, weights)
                if algorithm is not None:
                    rest = (*self._options(), algorithm, tf32_setting(True, input.dtype), filters)
                    return operators.inverted_residual(input, *weights, *rest)  # type: ignore[no-any-return]
        return self.by_layers(input)

    def by_layers(self, input: Tensor) -> Tensor:
        filtered = self.depthwise(self.expand(input))
        output: Tensor = self.project(filtered, input) if self.residual else self.project(filtered)
        return output

    def _weights(self) -> tuple[Tensor | None, ...]:
        layers = (self.expand, self.depthwise, self.project)
        return tuple(each for layer in layers for each in (layer.weight, layer.bias))

    def _options(self) -> tuple[Any, ...]:
        activations = (getattr(layer, "activation", "none") for layer in (self.expand, self.project))
        strides = (pair("stride", layer.stride)[0] for layer in (self.expand, self.depthwise))
        return (*strides, *activations, self.residual)

    def _prepared(
        self, input: Tensor, weights: tuple[Tensor | None, ...]
    ) -> tuple[str | None, Tensor | None]:
        """The plan, None for the layers, and the filters in its order."""
        state = packed.generation(), packed.state_of([each for each in weights if each is not None])
        key = (tuple(input.shape), input.dtype, is_channels_last(input), input.device)
        kept = self._kept.get(key)
        if kept is not None and kept[0] == state:
            return kept[1], kept[2]
        plan = _planning.core().select(self.problem(*key[:3]), _planning.device(input.device)).plan
        algorithm, filters = None, None
        if plan.method != "native":
            algorithm = plan.name
            filters = operators.pack_inverted_residual(input, *weights, *self._options(), algorithm)
        if len(self._kept) >= _MOST:
            self._kept.clear()
        self._kept[key] = (state, algorithm, filters)
        return algorithm, filters

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}

    def extra_repr(self) -> str:
        return "residual" if self.residual else ""


def _needs_grad(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.requires_grad
