"""What is timed beside what in each kind of run of a whole network."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import convx
from benchmarks.suites import DTYPES
from convx.demo._torchvision import import_torchvision
from convx.demo.networks import calibrate
from convx.tune.replays import captured

SIZE, CLASSES = 224, 1000
DEFAULT_KINDS = ("inference", "inference_graph", "train_step", "optimized")
# Of the third paper's table 9: which layers alone are convx's. Calls of "inference" at a GPU are the host's
# time: there these are graphs, to stand beside "inference_graph".
SWAPPED: dict[str, Callable[[Any], bool]] = {
    "depthwise_swapped": lambda layer: layer.groups == layer.in_channels > 1,
    "pointwise_swapped": lambda layer: layer.groups == 1 and set(layer.kernel_size) == {1},
}
_TRAINING = "train_step"
KINDS = (
    *DEFAULT_KINDS,
    "compiled",
    f"compiled_{_TRAINING}",
    *SWAPPED,
    *(f"{name}_{_TRAINING}" for name in SWAPPED),
)
_CHECKED = 8  # images of a batch, whose results are held against float64
# Their training results are to be one tensor, and their weights are overwritten anyway.
_OPTIONS = {"googlenet": {"aux_logits": False, "init_weights": False}}


def is_training(kind: str) -> bool:
    return kind.endswith(_TRAINING)


def constructed(name: str, device: torch.device) -> nn.Module:
    with device:
        models = import_torchvision().models
        model: nn.Module = models.get_model(name, weights=None, **_OPTIONS.get(name, {}))
        return model


class Networks:
    """Networks of one case, all with the same weights, and the images that they are given.

    The host calls the first network that a process makes 1 to 3 % faster than a second one just like it: so
    that one is no contender, and is held as long as the others.
    """

    def __init__(self, case: str, device: torch.device) -> None:
        self._name, batch, precision, layout = case.split(" ")
        self.device = device
        self._dtype = DTYPES["float32" if precision == "tf32" else precision]
        self._format = torch.channels_last if layout == "channels_last" else torch.contiguous_format
        torch.manual_seed(0)
        x = torch.randn(int(batch[1:]), 3, SIZE, SIZE, device=device, dtype=self._dtype)
        self.images = x.contiguous(memory_format=self._format)
        self._first = self._constructed(device)
        for name, parameter in self._first.named_parameters():
            if name.endswith("layer_scale"):  # 1e-6 in ConvNeXt: no error of a convolution could be seen
                nn.init.normal_(parameter, 0.5, 0.1)
        calibrate(self._first, self.images[:_CHECKED])

    def _constructed(self, device: torch.device) -> nn.Module:
        model: Any = constructed(self._name, device)
        model = model.to_empty(device=self.device) if device.type == "meta" else model
        return model.to(self._dtype).to(memory_format=self._format)  # type: ignore[no-any-return]

    def make(self) -> nn.Module:
        """Each from its constructor: the modules of a copy keep their attributes in another kind of dict, and
        a call of all of them takes 1 to 4 % longer."""
        model = self._constructed(torch.device("meta"))
        model.load_state_dict(self._first.state_dict())
        return model

    def converted(self, chosen: Callable[[Any], bool] | None = None) -> nn.Module:
        model = self.make()
        convx.convert_(model, None if chosen is None else lambda layer, _: chosen(layer))
        return model

    def have(self, kind: str) -> bool:
        """Whether any layer is one that the kind is about."""
        chosen = SWAPPED.get(kind.removesuffix(f"_{_TRAINING}"))
        convolutions = (each for each in self._first.modules() if isinstance(each, nn.Conv2d))
        return chosen is None or any(map(chosen, convolutions))

    @cached_property
    def exact(self) -> Tensor:
        """What they give in float64 for the first images."""
        model = copy.deepcopy(self._first)
        # torch's own hardswish of float64 on GPUs multiplies by float32's sixth.
        inexact = any(isinstance(each, nn.Hardswish) for each in model.modules())
        where = torch.device("cpu") if inexact else self.device
        with torch.inference_mode():
            result: Tensor = model.to(where, torch.float64)(self.images[:_CHECKED].to(where, torch.float64))
            return result.to(self.device)


def error(result: Tensor, exact: Tensor) -> float:
    """The largest deviation, relative to the largest value."""
    return float((result[: len(exact)] - exact).abs().max() / exact.abs().max())


class Way(NamedTuple):
    """One contender."""

    call: Callable[[], Any]
    forget: Callable[[], object] = lambda: None  # its graph: the next call is to record it again


def ways(kind: str, networks: Networks) -> dict[str, Callable[[], Way]]:
    """What makes each contender, from a network of its own: torch's first."""
    on_gpu, make = networks.device.type == "cuda", networks.make
    run = partial(_way, _manner(kind, on_gpu), networks.images)
    if kind.startswith("compiled"):
        # CUDA graphs, and on CPUs filters in oneDNN's own order, where inductor has them at its best.
        mode: Any = {"mode": "reduce-overhead"} if on_gpu else {}
        options: Any = mode if on_gpu or is_training(kind) else {"options": {"freezing": True}}
        inductor: Any = partial(torch.compile, **options)
        by_convx: Any = partial(torch.compile, backend="convx", **mode)
        return {
            "torch": lambda: run(inductor(make())),
            "convx": lambda: run(by_convx(make())),
            "torch_eager": lambda: run(make()),
        }
    if kind == "optimized":
        found = {"torch": lambda: run(make()), "convx": lambda: _optimized(networks)}
        graph = {"torch_graph": lambda: _way("inference_graph", networks.images, make())}
        return found | graph if on_gpu else found
    swapped = SWAPPED.get(kind.removesuffix(f"_{_TRAINING}"))
    return {"torch": lambda: run(make()), "convx": lambda: run(networks.converted(swapped))}


def _manner(kind: str, on_gpu: bool) -> str:
    """How a contender of the kind is run, but for what makes a graph itself."""
    if is_training(kind):
        return _TRAINING
    is_graph = kind == "inference_graph" or (kind in SWAPPED and on_gpu)
    return "inference_graph" if is_graph else "inference"


def _way(manner: str, x: Tensor, model: nn.Module) -> Way:
    if manner != "inference_graph":
        return Way(call(manner, model, x))
    graph = _Graph(call("inference", model, x))
    return Way(graph, graph.forget)


def _optimized(networks: Networks) -> Way:
    model = convx.optimize(networks.make(), networks.images)
    return Way(call("inference", model, networks.images), model.graphs.forget)


class _Graph:
    """A call as the replay of a graph, which the first records."""

    def __init__(self, infer: Callable[[], Any]) -> None:
        self._infer = infer
        self._replay: Callable[[], Any] | None = None

    def forget(self) -> None:
        self._replay = None

    def __call__(self) -> Any:
        if self._replay is None:
            self._replay = captured(self._infer)
        return self._replay()


def call(manner: str, model: nn.Module, x: Tensor) -> Callable[[], Any]:
    """An eager call for inference, or a step of training."""
    if manner == _TRAINING:
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        labels = torch.randint(CLASSES, (len(x),), device=x.device)

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(x).float(), labels).backward()
            optimizer.step()

        return step
    model.eval()

    def infer() -> Any:
        with torch.inference_mode():
            return model(x)

    return infer
