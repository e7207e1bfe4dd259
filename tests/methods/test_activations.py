"""Activations where they are hardest: zeros of both signs, denormals, the ends of exp's range, the largest
values, infinities and NaN give what torch's give, fused into every kernel, in inference and in training."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from planned import algorithms_of, result_of
from processes import ISAS, succeeds_on
from reference import ACTIVATIONS, DTYPES, Case, Dense, Tensors, make
from simt import build as programs
from torch import Tensor

import convx
from build_tools.toolchain import cxx
from convx import _core

_SIZES = (0.0, 1e-45, 1e-39, 1.2e-38, 1e-20, 0.5, 2.9, 3.1, 6.5, 20.0, 86.0, 87.4, 88.0, 88.5, 88.72, 88.73)
_LARGE = (89.0, 90.0, 104.0, 1e4, 1e37, 3e38, torch.finfo(torch.float32).max, math.inf)
EDGES = [sign * size for size in (*_SIZES, *_LARGE) for sign in (1.0, -1.0)] + [math.nan]


@pytest.fixture(autouse=True)
def _exact_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


CASES = [
    Case(batch=1, channels=len(EDGES), height=6, width=17),
    Case(batch=1, channels=len(EDGES), height=6, width=9, filter=(5, 5), padding=(2, 2, 2, 2)),
    Case(batch=1, channels=len(EDGES), height=5, width=7, filter=(2, 3), dilation=(1, 2)),
    Case(batch=1, channels=1, multiplier=len(EDGES)),
    Dense(batch=1, channels=8, filters=len(EDGES)),
    Dense(batch=2, channels=8, filters=len(EDGES), stride=(2, 2)),
    Dense(batch=1, channels=8, filters=len(EDGES), filter=(1, 1), padding=(0, 0, 0, 0)),
]


def expected(activation: str, before: Tensor) -> list[Tensor]:
    """What torch gives: in the tensor's type, and in float64, since its kernels for floats leave the last
    steps below exp's range out, and one takes gelu(inf) for NaN."""
    if activation == "none":
        return [before.cpu()]
    function = getattr(F, activation)
    return [function(before).cpu(), function(before.cpu().double()).to(before.dtype)]


def assert_as_torch(result: Tensor, before: Tensor, activation: str, what: str) -> None:
    """Equal to one of them, to the last places, or to what a device may flush to zero."""
    result, wanted_of = result.cpu(), expected(activation, before)
    before = before.cpu()
    places, flushed = 8 * torch.finfo(before.dtype).eps, 2 * torch.finfo(torch.float32).tiny
    close = torch.zeros_like(result, dtype=torch.bool)
    for wanted in wanted_of:
        both = wanted.isfinite() & result.isfinite()
        away = (result.double() - wanted.double()).abs()
        scale = before if activation == "gelu" else wanted  # 1 + erf(x) cancels
        close |= both & (away <= places * scale.double().abs() + flushed)
        close |= (wanted == result) | (wanted.isnan() & result.isnan())
    wrong = [(float(b), float(r)) for b, r in zip(before[~close], result[~close], strict=True)]
    assert not wrong, f"{what}: of {wrong[0][0]!r} it gives {wrong[0][1]!r}"


def with_edges(case: Case, dtype: torch.dtype, device: str, channels_last: bool) -> Tensors:
    """Every filter's sums are one of the values: its bias, beside products that are zero."""
    tensors = make(case, dtype, device, channels_last)
    tensors.weight.zero_()
    tensors.bias = torch.tensor(EDGES, dtype=torch.float64, device=device).to(dtype)
    return tensors


def check_every_kernel(device: str) -> None:
    ran = set()
    for dtype in DTYPES:
        for case in CASES:
            for channels_last in (False, True):
                case = case.with_(bias=True)
                tensors = with_edges(case, dtype, device, channels_last)
                plain = algorithms_of("forward", case, tensors)
                for activation in ACTIVATIONS:
                    activated = case.with_(activation=activation)
                    for algorithm in algorithms_of("forward", activated, tensors):
                        # The sums by another kernel where this one has no plan without an activation.
                        before = result_of(
                            "forward", case, tensors, algorithm if algorithm in plain else "native"
                        )
                        fused = result_of("forward", activated, tensors, algorithm)
                        if algorithm == "native/fused":  # auto takes it where NaN was seen to be kept
                            known = ~before.isnan()
                            before, fused = before[known], fused[known]
                        assert_as_torch(fused, before, activation, f"{algorithm} {activation} {case} {dtype}")
                        ran.add(algorithm)
    assert {name.split("/")[0] for name in ran} == {row["name"] for row in convx.methods()}


def test_every_kernel(device: str) -> None:
    check_every_kernel(device)


@pytest.mark.slow
@pytest.mark.parametrize("isa", ISAS[:-1])
def test_narrower_instruction_sets(isa: str) -> None:
    succeeds_on(isa, "import test_activations as t; t.check_every_kernel('cpu')")


def test_products(device: str) -> None:
    """native/matmul has no bias: the values come from pixels."""
    for dtype in DTYPES:
        x = torch.zeros(1, 4, 1, len(EDGES), device=device, dtype=dtype)
        x[0, 0, 0] = torch.tensor(EDGES, dtype=torch.float64, device=device).to(dtype)
        w = torch.zeros(3, 4, 1, 1, device=device, dtype=dtype)
        w[:, 0] = 1
        before = convx.functional.conv2d(x, w, algorithm="native/matmul")
        for activation in ACTIVATIONS:
            y = convx.functional.conv2d(x, w, activation=activation, algorithm="native/matmul")
            assert_as_torch(y, before, activation, f"{activation} {dtype}")


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_training_gives_what_inference_does(activation: str, device: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        case = CASES[0].with_(bias=True)
        tensors = with_edges(case, dtype, device, False)
        arguments = (tensors.input, tensors.weight, tensors.bias, 1, 1, 1, case.channels)
        before = convx.functional.conv2d(*arguments)
        inference = convx.functional.conv2d(*arguments, activation=activation)
        tensors.weight.requires_grad_()
        training = convx.functional.conv2d(*arguments, activation=activation)
        assert training.requires_grad
        for result in (inference, training.detach()):
            assert_as_torch(result, before, activation, f"{activation} {dtype}")


def generated() -> str:
    """The generator's functions, one for each activation and type of sums."""
    lines = ['#include "problem/problem.h"']
    for dtype, kind in (("float32", "float"), ("float64", "double")):
        cases = []
        for activation in ACTIVATIONS:
            problem = _core.Problem(
                **{"batch": 1, "in_channels": 16, "in_height": 4, "in_width": 8, "out_channels": 64},
                **{"filter_height": 1, "filter_width": 1, "dtype": dtype, "activation": activation},
            )
            h200 = _core.Device.known_device("h200")
            text = _core.generator.source(problem, h200, _core.generator.tilings(problem, h200)[0]).text
            [line] = [each for each in text.splitlines() if each.startswith("CONVX_DEVICE Sum activate(")]
            body = line.partition("{")[2]
            cases.append(f"    case convx::Activation::{activation}: {{ using Sum = {kind}; {body}")
        head = f"inline {kind} generated({kind} value, convx::Activation activation) {{"
        lines += [head, "  switch (activation) {", *cases, "  }", "  return value;", "}"]
    return "\n".join([*lines, ""])


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which(os.environ.get("CXX", "g++")):
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("activations")
    (folder / "generated.h").write_text(generated())
    command = [*cxx(), *programs.COMMON, "-O2", f'-DCONVX_GENERATED="{folder / "generated.h"}"']
    sources = ["tests/host/simt/activations.cpp", "csrc/problem/problem.cpp"]
    output = folder / "activations"
    full = [*command, *(str(programs.ROOT / source) for source in sources), "-o", str(output)]
    full = [part.replace("-Icsrc", f"-I{programs.ROOT}/csrc") for part in full]
    subprocess.run(full, check=True)
    return output


def test_device_code(program: Path) -> None:
    """What GPUs run, without one."""
    lines = [f"{activation} {value.hex()}" for activation in ACTIVATIONS for value in EDGES]
    done = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True)
    rows = [[float.fromhex(word) for word in row.split()] for row in done.stdout.splitlines()]
    assert len(rows) == len(lines)
    for line, row in zip(lines, rows, strict=True):
        activation, value = line.split()
        for results, dtype in ((row[:3], torch.float32), (row[3:], torch.float64)):
            before = torch.full((3,), float.fromhex(value), dtype=torch.float64).to(dtype)
            assert_as_torch(torch.tensor(results, dtype=dtype), before, activation, f"{line} {dtype}")
