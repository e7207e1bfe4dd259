"""What the papers' pages say of each claim of a paper."""

from __future__ import annotations

from pathlib import Path

from paper_records import everything, texts, write
from published_records import give_exact_forms

from benchmarks.ablations import PUBLISHED, REUSE_FORMS, REUSE_REFERENCE
from benchmarks.papers import claims, cuconv_layers, hntmp, hntmp_verdicts
from benchmarks.papers.measurements import machines
from benchmarks.papers.text import CHANGED_CODE
from benchmarks.papers.verdicts import NOT_EXPLAINED, NOT_TIMED, in_short
from benchmarks.results import RESULTS, load

__all__ = ["everything"]  # a fixture


def test_no_claim_of_hntmp_drops_out(everything: Path) -> None:
    """Of the committed records and of some that lack a rival: each has a verdict where it was timed with the
    published kernel, and else is named as not timed together."""
    write(everything / "less", "small_batch", {"hntmp/published": 4.0, "+torch": 5.0, "+im2col": 10.0})
    for folder in (RESULTS, everything, everything / "less"):
        for machine in (each for each in machines(folder) if each.is_gpu and each.rows("small_batch")):
            lines = hntmp.page([machine]).text.splitlines()
            layers = [row for row in machine.rows("small_batch").values() if row.group == "ResNet 3x3"]
            judged = 0
            for name, claimed in claims.HNTMP_SPEEDUP.items():
                title, patterns = hntmp_verdicts.RIVALS[name]
                (line,) = (
                    each
                    for each in lines
                    if each.startswith("- `hntmp/published`, over ")
                    and f"the paper has {claimed:.2f}" in each
                )
                together = any(
                    {"hntmp/published"} < set(times) and set(patterns) & set(times)
                    for row in layers
                    for times in (measurement.times for measurement in row.measurements)
                )
                assert line.endswith(f"**{NOT_TIMED}**.") != together, title
                judged += together
            assert f"- Verdicts on {judged} of the paper's 4 speedups." in lines or not judged
    short = in_short(texts(everything / "less")["hntmp"])
    assert "weaker over im2col 2.50 (14.60); not timed together over implicit GEMM (cuDNN) - (3.10)" in short


def test_where_the_filters_win_stands_beside_their_mean(tmp_path: Path) -> None:
    """As fast as NPP in the mean: by the small images, where the paper's is on the large ones."""
    peers = {"+torch": 9.0, "+im2col": 20.0, "+npp": 3.9}
    write(tmp_path, "filter2d", {"filter2d/both": 3.0} | peers, kind="")
    text = texts(tmp_path)["row_and_column_reuse"]
    assert "of all (10 of 10, of 256, 512, 1024, 2048, 4096 a side; the paper's 6 of 10" in text
    assert "1.30; the paper has 1.30: **reproduces in the mean, different in where it wins**." in text
    (path,) = tmp_path.glob("*/filter2d.json")
    results = load(path)
    for record in results.records.values():
        small = record["shape"]["size"] < claims.FILTER_TURN
        record["convx_us"] = 1.5 if small else 6.0
    results.write(path)
    text = texts(tmp_path)["row_and_column_reuse"]
    both = "- `filter2d/both`, 3x3 on one channel, times as fast as NPP in the mean (from 0.65 to 2.60; "
    assert f"{both}faster on 2 of 5 images, of 256, 512 a side, the paper's on the large ones" in text
    assert "1.43; the paper has 1.30: **reproduces in the mean, reversed in where it wins**." in text
    assert "40.00%; the paper has 60.00%: **weaker and reversed in where it wins**." in text
    for record in results.records.values():
        large = record["shape"]["size"] >= claims.FILTER_TURN
        record["convx_us"] = 1.5 if large else 6.0
    results.write(path)
    text = texts(tmp_path)["row_and_column_reuse"]
    assert "60.00%; the paper has 60.00%: **reproduces**." in text and "in where it wins" not in text


def test_depthwise_claims_stand_beside_convx_s_forms(tmp_path: Path) -> None:
    """torch's own kernel 8, cuDNN 6, one of its algorithms 4; strip 2, rows through shared memory 5."""
    forms = {REUSE_REFERENCE: 1.0, REUSE_FORMS["strip"]: 2.0, REUSE_FORMS["shared_rows"]: 5.0}
    peers = {"+torch": 8.0, "+native": 8.0, "+cudnn": 6.0}
    write(tmp_path, "depthwise", {"auto": 1.0, "+torch": 8.0}, kind="")
    write(tmp_path, "depthwise", forms | peers, kind="_ablations")
    text = texts(tmp_path)["row_and_column_reuse"]
    assert "its algorithms were not timed by name" in text
    assert "several columns of a lane | 13 | 4.00 | 4.50 | 3.00 | 3.00 | 1.50 | 2.00 |" in text
    write(tmp_path, "depthwise", forms | peers | {"+cudnn_implicit_gemm": 4.0}, kind="_ablations")
    text = texts(tmp_path)["row_and_column_reuse"]
    assert "were timed on 26 of 26 layers." in text
    assert "| its heuristic's choice | 1.33 | 1.33 |\n| implicit GEMM | 2.00 | 2.00 |" in text
    assert "At 3x3 the heuristic's choice gives 1.33, the best of those named 2.00." in text
    assert "None of these layers was run by implicit GEMM, precomputed, GEMM, FFT, " in text
    write(tmp_path, "depthwise", forms | peers | {"+cudnn": 2.0, "+cudnn_gemm": 4.0}, kind="_ablations")
    other = texts(tmp_path)["row_and_column_reuse"]
    assert "The figure at 3x3 is the heuristic's choice's (4.00), which is none of those named" in other
    assert "several columns of a lane | 13 | 4.00 | 4.50 | 2.00 | 2.00 | 1.50 | 2.00 |" in text
    assert "| 3x3 | cuDNN's fastest | 13 | 2.00 | 2.80 |" in text
    line = "3x3 depthwise layers over cuDNN's fastest in the mean (most 2.00, the paper's 2.00)"
    assert (
        f"- `depthwise/strip`, {line}: 2.00; the paper has 1.50: **another kernel, with more gain**." in text
    )
    assert "4.00; the paper has 4.50: **another kernel, with as much gain**." in text
    assert "0.80; the paper has 4.00: **another kernel, with less gain**." in text
    assert in_short(text).startswith("no verdict yet")


def test_planes_and_strides_are_told_apart(everything: Path) -> None:
    text = texts(everything)["depthwise_separable"]
    for batch in (1, 64):
        title = f"D1-30 at batch {batch} by filter, stride and the plane that comes in, speedups over"
        _, _, rest = text.partition(f"{title} `depthwise/no_reuse`:\n\n")
        lines = rest.partition("\n\n")[0].splitlines()[2:]
        first = "| 3x3 | 1 | 7x7 | 3 | 1.33 | 2.00 | 2.67 | 1.60 | 4.00 | 0.50 |"
        assert len(lines) == 10 and lines[0] == first
        assert sum(int(line.split(" | ")[3]) for line in lines) == 30
    assert "| 5x5 | 2 | others | 2.67 | 2.67 | 2.67 |" in text  # both reuses at each batch
    assert "CONV1-13 at batch 512 by filter, stride" in texts(everything)["row_and_column_reuse"]


def test_layers_without_the_published_form_are_named(everything: Path) -> None:
    path = everything / "test-gpu" / "pointwise_ablations.json"
    results = load(path)
    for key, record in list(results.records.items()):
        if record["case"] == "P45" or (record["case"], record["method"]) == ("P44", PUBLISHED):
            del results.records[key]
    results.write(path)
    text = texts(everything)["depthwise_separable"]
    unreached = (
        "Not in the table: P45 at batch 1, 8 and 64, P1 to P45 (45 layers) at batch 16 and 32. Neither memory"
    )
    assert unreached in text and "No kernel of the published form ran P44 at batch 1, 8 and 64." in text
    line = "- `pointwise/generated`, P44 and P45 at batch 1, 8 and 64: -; the paper has them in its means"
    assert f"{line}: **{NOT_TIMED}**." in text and "P44 and P45 at batch 1, 8 and 64" in in_short(text)


def test_the_papers_own_tilings_are_ablated(everything: Path) -> None:
    """With and without dynamic tiling and channel distribution: 16 us with neither, then 8, 4 and 2."""
    assert (
        "The same of the paper's own tilings: not measured yet." in texts(everything)["depthwise_separable"]
    )
    give_exact_forms(everything)
    text = texts(everything)["depthwise_separable"]
    # Of 45 layers 12 are of 7x7.
    gains = "2.00, 33 of 33 | 2.00, 33 of 33 | 4.00, 33 of 33 | 4.00, 45 of 45 | 8.00, 33 of 33 |"
    assert f"| 64 | 45 | {gains}" in text
    there = (
        "Of 135 layers and batches there are direct with fixed tiling on 99, direct with dynamic tiling on "
    )
    assert f"{there}135, distributed with fixed tiling on 99, distributed with dynamic tiling on 135." in text


def test_auto_beside_the_forms_fills_in_batches(tmp_path: Path) -> None:
    """Where no run of auto alone has them."""
    forms = {REUSE_REFERENCE: 2.0, REUSE_FORMS["strip"]: 3.0, "+torch": 6.0, "+native": 4.0}
    write(tmp_path, "depthwise", forms, kind="_ablations")
    text = texts(tmp_path)["depthwise_separable"]
    assert "| 16 | 2.00 | 6.00 | 3.00 | 4.00 | 2.00 | 3.59 | 2.00 | 0 of 30 |" in text
    assert "At batches of 1, 16, 64 `auto` was timed beside the forms" in text


def test_layers_of_cuconv_fit_together() -> None:
    counts = {name: sum(sizes.values()) for name, sizes in claims.CUCONV_LAYERS.items()}
    assert counts == {"GoogLeNet": 42, "SqueezeNet": 21, "AlexNet": 4, "ResNet-50": 12, "VGG19": 9}
    text = cuconv_layers.layer_counts()
    assert (
        "| 1x1 | 24 | 15 | - | 8 | - | 47 | 53 | 30 |" in text
        and "| 3x3 | 10 | 6 | 3 | 4 | 9 | 32 | 32 |" in text
    )
    assert "By network these are 88; it tested 86." in text and "45 layers of 86" in text
    assert "53 instead of 45: 6 of GoogLeNet's" in text


def test_the_spread_of_torch_against_itself_is_named(tmp_path: Path) -> None:
    """On a CPU whose auto takes torch's own convolution."""
    write(tmp_path, "pointwise", {"auto": 2.0, "+torch": 3.0, "+onednn": 3.0}, kind="", machine="cpu-9-cores")
    assert "torch against itself" not in texts(tmp_path)["depthwise_separable"]
    (path,) = tmp_path.glob("*/pointwise.json")
    results = load(path)
    for record in results.records.values():
        record["method"] = "native"
    results.write(path)
    text = texts(tmp_path)["depthwise_separable"]
    assert "In 135 of these 135 measurements `auto` took torch's own convolution (`native`)" in text
    assert "geomean 1.50, half of them from 1.50 to 1.50, the farthest 1.50 and 1.50" in text
    assert "`auto` took `native` on 135, as convx was when these records were taken (no date)." in text


def test_configurations_without_a_time_are_told_apart(everything: Path) -> None:
    """Those that the planner refuses for their planes count as not faster; the others do not count."""
    path = everything / "test-gpu" / "small_batch_candidates.json"
    results = load(path)
    refused, untimed = ("C64-224-3x3-64", 32), ("C48-7-5x5-128", 32)
    for key, record in list(results.records.items()):
        if (record["case"], record["batch"]) in (refused, untimed):
            del results.records[key]
    results.write(path)
    text = texts(everything)["cuconv"]
    assert "faster than cuDNN's fastest (280 of 281, batches 1, 8, 32)" in text
    line = (
        "- 2 configurations have no time. The planner refuses 1 of them, for their planes of sums exceed the "
    )
    assert line in text
    assert "1 are not refused for that, were not timed and do not count: C48-7-5x5-128 at batch 32." in text


def test_reasons_follow_the_records(tmp_path: Path) -> None:
    """HNTMP's is what it takes for a channel, where that is why."""
    times = {"hntmp/published": 4.0, "hntmp/taps": 1.0, "+torch": 3.0, "+im2col": 3.0}
    write(tmp_path, "small_batch", times)
    over = "- `hntmp/published`, over im2col, then a matrix product, the geomean of these layers: "
    said = f"{over}0.75; the paper has 14.60: **does not reproduce**. Why: "
    assert f"{said}{NOT_EXPLAINED}." in texts(tmp_path)["hntmp"]
    (path,) = tmp_path.glob("*/small_batch_candidates.json")
    results = load(path)
    for record in results.records.values():
        if record["method"] == "hntmp/published" and record["group"] == "ResNet 3x3":
            record["convx_us"] = record["shape"]["in_channels"] / 2
    results.write(path)
    assert "yet it takes 0.50 to 0.50 us for each input channel" in texts(tmp_path)["hntmp"]


def test_older_records_and_other_processors_are_named(tmp_path: Path) -> None:
    """Of a machine's files beside the newest of the page's."""
    for machine, kind, date, processor in (
        ("cpu-9-cores", "", "2026-11-21", "one"),
        ("cpu-9-cores", "_candidates", "2026-11-29", "another"),
        ("test-gpu", "", "2026-11-29", "one"),
    ):
        write(tmp_path, "small_batch", {"auto": 2.0, "+torch": 3.0}, kind=kind, machine=machine)
        path = tmp_path / machine / f"small_batch{kind}.json"
        results = load(path)
        results.environment |= {"date": date, "commit": "abc", "processor": processor}
        results.write(path)
    gpu, cpu = texts(tmp_path)["hntmp"].split("## Test GPU")[1:]
    older = "`small_batch.json`, of kernels as of 2026-11-21, commit abc."
    assert f"Older than the newest records of this page (2026-11-29, commit abc): {older}" in cpu
    assert "processors, whose times do not compare: another: `small_batch_candidates.json`; one:" in cpu
    assert "Older than" not in gpu and "processors" not in gpu


def test_commits_with_changed_files_are_told(tmp_path: Path) -> None:
    write(tmp_path, "small_batch", {"auto": 2.0, "+torch": 3.0}, kind="")
    path = tmp_path / "test-gpu" / "small_batch.json"
    for commit, told in (("abc", False), ("abc+", True)):
        results = load(path)
        results.environment |= {"date": "2026-11-29", "commit": commit}
        results.write(path)
        text = texts(tmp_path)["hntmp"]
        assert f"(2026-11-29, commit {commit})" in text and (CHANGED_CODE in text) == told
