"""The papers' pages: the committed ones are today's, and what they say follows from the results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parent.parent))

from benchmarks import filter2d
from benchmarks.ablations import (
    CPU_FORMS,
    CPU_REFERENCE,
    FORMS,
    REFERENCE,
    REUSE_FORMS,
    REUSE_REFERENCE,
)
from benchmarks.papers import __main__ as papers
from benchmarks.papers import claims, cuconv
from benchmarks.papers.measurements import machines
from benchmarks.papers.networks import NETWORKS
from benchmarks.papers.pictures import Panel, Picture
from benchmarks.papers.text import NOT_MEASURED, table, us, without_empty_columns
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


def write(folder: Path, suite: str, times: Times, kind: str = "_candidates") -> None:
    results = Results(suite, ENVIRONMENT, "python -m benchmarks", {})
    for record in results_of(suite, times):
        results.add(record)
    results.write(folder / "test-gpu" / f"{suite}{kind}.json")


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    """Results of a GPU on which all there is was measured."""
    dense = {"auto": 1.0, "cuconv/two_stage": 2.0, "cuconv/two_stage_blocked": 1.6, "cuconv/split": 1.5}
    dense |= {"cuconv/fused": 1.25, "hntmp/taps": 1.2, "hntmp/tile": 1.0, "hntmp/tile_split": 1.1}
    peers = {"+torch": 5.0, "+cudnn_winograd": 4.0, "+cudnn_implicit_gemm": 8.0, "+im2col": 10.0}
    write(tmp_path, "small_batch", dense | peers)
    write(tmp_path, "pointwise", {"auto": 1.0, "pointwise/fma": 1.5, "+torch": 3.0, "+matmul": 2.0})
    forms = {method: 8.0 / 2**index for index, method in enumerate(FORMS.values())}
    write(tmp_path, "pointwise", forms | {REFERENCE: 1.5, "+torch": 3.0, "+matmul": 2.0}, "_ablations")
    reuse = {"direct": 8.0, "column_reuse": 6.0, "row_reuse": 4.0, "both": 3.0, "strip": 2.0}
    peers = {"+torch": 6.0, "+im2col": 20.0, "+npp": 3.0, "+cupy": 9.0}
    filters = {f"filter2d/{name}": time for name, time in reuse.items()}
    write(tmp_path, "filter2d", {"auto": 2.0} | filters | peers, "")
    write(tmp_path, "depthwise", {"auto": 2.0, "+torch": 6.0}, "")
    layers = dict(zip(REUSE_FORMS.values(), (8.0, 6.0, 4.0, 3.0), strict=True))
    write(tmp_path, "depthwise", {REUSE_REFERENCE: 2.0} | layers | {"+torch": 6.0}, "_ablations")
    return tmp_path


def test_the_committed_pages_show_the_committed_results() -> None:
    assert papers.main(["--check"]) == 0


def test_layers_that_papers_name_are_the_suites() -> None:
    cases = {case.name: case for suite in SUITES.values() for case in suite()}
    for layer in claims.CUCONV:
        *sizes, filters, channels = map(int, layer.label.split("-"))
        shape = cases[layer.case].shape
        assert (sizes[0], sizes[1], filters, channels) == (
            shape.size,
            layer.batch,
            shape.out_channels,
            shape.in_channels,
        )
        assert (layer.sum_us is None) == (shape.filter == 1)
    for layers in NETWORKS.values():
        assert set(layers) <= set(cases) and all(count > 0 for count in layers.values())
    assert NETWORKS["MobileNetV2"].total() == 17 + 34  # blocks of MobileNetV2 have one and two of them


def test_pages_without_results_say_so(tmp_path: Path) -> None:
    for page in papers.pages(tmp_path):
        assert NOT_MEASURED in page.text and "What the paper reports" in page.text and not page.pictures


def test_pages_of_all_results_leave_nothing_out(everything: Path) -> None:
    for page in papers.pages(everything):
        assert "not measured" not in page.text.replace("ArrayFire is not measured here", "").lower()
        assert "## Test GPU" in page.text and page.pictures


def test_numbers_of_pages_follow_from_the_records(everything: Path) -> None:
    text = {page.stem: page.text for page in papers.pages(everything)}
    # cuDNN 4 (its Winograd), published 2, the best form 1.25, HNTMP and auto 1.
    line = (
        "| 7-1-1-256-832 | 1.83 | 4.00 | winograd | 2.00 | 2.00 | fused | 1.25 | 3.20 | 1.00 | 1.00 | 4.00 |"
    )
    assert line in text["cuconv"]
    assert "| 1x1 | 8 | 53 | 2.00 | 53 | 2.00 | 3.20 | 53 | 4.00 | 53 | 4.00 | 53 |" in text["cuconv"]
    assert "3x3: the published form is 2.00 times as fast as cuDNN" in text["cuconv"]
    assert "That it loses **does not reproduce**" in text["cuconv"]
    assert "| **times HNTMP's, geomean** | 10.00 | 8.00 | 4.00 | 1.25 | 4.00 | 1.20 |" in text["hntmp"]
    assert "That it is faster **reproduces**, by less than there." in text["hntmp"]
    separable, reuse = text["depthwise_separable"], text["row_and_column_reuse"]
    assert "| 64 | 45 | 1.00 | 2.00 | 4.00 | 8.00 | 5.33 | 4.00 | 45 of 45 |" in separable
    assert "Dynamic tiling gains 2.00; channel distribution, on top of it, 4.00." in separable
    heading, picture = separable.index("### Ablation: channel"), separable.index("pointwise-ablation")
    assert heading < picture < separable.index("### What reproduces")
    mobile = "| MobileNetV2 | 204 | 136 | 1.50 | 1.18 | 136 | 1.50 | 1.49 | 68.0 | 3.00 | 1.93 |"
    assert mobile in separable
    assert "| D1-30 | 16 | 30 of 30 | 1.00 | 1.33 | 2.00 | 2.67 | 4.00 |" in separable
    assert "| 3x3 | up to 1024 a side | 1.00 | 1.33 | 2.00 | 2.67 | 4.00 | 4.00 |" in reuse
    assert "3x3 on one channel: 1.50 times as fast as NPP (the paper: 1.3)" in reuse
    assert "| NPP | 4.90 | 6.67 |" in reuse and "| ArrayFire | 2.20 | - |" in reuse
    assert "| CONV1-13 3x3 | 512 | 13 of 13 | 1.00 | 1.33 | 2.00 | 2.67 | 4.00 | 4.50 |" in reuse


def test_the_ablation_on_a_cpu(tmp_path: Path) -> None:
    forms = {CPU_FORMS["fixed"]: 3.0, CPU_REFERENCE: 2.5, CPU_FORMS["dynamic"]: 2.0, "+torch": 4.0}
    write(tmp_path, "pointwise", forms, "_ablations")
    (tmp_path / "test-gpu").rename(tmp_path / "cpu-9-cores")
    (text,) = [page.text for page in papers.pages(tmp_path) if page.stem == "depthwise_separable"]
    assert "| 1 | 45 | 1.00 | 1.20 | 1.50 | 0.75 |" in text and "Dynamic tiling gains 1.50." in text


def test_a_plain_run_replaces_the_peers_of_one_over_candidates(everything: Path) -> None:
    write(everything, "small_batch", {"auto": 3.0, "+torch": 12.0}, "")
    (machine,) = machines(everything)
    row = machine.rows("small_batch")["R1", 1]
    assert (row.auto, row.form("hntmp/*"), row.peer("torch"), row.cudnn) == (3.0, 1.0, 12.0, 4.0)
    assert row.form_name("cuconv/*") == "cuconv/fused" and row.peer("npp") is None
    assert [stem for stem, _ in machine.sources("small_batch")] == ["small_batch_candidates", "small_batch"]


def test_what_is_stale_is_named(everything: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written, folder = [cuconv.page(list(machines(everything)))], tmp_path / "pages"
    (folder / "pictures").mkdir(parents=True)
    (folder / "pictures" / "old.svg").touch()
    assert papers.stale(written, folder) == ["cuconv.md", "cuconv-test-gpu.svg", "old.svg"]
    papers.write(written, folder)
    assert papers.stale(written, folder) == []
    write(everything, "small_batch", {"auto": 3.0, "+torch": 12.0}, "")
    changed = [cuconv.page(list(machines(everything)))]
    assert papers.stale(changed, folder) == ["cuconv.md", "cuconv-test-gpu.svg"]


def test_the_same_data_draw_the_same_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    panel = Panel("a", ["x", "y"], {"one": [1.0, None], "two": [2.0, 3.0]}, "speedup", line=1.0)
    picture = Picture("some", "title", [panel])
    assert not picture.is_drawn(tmp_path)
    first = picture.draw(tmp_path).read_bytes()
    assert picture.is_drawn(tmp_path) and picture.draw(tmp_path).read_bytes() == first
    reordered = Panel("a", ["x", "y"], {"two": [2.0, 3.0], "one": [1.0, None]}, "speedup", line=1.0)
    assert not Picture("some", "title", [reordered]).is_drawn(tmp_path)
    assert b"<svg" in first and len(first) < 20_000


def test_tables() -> None:
    head, rows = without_empty_columns(["a", "b", "c"], [["x", None, 1.5], ["y", "-", None]])
    assert table(head, rows) == "| a | c |\n|---|---:|\n| x | 1.50 |\n| y | - |"
    for rows in ([[1]], [[1, 2, 3]]):
        with pytest.raises(ValueError, match="cells under 2 headings"):
            table(["a", "b"], rows)
        with pytest.raises(ValueError, match="not as long as the head"):
            without_empty_columns(["a", "b"], rows)
    assert [us(value) for value in (None, 0.1234, 12.34, 1234.5)] == ["-", "0.12", "12.3", "1234"]
