"""convx.nn's filters."""

from __future__ import annotations

import pytest
import torch
from filter_reference import photo, random
from torch import Tensor

import convx
from convx.functional import filter2d


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


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"border must be one of zero, .*got 'edge'"):
        convx.nn.Sobel2d(border="edge")
    with pytest.raises(ValueError, match=r"filter must be \(height, width\) or a bank.*\(3,\)"):
        convx.nn.Filter2d([1, 2, 1])
    with pytest.raises(ValueError, match=r"sigma must be above 0 and finite, got 0"):
        convx.nn.GaussianBlur2d(0)
    with pytest.raises(ValueError, match=r"size must be odd .*got 4"):
        convx.nn.GaussianBlur2d(1, 4)
    with pytest.raises(ValueError, match=r"sigma takes one number or a pair .*got \(1, 2, 3\)"):
        convx.nn.GaussianBlur2d((1, 2, 3))
