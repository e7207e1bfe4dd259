"""Calls of a layer that are native's go to torch straight, and only those."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import convx
from convx import _eager
from convx._packed import _MOST, PackedFilters, forget_all


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each call of the operator."""
    calls: list[int] = []
    conv2d = _eager._conv2d
    monkeypatch.setattr(_eager, "_conv2d", lambda *arguments: calls.append(1) or conv2d(*arguments))
    return calls


def _layer(**options: Any) -> convx.nn.Conv2d:
    torch.manual_seed(0)
    return convx.nn.Conv2d(6, 10, 3, padding=1, **{"algorithm": "native", **options})


def _input(*size: int) -> Tensor:
    return torch.randn(*(size or (2, 6, 9, 11)))


def _torchs(layer: convx.nn.Conv2d, input: Tensor) -> Tensor:
    rest = (layer.stride, layer.padding, layer.dilation, layer.groups)
    return torch.nn.functional.conv2d(input, layer.weight, layer.bias, *rest)


@torch.no_grad()
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("bias", [True, False])
def test_native_is_torchs_own_call(operators: list[int], layout: torch.memory_format, bias: bool) -> None:
    layer, x = _layer(bias=bias).to(memory_format=layout), _input().contiguous(memory_format=layout)
    for _ in range(3):
        result = layer(x)
        assert torch.equal(result, _torchs(layer, x))
        assert result.is_contiguous(memory_format=layout)
    assert not operators


@torch.no_grad()
def test_another_choice_is_the_operators(operators: list[int]) -> None:
    layer, x = _layer(algorithm="hntmp"), _input()
    for expected in (1, 2):
        torch.testing.assert_close(layer(x), _torchs(layer, x))
        assert len(operators) == expected


def _with_gradient(layer: convx.nn.Conv2d, x: Tensor) -> Tensor:
    with torch.enable_grad():
        result: Tensor = layer(x)
    assert result.requires_grad
    return result.detach()


def _in_autocast(layer: convx.nn.Conv2d, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        result: Tensor = layer(x)
    assert result.dtype == torch.bfloat16
    return result.float()


def _of_a_slice(layer: convx.nn.Conv2d, x: Tensor) -> Tensor:
    wide = torch.cat([x, x], dim=3)
    return layer(wide[..., : x.shape[3]])


def _of_another_layout(layer: convx.nn.Conv2d, x: Tensor) -> Tensor:
    result: Tensor = layer(x.contiguous(memory_format=torch.channels_last))
    assert result.is_contiguous(memory_format=torch.channels_last)
    return result


def _without_a_batch(layer: convx.nn.Conv2d, x: Tensor) -> Tensor:
    return torch.stack([layer(image) for image in x])


def _fused(layer: convx.nn.Conv2d, x: Tensor) -> Tensor:
    layer.activation = "relu"
    result: Tensor = layer(x)
    layer.activation = "none"
    assert (result >= 0).all()
    return torch.where(result > 0, result, layer(x))


def _of_another_method(layer: convx.nn.Conv2d, x: Tensor) -> Tensor:
    layer.algorithm = "hntmp"
    return layer(x)


@torch.no_grad()
@pytest.mark.parametrize(
    "call",
    [
        _with_gradient,
        _in_autocast,
        _of_a_slice,
        _of_another_layout,
        _without_a_batch,
        _fused,
        _of_another_method,
    ],
)
def test_what_torch_would_not_do_alike_is_the_operators(
    operators: list[int], call: Callable[[convx.nn.Conv2d, Tensor], Tensor]
) -> None:
    layer, x = _layer(), _input()
    layer(x)  # remembered
    before = len(operators)
    tolerance = 2e-2 if call is _in_autocast else 1e-5
    torch.testing.assert_close(call(layer, x), _torchs(layer, x), rtol=tolerance, atol=tolerance)
    if call is not _with_gradient:  # that goes by a Function, which holds the operator itself
        assert len(operators) > before


@torch.no_grad()
def test_what_is_remembered_follows_the_layer(operators: list[int]) -> None:
    layer, x = _layer(), _input()
    layer(x)
    layer.weight.add_(1)
    assert torch.equal(layer(x), _torchs(layer, x))
    layer.dilation, layer.padding = (2, 2), (2, 2)
    assert torch.equal(layer(x), _torchs(layer, x))
    layer.weight.data = layer.weight.data.double()
    layer.bias.data = layer.bias.data.double()
    assert torch.equal(layer(x.double()), _torchs(layer, x.double()))
    assert not operators
    with pytest.raises(ValueError, match="weight must have the dtype of input"):
        layer(x)  # the message is the operator's


@torch.no_grad()
def test_padding_that_differs_between_sides(operators: list[int]) -> None:
    layer, x = _layer(), _input()
    layer.padding = ((0, 2), (1, 0))
    padded = torch.nn.functional.pad(x, (1, 0, 0, 2))
    expected = torch.nn.functional.conv2d(padded, layer.weight, layer.bias)
    torch.testing.assert_close(layer(x), expected)
    assert operators


@torch.no_grad()
def test_choices_made_anew_count(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = _layer(algorithm="auto"), _input()
    asked = []
    core = convx._planning.core
    monkeypatch.setattr(convx._planning, "core", lambda: asked.append(1) or core())
    layer(x)
    first = len(asked)
    assert first > 0
    layer(x)
    assert len(asked) == first
    forget_all()
    layer(x)
    assert len(asked) == 2 * first


@torch.no_grad()
@pytest.mark.parametrize("how", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_remember_nothing(how: Callable[[convx.nn.Conv2d], convx.nn.Conv2d]) -> None:
    layer, x = _layer(), _input()
    expected = layer(x)
    assert layer._packed is not None and layer._packed.choices
    other = how(layer)
    assert other._packed is not None and not other._packed.choices
    assert torch.equal(other(x), expected)


@torch.no_grad()
def test_a_list_that_is_changed_in_place_is_another_call() -> None:
    packed, x, weight, stride = PackedFilters(), _input(1, 6, 9, 9), torch.randn(10, 6, 3, 3), [1, 1]
    for height in (1, 2, 1):
        stride[0] = height
        result = convx.functional.conv2d(x, weight, stride=stride, algorithm="native", packed=packed)
        assert torch.equal(result, torch.nn.functional.conv2d(x, weight, stride=(height, 1)))


@torch.no_grad()
def test_many_sizes_do_not_pile_up() -> None:
    packed, weight = PackedFilters(), torch.randn(10, 6, 3, 3)
    for size in range(3, 5 + _MOST):
        x = _input(1, 6, size, 5)
        result = convx.functional.conv2d(x, weight, algorithm="native", packed=packed)
        assert torch.equal(result, torch.nn.functional.conv2d(x, weight))
        assert 0 < len(packed.choices) <= _MOST
