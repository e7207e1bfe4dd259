"""The part of the page on depthwise separable convolution about its own forms: rows through shared memory,
and the pipeline with its own tilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from benchmarks.ablations import FORMS, PUBLISHED, REUSE_FORMS
from benchmarks.modules import DEPTHWISE, POINTWISE
from benchmarks.papers import claims, network_layers
from benchmarks.papers.layer_panels import SAMPLES, by_layer, microseconds
from benchmarks.papers.measurements import TORCH, Contender, Machine, Row, named, torch_best
from benchmarks.papers.pictures import Panel, Picture
from benchmarks.papers.published_modules import PublishedModules
from benchmarks.papers.separable_reasons import reasons_of
from benchmarks.papers.text import NOT_MEASURED, Cell, Page, ratios, table, us
from benchmarks.papers.verdicts import PUBLISHED_PLANS, explained, no_verdict, not_timed, verdict
from benchmarks.papers.whole_networks import NOT_IN_NETWORKS

_Claims = Mapping[int, tuple[float, float, float]]
# By suite: the plan, what its records are called, and the tables of kernels and of modules.
_FORMS: dict[str, tuple[str, str, dict[int, _Claims]]] = {
    "depthwise": (
        "depthwise/shared_rows",
        REUSE_FORMS["shared_rows"],
        {5: claims.DEPTHWISE_KERNELS, 7: claims.DEPTHWISE_MODULES},
    ),
    "pointwise": (
        "pointwise/generated",
        PUBLISHED,
        {6: claims.POINTWISE_KERNELS, 8: claims.POINTWISE_MODULES},
    ),
}
_GROUPS = {"depthwise": DEPTHWISE, "pointwise": POINTWISE}
_NAMED = 3  # layers one by one; of more the first and the last
# Beside the paper's baselines, in the order of its tables: the fastest of MIOpen's algorithms, and PyTorch.
_BASELINES: dict[str, Contender] = {"the fastest of torch's ways": torch_best, "torch's choice": TORCH}


def published(page: Page, machine: Machine, rows: Mapping[str, Sequence[Row]]) -> None:
    """What the published forms take, and what that says of tables 5 to 9. rows: of D1-30 and P1-45, by
    suite."""
    if not machine.is_gpu:
        reason = "the published forms are a GPU's, and a CPU has others"
        return page.add("### Verdict", no_verdict(reason))
    page.add("### The published forms (tables 5 to 8)")
    text, panels, layer_panels = [], [], []
    for suite, (plan, name, tables) in _FORMS.items():
        page.add(f"`{plan}` is {PUBLISHED_PLANS[plan]}.")
        members = [row for row in rows[suite] if row.ratio(TORCH, named(name))]
        modules = PublishedModules.of(machine, _GROUPS[suite])
        count = len({row.case for row in rows[suite]})
        if members:
            page.add(_table(suite, members, name, tables), _left_out(suite, members, rows[suite]))
            panels.append(_panel(suite, members))
            layer_panels += _layer_panels(suite, name, members)
        else:
            page.add(f"{NOT_MEASURED} `python -m benchmarks --suite {suite} --ablations` measures it.")
        page.add(*modules.paragraphs(plan, count, *list(tables.items())[1]))
        text += _verdicts(machine, suite, members, rows[suite], modules)
    if panels:
        page.draw(
            Picture(f"separable-published-{machine.slug}", f"{machine.name}: the published forms", panels)
        )
        page.draw(
            Picture(f"separable-layers-{machine.slug}", f"{machine.name}: layer by layer", layer_panels),
            SAMPLES,
        )
    text.append(f"- All other forms, and `auto`. {no_verdict('they are not the published kernels')}")
    text += network_layers.verdicts(machine)
    text.append(f"- Networks as a whole. {no_verdict(NOT_IN_NETWORKS)}")
    page.add("### Verdict", explained(text))


def _gains(rows: Sequence[Row], contender: Contender, batch: int) -> list[list[float]]:
    """The layers' speedups, over each of the baselines."""
    some = [row for row in rows if row.batch == batch]
    return [ratios(some, baseline, contender) for baseline in _BASELINES.values()]


def _batches(rows: Sequence[Row], tables: Mapping[int, _Claims]) -> list[int]:
    """Those that the paper has too."""
    return [batch for batch in _claimed(tables) if any(row.batch == batch for row in rows)]


def _claimed(tables: Mapping[int, _Claims]) -> list[int]:
    """The paper's batches."""
    return sorted({batch for claimed in tables.values() for batch in claimed})


def _table(suite: str, rows: Sequence[Row], name: str, tables: Mapping[int, _Claims]) -> str:
    head = ["batch", "layers", "published, us"]
    for baseline, number in zip(_BASELINES, tables, strict=True):
        head += [f"over {baseline}", f"the paper, table {number}", "convx's fastest"]
    lines: list[list[Cell]] = []
    for batch in _claimed(tables):
        some = [row for row in rows if row.batch == batch]
        if not some:
            missing = [cell for claimed in tables.values() for cell in ("-", claimed[batch][2], "-")]
            lines.append([batch, 0, "-", *missing])
            continue
        times = [time.us for row in some if (time := row.together(named(name), TORCH)[0])]
        line: list[Cell] = [batch, len(some), us(mean(times))]
        own, best = _gains(some, named(name), batch), _gains(some, named(f"{suite}*"), batch)
        for gain, claimed, fastest in zip(own, tables.values(), best, strict=True):
            line += [mean(gain), claimed[batch][2], mean(fastest)]
        lines.append(line)
    return (
        "Means of the layers' speedups, as the paper's are, by replays of graphs. Those leave out what the "
        "host takes for a call, which the paper's modules have, and the form as a module below. "
        "*convx's fastest*: of all forms that were timed with it, in the column's speedups.\n\n"
        + table(head, lines, text_columns=0)
    )


def _left_out(suite: str, rows: Sequence[Row], every: Sequence[Row]) -> str:
    """Layers that the table lacks, and why: the run did not come to them, or has no such kernel for them."""
    absent = _absent(suite, rows, every)
    forms = named(*FORMS.values(), *REUSE_FORMS.values())
    ran = {(row.case, row.batch) for row in every if row.together(forms)[0]}
    parts = []
    if without := [place for place in absent if place in ran]:
        parts.append(f"No kernel of the published form ran {_places(without)}.")
    if unreached := [place for place in absent if place not in ran]:
        parts.append(
            f"Not in the table: {_places(unreached)}. Neither memory nor the tilings are why: none of the "
            "contenders has a record there. "
            f"`python -m benchmarks --suite {suite} --ablations --resume` goes on."
        )
    return " ".join(parts)


_Place = tuple[str, int]  # a layer and a batch


def _absent(suite: str, rows: Sequence[Row], every: Sequence[Row]) -> list[_Place]:
    """What a table of the paper has the mean of, and was not timed. every: with other plans too."""
    _, _, tables = _FORMS[suite]
    measured = {(row.case, row.batch) for row in rows}
    cases = dict.fromkeys(row.case for row in every)
    return [(case, batch) for batch in _claimed(tables) for case in cases if (case, batch) not in measured]


def _places(places: Sequence[_Place]) -> str:
    """By batches that have the same layers: "P44 and P45 at batch 64"."""
    by_batch: dict[int, list[str]] = {}
    for case, batch in places:
        by_batch.setdefault(batch, []).append(case)
    alike: dict[tuple[str, ...], list[int]] = {}
    for batch, cases in by_batch.items():
        alike.setdefault(tuple(cases), []).append(batch)
    return ", ".join(
        f"{_cases(cases)} at batch {_listed(list(map(str, batches)))}" for cases, batches in alike.items()
    )


def _listed(names: Sequence[str]) -> str:
    """ "P43, P44 and P45"."""
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])


def _cases(cases: Sequence[str]) -> str:
    return _listed(cases) if len(cases) <= _NAMED else f"{cases[0]} to {cases[-1]} ({len(cases)} layers)"


def _panel(suite: str, rows: Sequence[Row]) -> Panel:
    _, name, tables = _FORMS[suite]
    batches = _batches(rows, tables)
    layers: dict[str, list[list[float]]] = {
        "paper: kernels": [],
        "published, over torch's fastest": [],
        "paper: modules": [],
        "published, over its choice": [],
        "convx's fastest, so": [],
    }
    for batch in batches:
        (kernel, module), (_, best) = (_gains(rows, named(each), batch) for each in (name, f"{suite}*"))
        paper = [claimed[batch][2] for claimed in tables.values()]
        values = ([paper[0]], kernel, [paper[1]], module, best)
        for column, value in zip(layers.values(), values, strict=True):
            column.append(value)
    return Panel.of_layers(mean, suite, [f"batch {batch}" for batch in batches], layers, "speedup")


def _layer_panels(suite: str, name: str, rows: Sequence[Row]) -> list[Panel]:
    """Times of every layer, at the least and the most images."""
    batches = sorted({row.batch for row in rows})
    panels = []
    for batch in dict.fromkeys((batches[0], batches[-1])):
        some = [row for row in rows if row.batch == batch]
        found = [row.together(named(name), torch_best, named(f"{suite}*")) for row in some]
        values = {
            title: [microseconds(times[index]) for times in found]
            for index, title in enumerate(("published", "torch's best", "convx's fastest"))
        }
        labels = [row.case for row in some]
        title = f"{suite}, batch {batch}"
        panels.append(by_layer(title, labels, values, "microseconds", points=True, logarithmic=True))
    return panels


def _verdicts(
    machine: Machine, suite: str, rows: Sequence[Row], every: Sequence[Row], modules: PublishedModules
) -> list[str]:
    """By batch: the paper gains at one image and loses at many. Its modules are judged by modules where those
    were timed, else by replays."""
    plan, name, tables = _FORMS[suite]
    text, measured = [], _batches(rows, tables)
    for index, (baseline, claimed) in enumerate(zip(_BASELINES, tables.values(), strict=True)):
        for batch, (*_, of_paper) in claimed.items():
            some = [row for row in rows if row.batch == batch]
            if index and batch in modules.alone:
                kernels = [time.us for row in some if (time := row.together(named(name), TORCH)[0])]
                found, count = modules.alone[batch].speedup, modules.alone[batch].count
                part = "" if count == len({row.case for row in every}) else f", {count} layers"
                what = f"{suite} modules over torch's{part}, batch {batch}"
                reasons = modules.reasons(batch, claimed[batch], mean(kernels) if kernels else None)
            elif batch in measured:
                found = mean(_gains(rows, named(name), batch)[index])
                what = f"{suite} layers over {baseline}, batch {batch}"
                reasons = reasons_of(name, some, baseline, _BASELINES[baseline], claimed[batch])
            else:
                what = f"{suite} layers over {baseline}, batch {batch}"
                text.append(not_timed(machine, plan, what, of_paper))
                continue
            loss = ", a loss as the paper's" if found < 1 and of_paper < 1 else ""
            text.append(verdict(machine, plan, f"{what}{loss}", found, of_paper, reasons))
    partly = [place for place in _absent(suite, rows, every) if place[1] in measured]
    if partly:
        text.append(not_timed(machine, plan, _places(partly)))
    return text
