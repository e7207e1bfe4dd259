"""One network optimized, native and converted: do the outputs agree, and what does every layer take."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

import convx
from convx.convert import LayerReport
from convx.demo.fusions import sentence
from convx.demo.timing import compare

Progress = Callable[[str], None]  # called after each unit of work, with what it was
LAYOUTS = ("nchw", "channels_last")
_EAGER, _GRAPH = "eager", "graph"


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
    forced_us: dict[str, float] = field(default_factory=dict)  # by method, those that can run it

    @property
    def speedup(self) -> float:
        return self.native_us / self.convx_us

    @property
    def is_torchs(self) -> bool:
        """Run by torch's own convolution or product, converted or not."""
        return not self.converted or self.method.startswith("native")


@dataclass
class WholeResult:
    """The whole network on a batch of one layout, its three ways timed in turns."""

    layout: str
    way: str  # "eager": calls from Python; on a GPU also "graph": replays of a CUDA graph
    optimized_us: float
    native_us: float
    convx_us: float

    @property
    def label(self) -> str:
        return f"{self.layout}, {self.way}"

    @property
    def speedup(self) -> float:
        """Of the converted network."""
        return self.native_us / self.convx_us

    @property
    def optimized_speedup(self) -> float:
        return self.native_us / self.optimized_us


@dataclass
class ForcedResult:
    """The network with every layer that one method can run converted to it."""

    method: str
    layers: int
    whole_us: tuple[float, float]  # native, forced
    error: float  # against float64


@dataclass
class NetworkResult:
    title: str
    batch: int
    layout: str
    layers: list[LayerResult]
    whole: list[WholeResult]
    optimized_error: float
    native_error: float
    convx_error: float
    fused: str = ""  # what was fused in the optimized network, in a sentence
    top_classes: list[tuple[int, float]] = field(default_factory=list)
    forced: list[ForcedResult] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """As near to float64 as torch: at most twice its error (or rounding, where torch is nearly exact)."""
        worst = max([self.optimized_error, self.convx_error, *(each.error for each in self.forced)])
        return worst <= max(2 * self.native_error, 1e-6)

    @property
    def main(self) -> WholeResult:
        """In the layout of the layers, and timed as they are."""
        return [each for each in self.whole if each.layout == self.layout][-1]

    @property
    def accelerated(self) -> list[LayerResult]:
        """The layers that run on convx's kernels."""
        return [layer for layer in self.layers if layer.converted and not layer.is_torchs]

    @property
    def who(self) -> str:
        """Who runs the convolutions, in one line."""
        torchs = sum(layer.converted and layer.is_torchs for layer in self.layers)
        left = sum(not layer.converted for layer in self.layers)
        text = f"{len(self.accelerated)} of {len(self.layers)} convolutions run on convx's kernels"
        if torchs:
            text += f", {torchs} on torch's, ahead of which nothing was measured"
        if left:
            text += f", {left} could not be converted"
        return text

    @property
    def conv_us(self) -> tuple[float, float]:
        return sum(layer.native_us for layer in self.layers), sum(layer.convx_us for layer in self.layers)


def examine(
    title: str,
    model: nn.Module,
    batch: Tensor,
    layout: str,
    rounds: int,
    progress: Progress,
    *,
    tune: bool = True,
) -> NetworkResult:
    """Optimizes a copy of the model, converts others, to what convx chooses and to each method by name, and
    compares. tune: as of convx.optimize."""
    native = copy.deepcopy(model).to(batch.device).eval()  # a copy, as the others: it takes longer to call
    x = _in_layout(batch, layout)
    optimized = convx.optimize(native, x, tune=tune)
    assert optimized.report is not None
    progress("optimized")
    converted, report = _converted(native, "auto", x)
    forced = {name: _converted(native, name, x) for name in _methods()}
    forced = {name: each for name, each in forced.items() if each[1].converted}
    with torch.inference_mode():
        exact = copy.deepcopy(native).double()(x.double())
        output = optimized(x)
        optimized_error, native_error = _error(output, exact), _error(native(x), exact)
        convx_error = _error(converted(x), exact)
        progress("agreement")
        inputs = _layer_inputs(native, x)
        rows = {name: row for row in report.rows for name in row.name.split(", ")}
        layers = []
        for name, given in inputs.items():
            layers.append(_layer(name, native, converted, forced, given, rows[name], rounds))
            progress(name)
        networks = [network for network, _ in forced.values()]
        whole, forced_us = _whole((optimized, native, converted), networks, batch, layout, rounds, progress)
        forced_errors = [_error(network(x), exact) for network in networks]
    result = NetworkResult(
        title, len(batch), layout, layers, whole, optimized_error, native_error, convx_error
    )
    result.fused = sentence(optimized.report)
    for (name, (_, its_report)), us, error in zip(forced.items(), forced_us, forced_errors, strict=True):
        reached = inputs.keys() & _names(its_report)  # not an auxiliary classifier's, which rest
        result.forced.append(ForcedResult(name, len(reached), (result.main.native_us, us), error))
    probability, index = output[0].float().softmax(0).topk(3)
    result.top_classes = list(zip(index.tolist(), probability.tolist(), strict=True))
    return result


def _whole(
    ways: tuple[nn.Module, nn.Module, nn.Module],
    forced: Sequence[nn.Module],
    batch: Tensor,
    layout: str,
    rounds: int,
    progress: Progress,
) -> tuple[list[WholeResult], list[float]]:
    """Optimized, native and converted in both layouts; and in the layers' layout, timed as they are, with
    them in turns each network of one method, whose times are the second result."""
    found, forced_us = [], []
    for each in LAYOUTS:
        y = _in_layout(batch, each)
        # Eager first: what the optimized network's graph keeps of weights is there then for this graph.
        for way in (_EAGER, _GRAPH) if batch.is_cuda else (_EAGER,):
            are_layers = each == layout and (way == _GRAPH) == batch.is_cuda
            networks = [*ways, *forced] if are_layers else ways
            calls = [partial(network, y) for network in networks]
            us = compare(calls, batch.device, rounds, 20000, eager=way == _EAGER)
            found.append(WholeResult(each, way, *us[: len(ways)]))
            forced_us += us[len(ways) :]
        progress(f"whole network, {each}")
    return found, forced_us


def _methods() -> list[str]:
    return [row["name"] for row in convx.methods() if row["name"] != "native"]


def _converted(model: nn.Module, algorithm: str, x: Tensor) -> tuple[nn.Module, convx.ConversionReport]:
    """A converted copy of the model, and what became of its layers."""
    network = copy.deepcopy(model)
    return network, convx.convert_(network, algorithm=algorithm, example_input=x)


def _names(report: convx.ConversionReport) -> set[str]:
    """Of the converted layers; a shared one has several."""
    return {name for row in report.converted for name in row.name.split(", ")}


def _layer(
    name: str,
    native: nn.Module,
    converted: nn.Module,
    forced: dict[str, tuple[nn.Module, convx.ConversionReport]],
    x: Tensor,
    row: LayerReport,
    rounds: int,
) -> LayerResult:
    """Times one layer on its own input: native, as convx chooses, and by every method that can run it."""
    layer, chosen = native.get_submodule(name), converted.get_submodule(name)
    calls = {"native": partial(layer, x)}
    if row.converted:
        calls["auto"] = partial(chosen, x)
    for method, (network, report) in forced.items():
        if name in _names(report):
            calls[method] = partial(network.get_submodule(name), x)
    times = dict(zip(calls, compare(list(calls.values()), x.device, rounds), strict=True))
    native_us = times.pop("native")
    convx_us = times.pop("auto", native_us)
    method, why = _choice(chosen, x) if row.converted else ("native", row.reason)
    shape = "x".join(map(str, x.shape))
    return LayerResult(name, _describe(layer), shape, row.converted, method, why, native_us, convx_us, times)


def steps(model: nn.Module) -> int:
    """How often examine() will report progress."""
    return 2 + len(_convolutions(model)) + len(LAYOUTS)


def _in_layout(batch: Tensor, layout: str) -> Tensor:
    wanted = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    return batch.contiguous(memory_format=wanted)


def _error(result: Tensor, exact: Tensor) -> float:
    """The largest error, relative to the largest output in float64."""
    return float((result.double() - exact).abs().max() / exact.abs().max())


def _convolutions(model: nn.Module) -> dict[str, nn.Conv2d]:
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Conv2d)}


def _choice(layer: nn.Module, x: Tensor) -> tuple[str, str]:
    """The method and kernel of a converted layer for this input, and what spoke for it."""
    assert isinstance(layer, nn.Conv2d)
    explanation = convx.explain(layer, x)
    chosen = explanation.chosen
    others = [row for row in explanation.rows if row.can_run and row.method != chosen.method]
    why = f"{chosen.predicted_us:.0f} us predicted"
    if others:
        second = min(others, key=lambda row: row.predicted_us)
        why += f", {second.method} {second.predicted_us:.0f}"
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
