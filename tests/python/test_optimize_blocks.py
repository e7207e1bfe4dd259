"""Inverted residual blocks in convx.optimize: which are found, and that they are right whatever is given."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from block_kernels import kernels_are_the_fastest, runs
from models import torchvision_network
from optimized import Model, fused_is_the_fastest, optimized_agrees
from torch import Tensor, nn
from tuned import own_folder

import convx
from convx._blocks import InvertedResidual
from convx.optimize import optimizing

__all__ = ["fused_is_the_fastest", "kernels_are_the_fastest", "own_folder"]


def layer(channels: int, out: int, taps: int, activation: Any = nn.ReLU6, **options: Any) -> nn.Sequential:
    conv = nn.Conv2d(channels, out, taps, padding=taps // 2, bias=False, **options)
    norm = nn.BatchNorm2d(out)
    with torch.no_grad():
        assert norm.running_mean is not None and norm.running_var is not None
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        norm.weight.uniform_(0.5, 2)
        norm.bias.normal_()
    return nn.Sequential(conv, norm, *([] if activation is None else [activation()]))


def three(channels: int = 16, expanded: int = 48, out: int = 16, **changes: Any) -> dict[str, nn.Module]:
    taps, stride = changes.pop("taps", 3), changes.pop("stride", 1)
    inside = changes.pop("inside", nn.ReLU6)
    assert not changes
    return {
        "expand": layer(channels, expanded, 1, inside),
        "depthwise": layer(expanded, expanded, taps, inside, groups=expanded, stride=stride),
        "project": layer(expanded, out, 1, None),
    }


def plain(model: Any, x: Tensor) -> Tensor:
    return model.project(model.depthwise(model.expand(x)))  # type: ignore[no-any-return]


def residual(model: Any, x: Tensor) -> Tensor:
    return x + plain(model, x)


def blocks_of(model: nn.Module) -> list[InvertedResidual]:
    return [each for each in model.modules() if isinstance(each, InvertedResidual)]


def image(device: str = "cpu", dtype: torch.dtype = torch.float32, batch: int = 2, size: int = 12) -> Tensor:
    x = torch.randn(batch, 16, size, size + 1)
    return x.to(device, dtype).contiguous(memory_format=torch.channels_last)


@pytest.fixture
def all_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU with such kernels."""
    monkeypatch.setattr(optimizing, "_can_be_one_kernel", lambda *_: True)


@pytest.mark.usefixtures("all_are_wanted")
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("changes", [{}, {"taps": 5, "inside": nn.Hardswish}, {"inside": nn.ReLU}], ids=str)
def test_blocks_are_found(adds: bool, changes: dict[str, Any]) -> None:
    optimized = optimized_agrees(Model(residual if adds else plain, **three(**changes)), image())
    (block,) = blocks_of(optimized)
    assert block.residual == adds
    report = optimized.report
    assert report is not None and [row.name for row in report.rows] == [
        "expand.0",
        "depthwise.0",
        "project.0",
    ]
    assert report.rows[2].fused == (("batch norm", "residual") if adds else ("batch norm",))


@pytest.mark.usefixtures("all_are_wanted")
def test_strides_and_other_channels() -> None:
    optimized = optimized_agrees(Model(plain, **three(out=24, stride=2)), image())
    assert len(blocks_of(optimized)) == 1


def first(channels: int = 3, stride: int = 2, taps: int = 3) -> dict[str, nn.Module]:
    """Whose expanding layer is a network's first one."""
    expand = layer(channels, 32, taps, stride=stride)
    return {"expand": expand, "depthwise": layer(32, 32, 3, groups=32), "project": layer(32, 16, 1, None)}


@pytest.mark.usefixtures("all_are_wanted")
@pytest.mark.parametrize("layers", [first(), first(1, 1, 5), first(2, 3)], ids=["rgb", "5x5", "stride 3"])
@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
def test_a_networks_first_layers(layers: dict[str, nn.Module], layout: str) -> None:
    channels: Any = layers["expand"][0].in_channels  # type: ignore[index]
    model = Model(plain, **layers)
    optimized = optimized_agrees(model, image()[:, :channels].contiguous(), layout=layout)
    assert len(blocks_of(optimized)) == 1


def _sees_expanded(model: Any, x: Tensor) -> Any:
    expanded = model.expand(x)
    return model.project(model.depthwise(expanded)) + expanded.mean()


def _sees_filtered(model: Any, x: Tensor) -> Any:
    filtered = model.depthwise(model.expand(x))
    return model.project(filtered) + filtered.mean()


def _adds_another(model: Any, x: Tensor) -> Any:
    return model.project(model.depthwise(model.expand(x))) + x.abs()


def _activates_the_sum(model: Any, x: Tensor) -> Any:
    return F.relu(residual(model, x))


def _writes_between(model: Any, x: Tensor) -> Any:
    y = x * 2
    expanded = model.expand(y)
    y.add_(1)
    return model.project(model.depthwise(expanded)) + y


@pytest.mark.usefixtures("all_are_wanted")
@pytest.mark.parametrize(
    "run", [_sees_expanded, _sees_filtered, _adds_another, _activates_the_sum, _writes_between]
)
def test_what_is_no_block(run: Callable[[Any, Tensor], Any]) -> None:
    assert blocks_of(optimized_agrees(Model(run, **three()), image())) == []


@pytest.mark.usefixtures("all_are_wanted")
@pytest.mark.parametrize(
    "changed",
    [
        {"depthwise": layer(48, 48, 3, nn.ReLU, groups=48)},  # another activation
        {"depthwise": layer(48, 48, 3, groups=48, dilation=2)},
        {"depthwise": layer(48, 48, 3, groups=16)},
        {"depthwise": layer(48, 48, 3, groups=48, stride=(1, 2))},
        {"depthwise": layer(48, 48, 2, groups=48)},
        {"expand": layer(16, 48, 3)},  # of patches of 144 values
        {"expand": layer(16, 48, 1, groups=2)},
        {"project": layer(48, 16, 1, None, stride=2)},
        {"project": layer(48, 16, 3, None)},
    ],
    ids=lambda changed: "{}: {}".format(*next((name, each[0]) for name, each in changed.items())),
)
def test_layers_of_other_kinds(changed: dict[str, nn.Module]) -> None:
    assert blocks_of(optimized_agrees(Model(plain, **{**three(), **changed}), image())) == []


@pytest.mark.usefixtures("all_are_wanted")
def test_a_layer_that_is_called_twice() -> None:
    def run(model: Any, x: Tensor) -> Tensor:
        return plain(model, plain(model, x))

    optimized = optimized_agrees(Model(run, **three()), image())
    assert len(blocks_of(optimized)) <= 2


def test_none_on_a_cpu() -> None:
    assert blocks_of(optimized_agrees(Model(residual, **three()), image())) == []


@pytest.mark.gpu
@pytest.mark.usefixtures("kernels_are_the_fastest", "own_folder")
@pytest.mark.parametrize("cuda_graphs", [0, 8])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("run", [plain, residual])
def test_kernels_are_right(
    run: Callable[[Any, Tensor], Tensor], dtype: torch.dtype, cuda_graphs: int
) -> None:
    model = Model(run, **three()).to("cuda", dtype)
    x = image("cuda", dtype)
    optimized = optimized_agrees(model, x, cuda_graphs=cuda_graphs)
    (block,) = blocks_of(optimized)
    assert runs("inverted_residual", block, x)
    report = optimized.report
    assert report is not None and [row.method for row in report.rows] == ["inverted_residual"]
    assert report.rows[0].fused[:3] == ("expand", "depthwise", "project") and report.rows[0].us == 1.0
    nchw = x.contiguous()
    assert not runs("inverted_residual", block, nchw)
    for given in (nchw, image("cuda", dtype, batch=5, size=9)):
        assert torch.allclose(optimized(given).float(), model(given).float(), rtol=0.05, atol=0.05)


@pytest.mark.gpu
@pytest.mark.usefixtures("kernels_are_the_fastest", "own_folder")
@pytest.mark.parametrize("cuda_graphs", [0, 8])
@pytest.mark.parametrize("channels_last", [False, True])
def test_the_first_kernel_reads_images_as_they_come(channels_last: bool, cuda_graphs: int) -> None:
    model = Model(plain, **first()).to("cuda", torch.bfloat16)
    x = image("cuda", torch.bfloat16)[:, :3].contiguous()
    x = x.contiguous(memory_format=torch.channels_last) if channels_last else x
    optimized = optimized_agrees(model, x, layout="channels_last", cuda_graphs=cuda_graphs)
    (block,) = blocks_of(optimized)
    assert runs("inverted_residual", block, x)
    layouts = [each.problem["layout"] for each in optimized.choices]
    assert layouts == ["channels_last" if channels_last else "nchw"]
    assert optimized(x).is_contiguous() != channels_last


@pytest.mark.gpu
@pytest.mark.usefixtures("kernels_are_the_fastest", "own_folder")
def test_weights_that_change_and_copies() -> None:
    model = Model(residual, **three()).to("cuda", torch.bfloat16)
    x = image("cuda", torch.bfloat16)
    optimized = convx.optimize(model, x)
    first = optimized(x)
    buffer = io.BytesIO()
    torch.save(optimized, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    for other in (copy.deepcopy(optimized), pickle.loads(pickle.dumps(optimized)), loaded):
        assert torch.equal(other(x), first)
        assert runs("inverted_residual", blocks_of(other)[0], x)
    (block,) = blocks_of(optimized)
    with torch.no_grad():
        block.depthwise.weight.mul_(2)
    changed = optimized(x)
    assert not torch.equal(changed, first)
    with torch.no_grad():
        assert torch.allclose(changed.float(), block.by_layers(x).float(), rtol=0.05, atol=0.05)


@pytest.mark.gpu
@pytest.mark.usefixtures("kernels_are_the_fastest", "own_folder")
def test_gradients_are_the_layers() -> None:
    model = Model(residual, **three()).to("cuda", torch.bfloat16)
    x = image("cuda", torch.bfloat16)
    optimized = convx.optimize(model, x)
    given = x.clone().requires_grad_()
    optimized(given).float().sum().backward()
    assert given.grad is not None and float(given.grad.abs().sum()) > 0


@pytest.mark.gpu
@pytest.mark.usefixtures("own_folder")
def test_measured_choices_of_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that were measured, the kernel is taken where it was faster, and memory stays as it is."""
    monkeypatch.undo()
    model = torchvision_network("mobilenet_v2").eval().to("cuda", torch.bfloat16)
    x = torch.randn(16, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
    x = x.contiguous(memory_format=torch.channels_last)
    optimized = convx.optimize(model, x, layout="as given")
    of_blocks = [each for each in optimized.choices if each.problem["operation"] == "inverted_residual"]
    assert len(of_blocks) > 8 and all("native" in each.candidates for each in of_blocks)
    assert any(each.algorithm != "native" for each in of_blocks)
    expected = optimized(x)
    used = torch.cuda.memory_allocated()
    for _ in range(50):
        assert torch.equal(optimized(x), expected)
    assert torch.cuda.memory_allocated() == used
