"""Layers that one kernel may do together, as convx.optimize finds them: inverted residual blocks, and
squeeze-and-excitation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from convx import _libraries, _planning, operators
from convx._arguments import gives_channels_last, is_channels_last, pair, tf32_setting
from convx._block_kinds import INVERTED_RESIDUAL, SQUEEZE_EXCITE, Excitation, Inversion
from convx.dispatch import packed

_Found = tuple[tuple[Tensor | None, ...], str, Tensor | None]  # weights, plan, filters in its order
_MOST = 16  # kinds of input of which a block keeps its choice and filters
GATES: dict[str, Callable[[Tensor], Tensor]] = {"sigmoid": torch.sigmoid, "hardsigmoid": F.hardsigmoid}


class Block(nn.Module):
    """Where it was measured to be faster (convx.optimize), one kernel does all of it, or a few, and little of
    what is between its layers is ever in memory; otherwise, and wherever gradients are needed, the layers are
    called one after the other. For inference."""

    method = ""
    """By which the planner knows the kernel."""
    devices: tuple[str, ...] = ("cuda",)
    """That may have one."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[Any, tuple[Any, ...]] = {}

    @property
    def layers(self) -> tuple[nn.Conv2d, ...]:
        raise NotImplementedError

    @property
    def kind(self) -> Excitation | Inversion:
        """What it does, without its weights."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[str, ...]:
        """What it does, for reports."""
        return self.kind.parts

    def problem(self, size: tuple[int, ...], dtype: torch.dtype, channels_last: bool = True) -> Any:
        """The planner's problem of an input of that size and layout."""
        return self.kind.problem(size, dtype, channels_last)

    def shape(self, size: tuple[int, ...]) -> str:
        """Of its layers on an input, for reports."""
        return self.kind.shape(size)

    def by_layers(self, input: Tensor) -> Tensor:
        raise NotImplementedError

    def can_be_one_kernel(self, input: Tensor) -> bool:
        """Whether there may be a kernel for it; which sizes there is one for, the planner knows."""
        if input.dim() != 4 or input.device.type not in self.devices:
            return False
        return bool(_libraries.load()["gpu" if input.is_cuda else "cpu"].loaded)

    def forward(self, input: Tensor) -> Tensor:
        call = self.prepared_call(input)
        return self.by_layers(input) if call is None else call(input)

    def prepared_call(self, input: Tensor) -> Callable[[Tensor], Tensor] | None:
        """By the kernel, for inputs like this one and the weights as they are; None where the layers are
        called."""
        found = self._found(input)
        return None if found is None else lambda given: self._by_kernel(given, *found)

    def prepared_link(self, input: Tensor) -> Any:
        """The same for chains on CPUs; None where Python has to call it."""
        return None

    def _found(self, input: Tensor) -> _Found | None:
        """What _by_kernel needs for inputs like this one; None where the layers are called."""
        if self.training or torch.compiler.is_compiling() or not self.can_be_one_kernel(input):
            return None
        weights = self._weights()
        if torch.is_grad_enabled() and any(map(_needs_grad, (input, *weights))):
            return None
        algorithm, filters = self._prepared(input, weights)
        return None if algorithm is None else (weights, algorithm, filters)

    def _by_kernel(
        self, input: Tensor, weights: tuple[Tensor | None, ...], algorithm: str, filters: Tensor | None
    ) -> Tensor:
        raise NotImplementedError

    def _pack(self, input: Tensor, weights: tuple[Tensor | None, ...], algorithm: str) -> Tensor | None:
        """The filters in a plan's order, where it has one."""
        return None

    def _weights(self) -> tuple[Tensor | None, ...]:
        return tuple(each for layer in self.layers for each in (layer.weight, layer.bias))

    def _prepared(
        self, input: Tensor, weights: tuple[Tensor | None, ...]
    ) -> tuple[str | None, Tensor | None]:
        """The plan, None for the layers, and the filters in its order."""
        state = packed.generation(), packed.state_of([each for each in weights if each is not None])
        key = (*_kind(input), input.device)
        kept = self._kept.get(key)
        if kept is not None and kept[0] == state:
            return kept[1], kept[2]
        plan = _planning.core().select(self.problem(*_kind(input)), _planning.device(input.device)).plan
        algorithm, filters = None, None
        if plan.method != "native":
            algorithm = plan.name
            filters = self._pack(input, weights, algorithm)
        if len(self._kept) >= _MOST:
            self._kept.clear()
        self._kept[key] = (state, algorithm, filters)
        return algorithm, filters

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}


class SqueezeExcite(Block):
    """The input times gates of its channels, which come from the mean of each plane by two 1x1 convolutions,
    to fewer channels and back (Hu, Shen and Sun, 2018). gate: of GATES."""

    method = SQUEEZE_EXCITE
    devices = ("cuda", "cpu")

    def __init__(self, squeeze: nn.Conv2d, excite: nn.Conv2d, gate: str) -> None:
        super().__init__()
        self.squeeze, self.excite, self.gate = squeeze, excite, gate

    @property
    def layers(self) -> tuple[nn.Conv2d, ...]:
        return self.squeeze, self.excite

    @property
    def kind(self) -> Excitation:
        return Excitation(self.squeeze.out_channels, self.activation, self.gate)

    @property
    def activation(self) -> str:
        """Inside."""
        return getattr(self.squeeze, "activation", "none")

    def by_layers(self, input: Tensor) -> Tensor:
        mean = F.adaptive_avg_pool2d(input, 1)
        return input * GATES[self.gate](self.excite(self.squeeze(mean)))

    def _by_kernel(
        self, input: Tensor, weights: tuple[Tensor | None, ...], algorithm: str, filters: Tensor | None
    ) -> Tensor:
        rest = (*self.kind.options, algorithm, tf32_setting(input.is_cuda, input.dtype))
        return operators.squeeze_excite(input, *weights, *rest)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return self.gate


class InvertedResidual(Block):
    """A 1x1 convolution to more channels, a depthwise one with the same activation, a 1x1 one to fewer, and
    the input added where `residual` says so: MobileNetV2's block. Or a network's first convolution, of few
    channels and any odd filter, in the place of the first. `excitation` is of what is filtered, as
    MobileNetV3 and EfficientNet have it."""

    method = INVERTED_RESIDUAL
    devices = ("cuda", "cpu")

    def __init__(
        self,
        expand: nn.Conv2d,
        depthwise: nn.Conv2d,
        project: nn.Conv2d,
        residual: bool,
        excitation: SqueezeExcite | None = None,
    ) -> None:
        super().__init__()
        self.expand, self.depthwise, self.excitation, self.project = expand, depthwise, excitation, project
        self.residual = residual

    @property
    def layers(self) -> tuple[nn.Conv2d, ...]:
        inner = () if self.excitation is None else self.excitation.layers
        return self.expand, self.depthwise, self.project, *inner

    @property
    def kind(self) -> Inversion:
        inside, after = (getattr(layer, "activation", "none") for layer in (self.expand, self.project))
        return Inversion(
            self.expand.out_channels,
            self.project.out_channels,
            self.expand.kernel_size[0],
            pair("stride", self.expand.stride)[0],
            self.depthwise.kernel_size[0],
            pair("stride", self.depthwise.stride)[0],
            inside,
            after,
            self.residual,
            None if self.excitation is None else self.excitation.kind,
        )

    def can_be_one_kernel(self, input: Tensor) -> bool:
        if not super().can_be_one_kernel(input):
            return False
        return is_channels_last(input) or (
            self.reads_patches and gives_channels_last(input, self.expand.weight)
        )

    @property
    def reads_patches(self) -> bool:
        """Of images of either layout, for a result in channels_last."""
        return self.kind.reads_patches

    def by_layers(self, input: Tensor) -> Tensor:
        filtered = self.depthwise(self.expand(input))
        if self.excitation is not None:
            filtered = self.excitation(filtered)
        output: Tensor = self.project(filtered, input) if self.residual else self.project(filtered)
        return output

    def _by_kernel(
        self, input: Tensor, weights: tuple[Tensor | None, ...], algorithm: str, filters: Tensor | None
    ) -> Tensor:
        rest = (*self.kind.options, algorithm, tf32_setting(True, input.dtype), filters)
        return operators.inverted_residual(input, *weights, *rest)  # type: ignore[no-any-return]

    def prepared_link(self, input: Tensor) -> Any:
        found = self._found(input)
        if found is None:
            return None
        _, algorithm, filters = found
        return _libraries.front().block_link(  # type: ignore[union-attr]
            input, self.problem(*_kind(input)).handed_over(), algorithm, filters
        )

    def _pack(self, input: Tensor, weights: tuple[Tensor | None, ...], algorithm: str) -> Tensor:
        packed: Tensor = operators.pack_inverted_residual(input, *weights, *self.kind.options, algorithm)
        return packed

    def _weights(self) -> tuple[Tensor | None, ...]:
        return super()._weights() if self.excitation is not None else (*super()._weights(), *(None,) * 4)

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "excitation" not in state["_modules"]:
            state = {"excitation": None, **state}  # pickles of older versions have none
        super().__setstate__(state)  # type: ignore[no-untyped-call]

    def extra_repr(self) -> str:
        return "residual" if self.residual else ""


def _kind(input: Tensor) -> tuple[tuple[int, ...], torch.dtype, bool]:
    """What a block's problem depends on."""
    return tuple(input.shape), input.dtype, is_channels_last(input)


def _needs_grad(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.requires_grad
