"""Scale, bias, residual and activation in every kernel that this machine can run, against float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from planned import problem_of
from processes import ISAS, succeeds_on
from reference import DTYPES, Case, Dense, Tensors, make
from torch import Tensor

import convx
from convx import _core, _planning, operators
from convx._arguments import gives_channels_last


@pytest.fixture(autouse=True)
def _exact_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@dataclass
class Form:
    """One epilogue."""

    bias: bool
    scale: bool
    residual: bool
    activation: str = "none"
    after: bool = False


FORMS = [
    Form(bias=True, scale=True, residual=True, activation="relu"),
    Form(bias=True, scale=False, residual=True, activation="relu6", after=True),
    Form(bias=False, scale=True, residual=False, activation="silu"),
    Form(bias=True, scale=False, residual=True, activation="relu"),
    Form(bias=False, scale=False, residual=True),
    Form(bias=False, scale=True, residual=False),
    Form(bias=True, scale=True, residual=True, activation="hardswish", after=True),
]

# Rows narrower and wider than vectors, whole and ragged; channels that fill no vector; padding that no filter
# of one tap meets.
CASES = [
    Case(batch=2, channels=19, height=9, width=21),
    Case(batch=1, channels=16, height=7, width=7, filter=(5, 5), padding=(2, 2, 2, 2)),
    Case(batch=1, channels=6, height=14, width=14),
    Case(batch=2, channels=8, height=12, width=16, stride=(2, 2)),
    Case(batch=1, channels=5, height=8, width=40, filter=(7, 7), padding=(3, 3, 3, 3)),
    Case(batch=1, channels=3, height=6, width=9, filter=(2, 3), dilation=(1, 2), multiplier=2),
    Case(batch=1, channels=1, height=9, width=37, multiplier=3),
    Case(batch=2, channels=1, height=9, width=11, filter=(4, 2), padding=(1, 2, 1, 0)),
    Dense(batch=1, channels=8, filters=21),
    Dense(batch=2, channels=8, filters=16, stride=(2, 2)),
    Dense(batch=1, channels=8, filters=37, filter=(1, 1), padding=(0, 0, 0, 0)),
    Dense(batch=2, channels=16, filters=24, filter=(1, 1), padding=(1, 1, 1, 1), stride=(2, 2)),
]


class Operands:
    """The tensors of a case with an epilogue."""

    def __init__(self, case: Case, dtype: torch.dtype, device: str, channels_last: bool) -> None:
        self.case = case
        self.tensors: Tensors = make(case.with_(bias=True), dtype, device, channels_last)
        generator = torch.Generator().manual_seed(7)

        def values(*size: int) -> Tensor:
            return torch.randn(size, generator=generator).to(device, dtype)

        self.scale, self.bias = values(case.out_channels), values(case.out_channels)
        # Of the layout that the result has not.
        last = torch.contiguous_format if channels_last else torch.channels_last
        self.residual = values(*self.sums(absolute=False).shape).contiguous(memory_format=last)

    def sums(self, absolute: bool) -> Tensor:
        """In float64; of absolute values, which bounds the rounding errors."""
        top, bottom, left, right = self.case.padding
        x, w = self.tensors.input.double().cpu(), self.tensors.weight.double().cpu()
        padded = F.pad(x, (left, right, top, bottom))
        if absolute:
            padded, w = padded.abs(), w.abs()
        return F.conv2d(padded, w, None, self.case.stride, 0, self.case.dilation, self.case.group_count)

    def arguments(self, form: Form) -> tuple[Any, Any, Any]:
        """Bias, residual and scale."""
        return (
            self.bias if form.bias else None,
            self.residual if form.residual else None,
            self.scale if form.scale else None,
        )

    def algorithms(self, form: Form) -> dict[str, bool]:
        """Every kernel that can run the case, and whether it rounds sums before the epilogue."""
        case, tensors = self.case, self.tensors
        problem = problem_of(
            case.with_(bias=form.bias, activation=form.activation),
            dtype=tensors.input.dtype,
            channels_last=gives_channels_last(tensors.input, tensors.weight),
            scale=form.scale,
            residual=form.residual,
            residual_after_activation=form.after,
        )
        device = _planning.device(tensors.input.device)
        names = dict.fromkeys(
            f"{row.method}/{plan.candidate}" if plan.candidate else row.method
            for row in _core.explain(problem, device)
            for plan in row.plans
        )
        found = {
            name: name.startswith("native") or _core.select(problem, device, name).plan.finishes_apart
            for name in names
        }
        assert "native" in found and len(found) > 1
        return found

    def expected(self, form: Form) -> tuple[Tensor, Tensor]:
        """What float64 gives, and the sum of the absolute values of its terms."""
        result, size = self.sums(absolute=False), self.sums(absolute=True)
        bias, residual, scale = (
            None if each is None else each.double().cpu() for each in self.arguments(form)
        )
        activation = (lambda value: value) if form.activation == "none" else getattr(F, form.activation)
        if scale is not None:
            result, size = result * scale[:, None, None], size * scale.abs()[:, None, None]
        if bias is not None:
            result, size = result + bias[:, None, None], size + bias.abs()[:, None, None]
        if residual is not None:
            size = size + residual.abs()
            result = activation(result) + residual if form.after else activation(result + residual)
        else:
            result = activation(result)
        return result, size

    def result(self, form: Form, algorithm: str) -> Tensor:
        """The operator's, with filters packed in the call and beforehand, which agree."""
        case, tensors = self.case, self.tensors
        bias, residual, scale = self.arguments(form)
        rest = (
            bias,
            case.stride,
            case.padding,
            case.dilation,
            case.group_count,
            form.activation,
            algorithm,
            0,
        )
        more = (residual, scale, form.after)
        packed = operators.pack_weight(tensors.input, tensors.weight, *rest, *more)
        kept = packed if packed.numel() else None
        once = operators.conv2d(tensors.input, tensors.weight, *rest, None, *more)
        again = operators.conv2d(tensors.input, tensors.weight, *rest, kept, *more)
        assert torch.equal(once.nan_to_num(), again.nan_to_num()), "kept filters give other results"
        return once


def check_every_kernel(device: str) -> None:
    for case in CASES:
        for dtype in DTYPES:
            for channels_last in (False, True):
                operands = Operands(case, dtype, device, channels_last)
                wanted = [operands.expected(form) for form in FORMS]
                for form, (exact, size) in zip(FORMS, wanted, strict=True):
                    for algorithm, rounds_sums in operands.algorithms(form).items():
                        result = operands.result(form, algorithm)
                        steps = 2.0 if rounds_sums else 0.51
                        sums = (
                            16 * torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
                        )
                        unit = torch.finfo(dtype).eps
                        rounded = size if rounds_sums else exact.abs()
                        allowed = steps * unit * rounded + sums * size + torch.finfo(dtype).tiny
                        wrong = (result.double().cpu() - exact).abs() > allowed
                        assert not wrong.any(), f"{algorithm} {form} {case} {dtype} {channels_last}"


def test_every_kernel(device: str) -> None:
    check_every_kernel(device)


@pytest.mark.slow
@pytest.mark.parametrize("isa", ISAS[:-1])
def test_narrower_instruction_sets(isa: str) -> None:
    succeeds_on(isa, "import test_epilogue as t; t.check_every_kernel('cpu')")


@pytest.mark.parametrize("case", CASES[::3], ids=str)
def test_infinity_and_nan_pass_as_in_torch(case: Case, device: str) -> None:
    for channels_last in (False, True):
        operands = Operands(case, torch.float32, device, channels_last)
        special = torch.tensor([float("inf"), float("-inf"), float("nan")])
        operands.residual.permute(0, 2, 3, 1)[0, 0, :3, 0] = special.to(device)
        operands.scale[-1] = float("nan")
        if case.out_channels > 2:
            operands.scale[1] = float("inf")
        for form in FORMS:
            exact = operands.expected(form)[0].float()
            for algorithm in operands.algorithms(form):
                result = operands.result(form, algorithm).cpu()
                assert torch.equal(result.isnan(), exact.isnan()), f"{algorithm} {form}"
                infinite = exact.isinf()
                assert torch.equal(result[infinite], exact[infinite]), f"{algorithm} {form}"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "residual of another shape": ({"residual": (1, 4, 6, 5)}, r"residual must have the shape of the output"),
    "residual of three dimensions": ({"residual": (4, 6, 6)}, r"residual must have 4 dimensions, got 3"),
    "residual of another dtype": (
        {"residual": (1, 4, 6, 6), "dtype": torch.float64},
        "residual must have the",
    ),
    "residual of integers": ({"residual": (1, 4, 6, 6), "dtype": torch.int32}, "residual must be float32"),
    "scale of another shape": (
        {"scale": (3,)},
        r"scale must have shape \(4,\), one value per output channel",
    ),
    "scale of two dimensions": ({"scale": (4, 1)}, r"scale must have shape \(4,\)"),
    "scale of another dtype": (
        {"scale": (4,), "dtype": torch.float16},
        r"scale must have the dtype of input",
    ),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("meta", [False, True])
def test_what_does_not_fit_is_refused(name: str, meta: bool) -> None:
    changes, message = BAD[name]
    device = "meta" if meta else "cpu"
    dtype = changes.get("dtype", torch.float32)
    given = {
        key: torch.zeros(size, dtype=dtype, device=device) for key, size in changes.items() if key != "dtype"
    }
    x, w = torch.zeros(1, 4, 6, 6, device=device), torch.zeros(4, 4, 1, 1, device=device)
    geometry = ([1, 1], [0, 0, 0, 0], [1, 1], 1)
    with pytest.raises((ValueError, RuntimeError), match=message):
        operators.conv2d(
            *(x, w, None, *geometry, "none", "auto", 0, None), given.get("residual"), given.get("scale")
        )


def test_operator_checks() -> None:
    x, w, b = torch.randn(2, 4, 5, 6), torch.randn(4, 2, 3, 3), torch.randn(4)
    residual, scale = torch.randn(2, 4, 5, 6), torch.randn(4)
    for each in (x, w, b, residual, scale):
        each.requires_grad_()
    geometry = ([1, 1], [1, 1, 1, 1], [1, 1], 2)
    for activation, after in (("relu", False), ("relu", True), ("silu", False), ("none", False)):
        arguments = (x, w, b, *geometry, activation, "auto", 0, None, residual, scale, after)
        torch.library.opcheck(torch.ops.convx.conv2d.default, arguments)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("activation", ["none", "relu", "relu6", "silu", "gelu"])
def test_derivatives_of_the_operator(activation: str, after: bool) -> None:
    torch.manual_seed(0)

    def leaf(*size: int) -> Tensor:
        return torch.randn(size, dtype=torch.float64, requires_grad=True)

    operands = (leaf(1, 2, 2, 3), leaf(4, 1, 3, 3), leaf(4), leaf(1, 4, 2, 3), leaf(4))

    def call(x: Tensor, w: Tensor, b: Tensor, residual: Tensor, scale: Tensor) -> Tensor:
        geometry = ([1, 1], [1, 1, 1, 1], [1, 1], 2)
        return operators.conv2d(x, w, b, *geometry, activation, "auto", 0, None, residual, scale, after)

    assert torch.autograd.gradcheck(call, operands, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, operands, fast_mode=True)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("activation", ["none", "relu", "silu"])
def test_functional(activation: str, after: bool) -> None:
    """With and without gradients, with a batch and without, of images and of rows."""
    torch.manual_seed(0)
    x, w, b = (torch.randn(size, dtype=torch.float64) for size in ((2, 4, 6, 7), (6, 4, 3, 3), (6,)))
    residual = torch.randn(2, 6, 6, 7, dtype=torch.float64)
    function = (lambda value: value) if activation == "none" else getattr(F, activation)
    sums = F.conv2d(x, w, b, padding=1)
    wanted = function(sums) + residual if after else function(sums + residual)
    named: dict[str, Any] = {"activation": activation, "residual_after_activation": after}
    conv2d = convx.functional.conv2d
    torch.testing.assert_close(conv2d(x, w, b, padding=1, residual=residual, **named), wanted)
    torch.testing.assert_close(conv2d(x[0], w, b, padding=1, residual=residual[0], **named), wanted[0])
    rows = convx.functional.conv1d(x[:, :, 0], w[:, :, 1], b, padding=1, residual=residual[:, :, 0], **named)
    row_sums = F.conv1d(x[:, :, 0], w[:, :, 1], b, padding=1)
    added = residual[:, :, 0]
    torch.testing.assert_close(rows, function(row_sums) + added if after else function(row_sums + added))

    def call(x: Tensor, w: Tensor, residual: Tensor) -> Tensor:
        return conv2d(x, w, b, padding=1, residual=residual, **named)

    leaves = [each.clone().requires_grad_() for each in (x, w, residual)]
    torch.testing.assert_close(call(*leaves), wanted)
    assert torch.autograd.gradcheck(call, leaves, fast_mode=True)
    mapped = torch.vmap(call, in_dims=(0, None, 0))(x.unsqueeze(1), w, residual.unsqueeze(1))
    torch.testing.assert_close(mapped.squeeze(1), wanted)
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*leaves), wanted)


def test_functional_refuses_a_residual_that_would_broadcast() -> None:
    x, w = torch.randn(1, 4, 6, 6), torch.randn(4, 4, 3, 3)
    for needs_grad in (False, True):
        weight = w.clone().requires_grad_(needs_grad)
        with pytest.raises(convx.InvalidArgument, match="residual must have the shape of the output"):
            convx.functional.conv2d(x, weight, padding=1, residual=torch.randn(1, 4, 1, 1))
        with pytest.raises(TypeError, match="residual"):
            convx.functional.conv2d(x, weight, padding=1, residual=1.0)  # type: ignore[arg-type]


def test_autocast_casts_a_residual_too() -> None:
    x, w, residual = torch.randn(1, 4, 6, 6), torch.randn(4, 4, 3, 3), torch.randn(1, 4, 6, 6)
    for needs_grad in (False, True):
        weight = w.clone().requires_grad_(needs_grad)
        with torch.autocast("cpu", torch.bfloat16):
            result = convx.functional.conv2d(x, weight, padding=1, residual=residual)
        assert result.dtype == torch.bfloat16
        wanted = F.conv2d(x, w, padding=1) + residual
        assert (result.float() - wanted).abs().max() < 0.2
