"""Generated pointwise kernels: run on the host executor under sanitizers at 32 and 64 lanes, and compiled for
NVIDIA and AMD by the run-time compilers, which need no GPU."""

from __future__ import annotations

import os
import platform
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from simt import build as programs

from build_tools import check_amd, targets
from build_tools.ninja_build import Made, make
from build_tools.toolchain import cxx
from convx import _core
from convx.tune import compiler, folder, kernels

generator = _core.generator
NAMES = ("wave_w", "wave_c", "wave_n", "repeat_w", "repeat_c", "block_n", "group_c", "stage_c")
DEVICES = {"h200": _core.Device.known_device("h200"), "mi250": _core.Device.known_device("mi250")}
ORDERS = ("forward", "reverse", "shuffled")

# Each with whole and ragged tiles among its tilings; (channels, output channels, height, width, rest).
PROBLEMS: list[dict[str, Any]] = [
    {"in_channels": 16, "out_channels": 64, "in_height": 4, "in_width": 8},
    {
        "in_channels": 24,
        "out_channels": 40,
        "in_height": 7,
        "in_width": 7,
        "bias": True,
        "activation": "relu6",
    },
    {"in_channels": 37, "out_channels": 19, "in_height": 5, "in_width": 9, "layout": "channels_last"},
    {"in_channels": 12, "out_channels": 66, "in_height": 9, "in_width": 6, "stride": (2, 3), "groups": 2},
    {
        "in_channels": 33,
        "out_channels": 70,
        "in_height": 6,
        "in_width": 5,
        "dtype": "float64",
        "activation": "gelu",
    },
    {
        **{"in_channels": 48, "out_channels": 34, "in_height": 6, "in_width": 6, "dtype": "bfloat16"},
        **{"bias": True, "scale": True, "residual": True, "activation": "relu"},
    },
    {
        **{"in_channels": 30, "out_channels": 36, "in_height": 7, "in_width": 8, "dtype": "float16"},
        **{"layout": "channels_last", "groups": 3, "stride": (2, 2), "activation": "hardswish", "bias": True},
        **{"residual": True, "residual_after_activation": True},
    },
]


def problem(fields: dict[str, Any], batch: int = 1) -> _core.Problem:
    return _core.Problem(batch=batch, filter_height=1, filter_width=1, **fields)


def sample(fields: dict[str, Any], device: str) -> list[Any]:
    """Tilings of a problem with few sums, which compile quickly: direct and distributed over few, some and
    many lanes, and one whose sums can't be dealt out evenly."""
    choice = random.Random(device + str(fields))
    lanes = DEVICES[device].lanes
    found = [
        tiling
        for tiling in generator.tilings(problem(fields), DEVICES[device], most=10**6)
        if values(tiling, lanes) <= 32 and tiling.wave_n <= 4 and tiling.block_n == 2
    ]
    groups = [
        [tiling for tiling in found if tiling.group_c == 1],
        [
            tiling
            for tiling in found
            if tiling.group_c in (2, 4) and not values(tiling, lanes) % tiling.group_c
        ],
        [tiling for tiling in found if tiling.group_c >= 8 and not values(tiling, lanes) % tiling.group_c],
        [tiling for tiling in found if values(tiling, lanes) % tiling.group_c],
    ]
    return [choice.choice(group) for group in groups if group]


def values(tiling: Any, lanes: int) -> int:
    return int(tiling.wave_w * tiling.wave_c // (lanes // tiling.group_c))


def line(fields: dict[str, Any], device: str, **rest: Any) -> str:
    """As tests/host/simt/case.cpp reads it."""
    items = {
        "device": device,
        "dtype": fields.get("dtype", "float32"),
        "layout": fields.get("layout", "nchw"),
        "channels": fields["in_channels"],
        "groups": fields.get("groups", 1),
        "out_channels": fields["out_channels"],
        "size": f"{fields['in_height']},{fields['in_width']}",
        "filter": 1,
        "stride": ",".join(map(str, fields.get("stride", (1, 1)))),
        "bias": int(fields.get("bias", False)),
        "scale": int(fields.get("scale", False)),
        "activation": fields.get("activation", "none"),
        **rest,
    }
    if fields.get("residual", False):
        items["residual"] = "after" if fields.get("residual_after_activation", False) else "before"
    return " ".join(f"{name}={value}" for name, value in items.items())


def every_kernel() -> list[tuple[dict[str, Any], str, Any]]:
    return [
        (fields, device, tiling)
        for fields in PROBLEMS
        for device in DEVICES
        for tiling in sample(fields, device)
    ]


@pytest.fixture(scope="module")
def driver() -> Path:
    """The host executor's driver with a sample of generated kernels."""
    if platform.system() != "Linux" or not shutil.which(os.environ.get("CXX", "g++")):
        pytest.skip("the host executor needs g++ and Linux")
    texts, rows = {}, []
    for fields, device, tiling in every_kernel():
        source = generator.source(problem(fields), DEVICES[device], tiling)
        texts[source.name] = source.text
        numbers = ", ".join(str(getattr(tiling, name)) for name in NAMES)
        rows.append(f'KERNEL({source.name}, "{line(fields, device)}", {numbers})')
    listed = " \\\n  ".join(["#define CONVX_GENERATED_LIST(KERNEL)", *rows])
    text = "\n".join([*texts.values(), listed, ""])

    made = programs.Programs(plain=False)
    kernels = programs.ROOT / made.folder / "generated_kernels.inc"
    kernels.parent.mkdir(parents=True, exist_ok=True)
    if not kernels.exists() or kernels.read_text() != text:
        kernels.write_text(text)
    objects = made._objects([programs.SIMT / "driver.cpp"], ["-O1", "-DCONVX_METHOD=generated"], "_generated")
    named = f'-DCONVX_GENERATED_KERNELS="{kernels}"'
    objects += made._objects([programs.SIMT / "generated.cpp"], [*made.kernel_flags, named])
    planner = targets.sources("methods/pointwise/generator/*.cpp", "problem/*.cpp", "plan/method.cpp")
    objects += made._objects(planner, ["-O1"])
    objects += made._objects((programs.SIMT / file for file in programs.TEST), ["-O2"])
    objects += made._objects((programs.SIMT / file for file in programs.RUNTIME), made.runtime_flags)
    program = made.folder / "generated"
    command = [*cxx(), *made.link_flags, *map(str, objects), "-o", str(program)]
    before = Path.cwd()
    os.chdir(programs.ROOT)
    try:
        make([*made.compiled.values(), Made(program, command, objects)], made.folder)
    finally:
        os.chdir(before)
    return programs.ROOT / program


@pytest.mark.parametrize("device", DEVICES)
def test_generated_kernels_are_exact(driver: Path, device: str) -> None:
    lines = [
        line(fields, device, batch=batch, orders=ORDERS[(index + batch) % 3])
        for index, fields in enumerate(PROBLEMS)
        for batch in (1, 3)
    ]
    done = subprocess.run([driver], input="\n".join(lines), capture_output=True, text=True)
    wrong = [text for text in done.stdout.splitlines() if text.startswith("FAIL")]
    assert done.returncode == 0, "\n".join([*wrong[:20], *done.stdout.splitlines()[-2:], done.stderr[-3000:]])
    kernels = sum(each == device for _, each, _ in every_kernel())
    assert done.stdout.count("\nRUN ") == 2 * 2 * kernels >= 80


# Waves of 32 and 64 lanes, old targets and new ones.
TARGETS = {
    "cuda": [("h200", "sm_90"), ("a100", "sm_80"), ("b200", "sm_100")],
    "hip": [("mi250", "gfx90a"), ("rx6900", "gfx1030"), ("dcu-z100", "gfx906")],
}


def run_time_compiler(backend: str) -> compiler.Compiler:
    try:
        using = compiler.find(backend)
        using.compile('extern "C" __global__ void nothing() {}', TARGETS[backend][0][1])
    except (compiler.CompilerMissing, compiler.CompileError) as error:  # hipRTC without its built-ins
        pytest.skip(f"no run-time compiler that works: {error}")
    return using


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("backend", TARGETS)
def test_the_text_compiles_at_run_time(backend: str, dtype: str) -> None:
    """Direct and distributed kernels of each dtype, for each maker's targets."""
    using = run_time_compiler(backend)
    for index, (name, target) in enumerate(TARGETS[backend]):
        if target == "sm_100" and tuple(map(int, using.version.split("."))) < (12, 8):
            continue  # older than the target
        device = _core.Device.known_device(name)
        fields = PROBLEMS[(index + 1) % len(PROBLEMS)] | {"dtype": dtype}
        found = generator.tilings(problem(fields), device, most=10**6)
        wanted = index % 2 * 3 + 1  # direct, or over four lanes and more
        tiling = next(each for each in found if each.group_c >= wanted and values(each, device.lanes) <= 32)
        source = generator.source(problem(fields), device, tiling)
        assert compiler.target_of(device) == target
        image = using.compile(source.text, target)
        assert source.name.encode() in image and image.startswith(b"\x7fELF")


@pytest.mark.parametrize("target", check_amd.CLANG_TARGETS)
def test_the_text_compiles_for_targets_that_old_run_time_compilers_lack(target: str, tmp_path: Path) -> None:
    """By clang, of each dtype; the lanes are those of the target."""
    if missing := check_amd.missing_tools():
        pytest.skip(f"no compiler for it: {', '.join(missing)}")
    check_amd.write_device_libraries(targets.ROOT / check_amd.FOLDER / "device-libraries")
    device = DEVICES["mi250"] if target.startswith("gfx9") else _core.Device.known_device("rx6900")
    for index, dtype in enumerate(("float32", "float64", "float16", "bfloat16")):
        fields = PROBLEMS[index] | {"dtype": dtype}
        found = generator.tilings(problem(fields), device, most=10**6)
        tiling = next(each for each in found if values(each, device.lanes) <= 32)
        source = generator.source(problem(fields), device, tiling)
        file = tmp_path / f"{dtype}.hip"
        file.write_text(f"#include <hip/hip_runtime.h>\n{source.text}")
        command = [
            *check_amd.clang(target),
            "--cuda-device-only",
            "-c",
            str(file),
            "-o",
            str(tmp_path / dtype),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        assert source.name.encode() in (tmp_path / dtype).read_bytes()


@pytest.mark.parametrize("backend", TARGETS)
def test_what_the_compiler_says_is_told(backend: str) -> None:
    using = run_time_compiler(backend)
    with pytest.raises(compiler.CompileError, match="undeclared_thing"):
        using.compile("int broken() { return undeclared_thing; }", TARGETS[backend][0][1])
    with pytest.raises(compiler.CompileError):
        using.compile("", "sm_1" if backend == "cuda" else "gfx1")


def test_a_missing_compiler_says_where_it_was_sought(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_places", lambda kind: iter(["/nowhere/libnvrtc.so"]))
    with pytest.raises(compiler.CompilerMissing, match=r"nvidia-cuda-nvrtc.*/nowhere/libnvrtc.so"):
        compiler.find.__wrapped__("cuda")


def test_the_text_tells_its_tiling() -> None:
    """The head names problem and tiling; batch and Block_N are no part of the text."""
    fields = PROBLEMS[1]
    device = DEVICES["h200"]
    tilings = generator.tilings(problem(fields), device, most=10**6)
    first = tilings[0]
    source = generator.source(problem(fields), device, first)
    head = source.text.split("\n\n", 1)[0]
    for name in NAMES:
        assert (f"{name}={getattr(first, name)} " in head.replace(",", " ")) == (name != "block_n")
    assert "24x7x7 -> 40x7x7" in head and "bias, relu6" in head
    assert generator.source(problem(fields, batch=7), device, first).text == source.text
    names = {name: getattr(first, name) for name in NAMES}
    more = generator.Tiling(**{**names, "block_n": 1})
    assert generator.source(problem(fields), device, more).text == source.text
    others = {generator.source(problem(fields), device, each).name for each in tilings[:50]}
    distinct = {tuple(getattr(each, name) for name in NAMES if name != "block_n") for each in tilings[:50]}
    assert len(others) == len(distinct) > 1
    assert generator.source(problem(fields), DEVICES["mi250"], sample(fields, "mi250")[0]).text != source.text


def test_a_launch_has_block_n_blocks_for_each_multiprocessor() -> None:
    fields, device = PROBLEMS[0], DEVICES["h200"]
    tiling = generator.Tiling(wave_w=4, wave_c=32, wave_n=2, repeat_w=2, repeat_c=1, block_n=2, group_c=1)
    shape = generator.launch_shape(problem(fields), device, tiling)
    assert shape["blocks"] == 4 * 2 and shape["threads"] == 64
    assert shape["shared_bytes"] == generator.resources(problem(fields), device, tiling)["used_shared"]
    assert generator.launch_shape(problem(fields, batch=1000), device, tiling)["blocks"] == 132 * 2
    bad = generator.Tiling(wave_w=4, wave_c=32, wave_n=3, repeat_w=2, repeat_c=1, block_n=2, group_c=1)
    for call in (generator.source, generator.launch_shape, generator.resources):
        with pytest.raises(ValueError, match="Wave_N = 3 must be Repeat_W x Repeat_C = 2 x 1"):
            call(problem(fields), device, bad)


class Recorded:
    """A compiler that counts."""

    kind, version = "nvrtc", "1.0"

    def __init__(self) -> None:
        self.count = 0

    def options(self, target: str) -> list[str]:
        return [target]

    def compile(self, text: str, target: str) -> bytes:
        self.count += 1
        return f"binary of {text} for {target}\n".encode() * 10


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    recorded = Recorded()
    monkeypatch.setenv("CONVX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(folder, "_warned", set())
    monkeypatch.setattr(compiler, "find", lambda backend: recorded)
    return recorded


def test_a_kernel_is_compiled_once(counted: Recorded) -> None:
    device = DEVICES["h200"]
    key, image = kernels.compiled("text", device)
    assert kernels.compiled("text", device) == (key, image)
    assert counted.count == 1
    kernels.compiled("other text", device)
    kernels.compiled("text", DEVICES["mi250"])
    counted.version = "1.1"
    kernels.compiled("text", device)
    assert counted.count == 4


@pytest.mark.parametrize("kind", ["empty", "cut", "changed", "another's", "no head", "a folder"])
def test_damaged_and_foreign_kernels_are_misses(counted: Recorded, kind: str) -> None:
    device = DEVICES["h200"]
    key, image = kernels.compiled("text", device)
    path = kernels.folder() / f"{key}.bin"
    whole = path.read_bytes()
    other, _ = kernels.compiled("other text", device)
    contents = {
        "empty": b"",
        "cut": whole[:-5],
        "changed": whole[:-5] + b"xxxxx",
        "another's": (kernels.folder() / f"{other}.bin").read_bytes(),
        "no head": b"[]\n" + image,
    }
    if kind == "a folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(contents[kind])
    assert kernels.read(key) is None
    if kind == "a folder":
        with pytest.warns(RuntimeWarning, match="can't write"):
            assert kernels.compiled("text", device) == (key, image)
    else:
        assert kernels.compiled("text", device) == (key, image)
        assert kernels.read(key) == image
    assert counted.count == 3


def test_the_kernels_least_recently_used_go_first(counted: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    device = DEVICES["h200"]
    keys = [kernels.compiled(f"text {index}", device)[0] for index in range(4)]
    size = (kernels.folder() / f"{keys[0]}.bin").stat().st_size
    for age, key in enumerate(keys):
        os.utime(kernels.folder() / f"{key}.bin", (1000 + age, 1000 + age))
    assert kernels.read(keys[0]) is not None  # used just now
    monkeypatch.setattr(kernels, "MOST_BYTES", 3 * size)
    newest, _ = kernels.compiled("text 4", device)
    left = {path.stem for path in kernels.folder().iterdir()}
    assert left == {keys[0], keys[3], newest}
