"""Small networks of all families of torchvision, many of timm and the vision models of transformers, with
random weights: those that tests optimize, and of which `python -m benchmarks.families` writes its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from benchmarks import family_tasks
from benchmarks.family_names import FAMILIES, OPTIONS, SIZES, TIMM, TRANSFORMERS
from convx.demo._torchvision import import_torchvision
from convx.demo.networks import calibrate

__all__ = ["FAMILIES", "OPTIONS", "FamilyNetwork", "enliven", "family_of", "networks", "smallest"]

_KINDS = ("ForImageClassification", "ForSemanticSegmentation", "ForDepthEstimation", "Model")
_FULL = 224
_CALIBRATED = 6


@dataclass(frozen=True)
class FamilyNetwork:
    """One network of a library."""

    library: str
    name: str

    @property
    def task(self) -> str:
        """Of torchvision's other than classification."""
        return family_tasks.task_of(self.name) if self.library == "torchvision" else ""

    def made(self) -> tuple[nn.Module, Any]:
        """In evaluation mode, every layer with a part in the result, and an example input for convx.optimize:
        a tensor, or a tuple of arguments. ImportError where the library is missing."""
        batch, calibrated = family_tasks.counts(self.name)
        return self._made(batch, calibrated, torch.device("cpu"), full=False)

    def made_in_full(self, device: torch.device) -> tuple[nn.Module, Any]:
        """As the library has it by default, for one image."""
        return self._made(1, _CALIBRATED, device, full=True)

    def _made(self, batch: int, calibrated: int, device: torch.device, full: bool) -> tuple[nn.Module, Any]:
        torch.manual_seed(0)
        args: tuple[Any, ...]
        if self.task:
            model = family_tasks.built(self.name, full)
            args = family_tasks.inputs(self.name, calibrated, full)
        else:
            build = {"torchvision": _of_torchvision, "timm": _of_timm, "transformers": _of_transformers}
            model, size = build[self.library](self.name, full)
            args = (torch.randn(calibrated, 3, size, size),)
        args = tree_map(lambda each: each.to(device), args)
        enliven(model.to(device).eval(), *args)
        if self.task:
            family_tasks.as_pretrained(self.name, model)
        args = tuple(each[:batch] for each in args)
        return model, args[0] if len(args) == 1 and isinstance(args[0], Tensor) else args


def networks() -> list[FamilyNetwork]:
    """All of them, those of torchvision by their families."""
    names = {
        "torchvision": (*FAMILIES, *family_tasks.families()),
        "timm": TIMM,
        "transformers": TRANSFORMERS,
    }
    return [FamilyNetwork(library, name) for library, every in names.items() for name in every]


def family_of(name: str) -> str:
    return max((family for family in FAMILIES if name.startswith(family)), key=len, default="")


def smallest(family: str) -> tuple[str, int]:
    """The family's classification network of torchvision with the fewest parameters, and a small size of
    images for it."""
    models = import_torchvision().models
    names = [name for name in models.list_models(module=models) if family_of(name) == family]
    assert names, f"torchvision has no network {family}*"
    metas = {name: models.get_model_weights(name).DEFAULT.meta for name in names}
    name = min(metas, key=lambda name: metas[name]["num_params"])
    return name, SIZES.get(family) or max(64, *metas[name]["min_size"])


def _of_torchvision(family: str, full: bool) -> tuple[nn.Module, int]:
    name, size = smallest(family)
    options = OPTIONS.get(family, {})
    if full:
        size, options = max(size, _FULL), {each: options[each] for each in options if each != "image_size"}
    return import_torchvision().models.get_model(name, weights=None, **options), size


def _of_timm(name: str, full: bool) -> tuple[nn.Module, int]:
    import_torchvision()  # which timm would import in vain beside another torch
    import timm

    model: nn.Module = timm.create_model(name, pretrained=False)
    own: Any = model.pretrained_cfg
    needed = own["input_size"][-1] if own.get("fixed_input_size") else _FULL
    return model, needed if full else TIMM[name]


def _of_transformers(name: str, full: bool) -> tuple[nn.Module, int]:
    """Small ones: whose sizes are those of trained weights, configurations say."""
    import_torchvision()
    import transformers

    kind = next(each for each in _KINDS if name.endswith(each))
    config = getattr(transformers, f"{name.removesuffix(kind)}Config")
    options = {"num_labels": 100, **TRANSFORMERS[name]}
    return getattr(transformers, name)(config(**options)), 64


def enliven(model: nn.Module, *args: Any) -> None:
    """Make every layer count in the output, as in a trained network.

    What constructors set to one value all over (layer scales of 1e-6, last norms and heads of 0) is drawn at
    random, for it would hide the convolutions before it. Norms get the statistics of a call with these
    arguments, without which activations fade.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.numel() > 1 and parameter.min() == parameter.max():
                scales = parameter.numel() == max(parameter.shape) and not name.endswith("bias")
                nn.init.normal_(parameter, 0.5 if scales else 0.0, 0.1)
    given: Any = args
    calibrate(_Applied(model), given)


class _Applied(nn.Module):
    """A model as a module of one argument."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, args: Sequence[Any]) -> Any:
        return self.model(*args)
