"""Models that torch.fx can't follow as a whole: the parts that it can, and what tells of results that are
chosen by values."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from optimized import Model, block, distance, fused_is_the_fastest, image
from torch import Tensor, nn

import convx
from convx.optimize.check import Reference
from convx.optimize.model import OptimizedModel
from convx.optimize.optimizing import followed
from convx.optimize.parts import Part, parts_of, with_parts
from convx.optimize.rows import Network

__all__ = ["fused_is_the_fastest"]
WHOLE = ("batch norm", "relu")


def follow(part: Part) -> Network | None:
    call = part.args, part.kwargs
    with torch.no_grad():
        found = followed(part.module, Reference(part.module, *call), *call)
    return None if found.inputs is None else found


class Detector(nn.Module):
    """Features of two scales, one head for both, and of what scores best another head."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Model(
            lambda own, x: [own.fine(x), own.coarse(x)[..., ::2, ::2]], fine=block(), coarse=block()
        )
        self.head = Model(lambda own, levels: [own.scores(each) for each in levels], scores=block())
        self.refine = block()
        self.refine.stride = 1
        self.threshold = 0.5

    def forward(self, images: list[Tensor]) -> list[dict[str, Tensor]]:
        levels = self.backbone(torch.stack(images))
        scores = [each.flatten(1) for each in self.head(levels)]
        kept = scores[0].mean(1) > scores[0].mean() - self.threshold
        if not kept.any():
            return []
        boxes = self.refine(levels[0][kept])
        return [{"scores": torch.cat(scores, 1)[kept], "boxes": boxes * self.refine.stride}]


def detector(device: str) -> tuple[Detector, list[Tensor]]:
    return Detector().eval().requires_grad_(False).to(device), list(image(device))


def served(model: nn.Module, args: Any) -> OptimizedModel:
    """Each part as fused, and all else layer by layer."""
    parts = parts_of(model, args, {}, follow)
    made = {part.name: OptimizedModel(each.module, each.inputs, "as given", 0) for part, each in parts}
    converted = copy.deepcopy(model)
    convx.convert_(converted)
    return OptimizedModel(with_parts(converted, made), None, "as given", 0)


def test_the_largest_parts_with_tensors_alone_are_found(device: str) -> None:
    model, images = detector(device)
    assert follow(Part("", model, (images,), {}, True)) is None
    found = parts_of(model, (images,), {}, follow)
    parts = [part for part, _ in found]
    assert [each.name for each in parts] == ["backbone", "head", "refine"]
    assert {each.name for each in parts if each.has_one_size} == {"backbone", "head"}  # before the choice
    assert [list(made.fused.values()) for _, made in found] == [[WHOLE] * 2, [WHOLE], [WHOLE]]  # one head
    given = parts[1].args[0]
    assert [each.shape for each in given] == [(2, 12, 11, 13), (2, 12, 6, 7)]


def test_a_model_of_parts_does_what_the_model_does(device: str) -> None:
    model, images = detector(device)
    optimized = served(model, (images,))
    assert not any(isinstance(each, nn.BatchNorm2d) for each in optimized.modules())
    for given in (images, images[:1], [each[..., :9] for each in images]):
        exact = copy.deepcopy(model).double()([each.double() for each in given])
        own, reached = model(given), optimized(given)
        for name in ("scores", "boxes"):
            allowed = 2 * distance(own[0][name], exact[0][name]) + 1e-6
            assert distance(reached[0][name], exact[0][name]) <= allowed


def test_parts_keep_what_the_models_code_reads(device: str) -> None:
    model, images = detector(device)
    model.refine.stride = 3
    boxes = served(model, (images,))(images)[0]["boxes"]
    assert distance(boxes, model(images)[0]["boxes"]) < 1e-5


def test_a_part_of_two_names_is_served_by_one(device: str) -> None:
    model, images = detector(device)
    model.alias = model.backbone
    optimized = served(model, (images,))
    network: Any = optimized.network
    assert network.alias is network.backbone and type(network.backbone) is not Model


class Sized(nn.Module):
    """Is told a size, and asserts that it is the one."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = block()

    def forward(self, x: Tensor, width: int) -> Tensor:
        assert x.shape[-1] == width
        return self.convolution(x)  # type: ignore[no-any-return]


def tells_the_size(model: Any, x: Tensor) -> Tensor:
    return model.child(x, x.shape[-1]) if x.isfinite().all() else x  # type: ignore[no-any-return]


def test_modules_that_are_told_sizes_are_looked_into() -> None:
    model = Model(tells_the_size, child=Sized()).eval()
    assert [part.name for part, _ in parts_of(model, (image(),), {}, follow)] == ["child.convolution"]
    optimized = served(model, (image(),))
    other = image()[..., :9]
    assert distance(optimized(other), model(other)) < 1e-5


def test_parts_are_called_with_the_largest_of_their_calls() -> None:
    def run(own: Any, x: Tensor) -> Tensor:
        small = own.layer(x[..., :5])
        return small if float(small.sum()) == math.inf else own.layer(x)  # type: ignore[no-any-return]

    ((part, _),) = parts_of(Model(run, layer=block()).eval(), (image(),), {}, follow)
    assert part.args[0].shape == image().shape and not part.has_one_size


def test_modules_under_autocast_are_no_parts() -> None:
    """By themselves they would be given one dtype and have weights of another."""

    def run(own: Any, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = own.second(own.first(x))
        return own.last(y.float())  # type: ignore[no-any-return]

    model = Model(run, first=block(), second=block(), last=block()).eval()
    assert [part.name for part, _ in parts_of(model, (image(),), {}, follow)] == ["last"]


def chosen(model: Any, x: Tensor) -> Tensor:
    """Which rows there are, rounding decides: none in float32, all in float64."""
    y = model.layer(x).flatten(1)
    is_rounded = (y + 1e-12) != y
    return y[is_rounded[:, :1].expand_as(y)]  # type: ignore[no-any-return]


def nothing(model: Any, x: Tensor) -> Tensor:
    y = model.layer(x)
    return y[y > 1e9]  # type: ignore[no-any-return]


CHOICES: dict[str, Callable[..., Any]] = {"by rounding": chosen, "nothing": nothing}


@pytest.mark.parametrize("choose", CHOICES)
def test_results_that_tell_nothing_are_judged_by_pieces(choose: str) -> None:
    """The layer that is wrong changes no result."""
    model = Model(CHOICES[choose], layer=nn.Conv2d(12, 12, 3)).eval()
    with torch.no_grad():
        reference = Reference(model, (image(),), {})
        converted = copy.deepcopy(model)
        convx.convert_(converted)
        right = OptimizedModel(converted, None, "as given", 0)
        assert reference.disagrees(right, reference.error_of(right)) == ""
        own, reached = reference.errors_of(right)
        assert 0 < own < 1e-6 and 0 < reached <= 2 * own + 1e-6

        wrong = OptimizedModel(copy.deepcopy(converted), None, "as given", 0)
        wrong.network.layer.weight[3] *= 1.001
        assert reference.disagrees(wrong, reference.error_of(wrong)).startswith("layer: its error on the")
        assert reference.errors_of(wrong)[1] > 1e-5


@pytest.mark.parametrize("choose", CHOICES)
def test_models_that_choose_are_optimized(choose: str) -> None:
    model = Model(CHOICES[choose], layer=block()).eval()
    x = image()
    optimized = convx.optimize(model, x)
    assert optimized(x).shape == model(x).shape


def test_a_graph_whose_results_are_chosen_by_rounding_is_not_taken() -> None:
    """It has no pieces that could be looked at."""
    model = Model(chosen, layer=nn.Conv2d(12, 12, 3)).eval()
    with torch.no_grad():
        found = followed(model, Reference(model, (image(),), {}), (image(),), {})
    assert found.inputs is None and "inf" in found.reason


def test_of_other_models_the_results_decide() -> None:
    """Also where they have pieces."""
    model = Model(
        lambda own, x: own.layer(x) * (1.5 if type(own.layer) is nn.Conv2d else 1.0),
        layer=nn.Conv2d(12, 12, 3),
    )
    with torch.no_grad():
        reference = Reference(model.eval(), (image(),), {})
        converted = copy.deepcopy(model)
        convx.convert_(converted)
        assert "its error" in reference.disagrees(converted, reference.error_of(converted))
