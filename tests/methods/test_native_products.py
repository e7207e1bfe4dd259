"""The native method's matrix products: of unfolded columns (native/im2col) and of images (native/matmul)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from planned import layout_of_result, plans_of, problem_of, result_of
from processes import run_python
from reference import ACTIVATIONS, DTYPES, OPERATIONS, Dense, assert_agrees, make, reference, torch_result
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from tuned import own_folder, record

import convx
from convx import _planning, functional
from convx import operators as ops
from convx._arguments import CONVOLUTIONS, PRODUCTS, tf32_setting
from convx.tune import records

__all__ = ["own_folder"]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
ONE_TAP = {"filter": (1, 1), "padding": (0, 0, 0, 0)}
CASES = [
    Dense(batch=1, channels=7, filters=5, height=9, width=6, **ONE_TAP),
    Dense(batch=3, channels=16, filters=24, height=7, width=7, **ONE_TAP),
    Dense(batch=2, channels=1, filters=9, height=5, width=1, **ONE_TAP),
    Dense(batch=1, channels=4, filters=1, height=1, width=1, **ONE_TAP),
    Dense(batch=2, channels=6, filters=8, stride=(2, 2), height=9, width=8, **ONE_TAP),
    Dense(batch=1, channels=10, filters=12),
    Dense(batch=1, channels=5, filters=7, stride=(2, 1), height=11, width=10),
    Dense(batch=1, channels=3, filters=4, filter=(5, 2), padding=(2, 2, 0, 0)),
    Dense(batch=1, channels=6, filters=8, stride=(2, 2), height=9, width=8, **ONE_TAP),
]


@pytest.fixture(autouse=True)
def _exact_float32() -> Iterator[None]:
    """Both of torch's settings, whatever a test makes of them."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def forms(case: Dense, operation: str = "forward", device: str = "h200", **fields: Any) -> dict[str, Any]:
    """The native method's plans by name."""
    core = _planning.core()
    problem = problem_of(case, operation, **fields)
    return {plan.name: plan for plan in core.candidates("native", problem, core.Device.known_device(device))}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_form_agrees(operation: str, dtype: torch.dtype, channels_last: bool, device: str) -> None:
    ran = set()
    for case in CASES:
        tensors = make(case, dtype, device, channels_last)
        own, exact = torch_result(operation, case, tensors), reference(operation, case, tensors)
        for plan in plans_of("native", operation, case, tensors):
            result = result_of(operation, case, tensors, plan.name)
            assert_agrees(result, own, exact, f"{plan.name} {case}", case.terms(operation))
            layout = layout_of_result(operation, tensors)
            assert result.is_contiguous(memory_format=layout), (plan.name, case)
            ran.add(plan.name)
    assert ran == {"native", "native/im2col", "native/matmul"}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_bias_and_activation(activation: str, device: str) -> None:
    for channels_last in (False, True):
        for case in (CASES[0], CASES[1], CASES[5]):
            case = case.with_(bias=True, activation=activation)
            tensors = make(case, torch.float32, device, channels_last)
            tensors.weight = tensors.weight.contiguous(memory_format=torch.channels_last)
            own, exact = torch_result("forward", case, tensors), reference("forward", case, tensors)
            plans = plans_of("native", "forward", case, tensors)
            cuda = device == "cuda" and torch.version.hip is None
            wanted = {"native": True, "native/im2col": case.batch == 1}
            wanted["native/matmul"] = device == "cuda" and case.filter == (1, 1)
            wanted["native/fused"] = cuda and activation == "relu"
            assert {plan.name for plan in plans} == {name for name, is_there in wanted.items() if is_there}
            for plan in plans:
                assert_agrees(result_of("forward", case, tensors, plan.name), own, exact, plan.name)


@pytest.mark.parametrize(
    ("candidate", "operation", "case", "why"),
    [
        ("im2col", "forward", CASES[5].with_(batch=2), "it needs a batch of one"),
        ("im2col", "forward", CASES[5].with_(groups=2), "it needs one group"),
        ("im2col", "forward", CASES[5].with_(dilation=(2, 1)), "it needs dilation 1"),
        ("im2col", "input_grad", CASES[5].with_(padding=(0, 1, 1, 1)), "as much padding on both sides"),
        ("matmul", "forward", CASES[5], "filters of one tap, stride 1 and no padding"),
        ("matmul", "input_grad", CASES[4], "filters of one tap, stride 1 and no padding"),
        ("matmul", "forward", CASES[0].with_(padding=(1, 1, 0, 0)), "filters of one tap, stride 1 and no"),
        ("matmul", "forward", CASES[0].with_(bias=True), "it adds no bias"),
        ("matmul", "weight_grad", CASES[1], "weight_grad of several images in channels_last alone"),
        ("fused", "forward", CASES[5].with_(bias=True, activation="relu"), "it is cuDNN's"),
    ],
)
def test_what_they_refuse(candidate: str, operation: str, case: Dense, why: str) -> None:
    tensors = make(case)
    with pytest.raises(ValueError, match=f"native has no candidate '{candidate}' .*{why}"):
        result_of(operation, case, tensors, f"native/{candidate}")


def test_what_cudnn_fuses() -> None:
    case = CASES[5].with_(bias=True, activation="relu")

    def is_offered(
        case: Dense = case, operation: str = "forward", device: str = "h200", **fields: Any
    ) -> bool:
        return "native/fused" in forms(case, operation, device, **fields)

    assert is_offered() and is_offered(residual=True) and is_offered(dtype=torch.bfloat16, channels_last=True)
    assert not is_offered(residual=True, residual_after_activation=True) and not is_offered(scale=True)
    assert not any(is_offered(case.with_(activation=each)) for each in ("none", "relu6", "gelu"))
    assert not is_offered(case.with_(bias=False)) and not is_offered(case.with_(padding=(1, 0, 1, 1)))
    assert not is_offered(dtype=torch.float64) and not is_offered(operation="input_grad")
    assert not is_offered(device="mi300")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cudnns_product_is_not_made_again(dtype: torch.dtype) -> None:
    """In 16 bits and channels_last the convolution is the same product; by name there is the other."""
    case = CASES[1].with_(batch=64, channels=64, filters=256)
    plan = forms(case, dtype=dtype, channels_last=True)["native/matmul"]
    assert plan.by_name_only and not forms(case, dtype=dtype)["native/matmul"].by_name_only


def test_native_alone_is_torchs_convolution() -> None:
    """Also where a product is expected to be faster: a name means one thing."""
    core = _planning.core()
    for dtype in (torch.float32, torch.bfloat16):
        for case in CASES:
            problem = problem_of(case, dtype=dtype)
            chosen = core.select(problem, core.Device.known_device("h200"), "native")
            assert chosen.plan.name == "native"


def test_unmeasured_products_are_not_ahead() -> None:
    for device in ("mi300", "rx7900"):
        for case in CASES:
            plans = forms(case, device=device)
            assert all(plans["native"].predicted_us <= plan.predicted_us for plan in plans.values())


def test_the_columns_are_told() -> None:
    assert [plan.workspace_bytes for plan in forms(CASES[0]).values()] == [0, 0, 0]
    strided = forms(CASES[6])
    assert strided["native/im2col"].workspace_bytes == 5 * 9 * 6 * 10 * 4
    assert strided["native"].workspace_bytes == 0


def test_a_tuned_product_is_taken_while_it_may_be() -> None:
    case = CASES[0]
    core, here = _planning.core(), _planning.device("cpu")
    for name in ("native/matmul", "native/im2col"):
        records.remember(record(problem_of(case), name))
        plan = core.select(problem_of(case), here, "auto").plan
        assert (plan.name, plan.source) == (name, "tuned")
        biased = case.with_(bias=True)
        records.remember(record(problem_of(biased), "native/matmul"))
        assert core.select(problem_of(biased), here, "auto").plan.source != "tuned"


def test_products_that_round_are_left_out() -> None:
    """torch has one TF32 setting for convolutions and one for matrix products."""
    case = CASES[0]
    core = _planning.core()
    assert (
        set(forms(case)) == set(forms(case, allow_tf32=True)) == {"native", "native/im2col", "native/matmul"}
    )
    fields = {"batch": 1, "in_channels": 7, "in_height": 9, "in_width": 6, "out_channels": 5}
    rounds = core.Problem(**fields, filter_height=1, filter_width=1)
    h200 = core.Device.known_device("h200")
    assert [plan.name for plan in core.candidates("native", rounds, h200)] == ["native"]
    with pytest.raises(ValueError, match=r"torch.backends.cuda.matmul.allow_tf32"):
        core.select(rounds, h200, "native/matmul")
    for dtype in ("float64", "float16", "bfloat16"):
        other = core.Problem(**fields, filter_height=1, filter_width=1, dtype=dtype)
        assert len(core.candidates("native", other, h200)) == 3


def test_torchs_settings_are_read() -> None:
    for convolutions in (False, True):
        for products in (False, True):
            torch.backends.cudnn.allow_tf32 = convolutions
            torch.backends.cuda.matmul.allow_tf32 = products
            wanted = convolutions * CONVOLUTIONS + products * PRODUCTS
            assert tf32_setting(True, torch.float32) == wanted
            assert tf32_setting(True, torch.bfloat16) == tf32_setting(False, torch.float32) == 0


# In a process of its own: once the newer setting was used, torch refuses the older one.
NEWER_SETTING = """
import torch
from convx._arguments import tf32_setting

seen = []
for products in ("tf32", "ieee"):
    torch.backends.cuda.matmul.fp32_precision = products
    for convolutions in ("tf32", "ieee"):
        torch.backends.cudnn.conv.fp32_precision = convolutions
        seen.append(tf32_setting(True, torch.float32))
print(seen)
"""


def test_torchs_newer_settings_are_read() -> None:
    shown = run_python(NEWER_SETTING)
    assert shown.stdout.strip() == "[3, 2, 1, 0]", shown.stderr


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_slices_are_read_where_they_begin(operation: str, device: str) -> None:
    case = CASES[0].with_(channels=16, filters=32, height=8, width=8)
    for channels_last in (False, True):
        tensors = make(case, torch.float32, device, channels_last)
        own, exact = torch_result(operation, case, tensors), reference(operation, case, tensors)
        tensors.input = torch.cat([tensors.input * 0, tensors.input])[1:]
        tensors.output_grad = torch.cat([tensors.output_grad * 0, tensors.output_grad])[1:]
        tensors.weight = torch.cat([tensors.weight * 0, tensors.weight])[case.filters :]
        for plan in plans_of("native", operation, case, tensors):
            result = result_of(operation, case, tensors, plan.name)
            assert_agrees(result, own, exact, plan.name, case.terms(operation))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("operation", ["input_grad", "weight_grad"])
def test_autocast_has_no_say_in_gradients(operation: str, device: str) -> None:
    """It casts torch's matrix products, but not the gradients of convolutions."""
    for case in CASES:
        tensors = make(case, torch.float32, device)
        for plan in plans_of("native", operation, case, tensors):
            outside = result_of(operation, case, tensors, plan.name)
            with torch.autocast(device, torch.bfloat16):
                assert torch.equal(result_of(operation, case, tensors, plan.name), outside), plan.name


@pytest.mark.parametrize("tf32", [-1, 4])
def test_a_setting_that_is_none(tf32: int) -> None:
    case = CASES[0]
    with pytest.raises(ValueError, match=rf"tf32 must be 0 .* got {tf32}"):
        result_of("forward", case, make(case), "auto", tf32)


class _Recorded(TorchDispatchMode):
    """The tf32 argument of every call of convx's operators."""

    def __init__(self) -> None:
        super().__init__()
        self.settings: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "convx":
            names = [each.name for each in func._schema.arguments]
            self.settings.append(args[names.index("tf32")])
        return func(*args, **(kwargs or {}))


def test_recorded_calls_take_products_as_not_exact() -> None:
    """They may be replayed under another setting, by torch.compile, torch.export or make_fx."""
    case = CASES[5]
    t = make(case)
    sides = (case.padding[:2], case.padding[2:])
    geometry = (case.stride, sides, case.dilation, case.group_count)
    calls: list[Callable[[], Tensor]] = [
        lambda: functional.conv2d(t.input, t.weight, None, *geometry),
        lambda: functional.conv2d_input_grad(t.output_grad, t.weight, t.input.shape, *geometry),
        lambda: functional.conv2d_weight_grad(t.input, t.output_grad, t.weight.shape, *geometry),
    ]
    for call in calls:
        with _Recorded() as recorded:
            call()
        assert recorded.settings == [PRODUCTS]


def test_gradients_ask_for_the_setting_of_their_time() -> None:
    class Spy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            torch.backends.cuda.matmul.allow_tf32 = True
            return grad

    x, w = torch.randn(1, 4, 5, 5, requires_grad=True), torch.randn(3, 4, 3, 3, requires_grad=True)
    y = Spy.apply(convx.functional.conv2d(x, w, padding=1, algorithm="hntmp"))  # type: ignore[no-untyped-call]
    with _Recorded() as recorded:
        y.sum().backward()
    assert recorded.settings == [PRODUCTS, PRODUCTS]


@pytest.mark.gpu
def test_exact_float32_stays_exact_under_either_setting() -> None:
    """On a layer whose gradients auto takes from matrix products."""
    case = Dense(batch=1, channels=512, filters=2048, height=7, width=7, **ONE_TAP)
    tensors = make(case, torch.float32, "cuda")
    size, error = list(tensors.input.shape), {}
    exact = reference("input_grad", case, tensors)
    for products in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = products
        result = convx.functional.conv2d_input_grad(tensors.output_grad, tensors.weight, size)
        error[products] = float((result.cpu().double() - exact).norm() / exact.norm())
    assert max(error.values()) < 2e-6, error
    with pytest.raises(ValueError, match=r"torch.backends.cuda.matmul.allow_tf32"):
        convx.functional.conv2d_input_grad(
            tensors.output_grad, tensors.weight, size, algorithm="native/matmul"
        )


@pytest.mark.gpu
def test_a_cuda_graph_takes_them() -> None:
    case = CASES[5]
    tensors = make(case, torch.float32, "cuda")
    geometry = (case.stride, case.padding, case.dilation, case.group_count)

    def call() -> Tensor:
        return ops.conv2d(tensors.input, tensors.weight, None, *geometry, "none", "native/im2col", 0)

    expected = call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    graph.replay()
    assert torch.equal(result, expected)
