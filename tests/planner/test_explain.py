"""convx.explain agrees with the planner and with what a call does, and prints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import convx
from convx import _core, _planning


def tensors(**options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty(2, 8, 14, 14, **options), torch.empty(8, 1, 3, 3, **options)


@pytest.mark.parametrize("operation", ["forward", "input_grad", "weight_grad"])
@pytest.mark.parametrize("where", ["cpu", "h200", "mi300"])
def test_every_method_has_a_row_and_one_is_chosen(operation: str, where: str) -> None:
    explanation = convx.explain(*tensors(), padding=1, groups=8, operation=operation, device=where)
    assert {row.method for row in explanation.rows} == {row["name"] for row in convx.methods()}
    assert sum(row.chosen for row in explanation.rows) == 1
    assert all(row.can_run or row.reason for row in explanation.rows)
    assert operation in explanation.problem


def test_prints_a_table() -> None:
    input, weight = torch.empty(1, 8, 6, 6), torch.empty(4, 4, 3, 3)
    text = str(convx.explain(input, weight, groups=2))
    lines = text.splitlines()
    assert lines[0].startswith("forward float32 nchw 1x8x6x6 -> 4x4x4")
    assert lines[1].startswith("on cpu (")
    assert lines[2].split() == ["method", "plan", "workspace", "predicted", "prediction"]
    assert any("can't run: " in line and line.split()[0] == "depthwise" for line in lines)
    chosen = convx.explain(input, weight, groups=2).chosen
    assert [line.split()[1] for line in lines if line.startswith("->")] == [chosen.method]
    assert lines[-1].startswith(f"takes {chosen.algorithm}: ")


def test_shapes_are_enough() -> None:
    real = convx.explain(*tensors(), groups=8)
    assert convx.explain(*tensors(device="meta"), groups=8) == real
    with FakeTensorMode():
        assert convx.explain(*tensors(), groups=8) == real


def test_layers_and_one_dimension() -> None:
    input = torch.empty(2, 8, 14, 14)
    for layers in (torch.nn, convx.nn):
        layer = layers.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        assert convx.explain(layer, input) == convx.explain(*tensors(), padding=1, groups=8)
    reflecting = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8, padding_mode="reflect")
    assert "2x8x16x16" in convx.explain(reflecting, input).problem
    row = torch.nn.Conv1d(8, 8, 3, groups=8)
    assert "2x8x1x20 -> 8x1x18" in convx.explain(row, torch.empty(2, 8, 20)).problem
    special = convx.nn.Conv2d(8, 8, 3, groups=8, activation="relu", algorithm="native")
    explanation = convx.explain(special, input)
    assert (
        explanation.chosen.method == "native"
        and "relu" in explanation.problem
        and "bias" in explanation.problem
    )


def test_layout_and_dtype() -> None:
    input, weight = tensors(dtype=torch.bfloat16)
    input = input.contiguous(memory_format=torch.channels_last)
    assert "bfloat16 channels_last" in convx.explain(input, weight, groups=8).problem


def test_a_named_candidate() -> None:
    explanation = convx.explain(*tensors(), groups=8)
    for row in explanation.rows:
        if row.can_run:
            chosen = convx.explain(*tensors(), groups=8, algorithm=row.algorithm).chosen
            assert chosen.algorithm == row.algorithm
    assert "named" in convx.explain(*tensors(), groups=8, algorithm="native").why


def test_a_call_of_filter2d() -> None:
    images, filter = torch.empty(3, 4, 20, 30), torch.ones(2, 5, 5)
    explanation = convx.explain_filter2d(images, filter, "reflect")
    assert explanation.problem == "filter2d float32 12x20x30 -> 2x20x30, filter 5x5, border reflect"
    assert {row.method for row in explanation.rows} == {"filter2d"}
    assert explanation.chosen.predicted_us == min(
        row.predicted_us for row in explanation.rows if not row.by_name_only
    )
    assert "the least predicted time" in explanation.why
    for row in explanation.rows:
        for name in (row.algorithm, row.candidate, row.plan):
            assert convx.explain_filter2d(images, filter, "reflect", algorithm=name).chosen == replace(
                row, chosen=True
            )
    assert convx.explain_filter2d(images.to("meta"), filter.tolist(), "reflect") == explanation


@pytest.mark.parametrize("where", ["cpu", "h200", "mi300"])
def test_forms_that_auto_never_predicts_are_marked(where: str) -> None:
    explanation = convx.explain_filter2d(torch.empty(64, 64), torch.ones(3, 3), device=where)
    marked = {row.candidate for row in explanation.rows if row.by_name_only}
    assert marked == {"direct", "column_reuse"} | ({"row_reuse", "both"} if where != "cpu" else set())
    lines = [line for line in str(explanation).splitlines() if "by name only" in line]
    assert len(lines) == sum(row.by_name_only for row in explanation.rows)
    assert all("estimated, by name only" in line for line in lines)
    images, weight = torch.empty(1, 1, 64, 64), torch.empty(1, 1, 3, 3)
    rows = convx.explain(images, weight, padding=1, device=where).rows
    assert {row.candidate for row in rows if row.by_name_only and row.method == "filter2d"} == marked


def test_layers_of_filters() -> None:
    photo = torch.empty(3, 20, 30, dtype=torch.uint8)
    sharpen = convx.nn.Filter2d([[0, -1, 0], [-1, 5, -1], [0, -1, 0]], "wrap", algorithm="row_reuse")
    explanation = convx.explain(sharpen, photo)
    assert explanation == convx.explain_filter2d(photo, sharpen.filter, "wrap", algorithm="row_reuse")
    assert explanation.chosen.candidate == "row_reuse"
    sobel = convx.explain(convx.nn.Sobel2d(), photo, device="h200")
    assert sobel.problem == "filter2d float32 3x20x30 -> 2x20x30, filter 3x3, border replicate"
    assert sobel.device == "NVIDIA H200"
    with pytest.raises(
        TypeError, match=r"GaussianBlur2d makes 2 passes, of 7x1 and 1x7 here; explain_filter2d"
    ):
        convx.explain(convx.nn.GaussianBlur2d(1.0), photo)
    with pytest.raises(ValueError, match="operation must be forward for a Sobel2d, got 'weight_grad'"):
        convx.explain(convx.nn.Sobel2d(), photo, operation="weight_grad")
    with pytest.raises(ValueError, match=r"images must be float32, .*got int32"):
        convx.explain(convx.nn.Sobel2d(), photo.int())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": [[1.0]]}, "images must be a tensor, got list"),
        ({"images": torch.empty(5)}, "images must have 2 dimensions or more"),
        ({"images": torch.empty(5, 5).int()}, "images must be float32, .*got int32"),
        ({"filter": torch.empty(3)}, r"filter must be \(height, width\) or a bank"),
        ({"filter": torch.empty(3, 3).double()}, "filter must be float32 for images of float32, got float64"),
        ({"border": "mirror"}, "border must be one of .*got 'mirror'"),
        ({"algorithm": "fft"}, "filter2d has no candidate 'fft'"),
        ({"algorithm": None}, "algorithm must be .*got None"),
        ({"device": "h300"}, "device must be .*got 'h300'"),
        ({"images": torch.empty(0, 5, 5)}, "the images, the filters or the result are empty"),
    ],
)
def test_errors_of_filters(changes: dict[str, Any], message: str) -> None:
    arguments = {"images": torch.empty(5, 5), "filter": torch.empty(3, 3), **changes}
    with pytest.raises((TypeError, ValueError), match=message):
        convx.explain_filter2d(**arguments)


def test_errors() -> None:
    input, weight = tensors()
    with pytest.raises(
        ValueError, match="operation must be one of forward, input_grad, weight_grad, got 'sideways'"
    ):
        convx.explain(input, weight, operation="sideways")
    with pytest.raises(ValueError, match="needs 3 input channels, got 8"):
        convx.explain(input, weight, groups=3)
    with pytest.raises(ValueError, match="can't run this problem"):
        convx.explain(input, torch.empty(8, 4, 3, 3), groups=2, algorithm="depthwise")
    with pytest.raises(ValueError, match=r"input must be float32, .*got int32"):
        convx.explain(input.int(), weight.int(), groups=8)
    with pytest.raises(TypeError, match="explain takes a Conv1d, Conv2d, Filter2d or Sobel2d, got Linear"):
        convx.explain(torch.nn.Linear(1, 1), input)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="no plans for device 'xpu'"):
        convx.explain(input, weight, groups=8, device="xpu")


@pytest.mark.parametrize(
    ("name", "value"),
    [("algorithm", "native"), ("stride", 2), ("padding", (1, 1)), ("activation", "relu"), ("groups", 2)],
)
def test_a_layers_own_arguments_are_refused(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} is the layer's own.*got {name}="):
        convx.explain(torch.nn.Conv2d(4, 4, 3), torch.empty(1, 4, 8, 8), **{name: value})


def test_what_is_no_tensor_or_device_is_named() -> None:
    x, w = torch.empty(1, 4, 8, 8), torch.empty(4, 4, 3, 3)
    with pytest.raises(TypeError, match="input must be a tensor, got str"):
        convx.explain("a", w)
    with pytest.raises(TypeError, match="weight must be a tensor, got NoneType"):
        convx.explain(x, None)
    with pytest.raises(TypeError, match="the layer's input must be a tensor, got NoneType"):
        convx.explain(torch.nn.Conv2d(4, 4, 3), None)
    with pytest.raises(ValueError, match=r"device must be a torch device or one of .*h200.*, got 'h300'"):
        convx.explain(x, w, device="h300")


def test_without_the_library_a_gpu_is_unknown() -> None:
    if torch.cuda.is_available():
        pytest.skip("the library for GPUs is loaded")
    with pytest.raises(RuntimeError, match="no operators for cuda tensors"):
        _planning.device("cuda")


@pytest.mark.gpu
def test_gpu_traits() -> None:
    device = _planning.device(torch.device("cuda", 0))
    assert device.multiprocessors == torch.cuda.get_device_properties(0).multi_processor_count
    assert device.bandwidth_GBps > 100
    assert device.clock_MHz > 500
    known = {_planning.device(name).name: _planning.device(name) for name in _core.Device.known_names()}
    for trait in ("architecture", "lanes", "shared_bytes_per_block", "bandwidth_GBps", "fp32_TFLOPs"):
        if device.name in known:
            assert getattr(device, trait) == getattr(known[device.name], trait), trait


@pytest.mark.parametrize("allowed", [True, False])
def test_float32_on_a_gpu_is_planned_with_torchs_tf32_setting(
    allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
    input, weight = torch.empty(1, 64, 28, 28), torch.empty(96, 64, 1, 1)
    named = [row.algorithm for row in convx.explain(input, weight, device="h200").rows]
    assert ("pointwise/tensor" in named, "pointwise/tensor3" in named) == (allowed, not allowed)
    assert "TF32" not in convx.explain(input, weight).problem  # a CPU has none
    assert "TF32" not in convx.explain(input.half(), weight.half(), device="h200").problem
