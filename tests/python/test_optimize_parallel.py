"""Convolutions of the same images whose results are added: convx.optimize makes one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from optimized import Model, block, distance, fused, fused_is_the_fastest, image, optimized_agrees
from torch import Tensor, nn

import convx

__all__ = ["fused_is_the_fastest"]
ONE = [("parallel layers", "relu")]


def norm() -> nn.BatchNorm2d:
    return block()[1]  # type: ignore[return-value]


def conv(size: Any, groups: int = 1, **options: Any) -> nn.Sequential:
    """With a norm behind."""
    padding = tuple(each // 2 for each in nn.modules.utils._pair(size))
    options = {"padding": padding, "bias": False, **options}
    return nn.Sequential(nn.Conv2d(12, 12, size, groups=groups, **options), norm())


def of_layers(model: Any, x: Tensor) -> Tensor:
    """Sums of all that begins with a, and the rectifier behind."""
    parts = [layer(x) for name, layer in model.named_children() if name.startswith("a")]
    return torch.relu(sum(parts[1:], parts[0]))


def started_with_nothing(model: Any, x: Tensor) -> Tensor:
    """As MobileOne has it where it has no norm alone."""
    y = model.a0(x) + 0
    y += model.a1(x)
    return torch.relu(y)


def difference(model: Any, x: Tensor) -> Tensor:
    """As FastViT mixes tokens; the scale is one more factor of the filters."""
    return torch.relu((model.a0(x) - model.a1(x)) * model.scale)


def before_a_norm(model: Any, x: Tensor) -> Tensor:
    """As RepViT has it, with the images themselves in the sum."""
    return torch.relu(model.b(model.a0(x) + model.a1(x) + x))


def model_of(run: Callable[..., Tensor], *layers: nn.Module, **more: nn.Module) -> Model:
    model = Model(run, **{f"a{place}": layer for place, layer in enumerate(layers)}, **more)
    model.scale = nn.Parameter(torch.randn(12, 1, 1))
    return model.eval()


def convolutions_of(optimized: convx.OptimizedModel) -> list[nn.Conv2d]:
    return [each for each in optimized.network.modules() if isinstance(each, nn.Conv2d)]


SUMS: dict[str, Callable[[], Model]] = {
    "dense": lambda: model_of(of_layers, conv(3), conv(1), norm()),
    "a norm first": lambda: model_of(of_layers, norm(), conv(3)),
    "groups": lambda: model_of(of_layers, conv(3, 3), conv(1, 3), norm()),
    "depthwise": lambda: model_of(of_layers, conv(7, 12), conv(3, 12), conv(1, 12), norm()),
    "four": lambda: model_of(of_layers, conv(3), conv(3), conv(3), conv(1)),
    "strides": lambda: model_of(of_layers, conv(3, stride=2), conv(1, stride=2)),
    "rows": lambda: model_of(of_layers, conv((1, 5)), conv((1, 3)), conv(1)),
    "columns in a square": lambda: model_of(of_layers, conv((3, 1)), conv(3), conv((1, 3))),
    "biases": lambda: model_of(of_layers, conv(3, bias=True), nn.Conv2d(12, 12, 1)),
    "nothing": lambda: model_of(started_with_nothing, conv(3), conv(1)),
    "difference": lambda: model_of(difference, conv(3, 12), norm()),
    "before a norm": lambda: model_of(before_a_norm, conv(3, 12), nn.Conv2d(12, 12, 1, groups=12), b=norm()),
}


@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SUMS)
def test_sums_are_one_convolution(name: str, dtype: torch.dtype, layout: str, device: str) -> None:
    model = SUMS[name]().to(device, dtype)
    optimized = optimized_agrees(model, image(device, dtype, layout))
    (layer,) = convolutions_of(optimized)
    sizes = [each.kernel_size for each in model.modules() if isinstance(each, nn.Conv2d)]
    assert layer.kernel_size == max(sizes, key=lambda size: size[0] * size[1])
    assert fused(optimized) == ONE and layer.weight.dtype == dtype
    assert not any(isinstance(each, nn.BatchNorm2d) for each in optimized.network.modules())


def test_networks_of_them() -> None:
    """What is in one sum is read by the next; names are the largest filters'."""
    stages = [model_of(of_layers, conv(1), conv(3), norm()) for _ in range(3)]
    optimized = optimized_agrees(nn.Sequential(*stages).eval(), image())
    assert fused(optimized) == 3 * ONE
    assert [row.name for row in optimized.report.rows] == ["0.a1.0", "1.a1.0", "2.a1.0"]  # type: ignore[union-attr]


def of_both(model: Any, x: Tensor) -> Tensor:
    return torch.relu(model.a0(x) + model.a1(x + 1))


def read_again(model: Any, x: Tensor) -> Tensor:
    y = model.a0(x)
    return torch.relu(y + model.a1(x)) * y  # type: ignore[no-any-return]


def activated(model: Any, x: Tensor) -> Tensor:
    return torch.relu(model.a0(x).relu() + model.a1(x))


def written_between(model: Any, x: Tensor) -> Tensor:
    x = x.clone()
    y = model.a0(x)
    x.mul_(2)
    return torch.relu(y + model.a1(x))


def written_to(model: Any, x: Tensor) -> Tensor:
    y = x.clone()
    z = y
    z += model.a0(y)
    return model.b(z) + y  # type: ignore[no-any-return]


def without_a_norm(model: Any, x: Tensor) -> Tensor:
    return torch.relu(model.a0(x) + x)


APART: dict[str, Callable[[], Model]] = {
    "of two images": lambda: model_of(of_both, conv(3), conv(3)),
    "read again": lambda: model_of(read_again, conv(3), conv(3)),
    "activated": lambda: model_of(activated, conv(3), conv(3)),
    "written between": lambda: model_of(written_between, conv(3), conv(3)),
    "two that cross": lambda: model_of(of_layers, conv((1, 3)), conv((3, 1))),
    "other groups": lambda: model_of(of_layers, conv(3), conv(3, 12)),
    "even": lambda: model_of(of_layers, conv(3), conv(2, padding="same")),
    "dilated": lambda: model_of(of_layers, conv(3), conv(3, padding=2, dilation=2)),
    "the images are written to": lambda: model_of(written_to, conv(3), b=norm()),
    "the images alone": lambda: model_of(without_a_norm, conv(3)),
}


@pytest.mark.parametrize("name", APART)
def test_others_are_left(name: str) -> None:
    model = APART[name]()
    optimized = optimized_agrees(model, image())
    count = sum(isinstance(each, nn.Conv2d) for each in model.modules())
    assert len(convolutions_of(optimized)) == count
    assert not any("parallel layers" in each for each in fused(optimized))


def test_weights_stay_the_models() -> None:
    model = SUMS["dense"]()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    optimized = convx.optimize(model, image())
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    x = image()
    assert distance(optimized(x), model(x)) < 1e-5
