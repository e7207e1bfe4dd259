"""The peers that benchmarks call through C or torch's internals compute the same convolution."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks import cudnn, filter2d, npp
from benchmarks.operands import operands
from benchmarks.peers import contenders
from benchmarks.refcheck import Reference
from benchmarks.results import best_peer
from benchmarks.suites import LAYOUTS, Case, Problem, Shape

CPU = torch.device("cpu")

# nppi_filtering_functions.h and nppdefs.h declare it so; this one filters on the CPU.
STAND_IN = r"""
#include <stddef.h>
typedef struct { int width, height; } NppiSize;
typedef struct { int x, y; } NppiPoint;
typedef struct {
  void* hStream; int nCudaDeviceId, nMultiProcessorCount, nMaxThreadsPerMultiProcessor, nMaxThreadsPerBlock;
  size_t nSharedMemPerBlock; int nCudaDevAttrComputeCapabilityMajor, nCudaDevAttrComputeCapabilityMinor;
  unsigned int nStreamFlags; int nReserved0;
} NppStreamContext;
static int clamp(int i, int n) { return i < 0 ? 0 : i < n ? i : n - 1; }
int nppiFilterBorder_32f_C1R_Ctx(const float* src, int src_step, NppiSize size, NppiPoint offset, float* dst,
                                 int dst_step, NppiSize roi, const float* kernel, NppiSize extent,
                                 NppiPoint anchor, int border, NppStreamContext c) {
  if (border != 2 || offset.x || offset.y || c.hStream != (void*)7 || c.nMultiProcessorCount != 132 ||
      c.nSharedMemPerBlock != 49152 || c.nCudaDevAttrComputeCapabilityMajor != 9 || c.nReserved0)
    return -1;
  for (int y = 0; y < roi.height; ++y)
    for (int x = 0; x < roi.width; ++x) {
      float sum = 0;
      for (int r = 0; r < extent.height; ++r)
        for (int s = 0; s < extent.width; ++s) {
          const int row = clamp(y + r - anchor.y, size.height), column = clamp(x + s - anchor.x, size.width);
          const float* pixels = (const float*)((const char*)src + (size_t)row * src_step);
          sum += pixels[column] * kernel[(extent.height - 1 - r) * extent.width + extent.width - 1 - s];
        }
      ((float*)((char*)dst + (size_t)y * dst_step))[x] = sum;
    }
  return 0;
}
"""


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "shape", [Shape(6, 9, 8, 3, 2, 2), Shape(6, 9, 8, 5, 1, 1), Shape(16, 7, 32, 1, 1, 1)]
)
def test_onednn_and_im2col_compute_the_same(shape: Shape, layout: str) -> None:
    problem = Problem(Case("S", "small", shape, (3,), (3,)), "forward", "float32", layout, 3)
    functions = contenders(problem, ["native"], ("onednn", "im2col"), CPU)
    assert ("im2col" in functions) == (layout == "nchw" and shape.groups == 1)
    assert "onednn" in functions or not torch.backends.mkldnn.is_available()
    pair = operands(problem, 1, CPU)[0]
    for function, _ in functions.values():
        assert Reference(problem, pair).error(function(*pair)) < 1e-6


def test_filters_by_im2col_are_the_same() -> None:
    for dtype in filter2d.DTYPES:
        image, weights = filter2d._image(32, dtype, CPU), torch.randn(5, 5) / 5
        calls = filter2d.contenders([image], weights, (), ("torch", "im2col"))
        difference = (calls["torch"](0).double() - calls["im2col"](0).double()).abs().max()
        assert difference <= (1 if dtype == "uint8" else 1e-5)


def test_npp_is_called_as_its_header_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or pytest.skip("needs a C compiler")
    source, binary = tmp_path / "npp.c", tmp_path / "npp.so"
    source.write_text(STAND_IN)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(binary), str(source)], check=True)
    facts = SimpleNamespace(multi_processor_count=132, max_threads_per_multi_processor=2048, major=9, minor=0)
    monkeypatch.setattr(npp, "library", lambda: npp.ctypes.CDLL(str(binary)))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: facts)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: SimpleNamespace(cuda_stream=7))
    images, weights = [torch.randn(9, 14) for _ in range(2)], torch.randn(5, 5)
    call = npp.filter2d(images, weights)
    padded = torch.nn.functional.pad(images[1][None, None], (2, 2, 2, 2), mode="replicate")
    torch.testing.assert_close(call(1), torch.nn.functional.conv2d(padded, weights[None, None])[0, 0])
    facts.major = 8  # which the stand-in refuses
    with pytest.raises(RuntimeError, match="nppiFilterBorder_32f_C1R_Ctx returned -1"):
        call(0)


@pytest.mark.skipif(torch.backends.cudnn.is_available(), reason="this torch has cuDNN")
def test_peers_that_are_missing_are_named() -> None:
    said: list[str] = []
    assert filter2d.available_peers(("torch", "cudnn_algorithms"), said.append) == ("torch",)
    assert said == ["cudnn_algorithms is not measured: this torch has no cuDNN (a torch with cuDNN)"]


def test_what_no_call_gives_is_no_peer_to_beat() -> None:
    times = {"torch": 4.0, "cudnn": 3.0, "cudnn_winograd": 1.0, "onednn": 1.0, "inductor": 1.0}
    assert best_peer({"peers_us": times}) == ("cudnn", 3.0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.backends.cudnn.is_available(), reason="needs cuDNN")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cudnn_by_algorithm_computes_the_same(dtype: str) -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    shape = Shape(32, 14, 64, 3, 1, 1)
    problem = Problem(Case("S", "small", shape, (2,), (2,)), "forward", dtype, "nchw", 2)
    functions = contenders(problem, ["native"], ("cudnn_algorithms",), device)
    found = {name for name in functions if name.startswith("cudnn_")}
    assert {"cudnn_implicit_gemm", "cudnn_implicit_precomp_gemm"} <= found
    assert found <= {f"cudnn_{name}" for name in cudnn.ALGORITHMS}
    pair = operands(problem, 1, device)[0]
    for name in found:
        assert Reference(problem, pair).error(functions[name][0](*pair)) < (
            1e-5 if dtype == "float32" else 2e-2
        )


@pytest.mark.gpu
def test_npp_computes_the_same_inside_the_image() -> None:
    try:
        npp.library()
    except ImportError as error:
        pytest.skip(str(error))
    image, weights = torch.randn(64, 96, device="cuda"), torch.randn(5, 5, device="cuda")
    found, exact = npp.filter2d([image], weights)(0), filter2d._torch_filter(image.double(), weights.double())
    torch.testing.assert_close(found[2:-2, 2:-2].double(), exact[2:-2, 2:-2], rtol=1e-4, atol=1e-4)
