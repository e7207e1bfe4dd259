"""What the operators return, by every kernel of every method: a tensor of its own, in the layout that torch's
convolution gives, which a program may modify in place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from planned import algorithms_of, layout_of_result, operands_of, result_of
from reference import DTYPES, OPERATIONS, Case, Dense, Tensors, assert_agrees, make, reference, torch_result
from torch import Tensor

import convx

CASES = [
    Case(channels=20),
    Case(channels=20, stride=(2, 2), multiplier=2, padding=(2, 1, 0, 1)),
    Case(channels=16, filter=(5, 5), padding=(2, 2, 2, 2)),
    Case(batch=1, channels=1, height=6, padding=(3, 0, 0, 0)),  # its gradient is dense within the padded one
    Case(channels=1, multiplier=5),
    Case(channels=9, height=3, width=3, padding=(0, 0, 0, 0)),  # to one pixel
    Dense(batch=1, channels=8, filters=12),
    Dense(channels=16, filters=1),
    Dense(channels=1, filters=6, stride=(2, 2)),
    Dense(channels=12, filters=8, groups=4, filter=(1, 3), padding=(0, 0, 1, 1)),
    Dense(batch=1, channels=16, filters=24, filter=(1, 1), padding=(0, 0, 0, 0)),
    Dense(channels=16, filters=24, filter=(1, 1), padding=(0, 0, 0, 0)),
    Dense(channels=96, filters=4, filter=(1, 1), padding=(0, 0, 0, 0), height=1, width=1),
    Dense(channels=1, filters=1, filter=(1, 1), padding=(0, 0, 0, 0), height=1, width=1),
]


def channels_last(tensor: Tensor) -> Tensor:
    """In these strides where sizes of 1 leave a choice, too: contiguous() leaves such tensors as they are."""
    return tensor.clone(memory_format=torch.channels_last)


def rows_outermost(tensor: Tensor) -> Tensor:
    """Channels are next to each other, in an order that torch does not take for channels_last."""
    return tensor.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2)


def within_wider(tensor: Tensor) -> Tensor:
    """Channels of a channels_last tensor that has more."""
    return channels_last(torch.cat([tensor, tensor], 1))[:, : tensor.size(1)]


Lay = Callable[[Tensor], Tensor]
LAYOUTS: dict[str, tuple[Lay, Lay]] = {
    "contiguous": (torch.clone, torch.clone),
    "channels_last": (channels_last, channels_last),
    "channels_last input": (channels_last, torch.clone),
    "channels_last weight": (torch.clone, channels_last),
    "rows outermost": (rows_outermost, torch.clone),
    "within wider": (within_wider, torch.clone),
}


def laid_out(case: Case, dtype: torch.dtype, device: str, layout: str) -> Tensors:
    tensors = make(case, dtype, device)
    of_input, of_weight = LAYOUTS[layout]
    return Tensors(
        of_input(tensors.input), of_weight(tensors.weight), tensors.bias, of_input(tensors.output_grad)
    )


def assert_own(result: Tensor, what: str) -> None:
    """Nobody else has a handle to it, and it is the whole of its memory."""
    assert not result._is_view() and result._base is None, what
    assert result._use_count() == 1, f"{what}: {result._use_count()} owners"
    storage = result.untyped_storage()
    assert (result.storage_offset(), storage.nbytes()) == (0, result.numel() * result.itemsize), what


@pytest.fixture(autouse=True)
def _exact_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are there by what torch's settings allow."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_results_are_tensors_of_their_own(
    operation: str, dtype: torch.dtype, layout: str, device: str
) -> None:
    for case in CASES:
        tensors = laid_out(case, dtype, device, layout)
        own, exact = torch_result(operation, case, tensors), reference(operation, case, tensors)
        format_of_result = layout_of_result(operation, tensors)
        strides = torch.empty(own.shape, memory_format=format_of_result).stride()
        operands = operands_of(operation, tensors)
        owners = [operand._use_count() for operand in operands]
        for algorithm in ["auto", *algorithms_of(operation, case, tensors)]:
            what = f"{algorithm} {operation} {case}"
            result = result_of(operation, case, tensors, algorithm)
            assert_own(result, what)
            assert result.stride() == strides, what
            assert_agrees(result, own, exact, what, case.terms(operation))
            assert [operand._use_count() for operand in operands] == owners, f"{what} keeps an operand"


def _by_onednn(dtype: torch.dtype) -> bool:
    """Whether torch's convolutions of this CPU are oneDNN's."""
    if dtype == torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


def stride_of(tensor: Tensor) -> tuple[int, ...]:
    """Strides in sizes of 1 tell the layout too; torch's own depthwise kernels leave those to chance."""
    if _by_onednn(tensor.dtype):
        return tensor.stride()
    return tuple(step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_layout_is_torchs(dtype: torch.dtype, layout: str) -> None:
    """Of the result and of both gradients, with torch's own convolution beside it on a CPU."""
    for case in CASES:
        if case.padding[0] != case.padding[1] or case.padding[2] != case.padding[3]:
            continue
        tensors = laid_out(case, dtype, "cpu", layout)
        strides = []
        for function in (F.conv2d, convx.functional.conv2d):
            x, w = tensors.input.detach().requires_grad_(), tensors.weight.detach().requires_grad_()
            y = function(x, w, None, case.stride, case.padding[::2], case.dilation, case.group_count)
            x_grad, _ = torch.autograd.grad(y, (x, w), tensors.output_grad)
            strides.append([stride_of(each) for each in (y, x_grad)])
        assert strides[0] == strides[1], case


@pytest.mark.parametrize("layout", LAYOUTS)
def test_activations_in_place(layout: str, device: str) -> None:
    """As models have them after convolutions, the squeeze-excite layers' images of one pixel among them."""
    for case in CASES:
        tensors = laid_out(case, torch.float32, device, layout)
        rest = (None, case.stride, (case.padding[:2], case.padding[2:]), case.dilation, case.group_count)
        for algorithm in algorithms_of("forward", case, tensors):
            x, w = tensors.input.detach().requires_grad_(), tensors.weight.detach().requires_grad_()
            y = convx.functional.conv2d(x, w, *rest, algorithm=algorithm)
            F.relu_(y)
            x_grad, w_grad = torch.autograd.grad(y, (x, w), tensors.output_grad)
            F.relu_(x_grad), F.relu_(w_grad)
            expected = F.relu(convx.functional.conv2d(tensors.input, tensors.weight, *rest))
            torch.testing.assert_close(y.detach(), expected, rtol=1e-4, atol=1e-4)


def test_layers_in_place(device: str) -> None:
    image = torch.randn(2, 96, 1, 1, device=device)
    for algorithm in ("auto", "native"):
        layer = convx.nn.Conv2d(96, 4, 1, algorithm=algorithm).to(device)
        F.relu_(layer(channels_last(image).requires_grad_())).sum().backward()
        F.relu_(layer(image[0].requires_grad_())).sum().backward()
        rows = convx.nn.Conv1d(8, 8, 3, groups=8, algorithm=algorithm).to(device)
        F.relu_(rows(torch.randn(2, 8, 9, device=device, requires_grad=True))).sum().backward()
