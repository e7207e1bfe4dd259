"""Whole networks: every family of torchvision's and a score of timm's convert, agree with torch, revert."""

from __future__ import annotations

import copy

import pytest
import torch
from models import enliven, timm_network, torchvision_models, torchvision_network
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

import convx
from benchmarks.family_networks import FAMILIES, OPTIONS, family_of, smallest

# Of timm, by what their convolutions are, with layers that are left for a reason named here.
TIMM: dict[str, str] = {
    "convnext_atto": "",  # depthwise 7x7
    "cs3darknet_s": "",  # dense, in stages that split
    "densenet121": "",  # on concatenated inputs
    "dla46x_c": "",  # grouped, in a tree
    "dpn48b": "",  # grouped, dual paths
    "ecaresnet26t": "",  # Conv1d over channels
    "edgenext_xx_small": "",  # depthwise 3x3 to 9x9, on slices of channels
    "fastvit_t8": "",  # branches to be fused, channel multipliers
    "ghostnet_050": "",  # depthwise features beside pointwise ones
    "hrnet_w18_small": "",  # parallel resolutions
    "inception_next_atto": "",  # depthwise 1x11, 11x1 and 3x3 on slices
    "lambda_resnet26t": "Conv3d",
    "mixnet_s": "",  # filters of several sizes in a layer, grouped pointwise
    "nf_regnet_b0": "ScaledStdConv2d overrides Conv2d.forward",
    "regnety_002": "",  # groups of 8 channels
    "repvgg_a0": "",  # branches to be fused
    "resnest14d": "",  # split attention
    "resnetv2_50x1_bit": "StdConv2d overrides Conv2d.forward",
    "rexnet_100": "",  # channels that no vector width divides
    "tf_mixnet_s": "Conv2dSame overrides Conv2d.forward",
    "xception41": "",  # depthwise, dilated and strided
}


@pytest.fixture(autouse=True)
def _exact_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own float32, which errors are measured against, is not TF32."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def test_every_network_of_torchvision_has_a_family() -> None:
    models = torchvision_models()
    assert [name for name in models.list_models(module=models) if not family_of(name)] == []


def converts_agrees_and_reverts(
    model: nn.Module, x: Tensor, algorithm: str = "auto"
) -> convx.ConversionReport:
    """The whole promise of convert_ and revert_ for one network in evaluation mode."""
    state = copy.deepcopy(model.state_dict())
    types = {name: type(module) for name, module in model.named_modules()}
    layers = {name: module for name, module in model.named_modules() if isinstance(module, _ConvNd)}
    with torch.inference_mode():
        native = model(x)
        exact = copy.deepcopy(model).double()(x.double())
        report = convx.convert_(model, algorithm=algorithm, example_input=x)
        converted = model(x)

    # Every convolution is in the report, swapped or left with a reason.
    rows = {name: row for row in report.rows for name in row.name.split(", ")}
    assert set(rows) == set(layers)
    for name, layer in layers.items():
        if rows[name].converted:
            assert type(layer) in (convx.nn.Conv2d, convx.nn.Conv1d) and rows[name].method
        else:
            assert type(layer) is types[name] and rows[name].reason

    # In the norm over all outputs; the largest error of few images is chance.
    assert exact.isfinite().all() and float(exact.std()) > 0
    own_error, error = (float((result - exact).norm() / exact.norm()) for result in (native, converted))
    assert error <= max(2 * own_error, 1e-6), f"error {error:.1e}, torch's {own_error:.1e}"

    assert convx.revert_(model) == len(report.converted)
    assert {name: type(module) for name, module in model.named_modules()} == types
    assert list(model.state_dict()) == list(state)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    with torch.inference_mode():
        assert torch.equal(model(x), native)
    return report


def prepared(model: nn.Module, size: int, device: str) -> tuple[nn.Module, Tensor]:
    """The network with lively weights, and images for it: few where they are large."""
    x = torch.randn(4 if size < 200 else 1, 3, size, size)
    enliven(model, x)
    return model.to(device), x.to(device)


def left_but_for_layout(report: convx.ConversionReport, device: str) -> list[str]:
    """Layers left for another reason than that a GPU's dense kernels take NCHW alone: filters larger than
    1x1 on what is channels_last, as ConvNeXt's features are after a norm over channels."""
    return [row.name for row in report.left if device == "cpu" or "needs the layout nchw" not in row.reason]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_families_of_torchvision(family: str, device: str) -> None:
    torchvision_models()  # skips where there is none
    name, size = smallest(family)
    model, x = prepared(torchvision_network(name, **OPTIONS.get(family, {})), size, device)
    report = converts_agrees_and_reverts(model, x)
    assert not left_but_for_layout(report, device)


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMM)
def test_families_of_timm(name: str, device: str) -> None:
    model, x = prepared(timm_network(name), 64, device)
    report = converts_agrees_and_reverts(model, x)
    if TIMM[name]:
        assert report.left and all(row.reason.startswith(TIMM[name]) for row in report.left)
    else:
        assert not left_but_for_layout(report, device)


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "regnet_y_400mf"])
def test_channels_last(name: str, device: str) -> None:
    model, x = prepared(torchvision_network(name), 64, device)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    report = converts_agrees_and_reverts(model, x.to(memory_format=torch.channels_last))
    assert report.converted and not left_but_for_layout(report, device)


@pytest.mark.parametrize("algorithm", [*(row["name"] for row in convx.methods()), "depthwise|hntmp"])
@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18"])
def test_named_algorithms_list_the_layers_left(name: str, algorithm: str, device: str) -> None:
    model, x = prepared(torchvision_network(name), 64, device)
    layers = {layer: module for layer, module in model.named_modules() if isinstance(module, nn.Conv2d)}
    depthwise = {layer for layer, module in layers.items() if module.groups > 1}
    single = {layer for layer, module in layers.items() if module.kernel_size == (1, 1)}
    one = convx.explain(x, torch.empty(3, 3, 1, 1, device=device))
    if not any(row.method == "pointwise" and row.can_run for row in one.rows):
        single = set()  # not on this device
    expected = {"depthwise": depthwise, "pointwise": single, "filter2d": set()}.get(algorithm, set(layers))
    report = converts_agrees_and_reverts(model, x, algorithm)
    converted = {row.name: row.method.split("/")[0] for row in report.converted}
    if algorithm == "depthwise|hntmp":
        assert converted == {each: "depthwise" if each in depthwise else "hntmp" for each in layers}
        return
    assert all(row.reason.startswith(f"{algorithm}: ") for row in report.left)
    assert converted == dict.fromkeys(expected, algorithm)


def one_step(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """Parameters and norms' statistics after one step of gradient descent in training mode."""
    torch.manual_seed(0)  # of dropout
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).square().mean().backward()
    optimizer.step()
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize(
    "name", ["mobilenet_v3_small", "resnet18", "shufflenet_v2_x0_5", "timm/ghostnet_050"]
)
def test_a_training_step_is_the_same(name: str, device: str) -> None:
    """In float64, where what differs is a wrong formula and not rounding."""
    source = timm_network if name.startswith("timm/") else torchvision_network
    model, x = prepared(source(name.removeprefix("timm/")), 64, device)
    model, x = model.double(), x.double()
    start = copy.deepcopy(model.state_dict())
    expected = one_step(copy.deepcopy(model), x)
    assert not convx.convert_(model).left
    reached = one_step(model, x)
    assert convx.revert_(model) > 0
    assert list(reached) == list(expected)
    for key, value in expected.items():
        torch.testing.assert_close(
            reached[key], value, rtol=1e-7, atol=1e-9, msg=lambda text, key=key: f"{key}: {text}"
        )
    weights = [key for key, parameter in model.named_parameters() if parameter.dim() > 1]
    assert not any(torch.equal(reached[key], start[key]) for key in weights)
