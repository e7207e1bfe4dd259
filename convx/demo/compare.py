"""One network, native beside converted: do the outputs agree, and what does every layer take."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

import convx
from convx.demo.timing import compare

Progress = Callable[[str], None]  # called after each unit of work, with what it was
LAYOUTS = ("nchw", "channels_last")


@dataclass
class LayerResult:
    name: str
    what: str  # "depthwise 3x3 /2" ...
    shape: str  # its input
    converted: bool
    method: str
    why: str
    native_us: float
    convx_us: float  # a layer left native is the same code: the same time

    @property
    def speedup(self) -> float:
        return self.native_us / self.convx_us


@dataclass
class NetworkResult:
    title: str
    batch: int
    layout: str
    layers: list[LayerResult]
    whole_us: dict[str, tuple[float, float]]  # layout -> (native, convx), the whole network
    native_error: float
    convx_error: float
    top_classes: list[tuple[int, float]] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """As near to float64 as torch: at most twice its error (or rounding, where torch is nearly exact)."""
        return self.convx_error <= max(2 * self.native_error, 1e-6)

    @property
    def conv_us(self) -> tuple[float, float]:
        return sum(layer.native_us for layer in self.layers), sum(layer.convx_us for layer in self.layers)


def examine(
    title: str, model: nn.Module, batch: Tensor, layout: str, rounds: int, progress: Progress
) -> NetworkResult:
    """Converts a copy of the model and compares the two on this batch."""
    device = batch.device
    native = model.to(device).eval()
    converted = copy.deepcopy(native)
    report = convx.convert_(converted, example_input=_in_layout(batch, layout))
    with torch.inference_mode():
        native_error, convx_error, output = _errors(native, converted, _in_layout(batch, layout))
        progress("agreement")
        inputs = _layer_inputs(native, _in_layout(batch, layout))
        rows = {name: row for row in report.rows for name in row.name.split(", ")}
        layers = []
        for name, x in inputs.items():
            layer, new, row = native.get_submodule(name), converted.get_submodule(name), rows[name]
            contenders = [partial(layer, x), partial(new, x)] if row.converted else [partial(layer, x)]
            times = compare(contenders, device, rounds)
            method, why = _choice(new, x) if row.converted else ("native", row.reason)
            shape = "x".join(map(str, x.shape))
            layers.append(
                LayerResult(name, _describe(layer), shape, row.converted, method, why, times[0], times[-1])
            )
            progress(name)
        whole = {}
        for each in LAYOUTS:
            x = _in_layout(batch, each)
            native_us, convx_us = compare([partial(native, x), partial(converted, x)], device, rounds, 20000)
            whole[each] = (native_us, convx_us)
            progress(f"whole network, {each}")
    probability, index = output[0].softmax(0).topk(3)
    top = list(zip(index.tolist(), probability.tolist(), strict=True))
    return NetworkResult(title, len(batch), layout, layers, whole, native_error, convx_error, top)


def steps(model: nn.Module) -> int:
    """How often examine() will report progress."""
    return 1 + len(_convolutions(model)) + len(LAYOUTS)


def _in_layout(batch: Tensor, layout: str) -> Tensor:
    wanted = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    return batch.contiguous(memory_format=wanted)


def _errors(native: nn.Module, converted: nn.Module, batch: Tensor) -> tuple[float, float, Tensor]:
    """Largest errors against the same network in float64, relative to its largest output."""
    exact = copy.deepcopy(native).double()(batch.double())
    scale = exact.abs().max()
    output = converted(batch)

    def error(result: Tensor) -> float:
        return float((result.double() - exact).abs().max() / scale)

    return error(native(batch)), error(output), output.float()


def _convolutions(model: nn.Module) -> dict[str, nn.Conv2d]:
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Conv2d)}


def _choice(layer: nn.Module, x: Tensor) -> tuple[str, str]:
    """The method and kernel of a converted layer for this input, and what spoke for it."""
    assert isinstance(layer, nn.Conv2d)
    explanation = convx.explain(layer, x)
    chosen = explanation.chosen
    others = [row for row in explanation.rows if row.can_run and row.method != chosen.method]
    why = f"predicted {chosen.predicted_us:.0f} us"
    if others:
        second = min(others, key=lambda row: row.predicted_us)
        why += f", {second.method} {second.predicted_us:.0f} us"
    return chosen.algorithm, why


def _layer_inputs(model: nn.Module, batch: Tensor) -> dict[str, Tensor]:
    """Each convolution's input in a real forward pass, in order of execution."""
    inputs: dict[str, Tensor] = {}

    def remember(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            inputs.setdefault(name, arguments[0])

        return hook

    hooks = [layer.register_forward_pre_hook(remember(name)) for name, layer in _convolutions(model).items()]
    try:
        model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return inputs


def _describe(layer: nn.Module) -> str:
    assert isinstance(layer, nn.Conv2d)
    filter_size = "x".join(map(str, layer.kernel_size))
    if layer.groups == layer.in_channels:
        kind = f"depthwise {filter_size}, {layer.in_channels} channels"
    elif layer.kernel_size == (1, 1):
        kind = f"pointwise, {layer.in_channels} to {layer.out_channels}"
    else:
        kind = f"dense {filter_size}, {layer.in_channels} to {layer.out_channels}"
    return kind if layer.stride == (1, 1) else f"{kind}, stride {layer.stride[0]}"
