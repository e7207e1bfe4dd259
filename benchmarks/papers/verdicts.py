"""Which of convx's plans are the papers' own kernels: about those alone a page says what reproduces."""

from __future__ import annotations

from benchmarks.papers.measurements import Machine

# On GPUs. What each has of its paper, and what of convx.
PUBLISHED_PLANS = {
    "cuconv/two_stage": "as published for one image: a block a filter row, a plane of sums a tap, a second "
    "kernel that adds the planes. The size of a block is convx's, and of several images a block takes one, "
    "where the paper's takes all",
    "filter2d/both": "the paper's column reuse and row reuse together, one column of a lane. That a select "
    "takes the place of its 64-bit packing, four result rows at a time and the size of a block are convx's",
}


def verdict(machine: Machine, plan: str, found: str, claim: str, holds: bool) -> str:
    """A line on what the paper says of its kernel, which the plan has to be."""
    if plan not in PUBLISHED_PLANS or not machine.is_gpu:
        where = "" if machine.is_gpu else " on a CPU"
        raise ValueError(
            f"{plan}{where} is not a published kernel ({', '.join(PUBLISHED_PLANS)} are, on GPUs)"
        )
    word = "reproduces" if holds else "does not reproduce"
    return f"- `{plan}`, {found}. {claim}: **{word}**."


def no_verdict(reason: str) -> str:
    return f"No verdict: {reason}."
