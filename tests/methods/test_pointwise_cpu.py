"""The CPU form of pointwise convolution against float64: every plan, operation, layout, instruction set."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planned import problem_of, result_of
from processes import ISAS, succeeds_on
from reference import ACTIVATIONS, DTYPES, OPERATIONS, assert_agrees, make, reference, torch_result
from test_pointwise import Dense, algorithms
from torch import Tensor

from convx import _planning
from convx import operators as ops

# Pixels and channels around one to four vectors of each instruction set, and around register tiles; strips of
# planes that begin earlier for lack of memory behind them, and planes that have less than one.
SHAPES = [
    Dense(),
    Dense(batch=1, channels=16, filters=20, height=28, width=20),
    Dense(batch=2, channels=150, filters=70, height=7, width=7),
    Dense(batch=1, channels=33, filters=17, height=8, width=8),
    Dense(batch=3, channels=5, filters=3, height=13, width=11),
    Dense(batch=9, channels=40, filters=66, height=1, width=1),
    Dense(batch=1, channels=1, filters=1, height=1, width=5),
    Dense(batch=1, channels=3, filters=130, height=3, width=3),
    Dense(channels=48, filters=36, groups=3, height=8, width=8),
    Dense(channels=6, filters=6, groups=6),
    Dense(stride=(2, 2), height=14, width=14),
    Dense(stride=(3, 1), height=15, width=9),
    Dense(padding=(1, 1, 1, 1)),
    Dense(height=1, padding=(0, 0, 1, 0)),
    Dense(padding=(0, 2, 3, 1), stride=(2, 2), groups=2),
    Dense(batch=1, height=1, width=1, padding=(1, 1, 1, 1), stride=(2, 2)),
]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Threads of several tests at a time wait for one another; what threads do has a test of its own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def between_guards(tensor: Tensor, at_end: bool) -> Tensor:
    """A copy whose memory begins behind a page that ends the process, or ends before one."""
    page, size = mmap.PAGESIZE, tensor.numel() * tensor.itemsize
    pages = -(-size // page)
    memory = mmap.mmap(-1, (pages + 2) * page)
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for guard in (first, first + (pages + 1) * page):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(guard), page, 0) == 0
    offset = page + (pages * page - size if at_end else 0)
    flat = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=offset)
    copy = flat.as_strided(tensor.shape, tensor.stride())
    return copy.copy_(tensor)


def check(
    operation: str, case: Dense, dtype: torch.dtype, channels_last: bool, guarded: bool = False
) -> None:
    """Every plan of a problem."""
    assert case.runnable, case
    tensors = make(case, dtype, "cpu", channels_last)
    exact_sums = dtype == torch.float64
    if exact_sums:  # torch would be its own reference there: of whole numbers all sums are exact
        for tensor in (tensors.input, tensors.weight, tensors.bias, tensors.output_grad):
            if tensor is not None:
                tensor.mul_(3).round_()
    own = torch_result(operation, case, tensors)
    exact = own if exact_sums else reference(operation, case, tensors)
    for name, tensor in vars(tensors).items() if guarded else ():
        if tensor is not None:
            setattr(tensors, name, between_guards(tensor, name != "input" or case.batch % 2 == 1))
    for algorithm in algorithms(operation, case, tensors):
        what = f"{operation} {algorithm} {case} {dtype} channels_last={channels_last}"
        result = result_of(operation, case, tensors, algorithm)
        if exact_sums:
            assert torch.equal(result, own), what
        else:
            assert_agrees(result, own, exact, what, case.terms(operation))


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_plan_agrees(operation: str, dtype: torch.dtype, channels_last: bool) -> None:
    for case in SHAPES:
        check(operation, case, dtype, channels_last)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_epilogue(activation: str) -> None:
    for case in (Dense(height=8, width=8), Dense(filters=37), Dense(padding=(1, 0, 0, 1), stride=(1, 2))):
        for dtype in (torch.float32, torch.bfloat16):
            for channels_last in (False, True):
                check("forward", case.with_(activation=activation, bias=True), dtype, channels_last)
                check("forward", case.with_(activation=activation), dtype, channels_last)


PROGRAM = """
import sys
import torch
from convx import _planning
from test_pointwise_cpu import DTYPES, OPERATIONS, SHAPES, check

torch.set_num_threads(1)
assert _planning.device("cpu").isa == sys.argv[1], _planning.device("cpu").isa
for dtype in DTYPES:
    for channels_last in (False, True):
        for operation in OPERATIONS:
            for case in SHAPES:
                check(operation, case, dtype, channels_last, guarded=True)
"""


@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set(isa: str) -> None:
    """The instruction set is read once, at import: each in a process of its own. Nothing is read outside."""
    succeeds_on(isa, PROGRAM)


@st.composite
def any_case(draw: st.DrawFn) -> Dense:
    def pair(low: int, high: int) -> tuple[int, int]:
        return draw(st.integers(low, high)), draw(st.integers(low, high))

    groups = draw(st.integers(1, 3))
    return Dense(
        batch=draw(st.integers(1, 3)),
        channels=groups * draw(st.integers(1, 60)),
        filters=groups * draw(st.integers(1, 80)),
        groups=groups,
        height=draw(st.integers(1, 16)),
        width=draw(st.integers(1, 40)),
        stride=(1, 1) if draw(st.booleans()) else pair(1, 3),
        padding=(0, 0, 0, 0) if draw(st.booleans()) else (*pair(0, 2), *pair(0, 2)),
        bias=draw(st.booleans()),
        activation=draw(st.sampled_from(("none", "relu6", "silu"))),
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    case=any_case(),
    dtype=st.sampled_from(DTYPES[1:]),
    channels_last=st.booleans(),
    operation=st.sampled_from(OPERATIONS),
)
def test_any_problem(case: Dense, dtype: torch.dtype, channels_last: bool, operation: str) -> None:
    if operation != "forward":
        case = case.with_(bias=False, activation="none")
    elif dtype == torch.float64:
        case = case.with_(activation="relu6")  # whole numbers stay whole
    check(operation, case, dtype, channels_last)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_threads_change_no_bit(operation: str) -> None:
    for case in (Dense(batch=5, channels=200, filters=96, height=14, width=15), Dense(stride=(2, 1))):
        for channels_last in (False, True):
            tensors = make(case, torch.float32, "cpu", channels_last)
            for algorithm in algorithms(operation, case, tensors):
                once = result_of(operation, case, tensors, algorithm)
                torch.set_num_threads(2)
                try:
                    # The planner may share out tasks otherwise for two: then it has no plan of this name.
                    if algorithm in algorithms(operation, case, tensors):
                        assert torch.equal(result_of(operation, case, tensors, algorithm), once), algorithm
                finally:
                    torch.set_num_threads(1)


def test_sums_are_as_good_as_torchs_over_long_depths() -> None:
    for case in (Dense(batch=1, channels=1500, filters=9, height=6, width=6), Dense(width=1500)):
        for channels_last in (False, True):
            for operation in OPERATIONS:
                check(operation, case, torch.float32, channels_last)


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "channels_last"])
def test_no_value_spreads(channels_last: bool) -> None:
    """An infinity is met by its own pixel alone: neither spare lanes nor neighbours multiply it."""
    case = Dense(channels=5, filters=19, height=9, width=12)
    tensors = make(case, channels_last=channels_last)
    tensors.input[0, 2, 4, 5], tensors.input[1, 0, 8, 11] = float("inf"), float("nan")
    own = torch_result("forward", case, tensors)
    for algorithm in algorithms("forward", case, tensors):
        result = result_of("forward", case, tensors, algorithm)
        assert torch.equal(result.isinf(), own.isinf()), algorithm
        assert torch.equal(result.isnan(), own.isnan()), algorithm


def test_plans_are_the_generators_tilings() -> None:
    """Sorted, one for every shape of register tile, each an allowed tiling by its parameters."""
    device, generator = _planning.device("cpu"), _planning.core().generator
    for case in (Dense(batch=1, channels=144, filters=96, height=28, width=28), Dense(height=3, width=3)):
        for operation in ("forward", "input_grad"):
            for channels_last in (False, True):
                problem = problem_of(case, operation, torch.float32, channels_last)
                plans = _planning.core().candidates("pointwise", problem, device)
                times = [plan.predicted_us for plan in plans]
                assert times == sorted(times) and min(times) > 0
                forms = {plan.candidate for plan in plans}
                assert forms == ({"filters"} if channels_last else {"pixels", "filters"})
                assert len({plan.name for plan in plans}) == len(plans) > 1
                for plan in plans:
                    parameters = dict(plan.tiling)
                    parameters.pop("vector_lanes")
                    pixel_lanes = plan.candidate == "pixels"
                    tiling = generator.Tiling(**parameters, pixel_lanes=pixel_lanes)
                    assert generator.is_allowed(problem, device, tiling)
                    flipped = " flipped" if operation == "input_grad" else ""
                    assert plan.packing == f"crsk {parameters['wave_c']}{flipped}"


def test_weight_grads_sums_have_memory_where_the_result_is_none() -> None:
    """Several slices, filters whose channels are no whole vectors, and types that sums don't fit in."""
    device = _planning.device("cpu")
    small = Dense(batch=4, channels=16, filters=8, height=40, width=40)
    large = Dense(batch=1, channels=640, filters=960, height=7, width=7)
    ragged = Dense(batch=1, channels=641, filters=960, height=7, width=7)
    for case, dtype, needed in (
        (small, torch.float32, True),
        (large, torch.float32, False),
        (ragged, torch.float32, True),
        (large, torch.bfloat16, True),
    ):
        (plan,) = _planning.core().candidates("pointwise", problem_of(case, "weight_grad", dtype), device)
        lanes, slices = plan.tiling["vector_lanes"], plan.tiling["slices"]
        assert (slices > 1) == (case is small)
        pitch = -(-case.channels // lanes) * lanes
        assert plan.workspace_bytes == (slices * case.filters * pitch * 4 if needed else 0)
        assert plan.packing == ""


def test_what_it_refuses_and_why() -> None:
    def refusal(case: Dense) -> str:
        device = _planning.device("cpu")
        supported, reason = _planning.core().supports("pointwise", problem_of(case), device)
        assert not supported
        return str(reason)

    assert refusal(Dense(filter=(3, 2))) == "the filter is not 1x1 (3x2)"
    assert refusal(Dense(batch=0)) == "the batch is empty"


def test_a_named_plan_that_is_not_there_says_what_is() -> None:
    tensors = make(Dense(), channels_last=True)
    geometry = ((1, 1), (0, 0, 0, 0), (1, 1), 1)
    with pytest.raises(Exception, match=r"no candidate 'pixels' .* what it has: pointwise/filters"):
        ops.conv2d(tensors.input, tensors.weight, None, *geometry, "none", "pointwise/pixels", 0)
    with pytest.raises(Exception, match=r"no such tiling"):
        ops.conv2d(tensors.input, tensors.weight, None, *geometry, "none", "pointwise/filters wave_w=99", 0)
    packed = torch.zeros(3, dtype=torch.uint8)
    with pytest.raises(Exception, match="packed_weight"):
        ops.conv2d(tensors.input, tensors.weight, None, *geometry, "none", "pointwise", 0, packed)
