"""Autocast: the dtypes that nn.Conv2d has, by the functional and by the raw operator."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

import convx

GEOMETRY = ((1, 1), (1, 1, 1, 1), (1, 1), 4)
LOW = (torch.bfloat16, torch.float16)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def tensors(dtype: torch.dtype, device: str) -> list[Tensor]:
    return [
        torch.randn(2, 4, 6, 6, device=device).to(dtype),
        torch.randn(4, 1, 3, 3, device=device).to(dtype),
        torch.randn(4, device=device).to(dtype),
    ]


def raw(*given: Tensor) -> Tensor:
    return torch.ops.convx.conv2d.default(*given, *GEOMETRY, "none", "auto", 0)


def functional(*given: Tensor) -> Tensor:
    return convx.functional.conv2d(*given, padding=1, groups=4)


def native(*given: Tensor) -> Tensor:
    return torch.nn.functional.conv2d(*given, padding=1, groups=4)


@pytest.mark.parametrize("low", LOW, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("call", [raw, functional])
def test_dtypes_as_torch(low: torch.dtype, dtype: torch.dtype, call: object, device: str) -> None:
    given = tensors(dtype, device)
    for enabled in (True, False):
        with torch.autocast(device, low, enabled=enabled):
            expected, result = native(*given), call(*given)  # type: ignore[operator]
        assert result.dtype == expected.dtype
        torch.testing.assert_close(result, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("low", LOW, ids=str)
def test_mixed_arguments(low: torch.dtype, device: str) -> None:
    for kinds in itertools.product((torch.float32, low), repeat=3):
        given = [tensor.to(kind) for tensor, kind in zip(tensors(torch.float32, device), kinds, strict=True)]
        with torch.autocast(device, low):
            assert raw(*given).dtype == functional(*given).dtype == native(*given).dtype == low


@pytest.mark.parametrize("call", [raw, functional])
def test_training(call: object, device: str) -> None:
    given = [tensor.requires_grad_() for tensor in tensors(torch.float32, device)]
    with torch.autocast(device, torch.bfloat16):
        output = call(*given)  # type: ignore[operator]
    output.float().square().sum().backward()
    assert all(tensor.grad is not None and tensor.grad.dtype == torch.float32 for tensor in given)


def test_layer(device: str) -> None:
    layer = convx.nn.Conv2d(4, 4, 3, groups=4, activation="relu", device=device)
    with torch.autocast(device, torch.bfloat16):
        assert layer(torch.randn(1, 4, 6, 6, device=device)).dtype == torch.bfloat16
    assert layer(torch.randn(1, 4, 6, 6, device=device)).dtype == torch.float32


def test_compiled() -> None:
    torch._dynamo.reset()
    layer = convx.nn.Conv2d(4, 4, 3, groups=4)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(torch.randn(1, 4, 6, 6)).dtype == torch.bfloat16


def test_meta_tensors_have_no_autocast() -> None:
    """torch knows none for them, whatever is on for the CPU."""
    x, w = torch.empty(1, 4, 6, 6, device="meta"), torch.empty(4, 1, 3, 3, device="meta")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert convx.functional.conv2d(x, w, groups=4).dtype == torch.float32
