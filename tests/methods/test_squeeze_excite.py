"""Squeeze-and-excitation in one kernel and by torch's operators: results, errors, records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from processes import ISAS, succeeds_on
from torch import Tensor

from convx import _core, _planning, operators

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
FORMATS = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}
ACTIVATIONS: dict[str, Any] = {"none": lambda x: x, "relu": F.relu, "silu": F.silu, "hardswish": F.hardswish}
GATES = {"sigmoid": torch.sigmoid, "hardsigmoid": F.hardsigmoid}
# (batch, channels, height, width, squeezed)
SIZES = [
    *((2, 32, 12, 16, 8), (1, 24, 7, 7, 6), (3, 1152, 7, 7, 48), (1, 8, 1, 1, 1), (2, 40, 5, 9, 300)),
    *((1, 16, 112, 113, 4), (5, 480, 14, 14, 20), (1, 4096, 2, 3, 100)),
]


@pytest.fixture(autouse=True)
def _exact_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def operands(size: tuple[int, ...], dtype: torch.dtype, device: str, layout: str) -> list[Any]:
    batch, channels, height, width, squeezed = size
    generator = torch.Generator().manual_seed(sum(size))

    def values(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    x = values(batch, channels, height, width).contiguous(memory_format=FORMATS[layout])
    weights = values(squeezed, channels, 1, 1) / channels**0.5, values(channels, squeezed, 1, 1)
    return [x, weights[0], values(squeezed), weights[1], values(channels)]


def expected(tensors: list[Any], activation: str, gate: str) -> Tensor:
    x, squeeze, squeeze_bias, excite, excite_bias = (
        None if each is None else each.double().cpu() for each in tensors
    )
    inner = ACTIVATIONS[activation](F.conv2d(x.mean((2, 3), keepdim=True), squeeze, squeeze_bias))
    return x * GATES[gate](F.conv2d(inner, excite, excite_bias))  # type: ignore[no-any-return]


def plans(tensors: list[Any], activation: str, gate: str, layout: str) -> Iterator[str]:
    x = tensors[0]
    problem = _core.ExciteProblem(
        **{"dtype": _planning.dtype_name(x.dtype), "layout": layout, "activation": activation, "gate": gate},
        **dict(zip(("batch", "channels", "height", "width"), x.shape, strict=True)),
        squeezed_channels=tensors[1].size(0),
    )
    device = _planning.device(x.device)
    yield "native"
    if _core.supports("squeeze_excite", problem, device)[0]:
        yield from (plan.name for plan in _core.candidates("squeeze_excite", problem, device))


def check(size: tuple[int, ...], dtype: torch.dtype, device: str, layout: str, **changes: Any) -> set[str]:
    tensors = operands(size, dtype, device, layout)
    if not changes.get("bias", True):
        tensors[2] = tensors[4] = None
    activation, gate = changes.get("activation", "silu"), changes.get("gate", "sigmoid")
    wanted = expected(tensors, activation, gate)
    ran = set()
    for algorithm in (*plans(tensors, activation, gate, layout), "auto"):
        result = operators.squeeze_excite(*tensors, activation, gate, algorithm, 0)
        assert result.dtype == dtype and result.shape == tensors[0].shape
        assert result.is_contiguous(memory_format=FORMATS[layout]), algorithm
        error, size_of = (result.double().cpu() - wanted).abs(), tensors[0].double().cpu().abs()
        unit = torch.finfo(dtype).eps
        # The kernel's results are rounded once, torch's after every step.
        steps = 40 * unit * size_of if algorithm in ("native", "auto") else 0
        least = torch.finfo(dtype).smallest_normal * unit
        reach = (
            unit * wanted.abs()
            + steps
            + (4e-6 * (1 + size[-1]) if dtype != torch.float64 else 1e-12) * size_of
            + least
        )
        assert (error <= reach).all(), f"{algorithm}: {error.max()}"
        ran.add(algorithm.split()[0])
    return ran


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_results(dtype: torch.dtype, layout: str, device: str) -> None:
    for size in SIZES:
        ran = check(size, dtype, device, layout)
        has_kernel = device == "cpu" or (dtype != torch.float64 and size[1] * dtype.itemsize // 16 <= 512)
        assert ran == {"native", "auto", *(["squeeze_excite"] if has_kernel else [])}


@pytest.mark.parametrize("isa", ISAS[:-1])
def test_narrower_instruction_sets(isa: str) -> None:
    every = "for d in t.DTYPES: [t.check(s, d, 'cpu', f) for s in t.SIZES for f in t.FORMATS]"
    succeeds_on(isa, f"import test_squeeze_excite as t\n{every}")


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_and_gates(activation: str, gate: str, device: str) -> None:
    for layout in FORMATS:
        check(SIZES[0], torch.float32, device, layout, activation=activation, gate=gate)
        check(SIZES[0], torch.bfloat16, device, layout, activation=activation, gate=gate, bias=False)


def test_nan_stays_in_its_image(device: str) -> None:
    for layout in FORMATS:
        tensors = operands(SIZES[2], torch.float32, device, layout)
        tensors[0][1, 5, 3, 3] = float("nan")
        for algorithm in plans(tensors, "relu", "hardsigmoid", layout):
            result = operators.squeeze_excite(*tensors, "relu", "hardsigmoid", algorithm, 0).isnan()
            assert result[1].all() and not result[0].any() and not result[2].any(), algorithm


def test_views_and_an_empty_batch(device: str) -> None:
    tensors = operands(SIZES[0], torch.float32, device, "nchw")
    wanted = operators.squeeze_excite(*tensors, "relu", "sigmoid", "native", 0)
    wide = torch.cat([tensors[0], tensors[0]], 3)[..., : tensors[0].size(3)]
    odd = torch.cat([tensors[1].flatten()[:1], tensors[1].flatten()])[1:].view_as(tensors[1])
    given = [wide, odd, tensors[2], tensors[3].contiguous(memory_format=torch.channels_last), tensors[4]]
    for algorithm in plans(tensors, "relu", "sigmoid", "nchw"):
        result = operators.squeeze_excite(*given, "relu", "sigmoid", algorithm, 0)
        torch.testing.assert_close(result, wanted)
    empty = operators.squeeze_excite(tensors[0][:0], *tensors[1:], "relu", "sigmoid", "auto", 0)
    assert empty.shape == (0, *tensors[0].shape[1:])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": torch.zeros(3, 8, 4)}, "input must have 4 dimensions"),
        ({"squeeze_weight": torch.zeros(4, 9, 1, 1)}, r"squeeze_weight must have the shape \(4, 8, 1, 1\)"),
        ({"excite_weight": torch.zeros(8, 5, 1, 1)}, r"excite_weight must have the shape \(8, 4, 1, 1\)"),
        ({"excite_weight": torch.zeros(8, 4, 1, 1).double()}, "excite_weight must have the dtype of input"),
        ({"squeeze_bias": torch.zeros(5)}, r"squeeze_bias must have shape \(4,\)"),
        ({"gate": "tanh"}, "gate must be one of sigmoid, hardsigmoid; got 'tanh'"),
        ({"algorithm": "strip"}, "strip"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else "",
)
def test_errors(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "input": torch.zeros(2, 8, 3, 3),
        "squeeze_weight": torch.zeros(4, 8, 1, 1),
        "squeeze_bias": torch.zeros(4),
        "excite_weight": torch.zeros(8, 4, 1, 1),
        "excite_bias": None,
        **{"activation": "relu", "gate": "sigmoid", "algorithm": "auto", "tf32": 0},
    }
    with pytest.raises((RuntimeError, ValueError), match=message):
        operators.squeeze_excite(*{**given, **changes}.values())


def test_opcheck(device: str) -> None:
    for layout in FORMATS:
        tensors = operands(SIZES[1], torch.float32, device, layout)
        torch.library.opcheck(operators.squeeze_excite, (*tensors, "silu", "sigmoid", "auto", 0))
