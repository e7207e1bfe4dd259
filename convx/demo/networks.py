"""The demo's networks and its photo, all of it on this machine: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from convx.demo._torchvision import import_torchvision

NETWORKS = {"mobilenet_v2": "MobileNetV2", "resnet18": "ResNet-18"}
IMAGE_SIZE = 224
_MEAN = (0.485, 0.456, 0.406)  # ImageNet's, which torchvision's weights expect
_DEVIATION = (0.229, 0.224, 0.225)


def photo() -> Any:
    """A photograph that scikit-image carries (a cat, 300 x 451), as a height x width x 3 array of bytes."""
    from skimage import data

    return data.chelsea()


def augmentations(image: Any, count: int, seed: int = 0) -> Tensor:
    """count normalised crops of the photo: the centre, then others random in place, size, side and light."""
    pixels = torch.from_numpy(image.copy()).permute(2, 0, 1).float()[None] / 255
    height, width = pixels.shape[2:]
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator))

    crops = []
    for index in range(count):
        side = int(min(height, width) * (0.9 if index == 0 else uniform(0.4, 1.0)))
        top = (height - side) // 2 if index == 0 else int(uniform(0, height - side))
        left = (width - side) // 2 if index == 0 else int(uniform(0, width - side))
        crop = pixels[..., top : top + side, left : left + side]
        crop = nn.functional.interpolate(crop, (IMAGE_SIZE, IMAGE_SIZE), mode="bilinear", antialias=True)
        if index > 0:
            crop = crop.flip(3) if uniform(0, 1) < 0.5 else crop
            crop = (crop * uniform(0.6, 1.4)).clamp(0, 1)
        crops.append(crop)
    mean, deviation = torch.tensor(_MEAN).view(1, 3, 1, 1), torch.tensor(_DEVIATION).view(1, 3, 1, 1)
    return (torch.cat(crops) - mean) / deviation


def constructor(name: str) -> Callable[..., nn.Module]:
    models = import_torchvision().models
    if name not in models.list_models(module=models):
        raise ValueError(
            f"--model: torchvision has no classification network {name!r}; for example mobilenet_v2"
        )
    builder: Callable[..., nn.Module] = models.get_model_builder(name)
    return builder


def build(name: str, weights: Path | None, calibration: Tensor) -> nn.Module:
    """The network in eval mode, with the weights of a file, or random ones and calibrated statistics."""
    torch.manual_seed(0)
    model = constructor(name)()
    if weights is not None:
        state = torch.load(weights, map_location="cpu", weights_only=True)
        model.load_state_dict(state.get("state_dict", state))
    else:
        calibrate(model, calibration)
    return model.eval()


def calibrate(model: nn.Module, batch: Tensor) -> None:
    """Give batch-norm layers the statistics of this batch, and set the model to evaluation.

    Without it, activations of a network with random weights vanish or explode with depth, and neither the
    comparison with float64 nor the arithmetic would be that of a trained network.
    """
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    model.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean over what it sees
        norm.train()  # alone: dropout would change what the norms after it see
    with torch.no_grad():
        model(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()


def class_names() -> list[str]:
    """ImageNet's thousand class names, which torchvision carries."""
    import_torchvision()
    from torchvision.models import _meta

    return list(_meta._IMAGENET_CATEGORIES)
