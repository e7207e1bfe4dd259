"""The quartiles of samples, from what is measured to what pictures draw."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from paper_records import everything

from benchmarks import convolution
from benchmarks.papers import __main__ as papers
from benchmarks.papers.layer_panels import SAMPLES, Value, by_layer, microseconds, speedup
from benchmarks.papers.measurements import machines, named
from benchmarks.results import load
from benchmarks.spread import own_spread, peers_spread
from benchmarks.suites import Case, Problem, Shape

__all__ = ["everything"]  # a fixture

SMALL = Case("S", "small", Shape(6, 9, 6, 3, 2, 6), (3,), (3,))
PROBLEM = Problem(SMALL, "forward", "float32", "nchw", 3)
SETTINGS = convolution.Settings(
    torch.device("cpu"),
    {"copy_GBps": 1.0, "fma_fp32_TFLOPs": 1.0},
    ("torch",),
    "auto",
    all_candidates=True,
    rounds=3,
    cache_bytes=0,
    in_network=False,
)


def measured(settings: convolution.Settings = SETTINGS) -> convolution.Measured:
    times = {"convx": 2.0, "depthwise/strip": 3.0, "torch": 4.0, "torch_nchw": 5.0}
    quartiles = {name: (us - 0.123456, us + 0.5) for name, us in times.items()}
    errors = dict.fromkeys(times, 1e-7)
    peers = {"torch": 4.0, "torch_nchw": 5.0}
    return convolution.Measured(PROBLEM, settings, times, errors, peers, quartiles)


def test_one_record_of_a_measurement_has_the_peers_spread() -> None:
    """And none has that of peers in another layout."""
    first = measured().record("convx", "depthwise/plane", "auto")
    assert own_spread(first) == (1.877, 2.5) and peers_spread(first) == {"torch": (3.877, 4.5)}
    other = measured().record("depthwise/strip", "depthwise/strip", "forced")
    assert own_spread(other) == (2.877, 3.5) and "peers_spread_us" not in other


def test_candidates_in_a_network_have_no_spread() -> None:
    """They are many, and no picture shows them; others in a network have it."""
    candidates = measured(replace(SETTINGS, in_network=True)).record("convx", "native", "auto")
    assert own_spread(candidates) is None and peers_spread(candidates) == {}
    others = replace(SETTINGS, in_network=True, all_candidates=False)
    assert own_spread(measured(others).record("convx", "native", "auto")) == (1.877, 2.5)


def give_spread(folder: Path) -> None:
    """To all records there are, and of the peers to the first of each file."""
    for path in folder.glob("*/*.json"):
        results = load(path)
        for index, record in enumerate(results.records.values()):
            record["spread_us"] = [record["convx_us"] * 0.8, record["convx_us"] * 1.25]
            if index == 0:
                record["peers_spread_us"] = {
                    peer: [us * 0.5, us * 2] for peer, us in record["peers_us"].items()
                }
        results.write(path)


def test_times_know_their_quartiles(everything: Path) -> None:
    (machine,) = machines(everything)
    older = machine.rows("small_batch")["R1", 1].together(named("hntmp/published"), named("torch"))
    assert [time and time.quartiles for time in older] == [None, None]
    give_spread(everything)
    (machine,) = machines(everything)
    ours, theirs = machine.rows("small_batch")["R1", 1].together(named("hntmp/published"), named("torch"))
    assert microseconds(ours) == Value(4.0, (3.2, 5.0)) and microseconds(None) is None
    assert theirs and theirs.quartiles == (2.5, 10.0)
    # torch's 5 over 4, whose quartiles are 3.2 and 5.
    assert speedup(theirs, ours) == Value(1.25, (1.0, 1.5625)) and speedup(None, ours) is None


PICTURES = {  # of single layers
    *("hntmp", "hntmp-forms", "cuconv", "filter2d", "filter2d-forms", "depthwise-reuse", "separable-layers"),
}


def by_name(folder: Path) -> dict[str, tuple[Any, str]]:
    """Pictures, and what is said below each."""
    found = {}
    for page in papers.pages(folder):
        for picture in page.pictures:
            place = page.parts.index(f"![{picture.title}](pictures/{picture.name}.svg)")
            found[picture.name.removesuffix("-test-gpu")] = picture, page.parts[place + 1]
    return found


def test_pictures_by_layer_have_whiskers_where_records_have_a_spread(everything: Path) -> None:
    before = by_name(everything)
    assert set(before) >= PICTURES
    for name in PICTURES:
        picture, below = before[name]
        assert not any(panel.has_spread for panel in picture.panels) and below != SAMPLES
    give_spread(everything)
    after = by_name(everything)
    for name in PICTURES:
        picture, below = after[name]
        assert all(panel.has_spread for panel in picture.panels) and below == SAMPLES
        for old, panel in zip(before[name][0].panels, picture.panels, strict=True):
            assert old.series == panel.series
            for contender, whiskers in panel.spread.items():
                for value, pair in zip(panel.series[contender], whiskers, strict=True):
                    assert pair is None or pair[0] < value < pair[1]


def test_contenders_without_times_are_left_out() -> None:
    values = {"a": [Value(1.0), None], "b": [None, None], "c": [None, Value(2.0, (1.5, 2.5))]}
    panel = by_layer("title", ["x", "y"], values, "microseconds", logarithmic=True)
    assert panel.series == {"a": [1.0, None], "c": [None, 2.0]} and panel.logarithmic
    assert panel.spread == {"c": [None, (1.5, 2.5)]}


def test_bars_of_a_results_file_have_whiskers() -> None:
    """At the fractions of the floor that the quartiles of a time are."""
    figure = pytest.importorskip("matplotlib.figure").Figure()
    from benchmarks import plots

    record = measured().record("convx", "depthwise/plane", "auto") | {"floor_us": 1.0}
    axis = figure.subplots()
    plots._draw_panel(axis, [record])
    ends = [[y for _, y in segment] for each in axis.collections for segment in each.get_segments()]
    assert ends == [pytest.approx([1 / 4.5, 1 / 3.877]), pytest.approx([1 / 2.5, 1 / 1.877])]
    axis = figure.subplots()
    plots._draw_panel(axis, [{k: v for k, v in record.items() if "spread" not in k}])
    assert not axis.collections
