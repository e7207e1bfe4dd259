"""Networks of torchvision and timm for the tests, also beside a torch that torchvision was not built for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from convx.demo._torchvision import import_torchvision


def torchvision_network(name: str) -> nn.Module:
    """A torchvision network with random weights, in eval mode; skips the test without torchvision."""
    pytest.importorskip("PIL")
    try:
        models = import_torchvision().models
    except ImportError as error:
        pytest.skip(str(error))
    torch.manual_seed(0)
    model: nn.Module = models.get_model(name, weights=None)
    return model.eval()


def timm_network(name: str) -> nn.Module:
    """A timm network with random weights, in eval mode; skips the test without timm."""
    try:
        import_torchvision()
        import timm
    except ImportError as error:
        pytest.skip(str(error))
    torch.manual_seed(0)
    model: nn.Module = timm.create_model(name, pretrained=False)
    return model.eval()
