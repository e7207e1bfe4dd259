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

from build_tools import check_amd, generated, targets, toolchain
from build_tools.ninja_build import Made, make
from build_tools.toolchain import BuildError

ROOT = Path(__file__).resolve().parents[2]


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
    seen = toolchain.find_cuda(fake_torch(cuda="13.0", devices=1))
    assert seen is not None and (seen.nvcc, seen.architectures) == (nvcc, "9.0")
    monkeypatch.setenv("FORCE_CUDA", "1")
    forced = toolchain.find_cuda(fake_torch())
    assert forced is not None and forced.architectures == "8.0;9.0;10.0+PTX"
    assert forced.home == tmp_path and toolchain.nvcc_release(forced) == "13.0"


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
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90,code=compute_90",
        "-gencode=arch=compute_90a,code=sm_90a",
    ]
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "Ampere, 9.0")
    named = toolchain.find_cuda(fake_torch(cuda="13.0"))
    assert named is not None and "-gencode=arch=compute_86,code=sm_86" in named.architecture_flags
    assert os.environ["TORCH_CUDA_ARCH_LIST"] == "Ampere, 9.0"
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "fast")
    with pytest.raises(BuildError, match=r"TORCH_CUDA_ARCH_LIST must list .* got 'fast'"):
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


def test_what_is_made_is_made_again_when_a_header_or_the_command_changes(tmp_path: Path) -> None:
    source, header, output = tmp_path / "a.cpp", tmp_path / "a.h", tmp_path / "objects" / "a.o"
    header.write_text("constexpr int value = 1;\n")
    source.write_text('#include "a.h"\nint answer() { return value; }\n')
    depfile = output.with_suffix(".d")

    def made(*flags: str) -> bool:
        before = output.stat().st_mtime_ns if output.exists() else 0
        arguments = ["-MMD", "-MF", str(depfile), "-c", str(source), "-o", str(output)]
        make([Made(output, [*toolchain.cxx(), *flags, *arguments], [source], depfile)], tmp_path)
        return output.stat().st_mtime_ns != before

    assert made()
    assert not made()
    assert made("-O1")
    later = time.time() + 10
    os.utime(header, (later, later))
    assert made("-O1")


def test_a_report_is_kept_and_made_again_when_lost(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "a.o"
    command = ["sh", "-c", f"echo 56 '$registers'; touch {output}"]
    each = Made(output, command, [], reports=True)
    make([each], tmp_path)
    assert each.log.read_text() == "56 $registers\n"
    assert "registers" not in capfd.readouterr().out
    each.log.unlink()
    make([each], tmp_path)
    assert each.log.exists()
    with pytest.raises(BuildError, match="no such luck"):
        make([Made(tmp_path / "b.o", ["sh", "-c", "echo no such luck; false"], [], reports=True)], tmp_path)


def test_a_failing_command_is_shown_with_what_it_printed(tmp_path: Path) -> None:
    source = tmp_path / "wrong.cpp"
    source.write_text("int x = ;\n")
    command = [*toolchain.cxx(), "-c", str(source), "-o", str(tmp_path / "wrong.o")]
    with pytest.raises(BuildError, match=r"(?s)wrong.o.*error"):
        make([Made(tmp_path / "wrong.o", command, [source])], tmp_path)


def test_every_source_belongs_to_one_binary() -> None:
    """Operators are compiled for the CPU's and for the GPU's, which differ in macros."""
    parts = [
        targets.planner_sources(),
        targets.cpu_sources(),
        targets.sources(*targets.GPU_KERNELS),
        targets.gpu_host_sources(),
        targets.sources(*targets.MODULE),
        targets.sources(*targets.FRONT),
    ]
    listed = [path for part in parts for path in part]
    assert set(listed) == set(targets.sources("**/*.cpp", "**/*.cu"))
    twice = {path for path in listed if listed.count(path) > 1}
    assert twice and all(path.parts[1] == "torch" for path in twice)


def test_sources_are_written_for_every_launcher_and_method() -> None:
    methods = ROOT / "csrc" / "methods"
    launchers = [path.parent for path in methods.glob("**/launch.cuh")]
    assert sorted(generated.LAUNCHERS) == sorted(str(path.relative_to(methods)) for path in launchers)
    assert all((path / "launch.cuh").read_text().count("<CONVX_INSTANCE>(") >= 1 for path in launchers)
    kernels = sorted(path.parts[-3] for path in methods.glob("*/cpu/kernels.h"))
    assert sorted(generated.CPU_METHODS) == kernels
    assert not [*methods.glob("**/launch_*.cu"), *methods.glob("*/cpu/cpu_*.cpp")]


def test_written_sources_are_written_again_only_where_they_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generated, "ROOT", tmp_path)
    written = generated.write()
    assert written and all((tmp_path / path).is_file() for path in written)
    old = {path: (tmp_path / path).stat().st_mtime_ns for path in written}
    changed = tmp_path / written[0]
    changed.write_text("// other\n")
    os.utime(changed, ns=(1, 1))
    generated.write()
    assert changed.read_text() != "// other\n" and changed.stat().st_mtime_ns != 1
    assert all((tmp_path / path).stat().st_mtime_ns == old[path] for path in written[1:])


def test_rocm_sources_are_compiled_as_they_are(tmp_path: Path) -> None:
    hip = toolchain.Hip(fake_tool(tmp_path / "hipcc"), tmp_path, ["gfx90a"])
    facts = targets.information(fake_torch(hip="6.4"), None, hip)
    assert (facts["gpu"], facts["gpu_architectures"]) == ("hip", "gfx90a")
    assert targets.gpu_compiler(None, hip)[-2:] == ["-x", "hip"]
    assert "--offload-arch=gfx90a" in targets.gpu_flags(None, hip)
    assert check_amd.compiler(hip)[:2] == ["env", "HIP_PLATFORM=amd"]


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


# From below upwards: a room uses itself and those before it. Of methods, see the next test.
ROOMS = ("platform", "problem", "plan", "methods", "choose", "torch", "front", "python")
# The front calls the operators through the dispatcher; the module knows neither of them.
STRANGERS = {("front", "torch"), ("python", "torch"), ("python", "front")}


def test_every_header_stays_in_its_room() -> None:
    """Torch below csrc/torch and csrc/front alone, CUDA and HIP below csrc/platform/gpu, no arrow upwards."""
    assert {path.name for path in (ROOT / "csrc").iterdir()} == set(ROOMS)
    for path in sorted((ROOT / "csrc").rglob("*.*")):
        room = path.relative_to(ROOT / "csrc").parts[0]
        for name in included(path):
            if name.startswith(("torch/csrc", "torch/headeronly", "torch/library.h", "ATen", "c10")):
                assert room in ("torch", "front"), f"{path} includes {name}"
                continue
            if name.startswith(("cuda", "hip/")):
                assert "csrc/platform/gpu" in path.as_posix(), f"{path} includes {name}"
            other = name.split("/")[0]
            if other in ROOMS:
                upward = ROOMS.index(other) > ROOMS.index(room) or (room, other) in STRANGERS
                assert not upward, f"{path} includes {name}"


def test_methods_do_not_know_each_other() -> None:
    """What several need lies in a folder or a file beside theirs; the tables of launchers name them all."""
    methods = {path.parent.name for path in (ROOT / "csrc/methods").glob("*/plan.cpp")}
    assert {"depthwise", "native"} <= methods
    for path in sorted((ROOT / "csrc/methods").glob("*/**/*.*")):
        own = path.relative_to(ROOT / "csrc/methods").parts[0]
        for name in included(path):
            other = name.removeprefix("methods/").split("/")[0]
            foreign = name.startswith("methods/") and other in methods and other != own
            assert not foreign, f"{path} includes {name}"
