"""convx.nn's filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from filter_reference import photo, random
from torch import Tensor

import convx
from convx.functional import filter2d, separable_filter2d


def test_filter2d() -> None:
    layer = convx.nn.Filter2d([[0, 1, 0], [1, -4, 1], [0, 1, 0]], "wrap")
    assert list(layer.state_dict()) == ["filter"] and not list(layer.parameters())
    for images in (torch.randn(3, 9, 9), torch.randn(9, 9).half(), photo(9, 9)):
        wanted = torch.float32 if images.dtype == torch.uint8 else images.dtype
        assert torch.equal(layer(images), filter2d(images, layer.filter.to(wanted), "wrap"))
    assert "3x3, border=wrap" in repr(layer)


def test_a_trainable_filter_learns() -> None:
    images, wanted = torch.randn(4, 16, 16), torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])
    layer = convx.nn.Filter2d(torch.zeros(3, 3), "replicate", trainable=True)
    optimizer = torch.optim.LBFGS(layer.parameters(), lr=1)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (layer(images) - filter2d(images, wanted, "replicate")).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(layer.filter.detach(), wanted, rtol=0, atol=1e-2)


def test_gaussian() -> None:
    blur = convx.nn.GaussianBlur2d((1.0, 2.0), (5, 9), "replicate")
    rows, columns = torch.arange(-2, 3.0).double(), torch.arange(-4, 5.0).double()
    weights = torch.exp(-(rows[:, None] ** 2) / 2 - columns**2 / 8)
    images = random(3, 20, 30)
    torch.testing.assert_close(blur(images), filter2d(images, weights / weights.sum(), "replicate"))
    assert torch.equal(blur(torch.full((9, 9), 200, dtype=torch.uint8)), torch.full((9, 9), 200).byte())
    assert not blur.state_dict()


@pytest.mark.parametrize(("dtype", "sigma"), [(torch.bfloat16, 0.4), (torch.float16, 2.5)])
def test_gaussian_keeps_the_brightness_of_narrow_images(dtype: torch.dtype, sigma: float) -> None:
    blur, ones = convx.nn.GaussianBlur2d(sigma), torch.ones(9, 9, dtype=dtype)
    assert torch.equal(blur(ones), ones)
    assert torch.equal(blur.to(dtype)(ones), ones)


def test_gaussian_is_exact_whatever_dtype_the_layer_had() -> None:
    images, blur = random(20, 30), convx.nn.GaussianBlur2d(2.5)
    expected = blur(images)
    assert torch.equal(blur.half().double()(images), expected)
    empty = convx.nn.GaussianBlur2d(2.5).to("meta").to_empty(device="cpu")
    assert torch.equal(empty(images), expected)


def test_gaussian_takes_numbers_of_every_kind() -> None:
    expected = repr(convx.nn.GaussianBlur2d(1.5, 5))
    for sigma in (np.float32(1.5), np.array([1.5, 1.5]), torch.tensor(1.5), (np.float64(1.5), 1.5)):
        for size in (np.int64(5), torch.tensor(5), [5, torch.tensor(5)]):
            assert repr(convx.nn.GaussianBlur2d(sigma, size)) == expected


def test_sobel() -> None:
    images = random(3, 20, 30)
    across, down = convx.nn.Sobel2d(False)(images).unbind(1)
    weights = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]).double()
    torch.testing.assert_close(across, filter2d(images, weights, "replicate"))
    torch.testing.assert_close(down, filter2d(images, weights.t(), "replicate"))
    torch.testing.assert_close(convx.nn.Sobel2d()(images), (across**2 + down**2).sqrt())
    edges = convx.nn.Sobel2d()(photo(20, 30))
    exact = convx.nn.Sobel2d()(photo(20, 30).float()).round().clamp(0, 255)
    assert torch.equal(edges, exact.byte())


def test_sobel_where_the_image_is_flat() -> None:
    """The length of the gradient has a kink there; its derivative is 0 and not NaN, whoever asks for it."""
    edges, flat = convx.nn.Sobel2d(), torch.ones(5, 5)
    assert torch.equal(edges(flat), torch.zeros(5, 5))
    image = flat.clone().requires_grad_()
    edges(image).sum().backward()
    assert image.grad is not None and not image.grad.any()
    assert not torch.func.grad(lambda image: edges(image).sum())(flat).any()
    assert not torch.func.jvp(edges, (flat,), (torch.rand(5, 5),))[1].any()
    compiled = torch.compile(edges, backend="aot_eager", fullgraph=True)
    image = flat.clone().requires_grad_()
    compiled(image).sum().backward()
    assert image.grad is not None and not image.grad.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_sobel_is_the_same_with_and_without_gradients(dtype: torch.dtype) -> None:
    images = random(3, 20, 30).to(dtype)
    images[1, :, 10:] = 0
    edges = convx.nn.Sobel2d()
    assert torch.equal(edges(images), edges(images.clone().requires_grad_()))


LAYERS: list[Callable[[], torch.nn.Module]] = [
    lambda: convx.nn.Filter2d([[[0.1, 0.3], [0.2, 0.4]], [[0, 1], [-1, 0]]], "wrap"),
    lambda: convx.nn.GaussianBlur2d(1.5),
    lambda: convx.nn.Sobel2d(),
    lambda: convx.nn.Sobel2d(magnitude=False),
]
LAYER_NAMES = ["filter", "gaussian", "sobel", "derivatives"]


@pytest.mark.parametrize("make", LAYERS, ids=LAYER_NAMES)
def test_autocast(make: Callable[[], torch.nn.Module], device: str) -> None:
    """As it casts the images of filter2d: float32 becomes bfloat16, uint8 and float64 stay what they are."""
    layer, images = make().to(device), random(2, 20, 33, dtype=torch.float32).to(device)
    pixels = photo(2, 20, 33).to(device)
    for given, cast in (
        (images, images.bfloat16()),
        (images.bfloat16(), images.bfloat16()),
        (images.double(), images.double()),
        (pixels, pixels),
    ):
        expected = layer(cast)
        with torch.autocast(device, torch.bfloat16):
            result = layer(given)
        assert result.dtype == expected.dtype and torch.equal(result, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("make", LAYERS, ids=LAYER_NAMES)
def test_gpus_agree_with_the_cpu(make: Callable[[], torch.nn.Module], dtype: torch.dtype) -> None:
    images = photo(2, 37, 75) if dtype == torch.uint8 else random(2, 37, 75, dtype=dtype)
    assert_close(make().to("cuda")(images.to("cuda")).cpu(), make()(images))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8])
def test_separable_filters_of_gpus_agree_with_the_cpu(dtype: torch.dtype) -> None:
    images = photo(2, 37, 75) if dtype == torch.uint8 else random(2, 37, 75, dtype=dtype)
    weights = torch.tensor([0.1, 0.3, 0.6], dtype=torch.float32 if dtype == torch.uint8 else dtype)
    result = separable_filter2d(*(each.to("cuda") for each in (images, weights, weights)), "reflect").cpu()
    assert_close(result, separable_filter2d(images, weights, weights, "reflect"))


def assert_close(result: Tensor, expected: Tensor) -> None:
    """Bytes may differ by one, where the sums before rounding are nearly ties."""
    tolerances: dict[str, Any] = {"rtol": 0, "atol": 1} if expected.dtype == torch.uint8 else {}
    torch.testing.assert_close(result, expected, **tolerances)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"border must be one of zero, .*got 'edge'"):
        convx.nn.Sobel2d(border="edge")
    with pytest.raises(ValueError, match=r"filter must be \(height, width\) or a bank.*\(3,\)"):
        convx.nn.Filter2d([1, 2, 1])
    with pytest.raises(ValueError, match=r"sigma must be above 0 and finite, got 0"):
        convx.nn.GaussianBlur2d(0)
    with pytest.raises(ValueError, match=r"size must be odd .*got 4"):
        convx.nn.GaussianBlur2d(1, 4)
    for sigma in ((1, 2, 3), True, (1.0, np.True_), "1", "12", 1j, None):
        with pytest.raises(ValueError, match=r"sigma takes one number or a pair \(height, width\), got "):
            convx.nn.GaussianBlur2d(sigma)
    for size in (5.0, True, torch.tensor(5.0), (3, 5, 7)):
        with pytest.raises(ValueError, match=r"size takes one int or a pair \(height, width\), got "):
            convx.nn.GaussianBlur2d(1, size)
    with pytest.raises(ValueError, match=r"filter must have real numbers, got complex64"):
        convx.nn.Filter2d(torch.ones(3, 3, dtype=torch.complex64))
