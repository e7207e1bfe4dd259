"""Networks of torchvision and timm for the tests, also beside a torch that torchvision was not built for."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from convx.demo._torchvision import import_torchvision
from convx.demo.networks import calibrate


def torchvision_models() -> ModuleType:
    """torchvision.models; skips the test without torchvision."""
    pytest.importorskip("PIL")
    try:
        models: ModuleType = import_torchvision().models
    except ImportError as error:
        pytest.skip(str(error))
    return models


def torchvision_network(name: str, **options: Any) -> nn.Module:
    """A torchvision network with random weights, in eval mode; skips the test without torchvision."""
    models = torchvision_models()
    torch.manual_seed(0)
    model: nn.Module = models.get_model(name, weights=None, **options)
    return model.eval()


def timm_network(name: str, **options: Any) -> nn.Module:
    """A timm network with random weights, in eval mode; skips the test without timm."""
    try:
        import_torchvision()
        import timm
    except ImportError as error:
        pytest.skip(str(error))
    torch.manual_seed(0)
    model: nn.Module = timm.create_model(name, pretrained=False, **options)
    return model.eval()


def enliven(model: nn.Module, batch: Tensor) -> None:
    """Make every layer count in the output, as in a trained network.

    What constructors set to one value all over (layer scales of 1e-6, last norms and heads of 0) is drawn at
    random, for it would hide the convolutions before it. Norms get the batch's statistics, without which
    activations fade.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.numel() > 1 and parameter.min() == parameter.max():
                scales = parameter.numel() == max(parameter.shape) and not name.endswith("bias")
                nn.init.normal_(parameter, 0.5 if scales else 0.0, 0.1)
    calibrate(model, batch)
