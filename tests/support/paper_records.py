"""Results that pages of the papers are written from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import filter2d, modules
from benchmarks.ablations import FORMS, PUBLISHED, REFERENCE, REUSE_FORMS, REUSE_REFERENCE
from benchmarks.papers import __main__ as papers
from benchmarks.results import Results
from benchmarks.suites import SUITES, problems

Times = dict[str, float]  # of convx's kernels, "auto" among them, and of peers, whose names begin with "+"
ENVIRONMENT = {"device": "Test GPU", "torch": torch.__version__, "cudnn": 91900}


def results_of(suite: str, times: Times) -> Iterator[dict[str, Any]]:
    """A record of every kernel for every case of a suite, in float32."""
    peers = {name[1:]: time for name, time in times.items() if name.startswith("+")}
    if suite == "filter2d":
        found = [
            {
                "case": case.name,
                "batch": 1,
                "shape": {"size": case.size, "filter": case.filter},
                "group": "any",
            }
            for case in filter2d.cases()
        ]
        found = [record | {"operation": "forward", "dtype": "float32", "layout": "nchw"} for record in found]
    else:
        every = problems(SUITES[suite](), ("forward",), ("float32",), ("nchw",), None, on_gpu=True)
        found = [problem.fields() | {"group": problem.case.group} for problem in every]
        # More images, where everything takes as long: HNTMP's page is of one.
        found += [record | {"batch": 8} for record in found if record["group"] == "ResNet 3x3"]
    for record in found:
        for name, time in times.items():
            if not name.startswith("+"):
                yield record | {
                    "convx_us": 9.0 if (record["group"], record["batch"]) == ("ResNet 3x3", 8) else time,
                    "floor_us": 0.5,
                    "method": name,
                    "chosen_by": "auto" if name == "auto" else "forced",
                    "peers_us": peers,
                    "warm": False,
                }


def write(
    folder: Path, suite: str, *runs: Times, kind: str = "_candidates", machine: str = "test-gpu"
) -> None:
    """A file of one run, or of several, each with peers' times of its own."""
    results = Results(suite, ENVIRONMENT, "python -m benchmarks", {})
    for times in runs:
        for record in results_of(suite, times):
            results.add(record)
    results.write(folder / machine / f"{suite}{kind}.json")


def write_modules(folder: Path, *kinds: str, machine: str = "test-gpu") -> None:
    """torch takes three microseconds an image, convx one in all or, for every second layer, six an image; and
    twice that for the second kind."""
    results = Results("modules", ENVIRONMENT, "python -m benchmarks --suite modules", {})
    for case in modules.cases():
        name, batch = case[:1], int(case.split(" b")[1])
        for index, kind in enumerate(kinds):
            number = int(case[1:].split(" ")[0])
            results.add(
                {
                    "case": case,
                    "operation": kind,
                    "batch": batch,
                    "group": {"D": "D1-30", "P": "P1-45"}[name],
                    "chosen_by": "auto",
                    "convx_us": (1.0 if number % 2 else 6.0 * batch) * (index + 1),
                    "peers_us": {"torch": 3.0 * batch},
                }
            )
    results.write(folder / machine / "modules.json")


def texts(results: Path) -> dict[str, str]:
    return {page.stem: page.text for page in papers.pages(results)}


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    """Results of a GPU on which all there is was measured."""
    dense = {"auto": 1.0, "cuconv/two_stage": 2.0, "cuconv/two_stage_blocked": 1.6, "cuconv/split": 1.5}
    dense |= {"cuconv/fused": 1.25, "hntmp/taps": 1.2, "hntmp/tile": 1.0, "hntmp/tile_split": 1.1}
    dense |= {"hntmp/published": 4.0, "hntmp/direct": 10.0}
    peers = {"+torch": 5.0, "+cudnn_winograd": 4.0, "+cudnn_implicit_gemm": 8.0, "+im2col": 10.0}
    write(tmp_path, "small_batch", dense | peers)
    write(tmp_path, "pointwise", {"auto": 1.0, "pointwise/fma": 1.5, "+torch": 3.0, "+matmul": 2.0})
    forms = {method: 8.0 / 2**index for index, method in enumerate(FORMS.values())}
    peers = {"+torch": 3.0, "+matmul": 2.0}
    write(tmp_path, "pointwise", forms | {PUBLISHED: 2.5, REFERENCE: 1.5} | peers, kind="_ablations")
    reuse = {"direct": 8.0, "column_reuse": 6.0, "row_reuse": 4.0, "both": 3.0, "strip": 2.0}
    peers = {"+torch": 6.0, "+im2col": 20.0, "+npp": 3.0, "+cupy": 9.0}
    filters = {f"filter2d/{name}": time for name, time in reuse.items()}
    write(tmp_path, "filter2d", {"auto": 2.0} | filters | peers, kind="")
    write(tmp_path, "depthwise", {"auto": 2.0, "+torch": 6.0}, kind="")
    layers = dict(zip(REUSE_FORMS.values(), (8.0, 6.0, 4.0, 3.0, 5.0), strict=True))
    peers = {"+torch": 6.0, "+native": 4.0}
    write(tmp_path, "depthwise", {REUSE_REFERENCE: 2.0} | layers | peers, kind="_ablations")
    write_modules(tmp_path, *modules.KINDS["cuda"])
    return tmp_path
