"""What compilers report about the kernels they made: registers, shared memory, spills, occupancy."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class KernelUse:
    """One kernel, compiled for one target."""

    target: str
    kernel: str
    values: dict[str, int] = field(default_factory=dict)

    @property
    def spills(self) -> int:
        """Anything that did not fit the registers."""
        return sum(
            self.values.get(name, 0) for name in ("spill_stores", "spill_loads", "vgpr_spill", "sgpr_spill")
        )

    @property
    def does_nothing(self) -> bool:
        """Emptied by CONVX_SKIP_OTHER_WARPS: compiled for a warp width that the target does not have."""
        return "occupancy" in self.values and self.values["vgpr"] == 0 and self.values["shared"] == 0


_NVCC_KERNEL = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_NVCC_PATTERNS = {
    "stack": re.compile(r"(\d+) bytes stack frame"),
    "spill_stores": re.compile(r"(\d+) bytes spill stores"),
    "spill_loads": re.compile(r"(\d+) bytes spill loads"),
    "registers": re.compile(r"Used (\d+) registers"),
    "shared": re.compile(r"(\d+) bytes smem"),
}


def parse_nvcc(log: str) -> list[KernelUse]:
    """From what nvcc prints with -Xptxas=-v."""
    uses: list[KernelUse] = []
    for line in log.splitlines():
        start = _NVCC_KERNEL.search(line)
        if start:
            uses.append(KernelUse(start[2], start[1]))
        elif uses:
            for name, pattern in _NVCC_PATTERNS.items():
                found = pattern.search(line)
                # Functions that were not inlined follow their kernel with properties of their own.
                if found:
                    uses[-1].values[name] = max(int(found[1]), uses[-1].values.get(name, 0))
    return uses


def serialized_products(log: str) -> list[str]:
    """Lines about kernels whose asynchronous products nvcc makes wait for one another."""
    what = "wgmma.mma_async instructions are serialized"
    return [line for line in log.splitlines() if what in line]


_AMD_KERNEL = re.compile(r"remark: .*Function Name: (\w+)")
_AMD_PATTERNS = {
    "sgpr": re.compile(r" (?:Total)?SGPRs: (\d+)"),
    "vgpr": re.compile(r" VGPRs: (\d+)"),
    "agpr": re.compile(r" AGPRs: (\d+)"),
    "stack": re.compile(r"ScratchSize \[bytes/lane\]: (\d+)"),
    "occupancy": re.compile(r"Occupancy \[waves/SIMD\]: (\d+)"),
    "sgpr_spill": re.compile(r"SGPRs Spill: (\d+)"),
    "vgpr_spill": re.compile(r"VGPRs Spill: (\d+)"),
    "shared": re.compile(r"LDS Size \[bytes/block\]: (\d+)"),
}


def parse_amd(log: str, target: str) -> list[KernelUse]:
    """From what clang prints with -Rpass-analysis=kernel-resource-usage."""
    uses: list[KernelUse] = []
    for line in log.splitlines():
        start = _AMD_KERNEL.search(line)
        if start:
            uses.append(KernelUse(target, start[1]))
        elif uses:
            for name, pattern in _AMD_PATTERNS.items():
                found = pattern.search(line)
                if found:
                    uses[-1].values[name] = int(found[1])
    return uses


def demangle(names: Iterable[str]) -> dict[str, str]:
    """C++ names without parameters and the namespaces that all kernels share."""
    mangled = sorted(set(names))
    done = subprocess.run(
        ["c++filt", "-p"], input="\n".join(mangled), capture_output=True, text=True, check=True
    )
    readable = {}
    for name, text in zip(mangled, done.stdout.splitlines(), strict=True):
        text = re.sub(r"\(convx::[\w:]+\)|\(bool\)", "", text)
        readable[name] = re.sub(r"convx::(?:depthwise::)?|^void ", "", text)
    return readable


def table(uses: list[KernelUse], columns: dict[str, str]) -> str:
    """A row per kernel, a column per target; columns maps the values shown in a cell to their headings."""
    names = demangle(use.kernel for use in uses)
    targets = list(dict.fromkeys(use.target for use in uses))
    cells: dict[str, dict[str, str]] = {}
    for use in uses:
        shown = "/".join(str(use.values.get(name, 0)) for name in columns)
        if use.spills:
            shown += " SPILLS"
        cells.setdefault(names[use.kernel], {})[use.target] = shown
    width = {
        target: max([len(target), *(len(row.get(target, "")) for row in cells.values())])
        for target in targets
    }
    lines = [f"{'/'.join(columns.values())} of each kernel:"]
    lines.append("  ".join(target.rjust(width[target]) for target in targets) + "  kernel")
    for kernel in sorted(cells):
        shown = "  ".join(cells[kernel].get(target, "").rjust(width[target]) for target in targets)
        lines.append(f"{shown}  {kernel}")
    return "\n".join(lines)


def summary(uses: list[KernelUse]) -> tuple[str, bool]:
    """A line per target, and whether no kernel spills."""
    lines = []
    good = True
    for target in dict.fromkeys(use.target for use in uses):
        mine = [use for use in uses if use.target == target]
        spilling = [use for use in mine if use.spills]
        local = [use for use in mine if use.values.get("stack", 0) and not use.spills]
        most = max(use.values.get("registers", use.values.get("vgpr", 0)) for use in mine)
        shared = max(use.values.get("shared", 0) for use in mine)
        lines.append(
            f"{target}: {len(mine)} kernels, at most {most} registers and {shared} B of shared arrays, "
            f"{len(local)} with a stack frame, {len(spilling)} spilling"
        )
        names = demangle(use.kernel for use in spilling + local)
        for use in spilling:
            lines.append(f"  SPILLS {names[use.kernel]}: {use.values}")
        for use in local:
            lines.append(f"  stack frame of {use.values['stack']} B: {names[use.kernel]}")
        good = good and not spilling
    return "\n".join(lines), good
