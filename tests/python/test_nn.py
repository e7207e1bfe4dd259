"""convx.nn: torch's layers in all but the kernels."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch

import convx

LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("Conv2d", (6, 6, 3), {"groups": 6, "padding": 1}, (2, 6, 9, 8)),
    ("Conv2d", (6, 12, (2, 3)), {"groups": 6, "padding": "same", "bias": False}, (2, 6, 9, 8)),
    ("Conv2d", (6, 4, 3), {"stride": 2, "dilation": (1, 2)}, (2, 6, 9, 8)),
    ("Conv2d", (6, 6, 3), {"groups": 6, "padding": 1}, (6, 9, 8)),
    ("Conv1d", (6, 6, 5), {"groups": 6, "padding": 2}, (2, 6, 30)),
    ("Conv1d", (6, 3, 4), {"padding": "same"}, (6, 30)),
]
MODES = ("zeros", "reflect", "replicate", "circular")


def pair(kind: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any]:
    options = {"dtype": torch.float64, **options}
    ours = getattr(convx.nn, kind)(*arguments, **options)
    theirs = getattr(torch.nn, kind)(*arguments, **options)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@pytest.mark.parametrize(("kind", "arguments", "options", "shape"), LAYERS)
@pytest.mark.parametrize("padding_mode", MODES)
def test_as_torch(
    kind: str, arguments: tuple[Any, ...], options: dict[str, Any], shape: tuple[int, ...], padding_mode: str
) -> None:
    ours, theirs = pair(kind, arguments, {**options, "padding_mode": padding_mode})
    input = torch.randn(shape, dtype=torch.float64)
    twin = input.clone().requires_grad_()
    input.requires_grad_()
    result, expected = ours(input), theirs(twin)
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-10)
    result.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(input.grad, twin.grad, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["Conv2d", "Conv1d"])
def test_state_dict_both_ways(kind: str) -> None:
    ours, theirs = pair(kind, (4, 4, 3), {"groups": 4})
    assert list(ours.state_dict()) == list(theirs.state_dict()) == ["weight", "bias"]
    torch.nn.init.normal_(theirs.weight)
    ours.load_state_dict(theirs.state_dict())
    assert torch.equal(ours.weight, theirs.weight)
    assert isinstance(ours, getattr(torch.nn, kind))


@pytest.mark.parametrize("kind", ["Conv2d", "Conv1d"])
def test_representation(kind: str) -> None:
    plain = getattr(convx.nn, kind)(4, 4, 3, groups=4)
    assert plain.extra_repr() == getattr(torch.nn, kind)(4, 4, 3, groups=4).extra_repr()
    special = getattr(convx.nn, kind)(4, 4, 3, groups=4, activation="relu6", algorithm="native")
    assert repr(special).endswith("groups=4, activation=relu6, algorithm=native)")


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("kind", ["Conv2d", "Conv1d"])
def test_activation(kind: str, grad: bool) -> None:
    layer = getattr(convx.nn, kind)(4, 4, 3, groups=4, activation="relu", dtype=torch.float64)
    input = torch.randn((2, 4, 9, 9) if kind == "Conv2d" else (2, 4, 9), dtype=torch.float64)
    with torch.set_grad_enabled(grad):
        output = layer(input)
    layer.activation = "none"
    torch.testing.assert_close(output, layer(input).relu())


@pytest.mark.parametrize("kind", ["Conv2d", "Conv1d"])
def test_copies(kind: str) -> None:
    layer = getattr(convx.nn, kind)(4, 4, 3, groups=4, activation="silu", algorithm="native")
    input = torch.randn((1, 4, 6, 6) if kind == "Conv2d" else (1, 4, 6))
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    for twin in (copy.copy(layer), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), loaded):
        assert type(twin) is type(layer)
        assert (twin.activation, twin.algorithm) == ("silu", "native")
        assert torch.equal(twin(input), layer(input))


def test_a_named_algorithm_is_used() -> None:
    layer = convx.nn.Conv2d(4, 4, 3, groups=2, algorithm="depthwise")
    with pytest.raises((ValueError, RuntimeError), match="depthwise"):
        layer(torch.randn(1, 4, 6, 6))


def test_training_on_meta_and_to() -> None:
    layer = convx.nn.Conv2d(4, 4, 3, groups=4, device="meta")
    assert layer(torch.empty(2, 4, 8, 8, device="meta")).shape == (2, 4, 6, 6)
    layer = layer.to_empty(device="cpu").half()
    assert layer(torch.randn(2, 4, 8, 8).half()).dtype == torch.float16
