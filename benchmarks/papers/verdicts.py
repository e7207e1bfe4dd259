"""Which of convx's plans are the papers' own kernels: about those alone a page says what reproduces."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from benchmarks.papers.measurements import Machine

# On GPUs. What each has of its paper, and what of convx.
PUBLISHED_PLANS = {
    "hntmp/published": "the paper's algorithm 2 as printed, in blocks of the paper's 64 threads. The pixels "
    "of a thread are convx's",
    "cuconv/two_stage": "as published: a block a filter row, which serves the pixels of all images, a plane "
    "of sums a tap, a second kernel that adds the planes. The threads of a block are convx's",
    "depthwise/shared_rows": "row reuse as the paper prints it, its algorithm 1 with the indices corrected: "
    "a group of threads makes a plane, rows come to shared memory one after another, sums of several result "
    "rows are registers. How many groups a block has is convx's",
    "pointwise/generated": "the paper's pipeline: tilings within its constraints, a kernel generated for "
    "each, the fastest taken. As published it has exact divisors and buffers of Group_C channels alone, with "
    "and without channel distribution; 16 that a model ranks best are timed, where the paper times all",
    "filter2d/both": "the paper's column reuse and row reuse together, one column of a lane. That a select "
    "takes the place of its 64-bit packing, and the size of a block, are convx's; result rows of a thread "
    "and of a warp are parameters, of which the fastest were timed",
}
_NEAR = 0.2  # of the published figure
NOT_TIMED = "not timed together"
NOT_EXPLAINED = "not explained by what was measured"
REPRODUCES, WEAKER, STRONGER, DOES_NOT = "reproduces", "weaker", "stronger", "does not reproduce"
BUT = "but"  # the reason of what verdict's but says
_ANOTHER = "another kernel"
_IN_MEANS = "them in its means"
_WHY = " Why: "
_AS_ABOVE = f"{_WHY}as in the line above."
Reasons = Mapping[str, str]  # by outcome: a verdict takes the one of its word


def judged(found: float, claimed: float) -> str:
    """What a speedup that was found says of the one that a paper has."""
    return DOES_NOT if (found > 1) != (claimed > 1) else _beside(found, claimed)


def _beside(found: float, claimed: float) -> str:
    if abs(found / claimed - 1) <= _NEAR:
        return REPRODUCES
    return WEAKER if found < claimed else STRONGER


def outcomes(claimed: float, lost: str = "", won: str = "") -> dict[str, str]:
    """Reasons of a claim: why there is less than the paper has, and why there is more."""
    less, more = lost or NOT_EXPLAINED, won or NOT_EXPLAINED
    return {WEAKER: less, STRONGER: more, DOES_NOT: less if claimed > 1 else more}


def since(what: str, own: float, peers: float) -> tuple[str, str]:
    """Why there is less and why there is more, as far as it is what each gained over its time in the paper;
    "" for the one that this does not explain. what: the peer, and where."""
    said = f"{what} takes 1/{peers:.1f} of its time in the paper, the published form 1/{own:.1f}"
    return (said, "") if peers > own else ("", said)


def _why(word: str, reasons: Reasons, but: str = "") -> str:
    """The reasons of an outcome; ValueError where one is missing."""
    wanted = [] if word == REPRODUCES else [word]
    wanted += [BUT] if but else []
    if missing := [each for each in wanted if not reasons.get(each)]:
        raise ValueError(f"a verdict has no reason for its outcome: {', '.join(missing)}")
    said = "; ".join(dict.fromkeys(part for each in wanted for part in reasons[each].split("; ")))
    return f"{_WHY}{said}." if said else ""


def verdict(
    machine: Machine,
    plan: str,
    what: str,
    found: float,
    claimed: float,
    reasons: Reasons,
    is_share: bool = False,
    but: str = "",
) -> str:
    """A line on a speedup of the paper's kernel, which the plan has to be: what it is of, the one that was
    found, and the paper's. Or on a share of layers, in which 1 is no border. but: what else there is to say
    of it beside the word."""
    _check(machine, plan)
    word = (_beside if is_share else judged)(found, claimed)
    form = ".2%" if is_share else ".2f"
    why = _why(word, reasons, but)
    return f"- `{plan}`, {what}: {found:{form}}; the paper has {claimed:{form}}: **{word}{but}**.{why}"


def share_verdict(
    machine: Machine, plan: str, what: str, found: float, claimed: str, least: float, reasons: Reasons
) -> str:
    """As verdict, of a share that the paper has in words, which stand for the least or more."""
    _check(machine, plan)
    word = REPRODUCES if found >= least else WEAKER
    return f"- `{plan}`, {what}: {found:.2%}; the paper has {claimed}: **{word}**.{_why(word, reasons)}"


def not_timed(machine: Machine, plan: str, what: str, claimed: float | None = None) -> str:
    """In the place of a verdict, so that no claim of a paper drops out unseen. claimed: none of a part of
    what a figure of the paper is the mean of."""
    _check(machine, plan)
    figure = _IN_MEANS if claimed is None else f"{claimed:.2f}"
    return f"- `{plan}`, {what}: -; the paper has {figure}: **{NOT_TIMED}**."


def of_another(plan: str, what: str, found: float, claimed: float, reasons: Reasons) -> str:
    """A line on a kernel that is not the paper's, beside the paper's figure."""
    outcome = _beside(found, claimed)
    word = {REPRODUCES: "with as much gain", WEAKER: "with less gain", STRONGER: "with more gain"}[outcome]
    why = _why(outcome, reasons)
    return f"- `{plan}`, {what}: {found:.2f}; the paper has {claimed:.2f}: **{_ANOTHER}, {word}**.{why}"


def _check(machine: Machine, plan: str) -> None:
    if plan not in PUBLISHED_PLANS or not machine.is_gpu:
        where = "" if machine.is_gpu else " on a CPU"
        raise ValueError(
            f"{plan}{where} is not a published kernel ({', '.join(PUBLISHED_PLANS)} are, on GPUs)"
        )


_VERDICT = re.compile(
    rf"- `.+?`, (.+?): ([\d.]+%?|-); the paper has ([\d.]+%?|almost all[^:]*|{_IN_MEANS}): "
    rf"\*\*([^*]+)\*\*\.(?:{_WHY}.+)?"
)
_DETAILS = re.compile(
    r", the geomean.*| \((?:geomean|from|\d+ of) .*|,? in the mean .*|, then a matrix product"
)
_PART = re.compile(r"(.+), batch (\d+)(?:, a loss as the paper's)?")


def in_short(text: str) -> str:
    """All verdicts of a page in a line: by their words, what each is of, what was found, and the paper's."""
    said: dict[str, dict[str, list[tuple[str, str, str]]]] = {}  # batches, found and claimed
    for line in text.splitlines():
        if found := _VERDICT.fullmatch(line):
            what, speedup, claimed, word = found.groups()
            if word.startswith(_ANOTHER):
                continue
            what, batch = _DETAILS.sub("", what), ""
            if part := _PART.fullmatch(what):
                what, batch = part.groups()
            said.setdefault(word, {}).setdefault(what, []).append((batch, speedup, claimed))
    if not said:
        return "no verdict yet, for no published kernel was timed beside what the paper compares it with"
    return "; ".join(
        f"{word} {', '.join(_figures(what, parts) for what, parts in each.items())}"
        for word, each in said.items()
    )


def _figures(what: str, parts: list[tuple[str, str, str]]) -> str:
    batches, found, claimed = zip(*parts, strict=True)
    if not all(batches):
        return ", ".join(
            what if claim == _IN_MEANS else f"{what} {speedup} ({claim})" for _, speedup, claim in parts
        )
    return f"{what} at batch {', '.join(batches)} {_range(found)} ({_range(claimed)})"


def _range(figures: Sequence[str]) -> str:
    if "-" in figures:  # of those that were not timed, which stand together
        return "-"
    least, most = (choose(figures, key=float) for choose in (min, max))
    return least if least == most else f"{least} to {most}"


_WORDS = (
    "Within 20 % of the paper's figure it *reproduces*; *weaker* and *stronger* are further from it on the "
    "same side of 1; on the other side it *does not reproduce*. Reasons are what the records and counts of "
    "this page show; where they show none, it says so."
)
_WORDS_OF_ANOTHER = "*Another kernel*: not the paper's own, of which only is said whether it gains as much."


def explained(lines: list[str]) -> str:
    """The lines, and what the words of those mean that have a verdict. A reason that is the line's above as
    well is not said again."""
    if not any("**." in line for line in lines):
        return "\n".join(lines)
    of_another = [_WORDS_OF_ANOTHER] if any(f"**{_ANOTHER}" in line for line in lines) else []
    parts = [line.partition(_WHY) for line in lines]
    said = [
        f"{line}{_AS_ABOVE}" if why and index and why == parts[index - 1][2] else lines[index]
        for index, (line, _, why) in enumerate(parts)
    ]
    return "\n".join([_WORDS, *of_another, "", *said])


def no_verdict(reason: str) -> str:
    return f"No verdict: {reason}."
