"""Squeeze-and-excitation in convx.optimize: which are found, and that they are right whatever is given."""

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
from optimized import LAYOUTS, Model, fused_is_the_fastest, optimized_agrees
from torch import Tensor, nn
from tuned import own_folder

import convx
from convx._blocks import SqueezeExcite
from convx.optimize import optimizing

__all__ = ["fused_is_the_fastest", "kernels_are_the_fastest", "own_folder"]


def layers(channels: int = 16, squeezed: int = 8, gate: Any = nn.Sigmoid) -> dict[str, nn.Module]:
    return {
        "pool": nn.AdaptiveAvgPool2d(1),
        "squeeze": nn.Conv2d(channels, squeezed, 1),
        "inner": nn.SiLU(),
        "excite": nn.Conv2d(squeezed, channels, 1),
        "gate": gate(),
    }


def with_modules(model: Any, x: Tensor) -> Tensor:
    return x * model.gate(model.excite(model.inner(model.squeeze(model.pool(x)))))  # type: ignore[no-any-return]


def with_functions(model: Any, x: Tensor) -> Tensor:
    means = x.mean((2, 3), keepdim=True)
    return torch.sigmoid(model.excite(F.relu(model.squeeze(means)))) * x


def with_methods(model: Any, x: Tensor) -> Tensor:
    means = torch.mean(x, dim=[-1, -2], keepdim=True)
    return x.mul(model.excite(model.squeeze(means).relu()).sigmoid())


def with_hard_gate(model: Any, x: Tensor) -> Tensor:
    means = F.adaptive_avg_pool2d(x, (1, 1))
    return F.hardsigmoid(model.excite(F.hardswish(model.squeeze(means)))) * x


def excites_of(model: nn.Module) -> list[SqueezeExcite]:
    return [each for each in model.modules() if isinstance(each, SqueezeExcite)]


def image(device: str = "cpu", dtype: torch.dtype = torch.float32, batch: int = 2, size: int = 12) -> Tensor:
    return torch.randn(batch, 16, size, size + 1).to(device, dtype)


@pytest.fixture
def all_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU with such kernels."""
    monkeypatch.setattr(optimizing, "_can_be_one_kernel", lambda *_: True)


@pytest.mark.usefixtures("all_are_wanted")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("run", [with_modules, with_functions, with_methods, with_hard_gate])
def test_they_are_found(run: Callable[[Any, Tensor], Tensor], layout: str) -> None:
    x = image().contiguous(memory_format=LAYOUTS[layout])
    optimized = optimized_agrees(Model(run, **layers()), x)
    (excite,) = excites_of(optimized)
    assert excite.gate == ("hardsigmoid" if run is with_hard_gate else "sigmoid")
    report = optimized.report
    assert report is not None and [row.name for row in report.rows] == ["squeeze", "excite"]


def _sees_gates(model: Any, x: Tensor) -> Any:
    gates = model.gate(model.excite(model.inner(model.squeeze(model.pool(x)))))
    return x * gates + gates.mean()


def _sees_means(model: Any, x: Tensor) -> Any:
    means = model.pool(x)
    return x * model.gate(model.excite(model.inner(model.squeeze(means)))) + means


def _scales_another(model: Any, x: Tensor) -> Any:
    return (x + 1) * model.gate(model.excite(model.inner(model.squeeze(model.pool(x)))))


def _activates_twice(model: Any, x: Tensor) -> Any:
    return x * model.gate(F.relu(model.excite(model.inner(model.squeeze(model.pool(x))))))


def _larger_means(model: Any, x: Tensor) -> Any:
    means = F.adaptive_avg_pool2d(x[..., :2], (1, 2))
    return x[..., :2] * model.gate(model.excite(model.inner(model.squeeze(means))))


def _means_of_rows(model: Any, x: Tensor) -> Any:
    return x * model.gate(model.excite(model.inner(model.squeeze(x.mean((3,), keepdim=True)))))


def _hard_gate_in_place(model: Any, x: Tensor) -> Any:
    gates = model.excite(model.inner(model.squeeze(model.pool(x))))
    return x * F.hardsigmoid(gates, inplace=True) + gates.mean()


def _writes_between(model: Any, x: Tensor) -> Any:
    y = x + 1
    gates = model.gate(model.excite(model.inner(model.squeeze(model.pool(y)))))
    y.mul_(2)
    return y * gates


def _one_channel_gate(model: Any, x: Tensor) -> Any:
    return x * model.gate(model.to_one(model.inner(model.squeeze(model.pool(x)))))


@pytest.mark.usefixtures("all_are_wanted")
@pytest.mark.parametrize(
    "run",
    [
        *(_sees_gates, _sees_means, _scales_another, _activates_twice, _larger_means, _means_of_rows),
        *(_hard_gate_in_place, _writes_between, _one_channel_gate),
    ],
)
def test_others_are_left(run: Callable[[Any, Tensor], Any]) -> None:
    optimized = optimized_agrees(Model(run, **layers(), to_one=nn.Conv2d(8, 1, 1)), image())
    assert not excites_of(optimized)


@pytest.mark.slow
@pytest.mark.usefixtures("all_are_wanted")
def test_networks() -> None:
    for name, count in (("efficientnet_b0", 16), ("mobilenet_v3_large", 8), ("regnet_y_400mf", 16)):
        model = torchvision_network(name).eval()
        optimized = optimized_agrees(model, torch.randn(1, 3, 64, 64), tune=False)
        assert len(excites_of(optimized)) == count, name


@pytest.mark.usefixtures("all_are_wanted")
def test_weights_that_change_and_copies() -> None:
    x = image()
    optimized = convx.optimize(Model(with_modules, **layers()), x)
    first = optimized(x)
    buffer = io.BytesIO()
    torch.save(optimized, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    for other in (copy.deepcopy(optimized), pickle.loads(pickle.dumps(optimized)), loaded):
        assert torch.equal(other(x), first)
    (excite,) = excites_of(optimized)
    with torch.no_grad():
        excite.excite.weight.mul_(2)
        changed = optimized(x)
        assert not torch.equal(changed, first)
        torch.testing.assert_close(changed, excite.by_layers(x))


@pytest.mark.gpu
@pytest.mark.usefixtures("kernels_are_the_fastest", "own_folder")
@pytest.mark.parametrize("cuda_graphs", [0, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("run", [with_modules, with_hard_gate])
def test_kernels_are_right(
    run: Callable[[Any, Tensor], Tensor], layout: str, dtype: torch.dtype, cuda_graphs: int
) -> None:
    model = Model(run, **layers()).to("cuda", dtype)
    x = image("cuda", dtype).contiguous(memory_format=LAYOUTS[layout])
    optimized = optimized_agrees(model, x, cuda_graphs=cuda_graphs, layout="as given")
    (excite,) = excites_of(optimized)
    assert runs("squeeze_excite", excite, x)
    report = optimized.report
    assert report is not None and [row.method for row in report.rows] == ["squeeze_excite"]
    assert report.rows[0].fused[1:3] == ("squeeze", "excite") and report.rows[0].us == 1.0
    other = image("cuda", dtype, batch=5, size=9)
    assert torch.allclose(optimized(other).float(), model(other).float(), rtol=0.02, atol=0.02)


@pytest.mark.gpu
@pytest.mark.usefixtures("kernels_are_the_fastest", "own_folder")
def test_gradients_are_the_layers() -> None:
    model = Model(with_modules, **layers()).cuda()
    x = image("cuda")
    optimized = convx.optimize(model, x)
    given = x.clone().requires_grad_()
    optimized(given).sum().backward()
    wanted = x.clone().requires_grad_()
    model(wanted).sum().backward()
    assert given.grad is not None and wanted.grad is not None
    torch.testing.assert_close(given.grad, wanted.grad)


@pytest.mark.gpu
@pytest.mark.usefixtures("own_folder")
def test_measured_choices_of_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that were measured, the kernel is taken where it was faster, and memory stays as it is."""
    monkeypatch.undo()
    model = torchvision_network("mobilenet_v3_large").eval().to("cuda", torch.bfloat16)
    x = torch.randn(4, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
    optimized = convx.optimize(model, x.contiguous(memory_format=torch.channels_last), compile=False)
    measured = [each for each in optimized.choices if each.problem["operation"] == "squeeze_excite"]
    assert len(measured) >= 5 and all("native" in each.candidates for each in measured)
    assert any(each.algorithm != "native" for each in measured)
    expected = optimized(x)
    used = torch.cuda.memory_allocated()
    for _ in range(50):
        assert torch.equal(optimized(x), expected)
    assert torch.cuda.memory_allocated() == used
