"""python -m convx info, and what it computes from the registry."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from processes import run_python

import convx
from convx import __main__, _planning, info


def test_report() -> None:
    text = info.report()
    assert f"convx {convx.__version__}, torch {torch.__version__}" in text
    assert "libconvx_cpu: loaded from" in text
    assert "libconvx_gpu: " in text
    for row in convx.methods():
        assert f"  {row['name']}: {row['summary']}" in text


def test_command() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "convx", "info"], capture_output=True, text=True, check=True
    )
    assert "what each method can run here" in result.stdout


def test_a_setting_that_cannot_be_read_is_named() -> None:
    result = run_python("from convx import info; print(info.report())", CONVX_WORKSPACE_LIMIT_MB="abc")
    assert result.returncode == 0, result.stderr
    assert (
        "CONVX_WORKSPACE_LIMIT_MB must be a whole number of megabytes, 0 or more, got 'abc'" in result.stdout
    )


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main([]) == 2
    assert __main__.main(["nonesuch"]) == 2
    assert "usage: python -m convx" in capsys.readouterr().err
    assert __main__.main(["--help"]) == 0
    assert "demo" in capsys.readouterr().out


def test_capabilities_are_the_registrys() -> None:
    devices = {"cpu": _planning.device("cpu"), "h200": _planning.device("h200")}
    rows = list(info.capabilities(devices))
    count = len(info.KINDS) * len(info.OPERATIONS) * len(info.DTYPES) * len(info.LAYOUTS)
    assert len(rows) == len(devices) * len(convx.methods()) * count
    assert all(row.can_run for row in rows if row.method == "native")
    assert all(row.can_run or row.reason for row in rows)
    assert all(row.can_run for row in rows if row.method == "depthwise" and row.kind == "depthwise")
    assert not any(row.can_run for row in rows if row.method == "depthwise" and row.kind == "dense")


def test_single_channels_have_a_method_of_their_own() -> None:
    (line,) = [
        line
        for line in info.capability_table(info.capabilities({"cpu": _planning.device("cpu")}))
        if line[0] == "filter2d" and not line[-1].startswith("no: ")
    ]
    assert line[2:4] == ("single-channel", "forward")


def test_what_is_said_of_several_is_one_line() -> None:
    rows = [
        info.Capability(
            "some", "cpu", kind, operation, "float32", "nchw", kind == "a", "never" * (kind != "a")
        )
        for kind in ("a", "b", "c")
        for operation in ("forward", "input_grad")
    ]
    assert info.capability_table(rows)[1:] == [
        ("some", "cpu", "a", "forward, input_grad", "all"),
        ("some", "cpu", "b, c", "forward, input_grad", "no: never"),
    ]


def test_capability_table() -> None:
    def row(dtype: str, layout: str, able: bool) -> info.Capability:
        return info.Capability(
            "some", "cpu", "dense", "forward", dtype, layout, able, "" if able else "too dense"
        )

    full = [row("float32", "nchw", True), row("float16", "nchw", True)]
    assert info.capability_table(iter(full))[1][-1] == "all"
    none = [row("float32", "nchw", False)]
    assert info.capability_table(iter(none))[1][-1] == "no: too dense"
    some = [*full, row("float32", "channels_last", False)]
    assert info.capability_table(iter(some))[1][-1] == "nchw: float32, float16; channels_last: none"
