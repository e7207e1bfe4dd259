"""Inverted residual blocks, in one kernel and convolution by convolution, against float64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from optimized import distance
from processes import ISAS, succeeds_on
from torch import Tensor
from torch.library import opcheck
from torch.utils.flop_counter import FlopCounterMode

from convx import _core, _planning
from convx.tune.operands import BlockOperands

run = torch.ops.convx.inverted_residual.default
pack = torch.ops.convx.pack_inverted_residual.default
LAYOUTS = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
HALVES = (torch.bfloat16, torch.float16)
WHERE = [  # kernels are, and for which dtypes
    pytest.param("cpu", torch.float32, id="cpu"),
    *(
        pytest.param("cuda", dtype, id=f"cuda-{dtype}", marks=pytest.mark.gpu)
        for dtype in (*HALVES, torch.float32)
    ),
]


@pytest.fixture(autouse=True)
def _exact_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@dataclass(frozen=True)
class Block:
    batch: int = 2
    channels: int = 16
    expanded: int = 40
    out: int = 24
    height: int = 11
    width: int = 13
    filter: int = 3
    stride: int = 1
    expand_filter: int = 1
    expand_stride: int = 1
    activation: str = "relu6"
    output_activation: str = "none"
    residual: bool = False
    bias: bool = True
    squeezed: int = 0
    squeeze_activation: str = "relu"
    gate: str = "sigmoid"

    def tensors(self, device: str, dtype: torch.dtype, layout: str) -> tuple[Tensor, list[Tensor | None]]:
        """The input, and weights and biases in turn."""

        def values(*size: int) -> Tensor:
            return torch.randn(size)

        input = values(self.batch, self.channels, self.height, self.width)
        depth = self.channels * self.expand_filter**2
        given: list[Tensor | None] = [
            values(self.expanded, self.channels, *[self.expand_filter] * 2) / (depth / 2) ** 0.5,
            values(self.expanded) if self.bias else None,
            values(self.expanded, 1, self.filter, self.filter) / self.filter,
            values(self.expanded) if self.bias else None,
            values(self.out, self.expanded, 1, 1) / self.expanded**0.5,
            values(self.out) if self.bias else None,
            *(None,) * 4,
        ]
        if self.squeezed:
            given[6:] = [
                values(self.squeezed, self.expanded, 1, 1) / self.expanded**0.5,
                values(self.squeezed) if self.bias else None,
                values(self.expanded, self.squeezed, 1, 1) / self.squeezed**0.5,
                values(self.expanded) if self.bias else None,
            ]
        weights = [None if each is None else each.to(device, dtype) for each in given]
        return input.to(device, dtype).contiguous(memory_format=LAYOUTS[layout]), weights

    @property
    def options(self) -> tuple[Any, ...]:
        inside = (self.activation, self.squeeze_activation, self.gate)
        return self.expand_stride, self.stride, *inside, self.output_activation, self.residual

    def torchs(self, input: Tensor, weights: list[Any]) -> Tensor:
        """Convolution by convolution."""
        expand, expand_bias, depthwise, depthwise_bias, project, project_bias, *inner = weights
        first = F.conv2d(input, expand, expand_bias, self.expand_stride, self.expand_filter // 2)
        expanded = _activated(first, self.activation)
        padding = self.filter // 2
        sums = F.conv2d(expanded, depthwise, depthwise_bias, self.stride, padding, 1, self.expanded)
        filtered = _activated(sums, self.activation)
        if self.squeezed:
            squeeze, squeeze_bias, excite, excite_bias = inner
            squeezed = F.conv2d(F.adaptive_avg_pool2d(filtered, 1), squeeze, squeeze_bias)
            gates = F.conv2d(_activated(squeezed, self.squeeze_activation), excite, excite_bias)
            filtered = filtered * getattr(F, self.gate)(gates)
        result = F.conv2d(filtered, project, project_bias)
        result = _activated(result, self.output_activation)
        return result + input if self.residual else result

    def exact(self, input: Tensor, weights: list[Any]) -> Tensor:
        doubles = [None if each is None else each.double().cpu() for each in weights]
        return self.torchs(input.double().cpu(), doubles)

    def problem(self, dtype: torch.dtype, layout: str = "channels_last") -> _core.BlockProblem:
        return _core.BlockProblem(
            dtype=_planning.dtype_name(dtype),
            layout=layout if self.expand_filter > 1 else "channels_last",
            activation=self.activation,
            output_activation=self.output_activation,
            residual=self.residual,
            batch=self.batch,
            channels=self.channels,
            height=self.height,
            width=self.width,
            expanded_channels=self.expanded,
            out_channels=self.out,
            expand_filter=self.expand_filter,
            expand_stride=self.expand_stride,
            filter=self.filter,
            stride=self.stride,
            squeezed_channels=self.squeezed,
            squeeze_activation=self.squeeze_activation,
            gate=self.gate,
        )


def _activated(value: Tensor, activation: str) -> Tensor:
    return value if activation == "none" else getattr(F, activation)(value)  # type: ignore[no-any-return]


def agrees(block: Block, result: Tensor, input: Tensor, weights: list[Any]) -> None:
    """As near to float64 as torch's own convolutions are, or twice as far."""
    exact = block.exact(input, weights)
    own = distance(block.torchs(input, weights).cpu(), exact)
    assert result.shape == exact.shape and result.dtype == input.dtype
    assert distance(result.cpu(), exact) <= 2 * own + 4 * torch.finfo(input.dtype).eps


BLOCKS = [
    Block(),
    Block(stride=2, filter=5, activation="hardswish", bias=False),
    Block(batch=1, channels=24, out=24, residual=True, activation="relu"),
    Block(batch=3, expanded=100, out=176, height=7, width=7, output_activation="relu6"),
    Block(batch=1, height=1, width=30, stride=2, output_activation="relu"),
    Block(channels=3, expand_filter=3, expand_stride=2, height=37, width=40),
    Block(channels=2, expand_filter=3, filter=5, stride=2, output_activation="relu6", bias=False),
]
EXCITED = [
    Block(squeezed=8),
    Block(channels=24, out=24, residual=True, activation="relu", squeezed=10, gate="hardsigmoid"),
    Block(1, 32, 96, 40, 9, 7, 5, 2, activation="hardswish", bias=False, squeezed=24),
    Block(channels=3, expand_filter=3, expand_stride=2, height=37, width=40, squeezed=4),
    Block(3, expanded=64, activation="silu", squeezed=4, squeeze_activation="silu"),
]
# A last vector of four channels, which GPUs don't take, and squeezed ones of two vectors.
RAGGED = Block(1, 24, 100, 24, 7, 7, 5, residual=True, activation="silu", squeezed=18, gate="hardsigmoid")
# Of networks for 224 x 224: every shape of the kernel, several tiles and chunks, and ragged ones.
LARGE = [
    Block(4, 16, 96, 24, 56, 56, stride=2),
    Block(2, 24, 144, 24, 56, 50, residual=True),
    Block(3, 40, 240, 40, 28, 28, filter=5, residual=True, activation="hardswish"),
    Block(9, 64, 384, 96, 14, 14),
    Block(2, 160, 960, 320, 7, 7, activation="relu"),
    Block(1, 96, 576, 160, 14, 14, stride=2, filter=5),
    Block(1, 8, 56, 136, 33, 65),
    Block(2, 3, 32, 16, 224, 224, expand_filter=3, expand_stride=2),
    Block(3, 2, 20, 24, 61, 90, expand_filter=3, expand_stride=3, stride=2, activation="hardswish"),
    Block(2, 3, 40, 24, 75, 104, expand_filter=3, expand_stride=2, activation="hardswish"),
    Block(2, 24, 72, 40, 56, 40, stride=2, filter=5, activation="relu"),
    Block(5, 96, 576, 168, 14, 14, stride=2, activation="relu"),
    Block(2, 32, 200, 64, 30, 28, stride=2, activation="hardswish"),
    Block(3, 96, 576, 96, 14, 15, residual=True),
]
# Of MobileNetV3 and EfficientNet.
LARGE_EXCITED = [
    Block(3, 24, 72, 40, 56, 50, 5, 2, activation="relu", squeezed=24, gate="hardsigmoid"),
    Block(2, 112, 672, 160, 14, 14, 5, 2, activation="hardswish", squeezed=168, gate="hardsigmoid"),
    Block(5, 160, 960, 160, 7, 7, 5, activation="hardswish", residual=True, squeezed=240, gate="hardsigmoid"),
    Block(2, 24, 144, 24, 56, 56, activation="silu", residual=True, squeezed=6, squeeze_activation="silu"),
    Block(4, 192, 1152, 192, 7, 7, 5, 1, activation="silu", squeezed=48, squeeze_activation="silu"),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block", [*BLOCKS, *EXCITED], ids=str)
def test_convolution_by_convolution(block: Block, dtype: torch.dtype, layout: str, device: str) -> None:
    input, weights = block.tensors(device, dtype, layout)
    result = run(input, *weights, *block.options, "native", 0)
    agrees(block, result, input, weights)
    assert result.is_contiguous(memory_format=LAYOUTS[layout])
    assert pack(input, *weights, *block.options, "native").numel() == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layers_are_the_operators(dtype: torch.dtype, layout: str, device: str) -> None:
    block = EXCITED[1]
    input, weights = block.tensors(device, dtype, layout)
    at, one = torch.ops.convx, [1, 1]
    value = at.conv2d(input, *weights[:2], one, [0] * 4, one, 1, block.activation, "auto", 0)
    value = at.conv2d(value, *weights[2:4], one, [1] * 4, one, block.expanded, block.activation, "auto", 0)
    value = at.squeeze_excite(value, *weights[6:], block.squeeze_activation, block.gate, "auto", 0)
    options = ("none", "auto", 0, None, input, None, True)
    expected = at.conv2d(value, *weights[4:6], one, [0] * 4, one, 1, *options)
    assert torch.equal(run(input, *weights, *block.options, "native", 0), expected)


@pytest.mark.parametrize("block", [BLOCKS[2], EXCITED[1], EXCITED[3]], ids=str)
def test_what_kernels_are_measured_beside(block: Block, device: str) -> None:
    problem = block.problem(torch.float32)
    operands = BlockOperands(problem, torch.device(device))
    inner = operands.excitation
    weights = [*operands.weights, *([] if inner is None else inner.weights)]
    tensors = [each for weight in weights for each in (weight, torch.zeros_like(weight[:, 0, 0, 0]))]
    tensors += [None] * (10 - len(tensors))
    result = operands.call("native")(0)
    torch.testing.assert_close(result, block.torchs(operands.inputs[0], tensors), rtol=1e-4, atol=1e-5)


def test_flops() -> None:
    for block in (BLOCKS[1], EXCITED[2]):
        input, weights = block.tensors("cpu", torch.float32, "nchw")
        with FlopCounterMode(display=False) as counter:
            run(input, *weights, *block.options, "native", 0)
        assert counter.get_total_flops() == block.problem(torch.float32).flops


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("device_type", "dtype"), WHERE)
@pytest.mark.parametrize("block", [*BLOCKS, *LARGE, *EXCITED, *LARGE_EXCITED], ids=str)
def test_every_plan(block: Block, device_type: str, dtype: torch.dtype, layout: str) -> None:
    """With filters packed before, and by the call itself; again and again in what another call has left."""
    input, weights = block.tensors(device_type, dtype, layout)
    problem = block.problem(dtype, layout)
    device = _planning.device(input.device)
    plans = _core.candidates("inverted_residual", problem, device)
    is_able, _ = _core.supports("inverted_residual", problem, device)
    if device_type == "cpu":
        candidates = {plan.candidate for plan in plans}
        assert is_able and candidates >= {"excited" if block.squeezed else "strips"}
        assert ("channels" in candidates) == (block.batch < torch.get_num_threads())
    elif block.squeezed:
        is_first_of_planes = block.expand_filter > 1 and layout == "nchw"
        is_taken = dtype in HALVES and block.expanded <= 256 and not is_first_of_planes
        assert is_able == (len(plans) > 0) == is_taken
    else:
        least = (4, 6) if dtype in HALVES else (2, 5)  # of float32 there are fewer shapes
        assert is_able and len(plans) > least[block.expand_filter == 1]
    for plan in plans:
        packed = pack(input, *weights, *block.options, plan.name)
        assert packed.numel() == plan.packed_weight_bytes
        first = run(input, *weights, *block.options, plan.name, 0, packed)
        agrees(block, first, input, weights)
        assert first.is_contiguous(memory_format=LAYOUTS[layout])
        for given in (packed, None, packed):
            again = run(input, *weights, *block.options, plan.name, 0, given)
            assert torch.equal(first, again), plan.name


@pytest.mark.parametrize("block", [*BLOCKS, *EXCITED, RAGGED], ids=str)
def test_more_threads_than_images(block: Block) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(block.batch + 3)
    try:
        input, weights = block.tensors("cpu", torch.float32, "channels_last")
        plans = _core.candidates("inverted_residual", block.problem(torch.float32), _planning.device("cpu"))
        assert {plan.candidate for plan in plans} == {"channels", "excited" if block.squeezed else "strips"}
        for plan in plans:
            agrees(block, run(input, *weights, *block.options, plan.name, 0), input, weights)
    finally:
        torch.set_num_threads(before)


PROGRAM = """
import sys
import torch
from convx import _core, _planning
from test_inverted_residual import BLOCKS, EXCITED, agrees, run

device = _planning.device("cpu")
assert device.isa == sys.argv[1], device.isa
for block in (*BLOCKS, *EXCITED):
    input, weights = block.tensors("cpu", torch.float32, "channels_last")
    for plan in _core.candidates("inverted_residual", block.problem(torch.float32), device):
        agrees(block, run(input, *weights, *block.options, plan.name, 0), input, weights)
"""


@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set(isa: str) -> None:
    succeeds_on(isa, PROGRAM)


def _is_finite_alike(block: Block, input: Tensor, weights: list[Any]) -> None:
    """By every plan, where it is by torch's own convolutions."""
    expected = block.torchs(input, weights)
    for plan in _core.candidates(
        "inverted_residual", block.problem(input.dtype), _planning.device(input.device)
    ):
        result = run(input, *weights, *block.options, plan.name, 0)
        assert torch.equal(result.isfinite(), expected.isfinite()), plan.name
        assert torch.equal(result.isnan(), expected.isnan()), plan.name


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(("device_type", "dtype"), WHERE)
def test_what_is_not_finite(device_type: str, dtype: torch.dtype, value: float) -> None:
    """Is so where it is with torch's own convolutions."""
    for block in (BLOCKS[0], BLOCKS[1], BLOCKS[2], BLOCKS[5], EXCITED[0], EXCITED[1]):
        input, weights = block.tensors(device_type, dtype, "channels_last")
        input[0, -1, 5, 6] = value
        _is_finite_alike(block, input, weights)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", range(10))
@pytest.mark.parametrize(("device_type", "dtype"), WHERE)
def test_weights_that_are_not_finite(device_type: str, dtype: torch.dtype, place: int, value: float) -> None:
    """Results are where they are with torch's own convolutions."""
    for block in (BLOCKS[0], BLOCKS[1], replace(BLOCKS[0], activation="relu"), EXCITED[0]):
        input, weights = block.tensors(device_type, dtype, "channels_last")
        weight = weights[place]
        if weight is None:
            continue
        input = input.abs() + 0.5
        weight.view(-1)[weight.numel() // 2] = value
        _is_finite_alike(block, input, weights)


@pytest.mark.parametrize("size", [1e30, 3e38])
@pytest.mark.parametrize("place", [None, 0, 2, 4])
@pytest.mark.parametrize("device_type", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_large_numbers(device_type: str, place: int | None, size: float) -> None:
    """That are finite, though not all of their parts are where products are of parts."""
    block = replace(BLOCKS[0], activation="relu", bias=False)
    input, weights = block.tensors(device_type, torch.float32, "channels_last")
    large = input if place is None else weights[place]
    assert large is not None
    large[0, 0, 0, 0], large[-1, -1, -1, -1] = -size, size
    for other in (input, *(each for each in weights[:5:2] if each is not None)):
        if other is not large:
            other.mul_(1e-3)
    device = _planning.device(input.device)
    for plan in _core.candidates("inverted_residual", block.problem(torch.float32), device):
        result = run(input, *weights, *block.options, plan.name, 0)
        assert result.isfinite().all()
        agrees(block, result, input, weights)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("squeezed", [0, 8])
def test_many_at_once(squeezed: int, dtype: torch.dtype) -> None:
    """Blocks that follow one another overlap: each waits for what it reads. In a graph and out of it."""
    block = Block(8, 32, 192, 32, 28, 28, residual=True, squeezed=squeezed)
    input, weights = block.tensors("cuda", dtype, "channels_last")
    plans = _core.candidates("inverted_residual", block.problem(dtype), _planning.device(input.device))
    packed = [pack(input, *weights, *block.options, plan.name) for plan in plans]

    def chain() -> Tensor:
        value = input
        for plan, filters in zip(plans, packed, strict=True):
            value = run(value, *weights, *block.options, plan.name, 0, filters) / 2
            value = run(value, *weights, *block.options, plan.name, 0, filters)
            value = value / value.abs().max()
        return value

    expected = chain()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        replayed = chain()
    for _ in range(20):
        graph.replay()
        assert torch.equal(replayed, expected)
        assert torch.equal(chain(), expected)


def test_packed_for_another_plan_is_refused() -> None:
    block = Block()
    input, weights = block.tensors("cpu", torch.float32, "nchw")
    rest = (*weights, *block.options)
    packed_weight = pack(input, *rest, "inverted_residual")
    with pytest.raises(ValueError, match="packed_weight must hold the"):
        run(input, *rest, "inverted_residual", 0, packed_weight[1:])
    doubles = [None if each is None else each.double() for each in (input, *weights)]
    with pytest.raises(ValueError, match="can't run this problem: on CPUs it takes float32, not float64"):
        pack(*doubles, *block.options, "inverted_residual")
    if not torch.cuda.is_available():
        return
    input, weights = block.tensors("cuda", torch.bfloat16, "nchw")
    rest = (*weights, *block.options)
    plans = _core.candidates(
        "inverted_residual", block.problem(torch.bfloat16), _planning.device(input.device)
    )
    by_chunk = {dict(plan.tiling).get("chunk", "bands"): plan.name for plan in plans}
    packed = {chunk: pack(input, *rest, name) for chunk, name in by_chunk.items()}
    for chunk, name in by_chunk.items():
        for other, filters in packed.items():
            if other != chunk:
                with pytest.raises(ValueError, match="packed_weight must hold the"):
                    run(input, *rest, name, 0, filters)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, torch.randn(16, 11, 13), "input must have 4 dimensions, got 3"),
        (1, torch.randn(40, 8, 1, 1), r"expand_weight must have the shape \(40, 16, 1, 1\)"),
        (1, torch.randn(40, 16, 1, 3), r"expand_weight must have the shape \(40, 16, 1, 1\)"),
        (2, torch.randn(39), r"expand_bias must have (the )?shape \(40,?\)"),
        (3, torch.randn(40, 1, 3, 5), r"depthwise_weight must have the shape \(40, 1, 3, 3\)"),
        (3, torch.randn(40, 2, 3, 3), r"depthwise_weight must have the shape \(40, 1, 3, 3\)"),
        (5, torch.randn(24, 40, 1, 1).double(), "project_weight must have the dtype of input"),
        (5, torch.randn(24, 48, 1, 1), r"project_weight must have the shape \(24, 40, 1, 1\)"),
        (7, torch.randn(8, 40, 1), "squeeze_weight must have 4 dimensions, got 3"),
        (7, torch.randn(8, 39, 1, 1), r"squeeze_weight must have the shape \(8, 40, 1, 1\)"),
        (7, torch.randn(0, 40, 1, 1), "squeezed_channels must be at least 1, got 0"),
        (7, None, r"excite_weight needs squeeze_weight, got \(40, 8, 1, 1\) and None; give both or neither"),
        (8, torch.randn(7), r"squeeze_bias must have shape \(8,\)"),
        (9, torch.randn(40, 9, 1, 1), r"excite_weight must have the shape \(40, 8, 1, 1\)"),
        (9, torch.randn(40, 8, 1, 1).double(), "excite_weight must have the dtype of input"),
        (9, None, r"squeeze_weight needs excite_weight, got \(8, 40, 1, 1\) and None; give both or neither"),
        (10, torch.randn(40, 1), r"excite_bias must have shape \(40,\)"),
    ],
)
@pytest.mark.parametrize("where", ["cpu", "meta"])
def test_bad_tensors(place: int, value: Tensor | None, message: str, where: str) -> None:
    """The same from the operator and from its fake."""
    block = EXCITED[0]
    input, weights = block.tensors("cpu", torch.float32, "nchw")
    arguments: list[Any] = [input, *weights]
    arguments[place] = value
    arguments = [None if each is None else each.to(where) for each in arguments]
    with pytest.raises(Exception, match=message):
        run(*arguments, *block.options, "auto", 0)


@pytest.mark.parametrize("where", ["cpu", "meta"])
def test_biases_without_their_weights(where: str) -> None:
    block = EXCITED[0]
    input, weights = block.tensors(where, torch.float32, "nchw")
    for place, name in ((7, "squeeze"), (9, "excite")):
        given = [None if each > 5 and each != place else weight for each, weight in enumerate(weights)]
        with pytest.raises(ValueError, match=rf"{name}_bias needs {name}_weight, got \(\d+,\) and None"):
            run(input, *given, *block.options, "auto", 0)


def test_bad_options() -> None:
    block = Block()
    input, weights = block.tensors("cpu", torch.float32, "nchw")
    for changed, message in (
        (replace(block, activation="swish"), "activation must be one of none, relu"),
        (replace(block, squeeze_activation="swish"), "activation must be one of none, relu"),
        (replace(block, gate="tanh"), "gate must be one of sigmoid, hardsigmoid; got 'tanh'"),
        (replace(block, stride=0), "stride must be at least 1, got 0"),
        (replace(block, expand_stride=0), "expand_stride must be at least 1, got 0"),
        (replace(block, residual=True), "residual: a result has the input's size"),
    ):
        with pytest.raises(ValueError, match=message):
            run(input, *weights, *changed.options, "auto", 0)
    with pytest.raises(ValueError, match="algorithm must be one of auto, inverted_residual, native"):
        run(input, *weights, *block.options, "depthwise", 0)


@pytest.mark.parametrize("block", [BLOCKS[0], EXCITED[0]], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_opcheck(layout: str, block: Block, device: str) -> None:
    input, weights = block.tensors(device, torch.float32, layout)
    opcheck(run, (input, *weights, *block.options, "auto", 0))
    input, weights = block.tensors(device, torch.bfloat16 if device == "cuda" else torch.float32, layout)
    opcheck(run, (input, *weights, *block.options, "inverted_residual", 0))
    opcheck(pack, (input, *weights, *block.options, "inverted_residual"))
