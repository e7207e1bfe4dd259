"""Markdown: tables, numbers, and the page that they make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.environment import CHANGED
from benchmarks.papers.measurements import AUTO, TORCH, Contender, Machine, Row, Time, several_runs
from benchmarks.papers.pictures import Picture
from benchmarks.results import geomean
from benchmarks.spread import quartiles

Cell = str | float | int | None
NOT_MEASURED = "Not measured yet."
_DATE = len("2026-11-30")
HARDWARE = "Everything here was timed on NVIDIA's GPUs and on CPUs: no AMD and no mobile hardware was used."
CHANGED_CODE = (
    f"A {CHANGED} after a commit: files of the checkout were changed beside it, so that the commit alone may "
    "not give these times."
)
TOGETHER = (
    "Every ratio is of times of one measurement, whose contenders took turns; what was not timed together "
    "has none."
)
WHISKERS = (
    "Whiskers, in this picture and those below that say nothing else, are the lower and upper quartile of "
    "the layers whose mean or geomean the bar is; the paper's own means have none."
)


@dataclass
class Page:
    """One paper's page; parts are paragraphs, tables and headings."""

    stem: str
    parts: list[str]
    pictures: list[Picture] = field(default_factory=list)

    def add(self, *parts: str) -> None:
        self.parts += [part for part in parts if part]

    def draw(self, picture: Picture, whiskers: str = WHISKERS) -> None:
        """whiskers: what they are; those of layers are said once, others below each picture."""
        self.pictures.append(picture)
        self.parts.append(f"![{picture.title}](pictures/{picture.name}.svg)")
        is_said = whiskers == WHISKERS and whiskers in self.parts
        if any(panel.has_spread for panel in picture.panels) and not is_said:
            self.parts.append(whiskers)

    @property
    def text(self) -> str:
        note = (
            "<!-- written by python -m benchmarks.papers from the committed results; change nothing here -->"
        )
        title, *rest = self.parts
        return "\n\n".join([f"# {title}", note, *rest]) + "\n"


def us(value: Time | float | None) -> str:
    """Microseconds in three digits."""
    if value is None:
        return "-"
    value = value.us if isinstance(value, Time) else value
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(value: float | None) -> str:
    """A ratio."""
    return "-" if value is None else f"{value:.2f}"


def table(head: Sequence[str], rows: Iterable[Sequence[Cell]], text_columns: int = 1) -> str:
    """The first columns are text, flush left; numbers are flush right, ratios where they come as floats."""
    lines = [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * text_columns + "---:|" * (len(head) - text_columns),
    ]
    for row in rows:
        if len(row) != len(head):
            raise ValueError(f"{len(row)} cells under {len(head)} headings: {row}")
        lines.append(
            "| " + " | ".join(times(c) if c is None or isinstance(c, float) else str(c) for c in row) + " |"
        )
    return "\n".join(lines)


def without_empty_columns(
    head: Sequence[str], rows: Sequence[Sequence[Cell]]
) -> tuple[list[str], list[list[Cell]]]:
    """Columns that no row has a value for say nothing."""
    if any(len(row) != len(head) for row in rows):
        raise ValueError(f"rows are not as long as the head: {head}")
    kept = [index for index in range(len(head)) if any(row[index] not in (None, "-", "") for row in rows)]
    return [head[index] for index in kept], [[row[index] for index in kept] for row in rows]


def over(first: Time | None, second: Time | None) -> float | None:
    """Of one measurement, else ValueError."""
    return first / second if first and second else None


def ratios(rows: Iterable[Row], first: Contender, second: Contender) -> list[float]:
    """First over second, of the problems that have both in one measurement."""
    return [ratio for row in rows if (ratio := row.ratio(first, second)) is not None]


def mean_ratio(rows: Iterable[Row], first: Contender, second: Contender) -> float | None:
    """Their geomean."""
    found = ratios(rows, first, second)
    return geomean(found) if found else None


def won(found: Sequence[float]) -> str:
    """The geomean of ratios, and how many are above 1."""
    return f"{geomean(found):.2f}, {sum(each > 1 for each in found)} of {len(found)}" if found else "-"


def sources(machine: Machine, *suites: str) -> str:
    """Where a machine's numbers come from."""
    lines = []
    for suite in suites:
        for stem, results in machine.sources(suite):
            environment = results.environment
            versions = f"torch {environment['torch']}"
            if environment.get("cudnn"):
                versions += f", cuDNN {environment['cudnn']}"
            path = f"{machine.slug}/{stem}.json"
            line = f"- {machine.name}, {versions}: [{path}](../results/{path}), {results.origin()}"
            if several_runs(results):
                line += "; problems in it were measured more than once"
            lines.append(line)
    changed = any(f"{CHANGED})" in line for line in lines)
    return "\n".join([*lines, "", f"{TOGETHER} {CHANGED_CODE}" if changed else TOGETHER])


def of_age(machine: Machine, machines: Sequence[Machine], *suites: str) -> str:
    """Which of a machine's records are of older kernels than the newest of a page, and on a CPU which are of
    another processor."""
    ages = [each.ages(suites) for each in machines]
    newest = max((newest for each in ages for _, newest in each.values()), default="")
    older = [
        f"`{stem}.json`, of kernels as of {oldest}"
        for stem, (oldest, _) in machine.ages(suites).items()
        if oldest[:_DATE] < newest[:_DATE]
    ]
    parts = []
    if older:
        parts.append(f"Older than the newest records of this page ({newest}): {'; '.join(older)}.")
    processors = machine.processors(suites)
    if len(processors) > 1 and not machine.is_gpu:
        files = "; ".join(
            f"{name}: {', '.join(f'`{stem}.json`' for stem in stems)}" for name, stems in processors.items()
        )
        parts.append(f"These files are of different processors, whose times do not compare: {files}.")
    return "\n\n".join(parts)


def percent(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "0 of 0"


def taken(rows: Iterable[Row], peer: Contender) -> str:
    """A sentence: which plans auto took where it was timed together with the peer, on how many problems, and
    when, for today's convx may take others."""
    found = [beside for row in rows if (beside := row.auto_beside(peer))]
    counts = Counter(each.chosen for each in found if each.chosen)
    plans = ", ".join(f"`{plan}` on {count}" for plan, count in counts.most_common())
    when = "; ".join(sorted({each.taken for each in found if each.chosen and each.taken}))
    return f"`auto` took {plans}" + (
        f", as convx was when these records were taken ({when})." if when else "."
    )


def own_spread(rows: Iterable[Row]) -> str:
    """On a CPU: what differs where auto took torch's own convolution in the same layout."""
    measured = [each for row in rows for each in row.measurements]
    pairs = [(each, each.time(TORCH), each.time(AUTO)) for each in measured]
    found = [(each, torch / auto) for each, torch, auto in pairs if torch and auto]
    same = [gain for each, gain in found if each.chosen == "native"]
    if not same:
        return ""
    half = quartiles(same)
    middle = f", half of them from {times(half[0])} to {times(half[1])}" if half else ""
    return (
        f"In {len(same)} of these {len(found)} measurements `auto` took torch's own convolution (`native`): "
        f"torch against itself. Its speedups there, geomean {times(geomean(same))}{middle}, the farthest "
        f"{times(min(same))} and {times(max(same))}, are convx's part of a call and the measurement's own "
        "spread."
    )
