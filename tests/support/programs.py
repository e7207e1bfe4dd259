"""Programs that nobody wrote: layers, branches, writing in place, at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor, nn

CHANNELS = 6
# What a step does with one earlier value, or two. In place where the name ends with "_".
ONE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu_": lambda x: F.relu(x, inplace=True),
    "silu": F.silu,
    "half": lambda x: x * 0.5,
    "half_": lambda x: x.mul_(0.5),
    "drop": lambda x: F.dropout(x, 0.5, False),
    "front": lambda x: torch.cat([x[:, 3:], x[:, :3]], 1),
    "view_": lambda x: x.view(x.shape).add_(1),
    "part_": lambda x: x[:, 2:4].mul_(2).sum(1, keepdim=True) + x,
    "mean": lambda x: x.mean((2, 3), keepdim=True) + x,
}
TWO: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, y: x + y,
    "add_": lambda x, y: x.add_(y),
    "product": lambda x, y: x * torch.sigmoid(y),
    "alpha": lambda x, y: torch.add(x, y, alpha=2),
}
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "conv": lambda: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
    "depthwise": lambda: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False),
    "pointwise": lambda: nn.Conv2d(CHANNELS, CHANNELS, 1, bias=False),
    "norm": lambda: nn.BatchNorm2d(CHANNELS),
    "act": lambda: nn.ReLU6(inplace=True),
    "copy": lambda: nn.Hardswish(),
}


class Program(nn.Module):
    """Steps (what, which values, counted from the last one), each of which leaves a value."""

    def __init__(self, layers: list[str], steps: list[tuple[str, int, int]]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(LAYERS[name]() for name in layers)
        self.steps = steps
        for norm in (layer for layer in self.layers if isinstance(layer, nn.BatchNorm2d)):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias)
            assert norm.running_mean is not None and norm.running_var is not None
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)

    def forward(self, x: Tensor) -> Any:
        values = [x * 1]
        for what, first, second in self.steps:
            one, other = values[-1 - first % len(values)], values[-1 - second % len(values)]
            if what in TWO:
                values.append(TWO[what](one, other))
            elif what in ONE:
                values.append(ONE[what](one))
            else:
                values.append(self.layers[int(what) % len(self.layers)](one))
        return values[-1], values[-1 - self.steps[0][1] % len(values)]


def steps() -> st.SearchStrategy[list[tuple[str, int, int]]]:
    """Mostly layers on the last value, as in networks."""
    places = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3])
    layer = st.integers(0, 7).map(str)
    what = st.one_of(layer, layer, layer, st.sampled_from([*ONE, *TWO, "add", "relu_", "add_"]))
    return st.lists(st.tuples(what, places, places), min_size=2, max_size=12)


def layers() -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from([*LAYERS, "conv", "norm"]), min_size=2, max_size=8)
