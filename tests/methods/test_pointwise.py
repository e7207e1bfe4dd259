"""Pointwise convolution: its planner on known devices, and on a GPU every plan against float64.

The kernels run without a GPU in test_simt_pointwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import planned
import pytest
import torch
from planned import problem_of, result_of
from reference import (
    ACTIVATIONS,
    DTYPES,
    OPERATIONS,
    Case,
    Tensors,
    assert_agrees,
    make,
    reference,
    torch_result,
)
from tuned import own_folder

from convx import _planning
from convx._arguments import CONVOLUTIONS
from convx.tune import generated, records

__all__ = ["own_folder"]


@dataclass(frozen=True)
class Dense(Case):
    """A 1x1 convolution; channels and filters are those of all groups together."""

    channels: int = 24
    filters: int = 40
    groups: int = 1
    filter: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def out_channels(self) -> int:
        return self.filters

    def terms(self, operation: str) -> int:
        if operation == "weight_grad":
            return super().terms(operation)
        return (self.filters if operation == "input_grad" else self.channels) // self.groups

    def __str__(self) -> str:
        return f"{super().__str__()}k{self.filters}"


# Planes of whole 16-byte pieces, of 8, of none, small ones, single pixels; channels around the fragments.
SHAPES = [
    Dense(),
    Dense(batch=1, channels=16, filters=96, height=28, width=28),
    Dense(batch=2, channels=144, filters=32, height=14, width=14),
    Dense(batch=3, channels=96, filters=80, height=7, width=7),
    Dense(batch=1, channels=960, filters=160, height=7, width=7),
    Dense(batch=1, channels=33, filters=17, height=8, width=8),
    Dense(batch=4, channels=5, filters=3, height=13, width=11),
    Dense(batch=2, channels=80, filters=72, groups=2, height=21, width=23),
    Dense(batch=3, channels=40, filters=24, height=18, width=15),
    Dense(batch=9, channels=130, filters=66, height=1, width=1),
    Dense(batch=2, channels=1280, filters=100, height=1, width=1),
    Dense(batch=1, channels=1, filters=1, height=1, width=5),
    Dense(channels=48, filters=36, groups=3, height=8, width=8),
    Dense(channels=6, filters=6, groups=6),
    Dense(stride=(2, 2), height=14, width=14),
    Dense(stride=(3, 1), height=15, width=9),
    Dense(padding=(1, 1, 1, 1)),
    Dense(padding=(0, 2, 3, 1), stride=(2, 2)),
]


@pytest.fixture(autouse=True)
def _exact_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own float32, which errors are measured against, is not TF32."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def plans_of(problem: Any, device: str = "h200") -> list[Any]:
    """What pointwise would try, the expected fastest first."""
    core = _planning.core()
    plans: list[Any] = core.candidates("pointwise", problem, core.Device.known_device(device))
    return plans


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("device", ["h200", "a100", "mi250", "rx7900", "dcu-z100"])
def test_every_pointwise_problem_has_plans(device: str, operation: str, channels_last: bool) -> None:
    for case in SHAPES:
        for dtype in DTYPES:
            plans = plans_of(problem_of(case, operation, dtype, channels_last), device)
            assert plans, (case, dtype)
            times = [plan.predicted_us for plan in plans]
            assert times == sorted(times)
            assert all(0 < time < math.inf for time in times)
            assert any(plan.candidate == "fma" for plan in plans), "the exact form is always there"
            assert len({plan.name for plan in plans}) == len(plans)


@pytest.mark.parametrize(
    ("device", "dtype", "allow_tf32", "expected"),
    [
        ("h200", torch.float32, False, {"tensor3", "fma"}),
        ("h200", torch.float32, True, {"tensor", "fma"}),
        ("h200", torch.bfloat16, False, {"tensor", "fma"}),
        ("a100", torch.float16, False, {"tensor", "fma"}),
        ("h200", torch.float64, True, {"fma"}),
        ("mi250", torch.float32, False, {"tensor", "fma"}),
        ("rx7900", torch.float16, False, {"fma"}),
        ("dcu-z100", torch.float32, True, {"fma"}),
    ],
)
def test_precision_decides_the_kernels(
    device: str, dtype: torch.dtype, allow_tf32: bool, expected: set[str]
) -> None:
    problem = problem_of(Dense(height=8, width=8), dtype=dtype, allow_tf32=allow_tf32)
    assert {plan.candidate for plan in plans_of(problem, device)} >= expected
    forbidden = {"tensor", "tensor3", "fma"} - expected
    assert not forbidden & {plan.candidate for plan in plans_of(problem, device)}


def test_what_it_refuses() -> None:
    core = _planning.core()
    h200 = core.Device.known_device("h200")

    def reason(case: Case) -> str:
        rows = core.explain(problem_of(case), h200)
        return next(str(row.reason) for row in rows if row.method == "pointwise")

    assert "3x3" in reason(Case())
    assert "batch is empty" in reason(Dense(batch=0))
    assert reason(Dense()) == ""


def test_filters_are_packed_alike_for_every_batch() -> None:
    """A layer keeps packed filters by the packing's name, whatever tile of a kernel the batch makes best."""
    for size in (7, 14, 28):
        sizes: dict[str, set[int]] = {}
        kernels: dict[str, set[str]] = {}
        for batch in (1, 8, 64):
            case = Dense(batch=batch, channels=96, filters=160, height=size, width=size)
            for plan in plans_of(problem_of(case, dtype=torch.bfloat16)):
                sizes.setdefault(plan.packing, set()).add(plan.packed_weight_bytes)
                kernels.setdefault(plan.candidate, set()).add(plan.packing)
        assert kernels.keys() >= {"deep", "tensor"}
        assert all(len(each) == 1 for each in kernels.values()), kernels
        assert all(len(each) == 1 for each in sizes.values()), sizes
        assert all(each == {0} for packing, each in sizes.items() if not packing)
        # 16-bit filters are not larger in fragments but for the last of 16 filters and of 16 channels.
        assert all(each == {96 * 160 * 2} for packing, each in sizes.items() if packing)


def test_predictions_are_not_below_the_floor() -> None:
    device = _planning.core().Device.known_device("h200")
    for batch, size in ((64, 112), (256, 14)):
        case = Dense(batch=batch, channels=64, filters=128, height=size, width=size)
        for dtype in DTYPES:
            problem = problem_of(case, dtype=dtype)
            elements = batch * size * size * (64 + 128) + 64 * 128
            floor = elements * dtype.itemsize / (device.bandwidth_GBps * 1e3)
            assert all(plan.predicted_us > floor for plan in plans_of(problem))


def algorithms(operation: str, case: Case, tensors: Tensors, allow_tf32: bool = False) -> list[str]:
    """Every plan, by the name that selects it."""
    return [plan.name for plan in planned.plans_of("pointwise", operation, case, tensors, allow_tf32)]


@pytest.mark.gpu
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_plan_agrees(operation: str, dtype: torch.dtype, channels_last: bool) -> None:
    for case in SHAPES:
        tensors = make(case, dtype, "cuda", channels_last)
        own, exact = torch_result(operation, case, tensors), reference(operation, case, tensors)
        for algorithm in algorithms(operation, case, tensors):
            result = result_of(operation, case, tensors, algorithm)
            assert_agrees(result, own, exact, f"{algorithm} {case}", case.terms(operation))


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_epilogue(activation: str) -> None:
    for size in (7, 8, 14):
        case = Dense(height=size, width=size, bias=True, activation=activation)
        for dtype in (torch.float32, torch.bfloat16):
            tensors = make(case, dtype, "cuda")
            own, exact = torch_result("forward", case, tensors), reference("forward", case, tensors)
            for algorithm in algorithms("forward", case, tensors):
                assert_agrees(result_of("forward", case, tensors, algorithm), own, exact, algorithm)


@pytest.mark.gpu
@pytest.mark.parametrize("operation", ["forward", "input_grad"])
def test_tf32_where_it_is_allowed(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    for case in SHAPES[:9]:
        tensors = make(case, torch.float32, "cuda")
        exact = reference(operation, case, tensors)
        for algorithm in algorithms(operation, case, tensors, allow_tf32=True):
            result = result_of(operation, case, tensors, algorithm, tf32=CONVOLUTIONS)
            error = (result.cpu().double() - exact).norm() / exact.norm()
            assert error < 6e-4, (algorithm, case)  # two roundings to 11 bits, a sum of products


@pytest.mark.gpu
@pytest.mark.parametrize("size", [7, 8, 13])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("operation", ["forward", "input_grad"])
def test_infinities_come_out_as_torch_has_them(operation: str, dtype: torch.dtype, size: int) -> None:
    case = Dense(channels=40, filters=24, height=size, width=size)
    tensors = make(case, dtype, "cuda")
    for tensor in (tensors.input, tensors.output_grad):
        tensor[0, 3, 1, 1], tensor[0, 7, 1, 2] = float("inf"), -float("inf")
        tensor[0, 5, 2, 3], tensor[1, 2, 0, 0] = float("nan"), torch.finfo(dtype).max
    own = torch_result(operation, case, tensors)
    for algorithm in algorithms(operation, case, tensors):
        result = result_of(operation, case, tensors, algorithm)
        assert torch.equal(result.isnan(), own.isnan()), algorithm
        infinite = own.isinf()
        assert torch.equal(result.isinf(), infinite), algorithm
        assert torch.equal(result[infinite], own[infinite]), algorithm


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_extreme_filters(dtype: torch.dtype) -> None:
    """NaN of all bits, and the ends of what is finite and what is normal, next to which is something else."""
    case = Dense(channels=40, filters=24, height=8, width=8)
    bits, words = (torch.int32, 0x7FFFFFFF) if dtype == torch.float32 else (torch.int16, 0x7FFF)
    for channel, of in enumerate((words, -1)):
        tensors = make(case, dtype, "cuda")
        tensors.weight[channel, :24, 0, 0] = torch.finfo(dtype).tiny * 0.37
        tensors.weight[:, 24 + channel] = torch.full((), of, dtype=bits).view(dtype)
        tensors.weight[:12, 24 + channel] = torch.finfo(dtype).max
        tensors.input[0, 24 + channel] = 0.25
        own, exact = torch_result("forward", case, tensors), reference("forward", case, tensors)
        for algorithm in algorithms("forward", case, tensors):
            result = result_of("forward", case, tensors, algorithm)
            assert torch.equal(result.isnan(), own.isnan()), algorithm
            one = result[0, :12].double().cpu()
            assert ((one - exact[0, :12]).abs() <= exact[0, :12].abs() * 2e-2).all(), algorithm


@pytest.mark.gpu
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("channels", [64, 320])
def test_errors_have_no_direction(channels: int, channels_last: bool) -> None:
    """What is missing of all results alike adds up in a network. Matrix units drop what is below the last
    digit of a sum: 0.6 to 0.9 of 2^-24 of it, were nothing done about that."""
    case = Dense(batch=8, channels=channels, filters=128, height=28, width=28)
    tensors = make(case, torch.float32, "cuda", channels_last)
    exact = reference("forward", case, tensors)
    for algorithm in algorithms("forward", case, tensors):
        apart = result_of("forward", case, tensors, algorithm).double().cpu() - exact
        missing = float((apart * exact).sum() / exact.square().sum())
        assert abs(missing) < 2**-25, (algorithm, missing * 2**24)


@pytest.mark.gpu
@pytest.mark.parametrize("operation", OPERATIONS)
def test_bit_for_bit_repeatable(operation: str) -> None:
    case = Dense(batch=5, channels=200, filters=96, height=14, width=14)
    for channels_last in (False, True):
        tensors = make(case, torch.float32, "cuda", channels_last)
        for algorithm in algorithms(operation, case, tensors):
            runs = [result_of(operation, case, tensors, algorithm) for _ in range(3)]
            assert all(torch.equal(run, runs[0]) for run in runs[1:]), algorithm


@pytest.mark.gpu
def test_memory_that_begins_anywhere() -> None:
    """Pieces of 16 bytes need addresses of multiples of 16; slices of storage have others."""
    for size in (7, 8, 13, 14):
        case = Dense(channels=24, filters=32, height=size, width=size)
        for dtype in (torch.float32, torch.bfloat16):
            tensors = make(case, dtype, "cuda")
            planned.begin_between_pieces(tensors)
            own, exact = torch_result("forward", case, tensors), reference("forward", case, tensors)
            for algorithm in algorithms("forward", case, tensors):
                assert_agrees(result_of("forward", case, tensors, algorithm), own, exact, algorithm)


@pytest.mark.gpu
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "case",
    [
        Dense(batch=2, channels=70, filters=44, height=9, width=9, bias=True, activation="relu6"),
        Dense(batch=2, channels=48, filters=36, height=11, width=12, groups=2, stride=(2, 2)),
    ],
    ids=str,
)
def test_generated_kernels(case: Dense, dtype: torch.dtype, channels_last: bool, own_folder: Path) -> None:
    """Those that convx.tune would try, direct and with channels spread over lanes, compiled and run."""
    tensors = make(case, dtype, "cuda", channels_last)
    problem, device = problem_of(case, "forward", dtype, channels_last), _planning.device("cuda")
    offered = generated.offer(problem, device, records.fields_text(records.problem_fields(problem)))
    assert {kernel["group_c"] > 1 for kernel in offered.values()} == {False, True}
    own, exact = torch_result("forward", case, tensors), reference("forward", case, tensors)
    for name in offered:
        assert_agrees(result_of("forward", case, tensors, name), own, exact, name, case.terms("forward"))
