"""Networks of torchvision and timm for the tests, also beside a torch that torchvision was not built for."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.family_networks import enliven
from convx.demo._torchvision import import_torchvision

__all__ = ["enliven", "timm_network", "torchvision_models", "torchvision_network"]


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
