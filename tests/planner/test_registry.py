"""The methods and the choice of one, for every method and known device, without tensors."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convx import _core

DEVICES = [_core.Device.host_cpu(2), *map(_core.Device.known_device, _core.Device.known_names())]
METHODS = [row["name"] for row in _core.methods()]
OPERATIONS = ("forward", "input_grad", "weight_grad")
BY_GROUPS = "at least, by groups"  # the source of torch's time where it is that long


def depthwise(**changes: Any) -> _core.Problem:
    fields = {
        "batch": 16,
        "in_channels": 96,
        "in_height": 56,
        "in_width": 56,
        "out_channels": 96,
        "filter_height": 3,
        "filter_width": 3,
        "padding": (1, 1, 1, 1),
        "groups": 96,
    }
    return _core.Problem(**{**fields, **changes})


def dense(**changes: Any) -> _core.Problem:
    return depthwise(**{"groups": 1, **changes})


@st.composite
def problems(draw: st.DrawFn) -> _core.Problem:
    """Any small problem, depthwise or not."""
    groups = draw(st.integers(1, 6))
    per_group = draw(st.integers(1, 3))
    filter_height, filter_width = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    dilation = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    return _core.Problem(
        operation=draw(st.sampled_from(OPERATIONS)),
        dtype=draw(st.sampled_from(("float32", "float64", "float16", "bfloat16"))),
        layout=draw(st.sampled_from(("nchw", "channels_last"))),
        batch=draw(st.integers(0, 5)),
        in_channels=groups * draw(st.sampled_from((1, 1, 1, 2))),
        in_height=draw(st.integers(1, 40)) + (filter_height - 1) * dilation[0],
        in_width=draw(st.integers(1, 40)) + (filter_width - 1) * dilation[1],
        out_channels=groups * per_group,
        filter_height=filter_height,
        filter_width=filter_width,
        stride=draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        padding=draw(st.tuples(*[st.integers(0, 4)] * 4)),
        dilation=dilation,
        groups=groups,
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("groups", [96, 12, 1])
def test_estimates_count_where_torch_goes_by_groups(dtype: str, groups: int) -> None:
    """In 16 bits without AVX-512, which oneDNN needs: depthwise layers took torch 30 to 400 times as long."""
    device = _core.Device.host_cpu(2)
    by_groups = dtype != "float32" and groups > 1 and device.isa != "avx512"
    for operation in OPERATIONS:
        problem = depthwise(operation=operation, dtype=dtype, groups=groups)
        choice = _core.select(problem, device)
        [torch] = [plan for plan in _core.candidates("native", problem, device) if plan.name == "native"]
        assert (torch.source == BY_GROUPS) == by_groups
        if by_groups and (groups == 96 or operation != "weight_grad"):  # which is torch's for dense layers
            assert choice.plan.method != "native" and 4 * choice.plan.predicted_us < torch.predicted_us
            assert "an estimate of less than a quarter" in choice.why
        elif dtype != "float32":
            assert choice.plan.method == "native" or choice.plan.source.startswith("fitted on 2 cores with ")


def test_native_is_last_and_depthwise_is_there() -> None:
    assert METHODS[-1] == "native"
    assert "depthwise" in METHODS
    assert len(set(METHODS)) == len(METHODS)
    assert all(row["summary"] for row in _core.methods())


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_every_method_plans_or_gives_a_reason(problem: _core.Problem) -> None:
    for device in DEVICES:
        for method in METHODS:
            supported, reason = _core.supports(method, problem, device)
            plans = _core.candidates(method, problem, device)
            assert supported == bool(plans), (method, device)
            assert supported != bool(reason), (method, device)
            predictions = [plan.predicted_us for plan in plans]
            assert predictions == sorted(predictions), (method, device)
            for plan in plans:
                assert plan.method == method
                assert plan.workspace_bytes >= 0
                assert 0 < plan.predicted_us < 1e12
                assert plan.describe().startswith(method)


@settings(max_examples=40, deadline=None)
@given(problem=problems())
def test_auto_takes_torchs_convolution_unless_something_was_measured_ahead(problem: _core.Problem) -> None:
    for device in DEVICES:
        choice = _core.select(problem, device)
        rows = _core.explain(problem, device)
        plans = [plan for row in rows for plan in row.plans]
        [torch] = [plan for plan in plans if plan.name == "native"]
        ahead = [
            plan
            for plan in plans
            if plan.predicted_us * max(plan.doubt, torch.doubt) < torch.predicted_us
            and (torch.source == BY_GROUPS or not plan.source.startswith(("estimated", "extrapolated")))
            and not plan.by_name_only
        ]
        fastest = min(ahead, key=lambda plan: plan.predicted_us, default=torch)
        assert choice.plan.describe() == fastest.describe()
        assert not choice.forced
        assert ("nothing was measured ahead" in choice.why) == (fastest is torch)
        assert [row.method for row in rows if row.chosen] == [choice.plan.method]
        assert [row.method for row in rows] == METHODS


UNMEASURED: dict[str, dict[str, Any]] = {
    "large filters": {"filter_height": 7, "filter_width": 7, "padding": (3, 3, 3, 3)},
    "rows": {"filter_height": 1, "padding": (0, 0, 1, 1)},
    "columns": {"filter_width": 1, "padding": (1, 1, 0, 0)},
    "even": {"filter_height": 2, "filter_width": 2, "stride": (2, 2), "padding": (0, 0, 0, 0)},
    "dilated": {"dilation": (2, 2), "padding": (2, 2, 2, 2)},
    "1D": {"in_height": 1, "filter_height": 1, "filter_width": 31, "padding": (0, 0, 15, 15)},
    "multiplied": {"out_channels": 192},
    "float64": {"dtype": "float64"},
}


@pytest.mark.parametrize("kind", UNMEASURED)
@pytest.mark.parametrize("groups", [96, 4])
def test_kinds_that_nobody_measured_are_torchs_or_fitted(kind: str, groups: int) -> None:
    """By estimates, and by the times of other filters, auto lost to torch by up to eight times."""
    for device in (_core.Device.known_device("h200"), _core.Device.known_device("a100")):
        for operation in OPERATIONS:
            for layout in ("nchw", "channels_last"):
                changes = {"groups": groups, "operation": operation, "layout": layout, **UNMEASURED[kind]}
                choice = _core.select(depthwise(**changes), device)
                case = (kind, groups, layout, device.name)
                if (
                    case == ("large filters", 96, "channels_last", "NVIDIA H200")
                    and operation != "weight_grad"
                ):
                    # Neither measured, but modelled by what was.
                    assert choice.plan.source == "modelled on NVIDIA H200", choice.why
                    assert choice.plan.name != "native"
                elif choice.plan.name != "native":
                    assert device.name == "NVIDIA H200" and kind != "float64", choice.plan.describe()
                    assert choice.plan.source == "fitted on NVIDIA H200", choice.why
                elif device.name != "NVIDIA H200" or kind == "float64":
                    assert "not measured on such: " in choice.why and "convx.tune" in choice.why


def test_a_plan_that_the_model_chose_says_so() -> None:
    changes = {"groups": 96, "layout": "nchw", "dtype": "bfloat16", **UNMEASURED["large filters"]}
    problem = depthwise(**changes, batch=16, in_height=56, in_width=56)
    choice = _core.select(problem, _core.Device.known_device("h200"))
    assert (choice.plan.method, choice.plan.source) == ("depthwise", "fitted on NVIDIA H200")
    assert "a model of random layers has it ahead of torch's convolution" in choice.why


@pytest.mark.parametrize("name", ["mi250", "mi300", "rx7900"])
def test_makers_whose_gpus_nobody_measured_are_torchs(name: str) -> None:
    device = _core.Device.known_device(name)
    assert _core.select(depthwise(), device).plan.name == "native"
    assert _core.select(depthwise(), device, "depthwise").plan.method == "depthwise"


def test_what_was_measured_far_away_is_not_held_against_torch() -> None:
    """3x3 layers were measured at 32 images at most: at many times that number kernels are others."""
    h200 = _core.Device.known_device("h200")
    for batch, source in ((1, "measured on NVIDIA H200"), (300, "extrapolated from NVIDIA H200")):
        layer = dense(batch=batch, in_channels=128, out_channels=128, in_height=28, in_width=28)
        plans = [plan for row in _core.explain(layer, h200) for plan in row.plans]
        assert source in {plan.source for plan in plans}
        assert (_core.select(layer, h200).plan.name == "native") == (batch == 300)


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_depthwise_runs_everywhere(device: _core.Device, operation: str, layout: str, dtype: str) -> None:
    problem = depthwise(operation=operation, layout=layout, dtype=dtype)
    assert _core.supports("depthwise", problem, device) == (True, "")


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_auto_takes_depthwise_on_an_h200(operation: str, dtype: str) -> None:
    problem = depthwise(batch=128, operation=operation, dtype=dtype)
    assert _core.select(problem, _core.Device.known_device("h200")).plan.method == "depthwise"


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_a_method_and_each_of_its_candidates_can_be_named(device: _core.Device) -> None:
    for problem in (depthwise(), depthwise(operation="weight_grad", layout="channels_last"), dense()):
        for row in _core.explain(problem, device):
            for plan in row.plans:
                names = [plan.method] + ([f"{plan.method}/{plan.candidate}"] if plan.candidate else [])
                for name in names:
                    choice = _core.select(problem, device, name)
                    assert choice.forced
                    assert name in choice.why
                    assert choice.plan.method == plan.method
                    assert name == plan.method or choice.plan.candidate == plan.candidate


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
def test_every_kernel_takes_scale_and_residual(device: _core.Device, layout: str) -> None:
    """In its sums, or in a pass after it, which costs time."""
    for made in (depthwise, dense):
        for size in ({}, {"in_height": 7, "in_width": 7}, {"filter_height": 1, "filter_width": 1}):
            plain, more = (
                {
                    (row.method, plan.candidate): plan
                    for row in _core.explain(made(layout=layout, **size, **epilogue), device)
                    for plan in reversed(row.plans)
                }
                for epilogue in ({}, {"scale": True, "residual": True, "bias": True})
            )
            assert plain.keys() <= more.keys()
            for name in plain:
                apart = more[name].finishes_apart
                assert apart == ("finished apart" in more[name].describe())
                assert more[name].predicted_us > plain[name].predicted_us + 1 or not apart
                assert apart or device.backend != "hip" or name[0] == "native"


def test_an_unknown_algorithm_lists_what_exists() -> None:
    with pytest.raises(ValueError, match=r"must be one of auto, .*native.*got 'winograd'"):
        _core.select(depthwise(), DEVICES[0], "winograd")
    with pytest.raises(ValueError, match="got ''"):
        _core.select(depthwise(), DEVICES[0], "")


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_a_named_algorithm_that_cannot_run_says_why_and_what_can(device: _core.Device) -> None:
    expected = r"'depthwise' can't run .*not depthwise \(groups 1, input channels 96.*auto, .*native"
    with pytest.raises(ValueError, match=expected):
        _core.select(dense(), device, "depthwise")
    assert _core.select(dense(), device, "depthwise|native").plan.method == "native"
    assert _core.select(depthwise(), device, "depthwise|native").plan.method == "depthwise"
    unnamed = _core.select(depthwise(), device).plan.name
    assert _core.select(depthwise(), device, "depthwise/winograd|auto").plan.name == unnamed
    with pytest.raises(ValueError, match="got 'winograd'"):
        _core.select(dense(), device, "depthwise|winograd")
    with pytest.raises(ValueError, match=r"depthwise has no candidate 'winograd' .*depthwise/"):
        _core.select(depthwise(), device, "depthwise/winograd")
    with pytest.raises(ValueError, match=r"native has no candidate 'fast' .*name the method alone"):
        _core.select(depthwise(), device, "native/fast")


def test_an_unknown_method_or_device_lists_what_exists() -> None:
    with pytest.raises(ValueError, match=r"method must be one of .*native; got 'fft'"):
        _core.supports("fft", depthwise(), DEVICES[0])
    with pytest.raises(ValueError, match=r"device must be one of .*h200.*; got 'h9000'"):
        _core.Device.known_device("h9000")


def test_every_gpu_has_a_clock_that_estimates_count_by() -> None:
    clocks = {name: _core.Device.known_device(name).clock_MHz for name in _core.Device.known_names()}
    assert clocks["h200"] == 1980
    assert all(1000 < clock < 4000 for clock in clocks.values())


def test_devices_describe_themselves() -> None:
    h200 = _core.Device.known_device("h200")
    assert (h200.backend, h200.lanes, h200.architecture, h200.has_bulk_copy) == ("cuda", 32, 90, True)
    mi300 = _core.Device.known_device("mi300")
    assert (mi300.backend, mi300.lanes, mi300.architecture) == ("hip", 64, 0x942)
    assert _core.Device.host_cpu(3).threads == 3
    assert _core.Device.host_cpu(0).threads == 1
    assert _core.Device.host_cpu(1).isa in ("baseline", "avx2", "avx512")


def host_isa(requested: str) -> subprocess.CompletedProcess[str]:
    code = "from convx import _core; print(_core.Device.host_cpu(1).isa)"
    environment = {**os.environ, "CONVX_CPU_ISA": requested, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


def test_the_instruction_set_can_be_narrowed() -> None:
    assert host_isa("baseline").stdout.strip() == "baseline"


def test_an_unknown_instruction_set_is_an_error() -> None:
    done = host_isa("sse9")
    assert done.returncode != 0
    assert "CONVX_CPU_ISA must be baseline, avx2 or avx512, got 'sse9'" in done.stderr


def test_build_information_names_compiler_and_torch() -> None:
    facts = _core.build_info()
    assert {"torch", "compiler", "flags", "gpu"} <= set(facts)
    assert facts["gpu"] in ("none", "cuda", "hip")
