"""filter2d's derivatives of every kind, torch.func, torch.compile, and the borders behind them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from filter_reference import BORDERS, padded, photo, random, torch_filter2d
from reference import assert_agrees
from torch import Tensor
from torch.func import grad, hessian, jvp, vmap
from torch.library import opcheck

import convx
from convx.functional import filter2d
from convx.images import borders


@pytest.mark.slow
@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("extent", [(3, 3), (2, 4), (1, 5), (7, 9)])
def test_gradients(border: str, extent: tuple[int, int]) -> None:
    images, bank = random(2, 4, 5).requires_grad_(), random(2, *extent).requires_grad_()

    def call(images: Tensor, bank: Tensor) -> Tensor:
        return filter2d(images, bank, border)

    assert torch.autograd.gradcheck(call, (images, bank), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(call, (images, bank))
    raw = torch.ops.convx.filter2d.default
    assert torch.autograd.gradcheck(lambda x, w: raw(x, w, border, "auto"), (images, bank))
    opcheck(raw, (images, bank, border, "auto"))


@pytest.mark.parametrize("border", BORDERS[1:])
def test_pad_is_numpys_and_fold_its_adjoint(border: str) -> None:
    for size, extent in product([(5, 7), (1, 2), (2, 1)], [(3, 3), (1, 4), (9, 8)]):
        images = random(2, *size)
        wide = borders.pad(images, extent, border)
        assert torch.equal(wide, torch.from_numpy(padded(images.numpy(), extent, border)))
        other = random(*wide.shape)
        folded = borders.fold(other, extent, border, size)
        torch.testing.assert_close((folded * images).sum(), (other * wide).sum())


def test_float_gradients_agree_with_torchs(device: str) -> None:
    # In float64 torch would be its own reference; gradcheck sees to that one.
    for dtype, border in product((torch.float32, torch.float16, torch.bfloat16), BORDERS):
        tensors = [random(2, 19, 33, dtype=dtype), random(3, 3, 3, dtype=dtype)]
        weights = random(2, 3, 19, 33, dtype=dtype)
        ours = [t.clone().to(device).requires_grad_() for t in tensors]
        (filter2d(*ours, border) * weights.to(device)).sum().backward()
        exact, own = ([t.clone().to(d).requires_grad_() for t in tensors] for d in (torch.float64, dtype))
        (torch_filter2d(*exact, border) * weights.double()).sum().backward()
        (torch_filter2d(*own, border) * weights).sum().backward()
        for one, other, true, terms in zip(ours, own, exact, (27, 2 * 19 * 33), strict=True):
            assert one.grad is not None and other.grad is not None and true.grad is not None
            assert_agrees(one.grad.cpu(), other.grad, true.grad, f"{dtype} {border}", terms)


@pytest.mark.parametrize("border", BORDERS)
def test_vmap_and_func(border: str) -> None:
    images, bank = random(3, 2, 6, 5), random(3, 2, 3, 3)

    def call(images: Tensor, bank: Tensor) -> Tensor:
        return filter2d(images, bank, border)

    one_by_one = torch.stack([call(x, w) for x, w in zip(images, bank, strict=True)])
    torch.testing.assert_close(vmap(call)(images, bank), one_by_one)
    torch.testing.assert_close(vmap(call, (0, None))(images, bank[0]), call(images, bank[0]))
    moved = vmap(call, (None, 1), 1)(images[0], bank)
    torch.testing.assert_close(moved, torch.stack([call(images[0], bank[:, i]) for i in range(2)], 1))
    raw = vmap(lambda x, w: torch.ops.convx.filter2d.default(x, w, border, "auto"))
    torch.testing.assert_close(raw(images, bank), one_by_one)

    def loss(function: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda w: function(images[0], w, border).pow(3).sum()

    ours, theirs = loss(filter2d), loss(torch_filter2d)
    torch.testing.assert_close(grad(ours)(bank[0]), grad(theirs)(bank[0]))
    torch.testing.assert_close(hessian(ours)(bank[0]), hessian(theirs)(bank[0]))
    torch.testing.assert_close(jvp(ours, (bank[0],), (bank[1],)), jvp(theirs, (bank[0],), (bank[1],)))


@pytest.mark.parametrize("border", ["zero", "reflect"])
def test_compile(border: str) -> None:
    torch._dynamo.reset()
    layer = convx.nn.Filter2d(torch.randn(2, 3, 3).double(), border, trainable=True)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for size in ((2, 9, 8), (3, 11, 12)):
        images = torch.randn(size, dtype=torch.float64, requires_grad=True)
        gradients = []
        for call in (layer, compiled):
            output = call(images)
            gradients.append(torch.autograd.grad(output.square().sum(), (images, layer.filter)))
        torch.testing.assert_close(*gradients)
    torch.testing.assert_close(
        torch.compile(filter2d, backend="aot_eager")(photo(9, 9), [[1, 0, -1]]),
        filter2d(photo(9, 9), [[1, 0, -1]]),
    )
