"""The build: what the environment may ask for, what is rebuilt, how a failure reads; who includes whom."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from build_tools import toolchain
from build_tools.compile import BuildError, Step, run_steps, worker_count
from build_tools.targets import Build

ROOT = Path(__file__).resolve().parent.parent


def fake_torch(cuda: str | None = None, hip: str | None = None, devices: int = 0) -> toolchain.Torch:
    """As torch 2.13.0 with that many GPUs, which are H200s or MI250s."""
    gpus = SimpleNamespace(
        is_available=lambda: devices > 0,
        device_count=lambda: devices,
        get_device_capability=lambda index: (9, 0),
        get_device_properties=lambda index: SimpleNamespace(gcnArchName="gfx90a:sramecc+:xnack-"),
    )
    return toolchain.Torch("2.13.0", Path("/torch"), cuda, hip, SimpleNamespace(cuda=gpus))


def fake_tool(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\necho release 13.0\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "CUDA_HOME",
        "CUDA_PATH",
        "FORCE_CUDA",
        "MAX_JOBS",
        "PYTORCH_ROCM_ARCH",
        "ROCM_HOME",
        "ROCM_PATH",
        "TORCH_CUDA_ARCH_LIST",
    ):
        monkeypatch.delenv(name, raising=False)


def setup_with_torch(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    """Runs setup.py where `import torch` finds the given source."""
    (folder / "torch.py").write_text(source)
    command = [sys.executable, str(ROOT / "setup.py"), "--version"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)


@pytest.mark.parametrize(
    ("source", "found"),
    [("raise ImportError('none here')", "found none"), ("__version__ = '2.10.1+cpu'", "found 2.10.1+cpu")],
)
def test_a_missing_or_old_torch_is_one_line(tmp_path: Path, source: str, found: str) -> None:
    done = setup_with_torch(tmp_path, source)
    assert done.returncode != 0
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert found in lines[0] and "pip install 'torch>=2.11'" in lines[0]


def test_max_jobs_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_JOBS", "3")
    assert worker_count() == 3
    monkeypatch.setenv("MAX_JOBS", "many")
    with pytest.raises(BuildError, match="MAX_JOBS must be a positive number, got 'many'"):
        worker_count()


def test_cuda_needs_a_torch_that_sees_a_gpu_or_force_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nvcc = fake_tool(tmp_path / "bin" / "nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert toolchain.find_cuda(fake_torch()) is None
    assert toolchain.find_cuda(fake_torch(hip="6.4", devices=1)) is None
    assert capsys.readouterr().out == ""
    assert toolchain.find_cuda(fake_torch(cuda="13.0")) is None
    assert "sees no GPU: building for the CPU alone; TORCH_CUDA_ARCH_LIST" in capsys.readouterr().out
    assert toolchain.find_cuda(fake_torch(cuda="13.0", devices=1)) == toolchain.Cuda(nvcc, ["9.0"])
    monkeypatch.setenv("FORCE_CUDA", "1")
    forced = toolchain.find_cuda(fake_torch())
    assert forced is not None and forced.architectures == ["8.0", "9.0", "10.0+PTX"]


def test_force_cuda_without_nvcc_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert toolchain.find_cuda(fake_torch(cuda="13.0", devices=1)) is None
    monkeypatch.setenv("FORCE_CUDA", "1")
    with pytest.raises(BuildError, match=f"no nvcc in CUDA_HOME={tmp_path}; install the CUDA toolkit"):
        toolchain.find_cuda(fake_torch())


def test_cuda_architectures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_tool(tmp_path / "bin" / "nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0+PTX")
    cuda = toolchain.find_cuda(fake_torch(cuda="13.0"))
    assert cuda is not None
    assert cuda.architecture_flags == [
        "-gencode",
        "arch=compute_80,code=sm_80",
        "-gencode",
        "arch=compute_90a,code=sm_90a",
        "-gencode",
        "arch=compute_90,code=compute_90",
    ]
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "Hopper")
    with pytest.raises(BuildError, match=r"TORCH_CUDA_ARCH_LIST must list numbers .* got 'Hopper'"):
        toolchain.find_cuda(fake_torch(cuda="13.0"))


def test_hip_architectures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hipcc = fake_tool(tmp_path / "bin" / "hipcc")
    monkeypatch.setenv("ROCM_HOME", str(tmp_path))
    assert toolchain.find_hip(fake_torch()) is None
    assert toolchain.find_hip(fake_torch(hip="6.4")) is None
    seen = toolchain.find_hip(fake_torch(hip="6.4", devices=2))
    assert seen is not None and seen.architectures == ["gfx90a"]
    monkeypatch.setenv("PYTORCH_ROCM_ARCH", "gfx90a;gfx942")
    hip = toolchain.find_hip(fake_torch(hip="6.4"))
    assert hip is not None
    assert (hip.hipcc, hip.home, hip.architectures) == (hipcc, tmp_path, ["gfx90a", "gfx942"])


def test_a_step_is_repeated_when_a_header_or_the_command_changes(tmp_path: Path) -> None:
    source, header, output = tmp_path / "a.cpp", tmp_path / "a.h", tmp_path / "objects" / "a.o"
    header.write_text("constexpr int value = 1;\n")
    source.write_text('#include "a.h"\nint answer() { return value; }\n')
    depfile = output.with_suffix(".d")

    def step(*flags: str) -> Step:
        arguments = ["-MMD", "-MF", str(depfile), "-c", str(source), "-o", str(output)]
        return Step("compiling", [*toolchain.cxx(), *flags, *arguments], output, [source], depfile)

    assert not step().up_to_date()
    run_steps([step()])
    assert step().up_to_date()
    assert not step("-O1").up_to_date()
    later = time.time() + 10
    os.utime(header, (later, later))
    assert not step().up_to_date()


def test_a_report_is_kept_and_made_again_when_lost(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "a.o"
    command = ["sh", "-c", f"echo 56 registers; touch {output}"]
    step = Step("compiling", command, output, [], reports=True)
    run_steps([step])
    assert step.log.read_text() == "56 registers\n"
    assert "registers" not in capfd.readouterr().out
    assert step.up_to_date()
    step.log.unlink()
    assert not step.up_to_date()


def test_checks_read_the_reports_of_the_library(tmp_path: Path) -> None:
    nvcc = fake_tool(tmp_path / "nvcc")
    build = Build(fake_torch(), toolchain.Cuda(nvcc, ["8.0", "9.0"]), None, tmp_path, reports=True)
    steps = build.kernel_steps("depthwise/strip/")
    assert steps and all(step.reports and "-Xptxas=-v" in step.command for step in steps)
    assert all("arch=compute_90a,code=sm_90a" in step.command for step in steps)
    plain = Build(fake_torch(), toolchain.Cuda(nvcc, ["9.0"]), None, tmp_path).kernel_steps()
    assert len(plain) > len(steps) and not any(step.reports for step in plain)


def test_a_failing_command_is_shown_with_what_it_printed(tmp_path: Path) -> None:
    source = tmp_path / "wrong.cpp"
    source.write_text("int x = ;\n")
    command = [*toolchain.cxx(), "-c", str(source), "-o", str(tmp_path / "wrong.o")]
    step = Step("compiling wrong.cpp", command, tmp_path / "wrong.o", [source])
    with pytest.raises(BuildError, match=r"(?s)compiling wrong.cpp failed:.*wrong.o.*error"):
        run_steps([step])


def test_rocm_sources_are_compiled_as_they_are(tmp_path: Path) -> None:
    hip = toolchain.Hip(fake_tool(tmp_path / "hipcc"), tmp_path, ["gfx90a"])
    build = Build(fake_torch(hip="6.4"), None, hip, tmp_path)
    assert build.information()["gpu"] == "hip"
    assert build.information()["gpu_architectures"] == "gfx90a"


def test_import_survives_missing_and_broken_binaries(tmp_path: Path) -> None:
    package = tmp_path / "convx"
    shutil.copytree(ROOT / "convx", package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    code = "import convx; from convx import _libraries; print(_libraries.load()['cpu'].reason)"

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)

    missing = run()
    assert missing.returncode == 0, missing.stderr
    assert "does not exist; build it with: pip install --no-build-isolation ." in missing.stdout
    (package / "lib").mkdir(exist_ok=True)
    (package / "lib" / "libconvx_cpu.so").write_text("not a library")
    broken = run()
    assert broken.returncode == 0, broken.stderr
    assert "can't be loaded" in broken.stdout


def included(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)', path.read_text(), re.MULTILINE)


def test_every_header_stays_in_its_room() -> None:
    """Torch below csrc/torch alone, CUDA and HIP below csrc/platform alone, no arrow upwards."""
    for path in sorted((ROOT / "csrc").rglob("*.*")):
        room = path.relative_to(ROOT / "csrc").parts[0]
        for name in included(path):
            torch = name.startswith(("torch/csrc", "torch/headeronly", "ATen", "c10"))
            assert not torch or room == "torch", f"{path} includes {name}"
            gpu = name.startswith(("cuda", "hip/"))
            assert not gpu or room == "platform", f"{path} includes {name}"
            upward = name.startswith(("torch/", "python/")) and not torch
            assert not upward or room in ("torch", "python"), f"{path} includes {name}"
            if room == "problem":
                assert not name.startswith(("methods/", "select/", "platform/")), f"{path} includes {name}"
