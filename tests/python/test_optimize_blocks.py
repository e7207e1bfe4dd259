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
from optimized import LAYOUTS, Model, fused_is_the_fastest, optimized_agrees
from torch import Tensor, nn
from tuned import own_folder

import convx
from convx._blocks import InvertedResidual, SqueezeExcite
from convx.optimize import optimizing
from convx.tune.tuning import block_problems_of, problems_of

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


def excited(**changes: Any) -> dict[str, nn.Module]:
    layers = three(**changes)
    channels: Any = layers["depthwise"][0].out_channels  # type: ignore[index]
    return layers | {"squeeze": nn.Conv2d(channels, 8, 1), "excite": nn.Conv2d(8, channels, 1)}


def as_efficient(model: Any, x: Tensor) -> Tensor:
    """EfficientNet's."""
    wide = model.depthwise(model.expand(x))
    squeezed = F.silu(model.squeeze(F.adaptive_avg_pool2d(wide, 1)))
    return model.project(torch.sigmoid(model.excite(squeezed)) * wide)  # type: ignore[no-any-return]


def as_mobile(model: Any, x: Tensor) -> Tensor:
    """MobileNetV3's."""
    wide = model.depthwise(model.expand(x))
    squeezed = F.relu(model.squeeze(wide.mean((2, 3), keepdim=True)))
    return x + model.project(wide * F.hardsigmoid(model.excite(squeezed)))  # type: ignore[no-any-return]


def blocks_of(model: nn.Module) -> list[InvertedResidual]:
    return [each for each in model.modules() if isinstance(each, InvertedResidual)]


def excites_of(model: nn.Module) -> list[SqueezeExcite]:
    return [each for each in model.modules() if isinstance(each, SqueezeExcite)]


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


@pytest.mark.usefixtures("all_are_wanted")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("inside", [nn.SiLU, nn.Hardswish, nn.ReLU])
@pytest.mark.parametrize("run", [as_efficient, as_mobile])
def test_excited_blocks_are_found(run: Callable[[Any, Tensor], Tensor], inside: Any, layout: str) -> None:
    x = image().contiguous(memory_format=LAYOUTS[layout])
    optimized = optimized_agrees(Model(run, **excited(inside=inside)), x)
    (block,), (inner,) = blocks_of(optimized), excites_of(optimized)
    assert block.excitation is inner is optimized.network.get_submodule("block.excitation")
    gate, activation = ("hardsigmoid", "relu") if run is as_mobile else ("sigmoid", "silu")
    assert block.residual == (run is as_mobile) and (inner.gate, inner.activation) == (gate, activation)
    last = ["residual"] if block.residual else []
    assert [*block.parts] == [
        "expand",
        "depthwise",
        "mean",
        "squeeze",
        "excite",
        gate,
        "product",
        "project",
        *last,
    ]
    assert block.shape((2, 16, 12, 13)) == "16->48->16 3x3, excited by 8, on 2x16x12x13"
    problem = block.problem((2, 16, 12, 13), torch.bfloat16)
    assert problem.excitation == inner.problem((2, 48, 12, 13), torch.bfloat16)
    report = optimized.report
    assert report is not None and [row.name for row in report.rows] == [
        *("expand.0", "depthwise.0", "squeeze", "excite", "project.0"),
    ]


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


def _sees_excited(model: Any, x: Tensor) -> Any:
    wide = model.depthwise(model.expand(x))
    product = wide * torch.sigmoid(model.excite(model.squeeze(F.adaptive_avg_pool2d(wide, 1))))
    return model.project(product) + product.mean()


def _sees_what_is_excited(model: Any, x: Tensor) -> Any:
    wide = model.depthwise(model.expand(x))
    product = wide * torch.sigmoid(model.excite(model.squeeze(F.adaptive_avg_pool2d(wide, 1))))
    return model.project(product) + wide.mean()


def _excites_the_expanded(model: Any, x: Tensor) -> Any:
    wide = model.expand(x)
    product = wide * torch.sigmoid(model.excite(model.squeeze(F.adaptive_avg_pool2d(wide, 1))))
    return model.project(model.depthwise(product))


def _excites_what_is_behind(model: Any, x: Tensor) -> Any:
    wide = model.depthwise(model.expand(x)) * 2
    return model.project(wide * torch.sigmoid(model.excite(model.squeeze(F.adaptive_avg_pool2d(wide, 1)))))


@pytest.mark.usefixtures("all_are_wanted")
@pytest.mark.parametrize(
    "run", [_sees_excited, _sees_what_is_excited, _excites_the_expanded, _excites_what_is_behind]
)
def test_excitations_that_are_in_no_block(run: Callable[[Any, Tensor], Any]) -> None:
    optimized = optimized_agrees(Model(run, **excited()), image())
    assert blocks_of(optimized) == [] and len(excites_of(optimized)) == 1


def test_excitations_of_blocks_that_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizing, "_can_be_one_kernel", lambda block, _: isinstance(block, SqueezeExcite))
    optimized = optimized_agrees(Model(as_mobile, **excited()), image())
    assert blocks_of(optimized) == [] and len(excites_of(optimized)) == 1


@pytest.mark.usefixtures("all_are_wanted")
@pytest.mark.parametrize(
    ("name", "blocks", "in_blocks", "excitations"),
    [("efficientnet_b0", 16, 16, 16), ("mobilenet_v3_small", 10, 8, 9), ("mobilenet_v2", 17, 0, 0)],
)
def test_networks(name: str, blocks: int, in_blocks: int, excitations: int) -> None:
    optimized = optimized_agrees(
        torchvision_network(name).eval(), torch.randn(1, 3, 64, 64), tune=False, layout="as given"
    )
    found = blocks_of(optimized)
    assert (len(found), len(excites_of(optimized))) == (blocks, excitations)
    assert sum(each.excitation is not None for each in found) == in_blocks


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


def test_none_of_a_dtype_without_kernels() -> None:
    x = image(dtype=torch.float64)
    assert blocks_of(optimized_agrees(Model(residual, **three()).double(), x)) == []


@pytest.mark.usefixtures("kernels_are_the_fastest", "own_folder")
@pytest.mark.parametrize("run", [plain, residual, as_mobile, as_efficient])
def test_kernels_on_a_cpu(run: Callable[[Any, Tensor], Tensor]) -> None:
    """Weights that change, and gradients, which the layers have."""
    x = image(batch=3)
    optimized = optimized_agrees(Model(run, **excited()), x)
    (block,) = blocks_of(optimized)
    call = block.prepared_call(x)
    assert call is not None
    torch.testing.assert_close(call(x), block.by_layers(x), rtol=1e-4, atol=1e-5)
    before = optimized(x)
    with torch.no_grad():
        block.depthwise.weight.mul_(2)
    assert not torch.equal(optimized(x), before)
    torch.testing.assert_close(optimized(x), block.by_layers(x), rtol=1e-4, atol=1e-5)
    x.requires_grad_()
    assert block.prepared_call(x) is None
    optimized(x).sum().backward()
    assert x.grad is not None


@pytest.mark.usefixtures("kernels_are_the_fastest", "own_folder")
@pytest.mark.parametrize("run", [plain, residual, as_mobile, as_efficient])
def test_blocks_are_links_of_chains(run: Callable[[Any, Tensor], Tensor]) -> None:
    """With the layers beside them, at the call that prepares them and at those after it."""
    layers = {**excited(), "behind": nn.Conv2d(16, 8, 1)}
    model = Model(lambda model, x: F.dropout(model.behind(run(model, x)), 0.5, False), **layers)
    optimized = optimized_agrees(model, image(batch=3))
    optimized.programs.by_image = False
    optimized.programs.forget()
    for x in (image(batch=3), image(batch=3)):
        exact = copy.deepcopy(model).double().eval()(x.double())
        torch.testing.assert_close(optimized(x).double(), exact, rtol=1e-4, atol=1e-4)
    (program,) = optimized.programs._programs.values()
    assert [len(step.layers) for step in program.steps] == [2]


@pytest.mark.usefixtures("kernels_are_the_fastest", "own_folder")
def test_a_first_block_reads_images_as_they_are() -> None:
    x = image()[:, :3].contiguous()
    optimized = optimized_agrees(Model(plain, **first()), x, layout="channels_last")
    assert optimized.in_own_layout([x], {})[0][0] is x
    for _ in range(2):
        assert optimized(x).is_contiguous()


@pytest.mark.usefixtures("all_are_wanted")
@pytest.mark.parametrize("run", [residual, as_mobile])
def test_copies_on_a_cpu(run: Callable[[Any, Tensor], Tensor]) -> None:
    x = image()
    optimized = convx.optimize(Model(run, **excited()), x)
    expected = optimized(x)
    (block,) = blocks_of(optimized)
    for other in (copy.deepcopy(optimized), pickle.loads(pickle.dumps(optimized))):
        assert torch.equal(other(x), expected)
    if block.excitation is None:
        del block.excitation  # as older versions have pickled them
        (loaded,) = blocks_of(pickle.loads(pickle.dumps(optimized)))
        assert loaded.excitation is None


@pytest.mark.usefixtures("all_are_wanted")
@pytest.mark.parametrize("run", [plain, as_efficient, as_mobile])
def test_the_operator_gets_what_the_layers_have(run: Callable[[Any, Tensor], Tensor]) -> None:
    x = image()
    (block,) = blocks_of(convx.optimize(Model(run, **excited(inside=nn.Hardswish)), x))
    with torch.no_grad():
        result = block._by_kernel(x, block._weights(), "native", None)
        torch.testing.assert_close(result, block.by_layers(x))
        assert block._pack(x, block._weights(), "native").numel() == 0


@pytest.mark.usefixtures("all_are_wanted")
def test_problems_of_an_excited_block() -> None:
    """Of its layers too, and first of what is inside: it is held against them."""
    x = image()
    network = convx.optimize(Model(as_mobile, **excited()), x).network
    layers, left = problems_of(network, (x,), {}, ("forward",))
    assert len(layers) == 5 and not left
    inner, outer = (problem for problem, _ in block_problems_of(network, (x,), {}))
    assert outer.operation == "inverted_residual" and inner == outer.excitation


@pytest.mark.gpu
@pytest.mark.usefixtures("kernels_are_the_fastest", "own_folder")
@pytest.mark.parametrize("cuda_graphs", [0, 8])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("run", [plain, residual, as_mobile, as_efficient])
def test_kernels_are_right(
    run: Callable[[Any, Tensor], Tensor], dtype: torch.dtype, cuda_graphs: int
) -> None:
    model = Model(run, **excited(inside=nn.Hardswish)).to("cuda", dtype)
    x = image("cuda", dtype)
    optimized = optimized_agrees(model, x, cuda_graphs=cuda_graphs)
    (block,) = blocks_of(optimized)
    assert runs("inverted_residual", block, x)
    report = optimized.report
    assert report is not None and [row.method for row in report.rows] == ["inverted_residual"]
    assert report.rows[0].fused == block.parts and report.rows[0].us == 1.0
    nchw = x.contiguous()
    assert not runs("inverted_residual", block, nchw)
    for given in (nchw, image("cuda", dtype, batch=5, size=9)):
        assert torch.allclose(optimized(given).float(), model(given).float(), rtol=0.05, atol=0.05)


@pytest.mark.gpu
@pytest.mark.usefixtures("kernels_are_the_fastest", "own_folder")
@pytest.mark.parametrize("cuda_graphs", [0, 8])
@pytest.mark.parametrize("channels_last", [False, True])
def test_the_first_kernel_reads_pixels(channels_last: bool, cuda_graphs: int) -> None:
    """Whatever the layout is that images come in."""
    model = Model(plain, **first()).to("cuda", torch.bfloat16)
    x = image("cuda", torch.bfloat16)[:, :3].contiguous()
    x = x.contiguous(memory_format=torch.channels_last) if channels_last else x
    optimized = optimized_agrees(model, x, layout="channels_last", cuda_graphs=cuda_graphs)
    (block,) = blocks_of(optimized)
    assert runs("inverted_residual", block, x.contiguous(memory_format=torch.channels_last))
    assert [each.problem["layout"] for each in optimized.choices] == ["channels_last"]
    assert optimized(x).is_contiguous() != channels_last


@pytest.mark.gpu
@pytest.mark.usefixtures("kernels_are_the_fastest", "own_folder")
@pytest.mark.parametrize("run", [residual, as_mobile])
def test_weights_that_change_and_copies(run: Callable[[Any, Tensor], Tensor]) -> None:
    model = Model(run, **excited()).to("cuda", torch.bfloat16)
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
    for layer in block.layers:
        with torch.no_grad():
            layer.weight.mul_(1.5)
        changed = optimized(x)
        assert not torch.equal(changed, first)
        with torch.no_grad():
            assert torch.allclose(changed.float(), block.by_layers(x).float(), rtol=0.05, atol=0.05)
        first = changed


@pytest.mark.gpu
@pytest.mark.usefixtures("kernels_are_the_fastest", "own_folder")
@pytest.mark.parametrize("run", [residual, as_mobile])
def test_gradients_are_the_layers(run: Callable[[Any, Tensor], Tensor]) -> None:
    model = Model(run, **excited()).to("cuda", torch.bfloat16)
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
