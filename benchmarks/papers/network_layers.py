"""Table 9 of the paper on depthwise separable convolution as the paper has it: the layers of networks, as
modules, added up."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean

from benchmarks.modules import KINDS, PUBLISHED
from benchmarks.papers import claims
from benchmarks.papers.measurements import Machine
from benchmarks.papers.module_calls import SUITE
from benchmarks.papers.networks import NETWORKS
from benchmarks.papers.text import Cell, table
from benchmarks.papers.verdicts import not_timed, outcomes, since, verdict
from benchmarks.results import Record

_STREAM, _ALONE = KINDS["cuda"]
_REPLACED = {"depthwise": "D", "pointwise": "P", "both": "DP"}  # layers whose names begin so
_PLANS = "`depthwise/shared_rows` and `pointwise/generated`"
_Sums = dict[str, dict[str, float]]  # by network: torch's us, and speedups by what is replaced


def network_layers(machine: Machine) -> str:
    convx = _sums(machine, "convx")
    if not convx:
        return (
            "No sums: no one run has timed all of a network's layers, as far as the records say. "
            f"`python -m benchmarks --suite {SUITE}` measures them."
        )
    published = _sums(machine, PUBLISHED)
    head = ["network", "torch, ms"]
    for what in _REPLACED:
        columns = [*(["published"] if published else []), "the paper's", "convx's"]
        head += [f"{what}: {columns[0]}", *columns[1:]]
    lines: list[list[Cell]] = []
    for name, found in convx.items():
        line: list[Cell] = [name, f"{found['torch'] / 1e3:.3f}"]
        for what, (_, of_paper) in zip(_REPLACED, claims.NETWORKS_MS[name][1:], strict=True):
            if published:
                line.append(published[name][what] if name in published else "-")
            line += [of_paper, found[what]]
        lines.append(line)
    return (
        "The depthwise and pointwise layers of a network, each as often as the network has it, as modules "
        "called alone, one image: the times of the tables of modules above, added up, all of one run. "
        "Speedups over all of torch's, where one kind or both are replaced; the time is torch's. "
        "*Convx's*: after `convx.convert_`"
        + (f"; *published*: {_PLANS}.\n\n" if published else ".\n\n")
        + table(head, lines)
    )


def verdicts(machine: Machine) -> list[str]:
    """On the means over the networks, whose figures in the paper are within 14 % of one another."""
    published = _sums(machine, PUBLISHED)
    text = []
    for index, what in enumerate(_REPLACED):
        claimed = mean(replaced[index][1] for _, *replaced in claims.NETWORKS_MS.values())
        plan = "depthwise/shared_rows" if what == "depthwise" else "pointwise/generated"
        kinds = "both kinds" if what == "both" else what
        said = f"layers of networks, {kinds} replaced by published forms"
        if len(published) < len(NETWORKS):
            text.append(not_timed(machine, plan, said, claimed))
            continue
        found = mean(sums[what] for sums in published.values())
        lost, won = since("torch", *_over_the_paper(published, what))
        text.append(verdict(machine, plan, said, found, claimed, outcomes(claimed, lost, won)))
    return text


def _over_the_paper(published: _Sums, what: str) -> tuple[float, float]:
    """How many times as fast the networks' layers are as in the paper: replaced, and torch's."""
    own, peers = [], []
    index = list(_REPLACED).index(what)
    for name, (baseline_ms, *replaced) in claims.NETWORKS_MS.items():
        torch_ms = published[name]["torch"] / 1e3
        own.append(replaced[index][0] / (torch_ms / published[name][what]))
        peers.append(baseline_ms / torch_ms)
    return mean(own), mean(peers)


def _sums(machine: Machine, ours: str) -> _Sums:
    """Of the networks all of whose layers one run has timed with this contender beside torch: what different
    runs took makes no sum."""
    kind = _ALONE if machine.is_gpu else _STREAM
    times = {
        record["case"]: record
        for _, results in machine.sources(SUITE)
        for record in results.records.values()
        if record["batch"] == 1 and record["operation"] == kind and f"{ours}_us" in record
    }
    return {
        name: _network(layers, times, ours)
        for name, layers in NETWORKS.items()
        if None not in (runs := {times.get(f"{layer} b1", {}).get("run") for layer in layers})
        and len(runs) == 1
    }


def _network(layers: Mapping[str, int], times: Mapping[str, Record], ours: str) -> dict[str, float]:
    def total(replaced: str) -> float:
        us = 0.0
        for layer, count in layers.items():
            record = times[f"{layer} b1"]
            us += count * (record[f"{ours}_us"] if layer[0] in replaced else record["peers_us"]["torch"])
        return us

    torch_us = total("")
    return {"torch": torch_us} | {what: torch_us / total(kinds) for what, kinds in _REPLACED.items()}
