"""torch.vmap and torch.func over convx.functional and over the raw operators."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, hessian, jacrev, jvp, vmap

import convx

COPIES, CHANNELS = 3, 4
DIMENSIONS = [
    (0, None, None),
    (1, None, None),
    (0, 0, 0),
    (None, 0, None),
    (None, None, 0),
    (2, 1, 1),
    (0, None, 0),
]


def arguments(dimensions: tuple[int | None, ...], groups: int) -> list[Tensor]:
    shapes = [(2, CHANNELS, 6, 5), (8, CHANNELS // groups, 3, 3), (8,)]
    tensors = []
    for shape, dimension in zip(shapes, dimensions, strict=True):
        size = list(shape)
        if dimension is not None:
            size.insert(dimension, COPIES)
        tensors.append(torch.randn(size, dtype=torch.float64))
    return tensors


def close(one: object, other: object) -> None:
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("groups", [1, 2, CHANNELS])
@pytest.mark.parametrize("dimensions", DIMENSIONS, ids=str)
@pytest.mark.parametrize("raw", [False, True])
def test_forward(groups: int, dimensions: tuple[int | None, ...], raw: bool) -> None:
    def ours(*tensors: Tensor) -> Tensor:
        if raw:
            geometry = ((2, 1), (1, 1, 2, 2), (1, 1), groups)
            return torch.ops.convx.conv2d.default(*tensors, *geometry, "relu", "auto", 0)
        return convx.functional.conv2d(
            *tensors, stride=(2, 1), padding=(1, 2), groups=groups, activation="relu"
        )

    def theirs(*tensors: Tensor) -> Tensor:
        return F.conv2d(*tensors, stride=(2, 1), padding=(1, 2), groups=groups).relu()

    given = arguments(dimensions, groups)
    close(vmap(ours, dimensions)(*given), vmap(theirs, dimensions)(*given))


@pytest.mark.parametrize("dimensions", [(0, None), (None, 0), (0, 0), (1, 2)], ids=str)
def test_raw_gradients(dimensions: tuple[int | None, int | None]) -> None:
    geometry = ((1, 2), (1, 1, 1, 1), (1, 1), CHANNELS)

    def sizes(shapes: list[list[int]]) -> list[Tensor]:
        for shape, dimension in zip(shapes, dimensions, strict=True):
            if dimension is not None:
                shape.insert(dimension, COPIES)
        return [torch.randn(shape, dtype=torch.float64) for shape in shapes]

    def check(call: Callable[[Tensor, Tensor], Tensor], given: list[Tensor]) -> None:
        one_by_one = []
        for copy in range(COPIES):
            taken = [t if d is None else t.select(d, copy) for t, d in zip(given, dimensions, strict=True)]
            one_by_one.append(call(*taken))
        close(vmap(call, dimensions)(*given), torch.stack(one_by_one))

    input, weight, output = [2, CHANNELS, 6, 5], [CHANNELS, 1, 3, 3], [2, CHANNELS, 6, 3]
    check(
        lambda g, w: torch.ops.convx.conv2d_input_grad(g, w, input, *geometry, "auto", 0),
        sizes([list(output), list(weight)]),
    )
    check(
        lambda x, g: torch.ops.convx.conv2d_weight_grad(x, g, weight, *geometry, "auto", 0),
        sizes([list(input), list(output)]),
    )


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
def test_per_sample_gradients(activation: str) -> None:
    layer = convx.nn.Conv2d(4, 4, 3, padding=1, groups=4, activation=activation).double()
    parameters = dict(layer.named_parameters())
    images = torch.randn(5, 4, 6, 6, dtype=torch.float64)

    def loss(parameters: dict[str, Tensor], image: Tensor) -> Tensor:
        return functional_call(layer, parameters, image).square().sum()

    gradients = vmap(grad(loss), (None, 0))(parameters, images)
    for index in range(5):
        alone = torch.autograd.grad(loss(parameters, images[index]), list(parameters.values()))
        for name, gradient in zip(parameters, alone, strict=True):
            close(gradients[name][index], gradient)


def test_derivatives_of_torch_func() -> None:
    input, weight, bias, tangent = (
        torch.randn(shape, dtype=torch.float64) for shape in ((2, 4, 6, 6), (4, 1, 3, 3), (4,), (2, 4, 6, 6))
    )

    def both(transform: Callable[[Callable[..., Tensor]], object]) -> None:
        close(*(transform(call) for call in (convx.functional.conv2d, F.conv2d)))

    both(lambda call: jvp(lambda x: call(x, weight, bias, padding=1, groups=4), (input,), (tangent,)))
    both(lambda call: jvp(lambda b: call(input, weight, b, groups=4), (bias,), (bias,)))
    both(lambda call: jacrev(lambda w: call(input, w, bias, groups=4))(weight))
    both(lambda call: hessian(lambda w: call(input, w, bias, groups=4).pow(3).sum())(weight))
    both(
        lambda call: grad(
            lambda x: vmap(lambda w: call(x, w, groups=4))(weight.expand(2, -1, -1, -1, -1)).sin().sum()
        )(input)
    )
