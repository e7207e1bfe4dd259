"""convx.functional against torch.nn.functional: arguments in every form, both paths, derivatives."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import convx
from convx.functional import conv1d, conv2d

ACTIVATIONS = ("none", "relu", "relu6", "silu", "hardswish", "gelu")


def image(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*(shape or (2, 6, 9, 8)), dtype=dtype)


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"padding": 1},
        {"padding": (2, 0)},
        {"padding": [1, 2], "stride": [2, 1]},
        {"padding": (1,), "stride": (2,), "dilation": (1,)},
        {"padding": "same", "dilation": (1, 2)},
        {"padding": "valid", "stride": 2},
        {"padding": 2, "stride": (1, 3), "dilation": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("filter", [(3, 3), (2, 4), (1, 5)])
def test_as_torch(arguments: dict[str, Any], groups: int, filter: tuple[int, int]) -> None:
    input, weight, bias = image(), image(12, 6 // groups, *filter), image(12)
    for given in (bias, None):
        close(
            conv2d(input, weight, given, groups=groups, **arguments),
            F.conv2d(input, weight, given, groups=groups, **arguments),
        )


def test_asymmetric_padding() -> None:
    input, weight = image(), image(6, 1, 3, 3)
    close(
        conv2d(input, weight, padding=((0, 2), (3, 1)), groups=6),
        F.conv2d(F.pad(input, (3, 1, 0, 2)), weight, groups=6),
    )


def test_unbatched() -> None:
    input, weight = image(6, 9, 8), image(6, 1, 3, 3)
    close(conv2d(input, weight, padding=1, groups=6), F.conv2d(input, weight, padding=1, groups=6))
    row = image(6, 20)
    close(conv1d(row, weight[:, :, 0], groups=6), F.conv1d(row, weight[:, :, 0], groups=6))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"padding": 3},
        {"padding": (2,), "stride": (2,)},
        {"padding": "same", "dilation": 3},
        {"stride": 4},
    ],
    ids=str,
)
@pytest.mark.parametrize("groups", [1, 6])
@pytest.mark.parametrize("taps", [1, 4, 7])
def test_conv1d(arguments: dict[str, Any], groups: int, taps: int) -> None:
    input, weight, bias = image(3, 6, 31), image(6, 6 // groups, taps), image(6)
    close(
        conv1d(input, weight, bias, groups=groups, **arguments),
        F.conv1d(input, weight, bias, groups=groups, **arguments),
    )
    close(
        conv1d(input, weight, padding=((2, 5),), groups=groups),
        F.conv1d(F.pad(input, (2, 5)), weight, groups=groups),
    )


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("grad", [False, True])
def test_activations(activation: str, grad: bool) -> None:
    tensors = [t.requires_grad_(grad) for t in (3 * image(), image(6, 1, 3, 3), image(6))]
    twins = [t.detach().clone().requires_grad_(grad) for t in tensors]
    result = conv2d(*tensors, padding=1, groups=6, activation=activation)
    expected = F.conv2d(*twins, padding=1, groups=6)
    expected = expected if activation == "none" else getattr(F, activation)(expected)
    close(result, expected)
    if grad:
        weights = torch.randn_like(result)
        result.backward(weights)
        expected.backward(weights)
        for tensor, twin in zip(tensors, twins, strict=True):
            assert tensor.grad is not None and twin.grad is not None
            close(tensor.grad, twin.grad)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradcheck(activation: str) -> None:
    tensors = [t.requires_grad_() for t in (image(2, 3, 5, 4), image(3, 1, 3, 2), image(3))]

    def call(*tensors: Tensor) -> Tensor:
        padding = ((1, 0), (2, 1))
        return conv2d(*tensors, stride=(2, 1), padding=padding, groups=3, activation=activation)

    assert torch.autograd.gradcheck(call, tensors, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, tensors)


def test_gradcheck_channels_last_and_dense() -> None:
    input = image(2, 4, 5, 4).contiguous(memory_format=torch.channels_last).requires_grad_()
    for weight, groups in ((image(4, 1, 3, 3), 4), (image(6, 2, 3, 3), 2)):
        weight.requires_grad_()

        def call(x: Tensor, w: Tensor, groups: int = groups) -> Tensor:
            return conv2d(x, w, padding=1, groups=groups)

        assert torch.autograd.gradcheck(call, (input, weight))
        assert torch.autograd.gradgradcheck(call, (input, weight))


def test_third_derivative() -> None:
    def third(call: Callable[..., Tensor]) -> Tensor:
        torch.manual_seed(1)
        input, weight = image(1, 2, 5, 5).requires_grad_(), image(2, 1, 3, 3).requires_grad_()
        result = call(input, weight, groups=2).pow(4).sum()
        for _ in range(3):
            (gradient,) = torch.autograd.grad(result, weight, create_graph=True)
            result = gradient.pow(2).sum()
        return result.detach()

    torch.testing.assert_close(third(conv2d), third(F.conv2d), rtol=1e-9, atol=0)


@pytest.mark.parametrize("needing", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_only_what_gradients_need_is_kept(needing: tuple[int, ...]) -> None:
    """The input for the weight's, the weight for the input's."""
    tensors = [image(), image(6, 1, 3, 3), image(6)]
    for index in needing:
        tensors[index].requires_grad_()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        output = conv2d(*tensors, groups=6, algorithm="depthwise")
    expected = [tensors[other].shape for index, other in ((1, 0), (0, 1)) if index in needing]
    assert [tensor.shape for tensor in kept] == expected
    output.sum().backward()
    assert [tensor.grad is not None for tensor in tensors] == [index in needing for index in range(3)]


def test_no_graph_without_gradients() -> None:
    input, weight = image().requires_grad_(), image(6, 1, 3, 3)
    assert conv2d(input.detach(), weight, groups=6).grad_fn is None
    with torch.no_grad():
        assert conv2d(input, weight, groups=6).grad_fn is None
    with torch.inference_mode():
        assert conv2d(input, weight, groups=6).is_inference()


def test_expanded_gradient_keeps_channels_last() -> None:
    input = image().contiguous(memory_format=torch.channels_last).requires_grad_()
    conv2d(input, image(6, 1, 3, 3), groups=6).sum().backward()
    assert input.grad is not None and input.grad.is_contiguous(memory_format=torch.channels_last)


def test_gradient_functions() -> None:
    input, weight = image().requires_grad_(), image(6, 1, 3, 4).requires_grad_()
    output = F.conv2d(input, weight, padding="same", groups=6)
    grad = torch.randn_like(output)
    output.backward(grad)
    assert input.grad is not None and weight.grad is not None
    arguments = {"padding": "same", "groups": 6}
    with torch.no_grad():
        close(convx.functional.conv2d_input_grad(grad, weight, input.shape, **arguments), input.grad)
        close(convx.functional.conv2d_weight_grad(input, grad, weight.shape, **arguments), weight.grad)


def _a_problem_for(algorithm: str) -> tuple[list[Tensor], int, int]:
    """Input, weight and bias, padding and groups that this method can run on a CPU."""
    for channels, filters, side, groups in ((6, 6, 3, 6), (6, 8, 3, 1), (6, 8, 1, 1), (1, 3, 3, 1)):
        sizes = ((4, channels, 30, 30), (filters, channels // groups, side, side), (filters,))
        tensors = [image(*size).float().requires_grad_() for size in sizes]
        rows = convx.explain(*tensors, padding=side // 2, groups=groups).rows
        if algorithm == "auto" or any(row.can_run and row.method == algorithm for row in rows):
            return tensors, side // 2, groups
    pytest.skip(f"{algorithm} runs none of these problems on a CPU")


@pytest.mark.parametrize("algorithm", ["auto", *(row["name"] for row in convx.methods())])
def test_bit_for_bit_repeatable(algorithm: str) -> None:
    tensors, padding, groups = _a_problem_for(algorithm)
    runs = []
    for _ in range(3):
        output = conv2d(*tensors, padding=padding, groups=groups, algorithm=algorithm)
        runs.append([output, *torch.autograd.grad(output.sin().sum(), tensors)])
    for run in runs[1:]:
        assert all(torch.equal(one, other) for one, other in zip(run, runs[0], strict=True))


def test_jit_trace_and_make_fx_see_the_operator() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    input, weight = image(), image(6, 1, 3, 3)
    graph = make_fx(lambda x, w: conv2d(x, w, groups=6))(input, weight)
    assert any(node.target is torch.ops.convx.conv2d.default for node in graph.graph.nodes)
    traced = torch.jit.trace(lambda x, w: conv2d(x, w, groups=6), (input, weight))
    other = image()
    close(traced(other, weight), conv2d(other, weight, groups=6))


@pytest.mark.parametrize(
    "name",
    [
        *("convx", "convx.functional", "convx.nn", "convx.convert", "convx.explain", "convx.info"),
        *("convx.images.functional", "convx.images.layers", "convx.tune", "convx.tune.tuning"),
        "convx.compile.backend",
    ],
)
def test_docstring_examples(name: str) -> None:
    # "convx.explain" is a function as an attribute and a module by import.
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
