"""The profile of the paper on HNTMP, of convx's own kernels."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.papers.text import Cell, table
from benchmarks.profiles import AMD, NVIDIA, Profile, load


def profile(profiles: Sequence[Profile] | None = None) -> list[str]:
    """A table below the paper's. profiles: the committed ones where None."""
    profiles = load() if profiles is None else profiles
    if not profiles:
        return []
    head = ["plan", "threads", "memory instructions of a thread", "KB read + written"]
    head += [f"{AMD}: shared bytes", "registers, vector + scalar", "instructions: memory, scalar memory"]
    head += [
        "shared",
        "multiply-adds",
        "all vector",
        f"{NVIDIA}: shared bytes",
        "registers",
        "instructions: memory",
        "shared",
    ]
    head += ["multiply-adds"]
    lines: list[list[Cell]] = []
    for each in profiles:
        read, written = each["kilobytes"]
        amd, nvidia = each["targets"][AMD], each["targets"][NVIDIA]
        line: list[Cell] = [f"`{each['plan']}`", f"{each['blocks']}x{each['threads']}"]
        line += [f"{each['memory_instructions']:.0f}", f"{read}+{written}", amd["shared"]]
        line += [f"{amd['vgpr']}+{amd['sgpr']}", f"{amd['memory']}, {amd.get('scalar_memory', 0)}"]
        vector = amd["multiply_add"] + amd.get("other_vector", 0)
        line += [amd.get("shared_memory", 0), amd["multiply_add"], vector]
        line += [nvidia["shared"], nvidia["registers"]]
        lines.append([*line, nvidia["memory"], nvidia.get("shared_memory", 0), nvidia["multiply_add"]])
    return [
        "The same layer by convx's kernels of the paper's forms (`python -m benchmarks.profiles`). What a "
        "thread runs and what is read and written are counted on the host executor with 64 lanes, the latter "
        "in sectors of 32 bytes before any cache; registers are as the compilers report them, instructions "
        f"those of the compiled code, for {AMD}, of the paper's GPU's family, and {NVIDIA}. Where all lanes "
        f"read one filter, as those of `hntmp/direct` do, {AMD} has scalar loads.",
        table(head, lines),
    ]
