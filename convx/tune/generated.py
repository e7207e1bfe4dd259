"""Generated pointwise kernels as contenders: chosen, compiled, given to the planner."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from convx import _libraries
from convx.tune import compiler, kernels
from convx.tune.folder import warn_once

_TILING = ("wave_w", "wave_c", "wave_n", "repeat_w", "repeat_c", "block_n", "group_c", "stage_c")
SIZES = tuple(name for name in _TILING if name != "block_n")  # what a kernel is made from
_BEST = 8  # tilings of each form that are tried, by prediction
_SEARCHED, ALL = 4096, 1 << 20


def tilings(problem: Any, device: Any, published: bool = False) -> list[Any]:
    """The most promising tilings of the direct form and of channel distribution; none where the generator has
    no kernel for the problem. Of those that share a kernel (Block_N is no part of it) the first.

    published: those alone that the paper has, which divide a problem exactly and buffer Group_C channels.
    """
    generator = _libraries.core().generator
    if not generator.has_source(problem, device)[0]:
        return []
    distinct: dict[tuple[int, ...], Any] = {}
    most = ALL if published else _SEARCHED  # exact divisors are few, and rank far behind
    for tiling in generator.tilings(problem, device, exact=published, most=most):
        if is_published(tiling) or not published:
            distinct.setdefault(kernel_of(tiling), tiling)
    direct = [tiling for tiling in distinct.values() if tiling.group_c == 1]
    distributed = [tiling for tiling in distinct.values() if tiling.group_c > 1]
    return [*direct[:_BEST], *distributed[:_BEST]]


def kernel_of(tiling: Any) -> tuple[int, ...]:
    """Alike of tilings that share a kernel."""
    return tuple(getattr(tiling, size) for size in SIZES)


def is_published(tiling: Any) -> bool:
    """Whether its buffers hold Group_C channels, as the paper's do."""
    return bool(tiling.stage_c == tiling.group_c)


def compile(problem: Any, device: Any, tiling: Any) -> tuple[dict[str, Any], bytes]:
    """A kernel's binary, and what a record keeps of it: name, tiling, architecture, and the binary's key."""
    source = _libraries.core().generator.source(problem, device, tiling)
    key, image = kernels.compiled(source.text, device)
    facts = {"key": key, "name": source.name, "architecture": device.architecture}
    return facts | {name: getattr(tiling, name) for name in _TILING}, image


def remember(kernel: dict[str, Any], problem_text: str, image: bytes) -> None:
    """Makes it a candidate of its problem, "pointwise/generated …", in this process."""
    fields = {name: value for name, value in kernel.items() if name != "key"}
    text = "\n".join([problem_text, *(f"{name} = {value}" for name, value in fields.items())])
    _libraries.core().generator.remember_kernel(text, image)


def offer(
    problem: Any, device: Any, problem_text: str, wanted: Sequence[Any] | None = None
) -> dict[str, dict[str, Any]]:
    """Compiles and remembers the contenders of a problem, the wanted tilings or the most promising; what a
    record keeps of each, by its plan's name.

    None where the GPU's run-time compiler is missing, with one warning.
    """
    offered = []
    chosen = tilings(problem, device) if wanted is None else wanted
    try:
        compiler.find(device.backend)
    except compiler.CompilerMissing as error:
        warn_once("compiler", f"convx.tune tries no generated kernels: {error}")
        return {}
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        made = [pool.submit(compile, problem, device, tiling) for tiling in chosen]
        for future in made:
            try:
                kernel, image = future.result()
            except compiler.CompileError as error:
                warn_once("compile", f"convx.tune leaves out a generated kernel: {error}")
                continue
            try:
                remember(kernel, problem_text, image)
            except (ValueError, RuntimeError) as error:  # there are as many as a process may have
                warn_once("generated", f"convx.tune tries no more generated kernels: {error}")
                pool.shutdown(cancel_futures=True)
                break
            offered.append(kernel)
    names = {}
    for plan in _libraries.core().candidates("pointwise", problem, device):
        for kernel in offered:
            if plan.candidate == "generated" and all(plan.tiling[name] == kernel[name] for name in _TILING):
                names[plan.name] = kernel
    return names
