"""torch.ao.quantization goes by exact classes: converted layers are refused, not left in floating point."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.ao import quantization
from torch.ao.quantization import quantize_fx

import convx

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.skipif(
        not {"x86", "fbgemm"} & set(torch.backends.quantized.supported_engines), reason="needs fbgemm"
    ),
]

REFUSED = r"would leave this convx.nn.Conv[12]d in floating point: call convx.revert_\(model\) before"


def network() -> nn.Module:
    return nn.Sequential(
        quantization.QuantStub(),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, groups=4),
        nn.Flatten(),
        nn.Linear(4 * 6 * 6, 3),
        quantization.DeQuantStub(),
    )


def image() -> torch.Tensor:
    return torch.randn(2, 4, 8, 8)


def after_training(model: nn.Module, images: torch.Tensor) -> nn.Module:
    model.eval().qconfig = quantization.get_default_qconfig("fbgemm")
    prepared = quantization.prepare(model)
    prepared(images)
    return quantization.convert(prepared)


def while_training(model: nn.Module, images: torch.Tensor) -> nn.Module:
    model.train().qconfig = quantization.get_default_qat_qconfig("fbgemm")
    prepared = quantization.prepare_qat(model)
    prepared(images)
    return quantization.convert(prepared.eval())


def by_graph(model: nn.Module, images: torch.Tensor) -> nn.Module:
    mapping = quantization.get_default_qconfig_mapping("fbgemm")
    prepared = quantize_fx.prepare_fx(model.eval()[1:5], mapping, (images,))
    prepared(images)
    return quantize_fx.convert_fx(prepared)


def by_type(model: nn.Module, images: torch.Tensor) -> nn.Module:
    qconfig = quantization.get_default_qconfig("fbgemm")
    mapping = quantization.QConfigMapping().set_object_type(nn.Conv2d, qconfig)
    prepared = quantize_fx.prepare_fx(model.eval()[3:5], mapping, (images,))
    prepared(images)
    return quantize_fx.convert_fx(prepared)


def quantized(model: nn.Module) -> list[str]:
    found = (type(module) for module in model.modules())
    return [kind.__name__ for kind in found if kind.__module__.startswith("torch.ao.nn")]


WAYS = [after_training, while_training, by_graph, by_type]


@pytest.mark.parametrize("way", WAYS)
def test_converted_models_are_refused_and_reverted_ones_quantize_as_torchs(way: Callable[..., Any]) -> None:
    model, images = network(), image()
    converted = copy.deepcopy(model)
    assert len(convx.convert_(converted).converted) == 2
    with pytest.raises(RuntimeError, match=REFUSED):
        way(converted, images)
    assert convx.revert_(converted) == 2
    mine, torchs = way(converted, images), way(model, images)
    assert quantized(mine) == quantized(torchs)
    assert any("Conv" in name for name in quantized(mine))
    torch.testing.assert_close(mine(images), torchs(images))


def test_one_dimension_too() -> None:
    model = nn.Sequential(nn.Conv1d(4, 4, 3))
    convx.convert_(model)
    model.eval().qconfig = quantization.get_default_qconfig("fbgemm")
    with pytest.raises(RuntimeError, match=REFUSED):
        quantization.prepare(model)


def test_a_model_that_was_refused_in_place_can_be_reverted() -> None:
    model, images = network().eval(), image()
    convx.convert_(model)
    model.qconfig = quantization.get_default_qconfig("fbgemm")
    with pytest.raises(RuntimeError, match=REFUSED):
        quantization.prepare(model, inplace=True)
    assert convx.revert_(model) == 2
    quantization.prepare(model, inplace=True)
    model(images)
    assert quantized(quantization.convert(model)).count("Conv2d") == 2


def test_layers_made_by_convx_are_refused() -> None:
    model = nn.Sequential(convx.nn.Conv2d(4, 4, 3, activation="relu")).eval()
    model.qconfig = quantization.get_default_qconfig("fbgemm")
    with pytest.raises(RuntimeError, match=r"made as convx.nn.Conv2d has to be made as torch.nn.Conv2d"):
        quantization.prepare(model)
    with pytest.raises(RuntimeError, match=REFUSED):
        model[0].qconfig = quantization.get_default_qconfig("fbgemm")


def test_layers_stay_in_floating_point_where_that_is_said() -> None:
    model, images = network().eval(), image()
    convx.convert_(model)
    model.qconfig = quantization.get_default_qconfig("fbgemm")
    for layer in (model[1], model[3]):
        assert not hasattr(layer, "qconfig")
        layer.qconfig = None
    prepared = quantization.prepare(pickle.loads(pickle.dumps(model)))
    assert prepared[1].qconfig is None and "qconfig" not in prepared.state_dict()
    prepared[:4](images)
    done = quantization.convert(prepared)
    assert type(done[1]) is convx.nn.Conv2d and not hasattr(done[1], "qconfig")
    with pytest.raises(
        convx.InvalidArgument, match=r"input must be .*got quint8; convert it with .dequantize"
    ):
        done(images)
    assert done[1:4](images).shape == (2, 4, 6, 6)


def test_dynamic_quantization_has_no_convolutions_and_leaves_them_alike() -> None:
    model, images = network().eval(), image()
    torchs = quantization.quantize_dynamic(model)
    convx.convert_(model)
    mine = quantization.quantize_dynamic(model)
    assert quantized(mine) == quantized(torchs) and quantized(mine).count("Linear") == 1
    assert type(mine[1]) is convx.nn.Conv2d
    torch.testing.assert_close(mine(images), torchs(images))
    with pytest.raises(RuntimeError, match=REFUSED):
        quantization.quantize_dynamic(model, {"1": quantization.default_dynamic_qconfig})


def test_layers_that_are_about_to_be_quantized_are_left() -> None:
    model, images = network().eval(), image()
    model.qconfig = quantization.get_default_qconfig("fbgemm")
    prepared = quantization.prepare(model)
    report = convx.convert_(prepared)
    assert not report.converted
    assert all("it has a qconfig" in row.reason for row in report.left)
    prepared(images)
    assert quantized(quantization.convert(prepared)).count("Conv2d") == 2
