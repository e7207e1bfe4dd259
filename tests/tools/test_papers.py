"""The papers' pages: the committed ones are today's, and what they say follows from the results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
from paper_records import ENVIRONMENT, everything, texts, write, write_modules
from published_records import give_exact_forms, give_modules

from benchmarks import filter2d, modules
from benchmarks.ablations import (
    CPU_FORMS,
    CPU_REFERENCE,
    REUSE_FORMS,
    REUSE_REFERENCE,
)
from benchmarks.papers import __main__ as papers
from benchmarks.papers import (
    claims,
    cuconv,
    depthwise_separable,
    hntmp,
    reuse_ablation,
    reuse_transactions,
    row_and_column_reuse,
    whole_networks,
)
from benchmarks.papers.measurements import AUTO, Machine, Row, machines, named
from benchmarks.papers.networks import NETWORKS
from benchmarks.papers.pictures import Panel, Picture, draw_panel
from benchmarks.papers.text import NOT_MEASURED, WHISKERS, over, table, us, without_empty_columns
from benchmarks.papers.verdicts import (
    BUT,
    NOT_EXPLAINED,
    PUBLISHED_PLANS,
    explained,
    in_short,
    judged,
    outcomes,
    since,
    verdict,
)
from benchmarks.planner import core_problem
from benchmarks.results import Results, load
from benchmarks.spread import quartiles
from benchmarks.suites import SUITES, problems
from convx import _core

__all__ = ["everything"]  # a fixture


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
    # Two layers of each of ResNet-18's and -34's blocks, one of the others'.
    blocks = [2 * 8, 2 * 16, 16, 33, 50]
    assert [sum(counts.values()) for counts in claims.HNTMP_LAYERS.values()] == blocks


def test_pages_without_results_say_so(tmp_path: Path) -> None:
    for page in papers.pages(tmp_path):
        assert NOT_MEASURED in page.text and "What the paper reports" in page.text and not page.pictures


def test_pages_of_all_results_leave_nothing_out(everything: Path) -> None:
    give_modules(everything)
    give_exact_forms(everything)
    for page in papers.pages(everything):
        assert "not measured" not in page.text.lower()
        assert "## Test GPU" in page.text and page.pictures


def test_numbers_of_pages_follow_from_the_records(everything: Path) -> None:
    text = texts(everything)
    # cuDNN 4 (its Winograd), torch 5, the published plan 2, HNTMP and auto 1.
    line = "| 7-1-1-256-832 | 1.83 | 4.00 | winograd | 2.00 | 2.00 | 3.12 | 3.33 | 4.00 | 5.00 | 5.00 |"
    assert line in text["cuconv"]
    won = " | ".join(f"{time:.2f}, 53 of 53" for time in (2.5, 3.125, 5 / 1.5, 4, 5, 5))
    assert f"| 1x1 | 8 | 53 | 2.00, 53 of 53 | 2.00 | {won} |" in text["cuconv"]
    what = (
        "5x5 at one image, times as fast as cuDNN's fastest "
        "(geomean 2.00; faster on 9 of 9 (100%) of the layers)"
    )
    assert f"- `cuconv/two_stage`, {what}: 2.00; the paper has 1.36: **stronger**." in text["cuconv"]
    what = "share of configurations on which it is faster than cuDNN's fastest (282 of 282, batches 1, 8, 32)"
    assert f"- `cuconv/two_stage`, {what}: 100.00%; the paper has 8.31%: **stronger**." in text["cuconv"]
    assert "| 1.33, 53 of 53 | 1.33, 32 of 32 | 1.33, 9 of 9 |" in text["cuconv"]  # split over two_stage
    # A block a filter row: 384 filters of 9 taps, whose 49 pixels take two warps.
    assert "| 7-1-3-384-192 | 3456 | 64 | 9, 0.65 MiB |" in text["cuconv"]
    means = (
        "| **over the fastest of `hntmp/*`, geomean** | 10.00 | 8.00 | 4.00 | 10.00 | 5.00 | 4.00 | 1.20 |"
    )
    assert "direct (hntmp/direct), the geomean of these layers: 2.50; the paper has 2.10" in text["hntmp"]
    assert means in text["hntmp"] and "| `hntmp/tile` | 1.00 |" in text["hntmp"]
    # 50 layers of as many microseconds.
    assert "| ResNet-152 | 500 | 400 | 200 | 500 | 250 | 200 | 60 | 50 | 50 |" in text["hntmp"]
    separable, reuse = text["depthwise_separable"], text["row_and_column_reuse"]
    assert "| 64 | 45 | 1.00 | 2.00 | 4.00 | 8.00 | 5.33 | 4.00 | 45 of 45 |" in separable
    assert "Dynamic tiling gains 2.00; channel distribution, on top of it, 4.00." in separable
    heading, picture = separable.index("### Ablation: channel"), separable.index("pointwise-ablation")
    assert heading < picture < separable.index("### Verdict")
    over_torch = "torch's own kernel | 0.50 | 0.67 | 1.00 | 1.33 | 0.80 | 2.00 |"  # which takes 4
    over_none = "`depthwise/no_reuse` | 1.00 | 1.33 | 2.00 | 2.67 | 1.60 | 4.00 |"
    assert f"| D1-30 | 16 | 30 of 30 | {over_torch}" in separable
    assert f"| D1-30 | 16 | 30 of 30 | {over_none}" in separable
    assert "| 3x3 | up to 1024 a side | 1.00 | 1.33 | 2.00 | 2.67 | 4.00 |" in reuse
    assert "| 3x3 | `filter2d/strip` |  | 10.00 | 1.50 | 1.50 | 1.50 |" in reuse
    assert "| column and row reuse (here `filter2d/both`) | 6.50 | 6.67 |" in reuse
    assert "| NPP | 4.90 | 6.67 |" in reuse and "| ArrayFire | 2.20 | - |" in reuse
    assert f"| CONV1-13 3x3 | 512 | 13 of 13 | {over_torch}" in reuse
    assert f"| CONV1-13 3x3 | 512 | 13 of 13 | {over_none}" in reuse


def test_modules_stand_beside_the_papers_modules_and_replays_beside_its_kernels(everything: Path) -> None:
    (machine,) = machines(everything)
    page = depthwise_separable.page([machine])
    kernels, rest = page.text.split("### Modules, with the host's cost of a call (tables 7 and 8)")
    beside, _ = rest.split("### Networks")
    # Replays: torch 6, auto 2, which alone stands beside table 5.
    assert "### Depthwise layers D1-30 (table 5)" in kernels
    assert "(tables 5, 7):\n\n| batch | kernels | MIOpen |" in kernels
    assert "| 16 | 2.00 | 6.00 | 3.00 | 6.00 | 3.00 | 3.59 | 3.00 | 0 of 30 |" in kernels
    assert "paper's, modules" not in page.text
    # Of half the layers each, 1.5 and 0.25; in a stream, where convx takes half as long, 3 and 0.5.
    line = "| D1-30 | 1 | 3.00 | 7.00 | 0.88 | 1.73 | 15 of 30 | 3.00 | 3.50 | 1.75 | 15 of 30 |"
    assert line in beside and "modules.json" in kernels
    assert "| P1-45 | 64 |" in beside and beside.count(" | 0.76 | 22 of 45 |") == 1
    assert "Not measured" not in beside and "*Stream*" in beside
    (picture,) = (each for each in page.pictures if each.name == "depthwise-separable-test-gpu")
    titles = ["kernels, depthwise", "kernels, pointwise", "modules, D1-30", "modules, P1-45"]
    assert [panel.title for panel in picture.panels] == titles
    assert not any("modules" in name for panel in picture.panels[:2] for name in panel.series)
    series = picture.panels[2].series
    assert series["paper: modules over PyTorch"] == [1.73, 2.92, 3.7, 4.54, 4.49]
    assert [values[0] for values in series.values()] == [1.73, 1.75, 0.875]
    # Of as many layers at either speed these are the quartiles; of the paper's own means there are none.
    spread = picture.panels[2].spread
    assert [values[0] for values in spread.values()] == [None, (0.5, 3.0), (0.25, 1.5)]
    assert page.parts.count(WHISKERS) == 1
    assert page.parts[page.parts.index(WHISKERS) - 1].endswith(f"(pictures/{picture.name}.svg)")


def test_the_published_forms_stand_beside_the_papers_tables(everything: Path) -> None:
    page = depthwise_separable.page(list(machines(everything)))
    # Rows through shared memory 5, torch 6, its own kernel 4; the fastest form of reuse, as chosen, 2.
    assert "| 16 | 30 | 5.00 | 0.80 | 3.59 | 2.00 | 1.20 | 3.70 | 3.00 |" in page.text
    # The pipeline's tilings 2.5, torch 3, a matrix product 2; of other tilings 1.
    assert "| 64 | 45 | 2.50 | 0.80 | 0.90 | 2.00 | 1.20 | 0.76 | 3.00 |" in page.text
    layers = "- `depthwise/shared_rows`, depthwise layers over"
    best = (
        f"{layers} the fastest of torch's ways, batch 16: 0.80; the paper has 3.59: **does not reproduce**."
    )
    assert best in page.text
    assert f"{layers} torch's choice, batch 64: 1.20; the paper has 4.49: **weaker**. Why: " in page.text
    # Of batches that the paper has too: nothing drops out, in the table, the verdicts and README's line.
    assert "| 8 | 0 | - | - | 3.47 | - | - | 2.92 | - |" in page.text
    absent = "batch 32: -; the paper has 3.44: **not timed together**."
    assert f"{layers} the fastest of torch's ways, {absent}" in page.text
    short = (
        "not timed together depthwise layers over the fastest of torch's ways at batch 8, 32 - (3.44 to 3.47)"
    )
    assert short in in_short(page.text)
    # The generated kernels lose to matrix products, as the paper's lose at batch 64.
    lost = (
        "- `pointwise/generated`, pointwise layers over the fastest of torch's ways, batch 64, a loss as the "
    )
    assert f"{lost}paper's: 0.80; the paper has 0.90: **reproduces**." in page.text
    assert "reproduces pointwise layers over the fastest of torch's ways at batch 64 0.80 (0.90)" in in_short(
        page.text
    )
    assert "Not in the table: D1 to D30 (30 layers) at batch 8 and 32." in page.text
    (picture,) = (each for each in page.pictures if each.name == "separable-published-test-gpu")
    assert picture.panels[0].labels == ["batch 1", "batch 16", "batch 64"]
    assert picture.panels[0].series["published, over its choice"] == pytest.approx([1.2] * 3)
    (everything / "test-gpu" / "depthwise_ablations.json").unlink()
    text = texts(everything)["depthwise_separable"]
    assert f"{NOT_MEASURED} `python -m benchmarks --suite depthwise --ablations` measures it." in text
    lines = [line for line in text.splitlines() if line.startswith(layers)]
    assert len(lines) == 10 and all(line.endswith(": **not timed together**.") for line in lines)


def test_layers_of_networks_are_sums_of_modules(everything: Path) -> None:
    """torch takes 3 us for each, the published forms half of that, convx 2 us for odd layers and 12 for even
    ones."""
    lines = texts(everything)["depthwise_separable"].splitlines()
    ours = {"D": 0, "P": 0}
    for name, count in NETWORKS["MobileNetV2"].items():
        ours[name[0]] += count * (2 if int(name[1:]) % 2 else 12)
    convx = [153 / (102 + ours["D"]), 153 / (51 + ours["P"]), 153 / sum(ours.values())]
    cells = [
        f"{of_paper} | {gain:.2f}" for of_paper, gain in zip(("1.18", "1.49", "1.93"), convx, strict=True)
    ]
    assert f"| MobileNetV2 | 0.153 | {' | '.join(cells)} |" in lines
    verdicts = [line for line in lines if line.startswith("- ") and "layers of networks, " in line]
    assert len(verdicts) == 3 and all(line.endswith("**not timed together**.") for line in verdicts)
    give_modules(everything)
    lines = texts(everything)["depthwise_separable"].splitlines()
    gains = ("1.20", "1.50", "2.00")
    cells = [f"{gain} | {cell}" for gain, cell in zip(gains, cells, strict=True)]
    assert f"| MobileNetV2 | 0.153 | {' | '.join(cells)} |" in lines
    verdicts = [line for line in lines if line.startswith("- ") and "layers of networks, " in line]
    assert [line.partition("; ")[0].rpartition(" ")[2] for line in verdicts] == ["1.21", "1.48", "2.00"]
    assert all("**reproduces**" in line for line in verdicts)


def test_the_page_says_what_measures_modules(everything: Path, tmp_path: Path) -> None:
    (everything / "test-gpu" / "modules.json").unlink()
    text = texts(everything)["depthwise_separable"]
    assert f"{NOT_MEASURED} `python -m benchmarks --suite modules` measures it." in text
    assert "| 16 | 2.00 | 6.00 | 3.00 | 6.00 | 3.00 | 3.59 | 3.00 | 0 of 30 |" in text
    # A CPU has one kind of calls, and a machine may have been asked for these alone.
    write_modules(tmp_path / "cpu", *modules.KINDS["cpu"], machine="cpu-9-cores")
    text = texts(tmp_path / "cpu")["depthwise_separable"]
    assert "| layers | batch | torch | convx | speedup | paper's | slower on |" in text
    assert "| D1-30 | 1 | 3.00 | 3.50 | 1.75 | 1.73 | 15 of 30 |" in text and "*Alone*" not in text


def test_a_form_that_was_not_timed_has_no_column(tmp_path: Path) -> None:
    layers = {form: 2.0 for name, form in REUSE_FORMS.items() if name != "no_reuse"}
    times = {REUSE_REFERENCE: 2.0} | layers | {"+torch": 6.0, "+native": 4.0}
    write(tmp_path, "depthwise", times, kind="_ablations")
    text = texts(tmp_path)["depthwise_separable"]
    assert "| D1-30 | 16 | 30 of 30 | torch's own kernel | 2.00 | 2.00 | 2.00 | 2.00 |" in text
    assert "`depthwise/no_reuse`" not in text


def test_networks_of_the_third_paper_are_shown_where_all_of_a_row_was_timed(everything: Path) -> None:
    assert "Whole networks" not in texts(everything)["depthwise_separable"]
    results = Results("networks", ENVIRONMENT, "python -m benchmarks", {})
    forward = ("depthwise_swapped", "pointwise_swapped", "inference_graph", "optimized")
    steps = ("depthwise_swapped_train_step", "pointwise_swapped_train_step", "train_step")
    steps += ("compiled_train_step",)
    more = {"optimized": {"torch_graph": 1500.0}, "compiled_train_step": {"torch_eager": 18000.0}}
    for index, kind in enumerate((*forward, *steps, "inference")):
        for name in ("mobilenet_v2", "mnasnet1_0", "resnet18")[: 1 if kind in steps[:1] else 3]:
            results.add(
                {
                    "case": f"{name} b1 float32 nchw",
                    "operation": kind,
                    "chosen_by": "auto",
                    "method": "call",
                    "convx_us": 1000.0,
                    "peers_us": {"torch": 1000.0 * (index + 2), **more.get(kind, {})},
                }
            )
    results.write(everything / "test-gpu" / "networks.json")
    page = depthwise_separable.page(list(machines(everything)))
    text = page.text
    (picture,) = (each for each in page.pictures if each.name == "separable-networks-test-gpu")
    (panel,) = picture.panels
    assert panel.labels == ["MnasNet", "MobileNetV2"]
    assert panel.series["paper: both"] == [1.94, 1.93] and panel.series["convx: optimized"] == [1.5, 1.5]
    assert "| MobileNetV2 | forward | 4.00 | 2.00 | 3.00 | 4.00 | 1.50 | - |" in text
    assert "| MobileNetV2 | training step | 8.00 | 6.00 | 7.00 | 8.00 | 18.00 | 2.00 |" in text
    assert "| MnasNet | forward |" in text and "| MnasNet | training step |" not in text
    assert "test-gpu/networks.json" in text and "replays of CUDA graphs" in text
    # Beside table 9, without a verdict; the records have no bounds and so the bars no whiskers.
    assert "| MobileNetV2 | 1.18 | 2.00 | 1.49 | 3.00 | 1.93 | 4.00 |" in text
    assert "- Networks as a whole. No verdict: " in text and not panel.has_spread
    for record in results.records.values():
        record["over_torch"] = [0.25, 0.5]
    results.write(everything / "test-gpu" / "networks.json")
    page = depthwise_separable.page(list(machines(everything)))
    (panel,) = page.pictures[[each.name for each in page.pictures].index(picture.name)].panels
    assert panel.spread["convx: all"] == [(2.0, 4.0)] * 2
    assert panel.spread["convx: optimized"] == [None] * 2  # their bounds are not beside torch's graph
    assert page.parts[page.parts.index(whole_networks.WHISKERS) - 1].endswith(f"{picture.name}.svg)")


def row_of(folder: Path, case: str = "R1", batch: int = 1) -> Row:
    (machine,) = machines(folder)
    return machine.rows("small_batch")[case, batch]


def test_times_of_different_measurements_make_no_ratio(tmp_path: Path) -> None:
    """Two runs in one file and one in another, each with cuDNN's time of its own."""
    first = {"hntmp/tile": 2.0, "+torch": 6.0, "+cudnn": 7.0}
    second = {"cuconv/fused": 3.0, "+torch": 12.0, "+cudnn": 14.0}
    write(tmp_path, "small_batch", first, second)
    write(tmp_path, "small_batch", {"auto": 2.0, "+torch": 18.0, "+cudnn": 21.0}, kind="")
    row = row_of(tmp_path)
    tile, fused, torch = named("hntmp/tile"), named("cuconv/fused"), named("torch")
    assert [row.ratio(torch, each) for each in (tile, fused, AUTO)] == [3.0, 4.0, 9.0]
    assert row.ratio(fused, tile) is None and row.ratio(AUTO, tile) is None
    assert [time and time.us for time in row.together(torch, tile, fused)] == [12.0, None, 3.0]
    ours, theirs = row.together(tile)[0], row.together(fused)[0]
    assert ours and theirs and over(ours, ours) == 1.0
    with pytest.raises(ValueError, match="hntmp/tile and cuconv/fused were not timed together"):
        over(ours, theirs)


def test_one_peer_that_agrees_may_do_so_by_chance(tmp_path: Path) -> None:
    """In a file that holds several runs, as another problem shows."""
    write(tmp_path, "small_batch", {"hntmp/tile": 2.0, "+torch": 6.0}, {"cuconv/fused": 3.0, "+torch": 6.0})
    tile, fused, torch = named("hntmp/tile"), named("cuconv/fused"), named("torch")
    assert row_of(tmp_path).ratio(fused, tile) == 1.5
    path = tmp_path / "test-gpu" / "small_batch_candidates.json"
    results = load(path)
    other = next(record for record in results.records.values() if record["case"] == "R2")
    other["peers_us"] = {"torch": 7.0}
    results.write(path)
    row = row_of(tmp_path)
    assert row.ratio(torch, tile) == 3.0
    assert row.ratio(fused, tile) is None


def test_pages_leave_out_ratios_of_times_that_were_not_timed_together(tmp_path: Path) -> None:
    published = {"cuconv/two_stage": 4.0, "hntmp/tile": 2.0, "+torch": 4.0, "+im2col": 8.0}
    write(tmp_path, "small_batch", published, {"cuconv/fused": 3.0, "+torch": 12.0, "+im2col": 13.0})
    write(tmp_path, "small_batch", {"auto": 3.0, "+torch": 60.0, "+im2col": 61.0}, kind="")
    text = texts(tmp_path)
    assert (
        "| 1x1 | 1 | 53 | 1.00, 0 of 53 | 4.00, 53 of 53 | 2.00, 53 of 53 | 20.00, 53 of 53 |"
        in text["cuconv"]
    )
    assert "There are no speedups over `cuconv/two_stage`: it was not timed together" in text["cuconv"]
    assert "and cuDNN's algorithms by name were not timed together" in text["cuconv"]
    assert "direct (`hntmp/direct`) was not timed together with `hntmp`." in text["hntmp"]
    assert "| 64x56x56 to 64 | 8.00 | 4.00 | 2.00 | `hntmp/tile` |" in text["hntmp"]
    assert "| 1x1 | 53 | 2.00, 53 of 53 | 2.00, 53 of 53 |" in text["hntmp"]  # over torch and two_stage
    assert text["cuconv"].count("; problems in it were measured more than once") == 1


def test_layers_of_different_runs_are_not_added_up(everything: Path) -> None:
    """Nor are those that do not say of which they are."""
    path = everything / "test-gpu" / "modules.json"
    assert "| MobileNetV2 | 0.153 |" in texts(everything)["depthwise_separable"]
    results = load(path)
    results.runs += results.all_runs  # one before this
    for record in results.records.values():
        record["run"] = 1 if record["case"].startswith("D") else 0
    results.write(path)
    text = texts(everything)["depthwise_separable"]
    assert "No sums: no one run" in text and "| MobileNetV2 | 0.153 |" not in text
    for record in results.records.values():
        del record["run"]
    results.write(path)
    assert "| MobileNetV2 | 0.153 |" not in texts(everything)["depthwise_separable"]


def test_only_published_plans_have_verdicts(everything: Path, tmp_path: Path) -> None:
    gpu, cpu = Machine(tmp_path / "some-gpu"), Machine(tmp_path / "cpu-2-cores")
    reasons = outcomes(2.0, "it waits", "its peer does")
    line = verdict(gpu, "filter2d/both", "3x3, times as fast", 0.9, 2.0, reasons)
    said = "- `filter2d/both`, 3x3, times as fast: 0.90; the paper has 2.00: **does not reproduce**."
    assert line == f"{said} Why: it waits."
    short = "3x3, times as fast 0.90 (2.00)"
    assert in_short(f"a\n{line}\n{line}") == f"does not reproduce {short}, {short}"
    for machine, plan in ((gpu, "filter2d/strip"), (gpu, "hntmp/taps"), (cpu, "filter2d/both")):
        with pytest.raises(ValueError, match="is not a published kernel"):
            verdict(machine, plan, "", 2.0, 2.0, {})
    (everything / "test-gpu").rename(everything / "cpu-9-cores")
    on_cpu = texts(everything)
    (everything / "cpu-9-cores").rename(everything / "test-gpu")
    committed = {path.name: path.read_text() for path in papers.FOLDER.glob("*.md")}
    pages = [*committed.values(), *texts(everything).values()]
    words = ("reproduc", "**weaker**", "**stronger**")
    lines = {line for page in pages for line in page.splitlines() if any(word in line for word in words)}
    (what_words_mean,) = set(explained([line]).splitlines()) - {"", line}
    said = sorted(lines - {what_words_mean})
    assert len(committed) == 4 and len(said) >= 8
    for line in said:
        plans = {word for word in line.partition(" Why: ")[0].split("`") if "/" in word and " " not in word}
        assert line.startswith("- `") and len(plans) == 1 and plans <= set(PUBLISHED_PLANS)
    assert not any("reproduc" in page for page in on_cpu.values())
    assert all(in_short(page).startswith("no verdict yet") for page in on_cpu.values())
    assert all("No verdict: " in page for page in (*pages, *on_cpu.values()))


@pytest.mark.parametrize(
    ("found", "claimed", "word"),
    [
        (1.7, 2.1, "reproduces"),
        (2.5, 2.1, "reproduces"),
        (1.6, 2.1, "weaker"),
        (2.6, 2.1, "stronger"),
        (1.01, 1.09, "reproduces"),
        (0.99, 1.09, "does not reproduce"),  # within 20 %, and yet no gain
        (0.95, 0.76, "stronger"),
        (0.7, 0.76, "reproduces"),
        (0.5, 0.76, "weaker"),
        (1.1, 0.95, "does not reproduce"),
    ],
)
def test_words_of_verdicts(found: float, claimed: float, word: str) -> None:
    assert judged(found, claimed) == word


@pytest.mark.parametrize(
    ("found", "claimed", "but", "why"),
    [
        (2.0, 2.0, "", ""),
        (1.2, 2.0, "", "it waits"),
        (3.0, 2.0, "", "its peer does"),
        (0.9, 2.0, "", "it waits"),
        (1.2, 0.9, "", "its peer does"),
        (2.0, 2.0, " in the mean", "elsewhere"),
        (1.2, 2.0, " in the mean", "it waits; elsewhere"),
    ],
)
def test_the_outcome_chooses_the_reason(found: float, claimed: float, but: str, why: str) -> None:
    gpu = Machine(Path("some-gpu"))
    reasons = outcomes(claimed, "it waits", "its peer does") | {BUT: "elsewhere"}
    line = verdict(gpu, "filter2d/both", "3x3", found, claimed, reasons, but=but)
    assert line.partition("**.")[2] == (f" Why: {why}." if why else "")
    if why:
        with pytest.raises(ValueError, match="a verdict has no reason for its outcome"):
            verdict(gpu, "filter2d/both", "3x3", found, claimed, {}, but=but)


def test_reasons_are_named_once_and_never_invented() -> None:
    gpu = Machine(Path("some-gpu"))
    lines = [verdict(gpu, "filter2d/both", what, 1.2, 2.0, outcomes(2.0)) for what in ("3x3", "5x5")]
    assert lines[0].endswith(f"**weaker**. Why: {NOT_EXPLAINED}.")
    *_, first, second = explained(lines).splitlines()
    assert first == lines[0] and second.endswith("**weaker**. Why: as in the line above.")
    assert in_short(explained(lines)) == "weaker 3x3 1.20 (2.00), 5x5 1.20 (2.00)"
    assert since("cuDNN", 2.0, 4.0) == (
        "cuDNN takes 1/4.0 of its time in the paper, the published form 1/2.0",
        "",
    )
    assert since("cuDNN", 4.0, 2.0)[0] == ""


def test_labels_name_plans_that_there_are() -> None:
    """On an H200: what pages call a plan is what its records and `explain` call it."""
    device = _core.Device.known_device("h200")
    there = {f"filter2d/{form.name}" for form in filter2d.forms(filter2d.Case(512, 5), "float32", "h200")}
    for suite in ("small_batch", "depthwise"):
        for problem in problems(SUITES[suite](), ("forward",), ("float32",), ("nchw",), (1,), on_gpu=True):
            for method in ("hntmp", "cuconv") if suite == "small_batch" else ("depthwise",):
                plans = _core.candidates(method, core_problem(problem), device)
                there |= {f"{method}/{plan.candidate}" for plan in plans}
    layers = problems(SUITES["pointwise"](), ("forward",), ("float32",), ("nchw",), (1,), on_gpu=True)
    if all(_core.generator.has_source(core_problem(layer), device)[0] for layer in layers):
        there.add("pointwise/generated")  # a plan of a layer that was tuned
    labels = {*PUBLISHED_PLANS, *cuconv.STAGES, *hntmp.FORMS, *row_and_column_reuse.FORMS.values()}
    labels |= {row_and_column_reuse.STRIP, *(title.split("`")[1] for title in reuse_ablation.PLANS.values())}
    assert labels - {"auto"} <= there


def test_the_trade_of_rows_against_warps(tmp_path: Path) -> None:
    """Of records with times by rows of a thread a table; those do not count as plans of their own."""
    write(tmp_path, "filter2d", {"filter2d/column_reuse": 5.0, "filter2d/both": 2.0, "+npp": 3.0}, kind="")
    (path,) = tmp_path.glob("*/filter2d.json")
    results = json.loads(path.read_text())
    for record in results["records"]:
        if record["method"] == "filter2d/both":
            record["rows_us"] = {"2": 4.0, "4": 2.0, "8": 6.5}
    path.write_text(json.dumps(results))
    text = texts(tmp_path)["row_and_column_reuse"]
    assert "| 3x3 | 256 a side | 5.00 | 4.00 | 2.00 | 6.50 |" in text
    assert "`filter2d/both` | 2.00 |" not in text and "4 rows`" not in text


def test_transactions_stand_beside_the_papers() -> None:
    base = {"by": "host executor", "size": 256, "filter": 3, "load_sectors": 32768}
    base |= {"stores": 2048, "store_sectors": 8192}
    both = base | {"contender": "filter2d/both lanes=32 columns=1 rows=4 chunk_rows=16", "loads": 7264}
    gpu = base | {"by": "NVIDIA H200", "contender": "npp", "loads": 9}
    text = "\n\n".join(reuse_transactions.transactions([both, gpu]))
    counted, measured = text.split("Counted by an NVIDIA H200")
    assert "host executor" in counted and "| 3x3 | 256 a side | 7500 | 7264 (0.50) |" in counted
    assert "| 3x3 | 256 a side | 2048 (0.12) |" in counted and "What others read" not in counted
    assert "| 3x3 | 256 a side | 600000 | 110000 | 49000 | 60000 | 9 (0.50) |" in measured
    assert reuse_transactions.transactions([]) == []


def test_the_ablation_on_a_cpu(tmp_path: Path) -> None:
    forms = {CPU_FORMS["fixed"]: 3.0, CPU_REFERENCE: 2.5, CPU_FORMS["dynamic"]: 2.0, "+torch": 4.0}
    forms |= {"+onednn": 5.0}
    write(tmp_path, "pointwise", forms, kind="_ablations", machine="cpu-9-cores")
    text = texts(tmp_path)["depthwise_separable"]
    assert "| 1 | 45 | 1.00 | 1.20 | 1.50 | 0.75 |" in text and "Dynamic tiling gains 1.50." in text


def test_a_plain_run_is_taken_before_one_over_candidates(everything: Path) -> None:
    write(everything, "small_batch", {"auto": 3.0, "+torch": 12.0, "+cudnn": 13.0}, kind="")
    (machine,) = machines(everything)
    row = machine.rows("small_batch")["R1", 1]
    assert row.ratio(named("torch"), AUTO) == 4.0 and row.ratio(named("torch"), named("hntmp/*")) == 5.0
    assert [time and time.us for time in row.together(named("im2col"), named("hntmp/*"), AUTO)] == [10, 1, 1]
    assert row.together(named("cuconv/*"), named("npp"))[1] is None
    assert [stem for stem, _ in machine.sources("small_batch")] == ["small_batch_candidates", "small_batch"]


def test_what_is_stale_is_named(everything: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written, folder = [cuconv.page(list(machines(everything)))], tmp_path / "pages"
    (folder / "pictures").mkdir(parents=True)
    (folder / "pictures" / "old.svg").touch()
    names = ["cuconv.md", "cuconv-test-gpu.svg", "cuconv-batches-test-gpu.svg", "old.svg"]
    assert papers.stale(written, folder) == names
    papers.write(written, folder)
    assert papers.stale(written, folder) == []
    write(everything, "small_batch", {"auto": 3.0, "+torch": 12.0, "+cudnn": 13.0}, kind="")
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


def test_bars_of_layers_have_their_quartiles() -> None:
    layers = {"paper": [[2.0], [], [2.0]], "convx": [[5.0, 1.0, 2.0, 4.0, 3.0], [], [1.0, 2.0]]}
    panel = Panel.of_layers(mean, "a", ["x", "y", "z"], layers, "speedup")
    assert panel.series == {"paper": [2.0, None, 2.0], "convx": [3.0, None, 1.5]}
    assert panel.spread == {"paper": [None] * 3, "convx": [(2.0, 4.0), None, (1.25, 1.75)]}
    assert panel.has_spread and not Panel("a", ["x"], {"one": [1.0]}, "speedup").has_spread
    digests = {
        Picture("some", "title", [replace(panel, spread=spread)]).digest
        for spread in (panel.spread, {}, panel.spread | {"convx": [(2.0, 5.0), None, (1.25, 1.75)]})
    }
    assert len(digests) == 3


@pytest.mark.parametrize("points", [False, True])
def test_whiskers_reach_from_quartile_to_quartile(points: bool) -> None:
    """Also beside a mean that is above both, and of layers whose quartiles roundings have swapped."""
    figure = pytest.importorskip("matplotlib.figure").Figure()
    skewed, alike = [1.0, 1.0, 2.0, 2.0, 100.0], [7.423042174879088, 7.423042174879089]
    swapped = quartiles(alike)
    assert swapped and swapped[0] > swapped[1]
    panel = Panel.of_layers(mean, "a", ["x", "y", "z"], {"one": [skewed, alike, [5.0]]}, "speedup")
    axis = figure.subplots()
    draw_panel(axis, replace(panel, points=points))
    (whiskers,) = axis.collections
    ends = [[y for _, y in segment] for segment in whiskers.get_segments()]
    assert ends == [[1.0, 2.0], pytest.approx([7.423, 7.423], abs=1e-3)] and mean(skewed) > 2.0
    assert quartiles([5.0]) is None


def test_small_numbers_of_an_axis_keep_their_digits(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    panel = Panel("a", ["x", "y"], {"one": [0.04, 2.0]}, "speedup", logarithmic=True)
    drawn = Picture("small", "title", [panel]).draw(tmp_path).read_text()
    assert ">0.05</text>" in drawn and ">0.0</text>" not in drawn


def test_tables() -> None:
    head, rows = without_empty_columns(["a", "b", "c"], [["x", None, 1.5], ["y", "-", None]])
    assert table(head, rows) == "| a | c |\n|---|---:|\n| x | 1.50 |\n| y | - |"
    for rows in ([[1]], [[1, 2, 3]]):
        with pytest.raises(ValueError, match="cells under 2 headings"):
            table(["a", "b"], rows)
        with pytest.raises(ValueError, match="not as long as the head"):
            without_empty_columns(["a", "b"], rows)
    assert [us(value) for value in (None, 0.1234, 12.34, 1234.5)] == ["-", "0.12", "12.3", "1234"]
