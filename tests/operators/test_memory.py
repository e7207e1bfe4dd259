"""Memory is steady: 200 calls take no more than the first ones, by every kernel, in training, in graphs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from planned import algorithms_of
from processes import run_python
from reference import DTYPES, OPERATIONS, Case, Dense, make
from steady import LEAST_BYTES, assert_steady
from torch import Tensor, nn

import convx

# Operands and results of 32 kB (LEAST_BYTES) and more in all but the filters.
CASES = [
    Case(batch=1, channels=64, height=16, width=16),
    Case(batch=1, channels=64, height=32, width=16, stride=(2, 1), padding=(1, 0, 1, 1)),
    Case(batch=1, channels=1, height=128, width=130),
    Dense(batch=1, channels=32, filters=32, height=16, width=32),
    Dense(batch=2, channels=32, filters=32, height=16, width=16),
    Dense(batch=1, channels=64, filters=64, height=16, width=16, filter=(1, 1), padding=(0, 0, 0, 0)),
    Dense(batch=2, channels=64, filters=64, height=16, width=16, filter=(1, 1), padding=(0, 0, 0, 0)),
]


@pytest.fixture(autouse=True)
def _exact_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are there by what torch's settings allow."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc, for the process's size")
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_kernel(operation: str, dtype: torch.dtype, channels_last: bool, device: str) -> None:
    for case in CASES:
        tensors = make(case, dtype, device, channels_last)
        geometry = (case.stride, (case.padding[:2], case.padding[2:]), case.dilation, case.group_count)
        for algorithm in algorithms_of(operation, case, tensors):
            if operation == "forward":
                operands: tuple[Any, ...] = (tensors.input, tensors.weight, None)
                function: Any = convx.functional.conv2d
            elif operation == "input_grad":
                operands = (tensors.output_grad, tensors.weight, tensors.input.shape)
                function = convx.functional.conv2d_input_grad
            else:
                operands = (tensors.input, tensors.output_grad, tensors.weight.shape)
                function = convx.functional.conv2d_weight_grad

            def call(
                function: Any = function, rest: Any = (*operands, *geometry), name: str = algorithm
            ) -> None:
                function(*rest, algorithm=name)

            assert_steady(call, device, f"{algorithm} {operation} {case} {dtype}")


class _Mallinfo(ctypes.Structure):
    """glibc's counts of what malloc has: uordblks in its arenas, hblkhd mapped."""

    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    ]


def test_operators_keep_nothing_of_their_arguments() -> None:
    """Not even the texts among them: some bytes a call, which pin the memory around them."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        pytest.skip("needs glibc's mallinfo2, which counts bytes in use")
    mallinfo.restype = _Mallinfo
    at, x, w = torch.ops.convx, torch.randn(1, 8, 8, 8), torch.randn(8, 1, 3, 3)
    geometry = ((1, 1), (1, 1, 1, 1), (1, 1), 8)
    calls: dict[str, Callable[[str], Any]] = {
        "conv2d": lambda name: at.conv2d(x, w, None, *geometry, "relu", name, 0),
        "conv2d with bias": lambda name: at.conv2d(x, w, w[:, 0, 0, 0], *geometry, "gelu", name, 0),
        "pack_weight": lambda name: at.pack_weight(x, w, None, *geometry, "none", name, 0),
        "input_grad": lambda name: at.conv2d_input_grad(x, w, x.shape, *geometry, name, 0),
        "weight_grad": lambda name: at.conv2d_weight_grad(x, x, w.shape, *geometry, name, 0),
        "filter2d": lambda name: at.filter2d(x[0], w[:, 0], "reflect", "auto"),
    }
    for what, call in calls.items():
        for name in ("native", "depthwise"):
            for _ in range(50):
                call(name)
            before = mallinfo()
            for _ in range(1000):
                call(name)
            after = mallinfo()
            grown = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd
            assert grown < 8 * 1000, f"{what}, {name}: {grown / 1000:.0f} bytes a call"


PEAK = """
import resource
import sys

import torch

import convx

channels, size = int(sys.argv[1]), int(sys.argv[2])
x, w = torch.randn(1, channels, size, size), torch.randn(channels, channels, 3, 3)
call = dict(padding=1, algorithm="hntmp")
small = torch.randn(1, channels, 8, 8)
convx.functional.conv2d(small, w, **call)
try:
    planned = convx.explain(x, w, **call).chosen.workspace_bytes
except ValueError as error:
    print(error)
    sys.exit()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
y = convx.functional.conv2d(x, w, **call)
grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) - y.nbytes
rows = torch.conv2d(x[:, :, :9, :], w, padding=1)
torch.testing.assert_close(y[:, :, :8], rows[:, :, :8], rtol=1e-3, atol=1e-3)
print(planned, grown)
"""


@pytest.mark.parametrize(("channels", "size"), [(1, 4000), (16, 1200)])
def test_hntmp_plans_what_it_takes(channels: int, size: int) -> None:
    """Of large images a thread stages some rows, not all: it took 2 GB that explain called 0 bytes."""
    done = run_python(PEAK, str(channels), str(size))
    assert done.returncode == 0, done.stderr
    planned, grown = map(int, done.stdout.split())
    assert 0 < planned < 64 << 20
    assert grown < planned + (16 << 20)


def test_hntmp_keeps_to_the_workspace_limit() -> None:
    """A row of windows of 64 channels and its sums takes more than half a megabyte a thread."""
    for megabytes, threads in ((1024, 2), (1, 1)):
        done = run_python(
            "import torch, convx; torch.set_num_threads(2); x = torch.empty(4, 64, 60, 700, device='meta');"
            "w = torch.empty(64, 64, 3, 3, device='meta');"
            "chosen = convx.explain(x, w, padding=1, algorithm='hntmp').chosen;"
            "print(chosen.workspace_bytes, chosen.tiling['threads'])",
            CONVX_CPU_ISA="baseline",  # vectors of one length on every processor
            CONVX_WORKSPACE_LIMIT_MB=str(megabytes),
        )
        assert done.returncode == 0, done.stderr
        taken, used = map(int, done.stdout.split())
        assert (taken <= megabytes << 20, used) == (True, threads)
    nothing = run_python(PEAK, "64", "100", CONVX_WORKSPACE_LIMIT_MB="0")
    assert "MB for one row of results, more than the 0 MB of CONVX_WORKSPACE_LIMIT_MB" in nothing.stderr


OUT_OF_MEMORY = """
import resource

import torch

import convx

torch.set_num_threads(2)
x, w = torch.zeros(1, 2, 8, 3_000_000), torch.zeros(2, 1, 2, 2)
call = dict(padding=1, groups=2, algorithm="depthwise/general")
convx.functional.conv2d(x[..., :64], w, **call)
torch.zeros(64, 64) @ torch.zeros(64, 64)  # the pool's threads have their stacks
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + x.nbytes * 5 // 4 + (32 << 20), resource.RLIM_INFINITY))
try:
    convx.functional.conv2d(x, w, **call)
except RuntimeError as error:
    print(error)
"""


def test_a_thread_that_gets_no_memory_says_so() -> None:
    done = run_python(OUT_OF_MEMORY, OMP_WAIT_POLICY="passive")
    assert "out of memory: a kernel of convx could not allocate" in done.stdout, done.stdout + done.stderr


class Block(nn.Module):
    """An inverted residual with squeeze-excite, activations in place, as EfficientNet has it."""

    def __init__(self, channels: int = 32, wide: int = 64) -> None:
        super().__init__()
        self.expand = nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU(True)
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.SiLU(True)
        )
        self.excite = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 8, 1), nn.SiLU(True), nn.Conv2d(8, wide, 1), nn.Sigmoid()
        )
        self.project = nn.Sequential(nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        wide = self.depthwise(self.expand(x))
        output: Tensor = x + self.project(wide * self.excite(wide))
        return output


def converted(device: str, dtype: torch.dtype, channels_last: bool) -> tuple[nn.Module, Tensor]:
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    model = nn.Sequential(nn.Conv2d(3, 32, 3, stride=2, padding=1), Block(), Block()).to(device, dtype)
    model = model.to(memory_format=memory_format)  # type: ignore[call-overload]
    assert not convx.convert_(model).left
    return model, torch.randn(2, 3, 32, 32, device=device, dtype=dtype).to(memory_format=memory_format)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_training_steps(dtype: torch.dtype, channels_last: bool, compiled: bool, device: str) -> None:
    torch._dynamo.reset()
    model, x = converted(device, dtype, channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    run = torch.compile(model, backend="aot_eager") if compiled else model

    def step() -> None:
        optimizer.zero_grad()
        run(x).square().mean().backward()
        optimizer.step()

    assert_steady(step, device, "training", 2 * LEAST_BYTES)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_inference(dtype: torch.dtype, channels_last: bool, compiled: bool, device: str) -> None:
    torch._dynamo.reset()
    model, x = converted(device, dtype, channels_last)
    model.eval()
    run = torch.compile(model, backend="aot_eager") if compiled else model
    with torch.no_grad():
        assert_steady(lambda: run(x), device, "inference", 2 * LEAST_BYTES)


@pytest.mark.gpu
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_graphs(dtype: torch.dtype, channels_last: bool) -> None:
    """Captured one after another, each replayed: what one held is there for the next."""
    model, x = converted("cuda", dtype, channels_last)
    model.eval()
    side = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(side):
        model(x)

    def capture() -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph, stream=side):
            model(x)
        graph.replay()

    assert_steady(capture, "cuda", "graphs")
