"""Networks of torchvision and timm, optimized."""

from __future__ import annotations

import copy

import pytest
import torch
from models import enliven, timm_network, torchvision_network
from optimized import distance, fused_is_the_fastest
from torch import nn

import convx
from convx.optimize.graph import Reader

__all__ = ["fused_is_the_fastest"]

NETWORKS = (
    *("mobilenet_v2", "mobilenet_v3_small", "mnasnet0_5", "shufflenet_v2_x0_5", "squeezenet1_1", "resnet18"),
    *(
        "googlenet",
        "densenet121",
        "regnet_y_400mf",
        "efficientnet_b0",
        "convnext_tiny",
        "vgg11_bn",
        "alexnet",
    ),
    *("resnext50_32x4d", "inception_v3", "swin_t", "maxvit_t"),
    *("timm/resnet18", "timm/efficientnet_b0", "timm/mobilenetv3_small_050", "timm/convnext_atto"),
    *("timm/densenet121", "timm/repvgg_a0", "timm/ghostnet_050", "timm/regnetx_002", "timm/xception41"),
)
UNFUSED = (
    "vit_b_32",
    "swin_t",
    "maxvit_t",
    "timm/convnext_atto",
    "convnext_tiny",
    "alexnet",
    "squeezenet1_1",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str) -> None:
    make = timm_network if name.startswith("timm/") else torchvision_network
    size = 224 if name in ("swin_t", "maxvit_t") else 96 if name != "inception_v3" else 160
    model, x = make(name.removeprefix("timm/")), torch.randn(2, 3, size, size)
    enliven(model, x)
    optimized = convx.optimize(model.eval(), x)
    report = optimized.report
    assert report is not None and not report.left
    assert not Reader(optimized.network).has_effects()  # type: ignore[arg-type]
    norms = sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())
    folded = sum("batch norm" in row.fused for row in report.rows)
    assert not report.reason and (folded > 0.4 * norms or name in UNFUSED), (folded, norms)
    exact = copy.deepcopy(model).double()(x.double())
    assert distance(optimized(x), exact) <= 2 * distance(model(x), exact) + 1e-6
