"""The profile of the paper on HNTMP, of convx's own kernels."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.papers import claims
from benchmarks.papers.text import Cell, table
from benchmarks.profiles import AMD, NVIDIA, Profile, load

_CHANNELS = 256  # of the layer's input


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
        *_blocks_of_direct(profiles),
    ]


def _blocks_of_direct(profiles: Sequence[Profile]) -> list[str]:
    """Why there are more than the paper prints."""
    (printed,) = (line for line in claims.HNTMP_PROFILE if line[0] == "direct")
    blocks, threads = map(int, printed[2].split("x"))
    found = [each["blocks"] for each in profiles if each["plan"].startswith("hntmp/direct")]
    if not found or min(found) <= blocks:
        return []
    return [
        f"The forms of `hntmp/direct` launch {min(found)}x{threads} where table 3 prints {printed[2]}: a "
        "thread has one pixel of a tile of 8x8 and 8 of the channels, for 8 filters of 9 weights and a pixel "
        f"of the tile make the {printed[-1] // _CHANNELS} memory instructions for each input channel that "
        f"table 3 has ({printed[-1]} for {_CHANNELS}), and sums of more channels would leave a thread "
        "too few registers; 4 tiles and 32 groups of channels are these blocks."
    ]
