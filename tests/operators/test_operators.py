"""The raw operators: opcheck, fakes that equal the real ones, gradients of first and second order."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck
from torch.utils.flop_counter import FlopCounterMode

import convx
from convx import _libraries

conv2d = torch.ops.convx.conv2d.default
input_grad = torch.ops.convx.conv2d_input_grad.default
weight_grad = torch.ops.convx.conv2d_weight_grad.default

CHANNELS = 4
GEOMETRY = ((1, 2), (1, 0, 2, 1), (2, 1), CHANNELS)

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda t: t.contiguous(),
    "channels_last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "sliced": lambda t: torch.cat([t, t], 3)[..., : t.size(3)],
    "channels_last sliced": lambda t: torch.cat([t, t], 2).contiguous(memory_format=torch.channels_last)[
        :, :, : t.size(2)
    ],
    "permuted": lambda t: t.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
    "expanded": lambda t: t[:1, :, :1].expand(t.shape),
    "expanded by zero strides": lambda t: t[:1, :1, :1, :1].expand(t.shape),
    "empty batch": lambda t: t[:0],
}


def forward_arguments(layout: str, dtype: torch.dtype = torch.float32) -> tuple[object, ...]:
    input = LAYOUTS[layout](torch.randn(2, CHANNELS, 6, 7).to(dtype))
    return (input, torch.randn(CHANNELS, 1, 3, 2).to(dtype), torch.randn(CHANNELS).to(dtype), *GEOMETRY)


def output_grad(layout: str, dtype: torch.dtype = torch.float32) -> Tensor:
    return LAYOUTS[layout](torch.randn(2, CHANNELS, 3, 5).to(dtype))


def input_grad_arguments(layout: str, dtype: torch.dtype = torch.float32) -> tuple[object, ...]:
    grad, weight = output_grad(layout, dtype), torch.randn(CHANNELS, 1, 3, 2).to(dtype)
    return (grad, weight, (grad.size(0), CHANNELS, 6, 7), *GEOMETRY, "auto", 0)


def weight_grad_arguments(layout: str, dtype: torch.dtype = torch.float32) -> tuple[object, ...]:
    input = LAYOUTS[layout](torch.randn(2, CHANNELS, 6, 7).to(dtype))
    return (input, output_grad(layout, dtype), (CHANNELS, 1, 3, 2), *GEOMETRY, "auto", 0)


def requiring_grad(arguments: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(
        a.detach().requires_grad_() if isinstance(a, Tensor) and a.is_floating_point() else a
        for a in arguments
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("activation", ["none", "relu6", "gelu"])
def test_opcheck_conv2d(layout: str, activation: str) -> None:
    opcheck(conv2d, requiring_grad((*forward_arguments(layout), activation, "auto", 0)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_opcheck_gradients(layout: str) -> None:
    opcheck(input_grad, requiring_grad(input_grad_arguments(layout)))
    opcheck(weight_grad, requiring_grad(weight_grad_arguments(layout)))


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
def test_opcheck_gpu(layout: str) -> None:
    def cuda(arguments: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(a.cuda() if isinstance(a, Tensor) else a for a in arguments)

    opcheck(conv2d, requiring_grad(cuda((*forward_arguments(layout), "relu", "auto", 0))))
    opcheck(input_grad, requiring_grad(cuda(input_grad_arguments(layout))))
    opcheck(weight_grad, requiring_grad(cuda(weight_grad_arguments(layout))))


SHAPES = [(2, 4, 6, 7), (2, 1, 6, 7), (1, 4, 1, 1), (1, 1, 1, 1), (0, 4, 6, 7), (3, 4, 1, 7), (3, 4, 6, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "channels_last sliced", "permuted"])
@pytest.mark.parametrize("algorithm", ["auto", "native"])
def test_fake_strides_equal_real_ones(shape: tuple[int, ...], layout: str, algorithm: str) -> None:
    input = LAYOUTS[layout](torch.randn(shape))
    weight = torch.randn(shape[1], 1, 3, 3)
    geometry = ((1, 1), (1, 1, 1, 1), (1, 1), shape[1])

    def results(input: Tensor, weight: Tensor) -> list[Tensor]:
        output = conv2d(input, weight, None, *geometry, "none", algorithm, 0)
        return [
            output,
            input_grad(input, weight, list(input.shape), *geometry, algorithm, 0),
            weight_grad(input, output, list(weight.shape), *geometry, algorithm, 0),
        ]

    real = results(input, weight)
    mode = FakeTensorMode()
    fake = results(mode.from_tensor(input), mode.from_tensor(weight))
    for one, other in zip(real, fake, strict=True):
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)


def convx_frames(call: Callable[[], object]) -> list[str]:
    """Functions of convx's Python that a call runs."""
    seen: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and "convx" in frame.f_globals.get("__name__", ""):
            seen.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.skipif(_libraries.front() is None, reason="the front does not fit this torch")
@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (conv2d, (*forward_arguments("contiguous"), "none", "auto", 0)),
        (input_grad, input_grad_arguments("channels_last")),
        (weight_grad, weight_grad_arguments("contiguous")),
    ],
    ids=["conv2d", "input_grad", "weight_grad"],
)
def test_calls_without_gradients_need_no_python(
    operator: Callable[..., Tensor], arguments: tuple[object, ...]
) -> None:
    """As of what torch.compile has recorded."""
    tensors = requiring_grad(arguments)
    assert not convx_frames(lambda: operator(*arguments))
    with torch.no_grad():
        assert not convx_frames(lambda: operator(*tensors))
    assert convx_frames(lambda: operator(*tensors))


def test_channels_last_gives_channels_last() -> None:
    input = torch.randn(2, 4, 6, 7).contiguous(memory_format=torch.channels_last)
    output = convx.functional.conv2d(input, torch.randn(4, 1, 3, 3), padding=1, groups=4)
    assert output.is_contiguous(memory_format=torch.channels_last)
    assert not output.is_contiguous()


# Every kernel that float64 has is checked by test_depthwise; derivatives don't depend on it.
@pytest.mark.slow
@pytest.mark.parametrize("activation", ["none", "relu", "relu6", "silu", "hardswish", "gelu"])
def test_gradcheck_of_the_raw_operator(activation: str) -> None:
    inputs = requiring_grad(forward_arguments("contiguous", torch.float64)[:3])

    def call(*tensors: Tensor) -> Tensor:
        return conv2d(*tensors, *GEOMETRY, activation, "auto", 0)

    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_gradcheck_of_the_raw_gradients(layout: str) -> None:
    grad, weight, *rest = input_grad_arguments(layout, torch.float64)
    inputs = requiring_grad((grad, weight))
    assert torch.autograd.gradcheck(lambda g, w: input_grad(g, w, *rest), inputs)
    assert torch.autograd.gradgradcheck(lambda g, w: input_grad(g, w, *rest), inputs)
    input, grad, *rest = weight_grad_arguments(layout, torch.float64)
    inputs = requiring_grad((input, grad))
    assert torch.autograd.gradcheck(lambda x, g: weight_grad(x, g, *rest), inputs)
    assert torch.autograd.gradgradcheck(lambda x, g: weight_grad(x, g, *rest), inputs)


def test_forward_mode_of_the_raw_operators_is_no_zero() -> None:
    """torch.library.register_autograd drops tangents without a word."""
    input, grad, weight = torch.randn(1, 4, 6, 6), torch.randn(1, 4, 6, 6), torch.randn(4, 1, 3, 3)
    rest = ((1, 1), (1, 1, 1, 1), (1, 1), 4)
    calls = (
        lambda t: conv2d(input, t, None, *rest, "none", "auto", 0),
        lambda t: input_grad(grad, t, [1, 4, 6, 6], *rest, "auto", 0),
        lambda t: weight_grad(input, t.new_zeros(1) + grad * t.sum(), [4, 1, 3, 3], *rest, "auto", 0),
        lambda t: torch.ops.convx.filter2d(t[:, 0], t[:, 0], "zero", "auto"),
    )
    for call in calls:
        with pytest.raises(NotImplementedError, match=r"convx::.* has no forward-mode derivative by itself"):
            torch.func.jvp(call, (weight,), (weight,))
        with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match="convx"):
            call(torch.autograd.forward_ad.make_dual(weight, weight))


def test_flops_are_counted_as_torchs() -> None:
    x = torch.randn(2, 8, 9, 9, requires_grad=True)
    counted = []
    for conv in (torch.nn.Conv2d, convx.nn.Conv2d):
        with FlopCounterMode(display=False) as counter:
            conv(8, 16, 3, padding=1, stride=2)(x).sum().backward()
        counted.append(counter.get_total_flops())
    assert counted[0] == counted[1] == 3 * 2 * (2 * 16 * 5 * 5) * (8 * 9)
    with FlopCounterMode(display=False) as counter:
        conv2d(x, torch.randn(8, 1, 3, 3), None, (1, 1), (1, 1, 1, 1), (1, 1), 8, "none", "auto", 0)
        convx.functional.filter2d(x, torch.randn(3, 5, 5))
    assert counter.get_total_flops() == 2 * 2 * 8 * 81 * (9 + 3 * 25)


def test_empty_batch() -> None:
    input = torch.randn(0, 4, 6, 7, requires_grad=True)
    weight = torch.randn(4, 1, 3, 3, requires_grad=True)
    bias = torch.randn(4, requires_grad=True)
    output = convx.functional.conv2d(input, weight, bias, padding=1, groups=4)
    assert output.shape == (0, 4, 6, 7)
    output.sum().backward()
    assert input.grad is not None and input.grad.shape == input.shape
    for parameter in (weight, bias):
        assert parameter.grad is not None and torch.equal(parameter.grad, torch.zeros_like(parameter))
