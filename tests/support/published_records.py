"""What results have beside those of paper_records, of the forms that Liu et al. published."""

from __future__ import annotations

from pathlib import Path

from benchmarks.ablations import EXACT_FORMS, PUBLISHED
from benchmarks.results import load


def give_modules(folder: Path, batches: tuple[int, ...] = (1, 8, 16, 32, 64)) -> None:
    """To every module at these batches: half of torch's time alone, a third in a stream."""
    path = folder / "test-gpu" / "modules.json"
    results = load(path)
    for record in results.records.values():
        if record["batch"] in batches:
            faster = 2 if record["operation"] == "forward_latency" else 3
            record["published_us"] = record["peers_us"]["torch"] / faster
    results.write(path)


def give_exact_forms(folder: Path) -> None:
    """16 us with neither dynamic tiling nor channel distribution, then 8, 4 and 2; of 7x7 no fixed tiling."""
    path = folder / "test-gpu" / "pointwise_ablations.json"
    results = load(path)
    for record in [each for each in results.records.values() if each["method"] == PUBLISHED]:
        for index, ((_, tiling), form) in enumerate(EXACT_FORMS.items()):
            if tiling == "dynamic" or record["shape"]["size"] != 7:
                results.add(record | {"method": form, "convx_us": 16.0 / 2**index})
    results.write(path)
