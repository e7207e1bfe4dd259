"""Filters on one image: convx.functional.filter2d beside torch, OpenCV, CuPy and NPP."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import Tensor

import convx.functional
from benchmarks import cudnn, npp
from benchmarks.results import Record
from benchmarks.spread import kept
from benchmarks.timing import measure
from convx import _libraries, _planning

SIZES = (256, 512, 1024, 2048, 4096)  # of square images: the paper's
FILTERS = (3, 5, 7)
DTYPES = {"float32": torch.float32, "uint8": torch.uint8}
FORMS = ("row_reuse", "both", "column_reuse", "direct")  # the paper's reuses: one, both, none
# opencv: cv2.filter2D with torch's number of threads. cupy: cupyx.scipy.ndimage.correlate, of floats alone:
# for integers it asks the device about the weights, which a graph can't. npp: NVIDIA's nppiFilterBorder.
# torch: conv2d. im2col: unfolded columns and a product. cudnn_algorithms: each of cuDNN's by name. Images of
# uint8 go to float32 and back for the last three.
PEERS = {
    "cpu": ("opencv", "torch", "im2col"),
    "cuda": ("torch", "im2col", "cudnn_algorithms", "cupy", "npp"),
}
_COLUMNS_LIMIT = 4 << 30  # bytes of im2col
Function = Callable[[int], Any]
Convolve = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    size: int
    filter: int

    @property
    def name(self) -> str:
        return f"{self.size}-{self.filter}x{self.filter}"

    def floor_us(self, dtype: str, ceiling: dict[str, float]) -> float:
        """The longer of the time that image and result take and the time of the multiply-adds in float32."""
        pixels = self.size**2
        moved = 2 * pixels * DTYPES[dtype].itemsize / ceiling["copy_GBps"] / 1e3
        return max(moved, 2 * pixels * self.filter**2 / ceiling["fma_fp32_TFLOPs"] / 1e6)


def cases(patterns: str | None = None) -> list[Case]:
    """Those whose name matches one of the comma-separated patterns ("256-*,4096-3x3")."""
    every = [Case(size, extent) for extent in FILTERS for size in SIZES]
    if patterns is None:
        return every
    chosen = [case for case in every if any(fnmatchcase(case.name, part) for part in patterns.split(","))]
    if not chosen:
        raise ValueError(f"--case {patterns}: no case has such a name; names are 256-3x3 ... 4096-7x7")
    return chosen


def _in_floats(convolve: Convolve, image: Tensor, weights: Tensor) -> Tensor:
    """A convolution of one channel with one filter as a filter of an image."""
    whole = image.dtype == torch.uint8
    source = image.float() if whole else image
    result = convolve(source[None, None], weights[None, None])[0, 0]
    return result.round_().clamp_(0, 255).to(torch.uint8) if whole else result


def _torch_filter(image: Tensor, weights: Tensor) -> Tensor:
    return _in_floats(lambda x, w: torch.nn.functional.conv2d(x, w, padding="same"), image, weights)


def _im2col(x: Tensor, w: Tensor) -> Tensor:
    columns = torch.nn.functional.unfold(x, w.shape[-1], padding=w.shape[-1] // 2)
    return torch.matmul(w.flatten(1), columns).view_as(x)


def _cudnn(image: Tensor, extent: int) -> dict[str, Convolve]:
    """cuDNN's algorithms that can run such a filter, by their names here."""
    size, found = (1, 1, *image.shape), {}
    for name in cudnn.ALGORITHMS:
        with suppress(cudnn.CudnnError):
            found[f"cudnn_{name}"] = cudnn.convolution(
                name, size, (1, 1, extent, extent), size, torch.float32, image.device, padding=extent // 2
            )
    return found


def _opencv(images: list[Tensor], weights: Tensor) -> Function:
    cv2: Any = importlib.import_module("cv2")
    cv2.setNumThreads(torch.get_num_threads())
    arrays, kernel = [image.numpy() for image in images], weights.numpy()

    def call(index: int) -> Any:
        return cv2.filter2D(arrays[index % len(arrays)], -1, kernel, borderType=cv2.BORDER_CONSTANT)

    return call


def _cupy(images: list[Tensor], weights: Tensor) -> Function:
    """CuPy gets its memory from torch here: its own allocator can't serve a graph that is being captured."""
    cupy: Any = importlib.import_module("cupy")
    ndimage: Any = importlib.import_module("cupyx.scipy.ndimage")
    arrays, kernel = [cupy.asarray(image) for image in images], cupy.asarray(weights)
    memory = torch.cuda.memory
    allocator = cupy.cuda.PythonFunctionAllocator(
        lambda size, device: memory.caching_allocator_alloc(size, device, torch.cuda.current_stream()),
        lambda pointer, _: memory.caching_allocator_delete(pointer),
    )

    def call(index: int) -> Any:
        stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
        with stream, cupy.cuda.using_allocator(allocator.malloc):
            return ndimage.correlate(arrays[index % len(arrays)], kernel, mode="constant")

    return call


@dataclass(frozen=True)
class Form:
    """A kernel by its name, with the algorithms that name its tilings."""

    name: str
    rows: dict[str, int]  # result rows of a thread, by algorithm

    def fastest(self, times: dict[str, float], rows: int = 0) -> str:
        """The algorithm of the least time, of all or of those with so many rows; "" where none was timed."""
        some = [each for each, count in self.rows.items() if each in times and rows in (0, count)]
        return min(some, key=times.__getitem__, default="")


def forms(case: Case, dtype: str, where: torch.device | str) -> list[Form]:
    """All kernels that can filter such an image. Of the paper's forms on a GPU every tiling is one to be
    timed: rows of a thread are a parameter there. Of the others the one expected to be the fastest."""
    device = _planning.device(where)
    if device.backend == "cpu":
        return [Form(name, {name: 1}) for name in FORMS]
    square = (1, case.filter, case.filter)
    problem = _planning.filter_problem(DTYPES[dtype], (1, case.size, case.size), square, "zero")
    found: dict[str, Form] = {}
    for plan in _libraries.core().candidates("filter2d", problem, device):
        form = found.setdefault(plan.candidate, Form(plan.candidate, {}))
        if plan.candidate in FORMS or not form.rows:
            form.rows[plan.name] = plan.tiling["rows"]
    return list(found.values())


def contenders(
    images: list[Tensor], weights: Tensor, algorithms: Iterable[str], peers: tuple[str, ...]
) -> dict[str, Function]:
    def rotated(function: Callable[[Tensor], Tensor]) -> Function:
        return lambda index: function(images[index % len(images)])

    def ours(algorithm: str) -> Function:
        filter2d = convx.functional.filter2d
        return rotated(lambda image: filter2d(image, weights, algorithm=algorithm))

    result = {algorithm: ours(algorithm) for algorithm in algorithms}
    extent = weights.shape[-1]
    columns_bytes = 4 * extent**2 * images[0].numel()
    by_arrays = {"opencv": _opencv, "cupy": _cupy, "npp": npp.filter2d}
    for peer in peers:
        if peer == "torch":
            result[peer] = rotated(lambda image: _torch_filter(image, weights))
        elif peer == "im2col" and columns_bytes <= _COLUMNS_LIMIT:
            result[peer] = rotated(lambda image: _in_floats(_im2col, image, weights))
        elif peer == "cudnn_algorithms":
            for name, convolve in _cudnn(images[0], extent).items():
                result[name] = rotated(partial(_in_floats, convolve, weights=weights))
        elif peer in by_arrays and (peer != "cupy" or images[0].is_floating_point()):
            result[peer] = by_arrays[peer](images, weights)
    return result


def available_peers(wanted: tuple[str, ...], report: Callable[[str], None]) -> tuple[str, ...]:
    """Those that are there; of the others it says why they are not."""
    needs: dict[str, tuple[Callable[[], object], str]] = {
        "opencv": (lambda: importlib.import_module("cv2"), "pip install opencv-python-headless"),
        "cupy": (lambda: importlib.import_module("cupy"), "pip install cupy-cuda13x"),
        "npp": (npp.library, "pip install nvidia-npp, or the CUDA toolkit"),
        "cudnn_algorithms": (cudnn.library, "a torch with cuDNN"),
    }
    found = []
    for peer in wanted:
        look, remedy = needs.get(peer, (lambda: None, ""))
        try:
            look()
            found.append(peer)
        except (ImportError, cudnn.CudnnError) as error:
            report(f"{peer} is not measured: {error} ({remedy})")
    return tuple(found)


def run(
    case: Case,
    dtype: str,
    device: torch.device,
    ceiling: dict[str, float],
    peers: tuple[str, ...],
    all_candidates: bool,
    rounds: int,
    cache_bytes: int,
    report: Callable[[str], None],
) -> Iterator[Record]:
    """One record for what auto takes, one for each kernel, with its fastest tiling, where all candidates are
    asked for."""
    moved = 2 * case.size**2 * DTYPES[dtype].itemsize
    sets = 1 if cache_bytes == 0 else max(1, min(256, 1 + 2 * cache_bytes // moved))
    images = [_image(case.size, dtype, device) for _ in range(sets)]
    weights = torch.randn(case.filter, case.filter, device=device) / case.filter
    known = forms(case, dtype, device) if all_candidates else []
    ours = ["auto", *(algorithm for form in known for algorithm in form.rows)]
    calls = contenders(images, weights, ours, peers)
    with torch.inference_mode():
        times, failures, quartiles = measure(calls, sets, device, rounds)
        for name, reason in failures.items():
            report(f"{case.name} {dtype}: {name} failed: {reason}")
        taken = {"auto": "auto"} | {form.name: form.fastest(times) for form in known}
        taken = {name: algorithm for name, algorithm in taken.items() if algorithm in times}
        exact = _torch_filter(images[0].double(), weights.double())
        if dtype == "uint8":
            exact = exact.round_().clamp_(0, 255)
        errors = {name: _error(calls[algorithm](0), exact) for name, algorithm in taken.items()}
        own = _error(_torch_filter(images[0], weights), exact)
    # A pixel's own rounding for uint8, where a tie may fall to either side.
    unit = 1 / 255 if dtype == "uint8" else torch.finfo(torch.float32).eps / 8
    by_name = {form.name: form for form in known}
    theirs = [peer for peer in times if peer not in ours]
    for name, algorithm in taken.items():
        record: Record = {
            "case": case.name,
            "operation": "forward",
            "dtype": dtype,
            "tf32": False,
            "layout": "nchw",
            "batch": 1,
            "shape": {"size": case.size, "filter": case.filter},
            "group": f"{case.filter}x{case.filter} filter",
            "warm": cache_bytes == 0,
            "floor_us": _rounded(case.floor_us(dtype, ceiling)),
            "convx_us": _rounded(times[algorithm]),
            "method": "filter2d" if name == "auto" else f"filter2d/{name}",
            "chosen_by": "auto" if name == "auto" else "forced",
            "peers_us": {peer: _rounded(times[peer]) for peer in theirs},
            "error": float(f"{errors[name]:.2e}"),
            "error_ratio": _rounded(errors[name] / max(own, unit)),
            **kept(quartiles, algorithm, theirs if name == "auto" else ()),
        }
        if len(by_name[name].rows if name in by_name else ()) > 1:
            record |= {"plan": algorithm, "rows_us": _by_rows(by_name[name], times)}
        yield record


def _by_rows(form: Form, times: dict[str, float]) -> dict[str, float]:
    """The least time with so many rows of a thread."""
    fastest = {rows: form.fastest(times, rows) for rows in sorted(set(form.rows.values()))}
    return {str(rows): _rounded(times[algorithm]) for rows, algorithm in fastest.items() if algorithm}


def _image(size: int, dtype: str, device: torch.device) -> Tensor:
    if dtype == "uint8":
        return torch.randint(256, (size, size), dtype=torch.uint8, device=device)
    return torch.randn(size, size, device=device)


def _error(result: Any, exact: Tensor) -> float:
    """The largest error, relative to the largest value."""
    difference = torch.as_tensor(result, device=exact.device).double() - exact
    return float((difference.abs().max() / exact.abs().max()).nan_to_num(float("inf")))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
