"""What this installation of convx is and can do: `python -m convx info`."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple

import torch

from convx import _libraries, _planning
from convx.explain import aligned

OPERATIONS = ("forward", "input_grad", "weight_grad")
DTYPES = ("float32", "float64", "float16", "bfloat16")
LAYOUTS = ("nchw", "channels_last")
# The kinds of convolution that methods specialise in; each is asked about with a middling layer.
KINDS: dict[str, dict[str, Any]] = {
    "depthwise": {"filter_height": 3, "filter_width": 3, "padding": (1, 1, 1, 1), "groups": 64},
    "pointwise": {"filter_height": 1, "filter_width": 1},
    "dense": {"filter_height": 3, "filter_width": 3, "padding": (1, 1, 1, 1)},
    "single-channel": {
        "filter_height": 3,
        "filter_width": 3,
        "padding": (1, 1, 1, 1),
        "in_channels": 1,
        "out_channels": 1,
    },
}


class Capability(NamedTuple):
    """What a method says about one kind of problem on one device."""

    method: str
    device: str
    kind: str
    operation: str
    dtype: str
    layout: str
    can_run: bool
    reason: str


def devices() -> dict[str, Any]:
    """The planner's view of this machine's devices, by torch's name for them."""
    found = {"cpu": _planning.device("cpu")}
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            found[f"cuda:{index}"] = _planning.device(torch.device("cuda", index))
    return found


def capabilities(of: dict[str, Any] | None = None) -> Iterator[Capability]:
    """Every method, asked about every kind of convolution, operation, dtype and layout on each device.

    Args:
        of: devices by name; this machine's by default.

    >>> import convx.info
    >>> all(row.can_run for row in convx.info.capabilities() if row.method == "native")
    True
    """
    core = _planning.core()
    for name, device in (devices() if of is None else of).items():
        for method, kind in product((row["name"] for row in core.methods()), KINDS):
            for operation, dtype, layout in product(OPERATIONS, DTYPES, LAYOUTS):
                sizes = {"batch": 8, "in_channels": 64, "in_height": 56, "in_width": 56, "out_channels": 64}
                problem = core.Problem(
                    operation=operation, dtype=dtype, layout=layout, **{**sizes, **KINDS[kind]}
                )
                try:
                    able, reason = core.supports(method, problem, device)
                except ValueError as error:  # a setting that can't be read, which this report is to name
                    able, reason = False, str(error)
                yield Capability(method, name, kind, operation, dtype, layout, able, reason)


def capability_table(rows: Iterable[Capability]) -> list[tuple[str, str, str, str, str]]:
    """The dtypes and layouts that run, or the reason: a line for all kinds and operations with the same."""
    grouped: dict[tuple[str, str, str, str], list[Capability]] = {}
    for row in rows:
        grouped.setdefault((row.method, row.device, row.kind, row.operation), []).append(row)
    operations: dict[tuple[str, str, str, str], list[str]] = {}
    for (method, device, kind, operation), group in grouped.items():
        operations.setdefault((method, device, kind, _verdict(group)), []).append(operation)
    kinds: dict[tuple[str, str, str, str], list[str]] = {}
    for (method, device, kind, text), names in operations.items():
        kinds.setdefault((method, device, ", ".join(names), text), []).append(kind)
    table = [("method", "device", "convolution", "operation", "dtypes and layouts")]
    table += [
        (method, device, ", ".join(names), operation, text)
        for (method, device, operation, text), names in kinds.items()
    ]
    return table


def _verdict(group: list[Capability]) -> str:
    able = [row for row in group if row.can_run]
    if len(able) == len(group):
        return "all"
    if not able:
        return f"no: {group[0].reason}"
    return "; ".join(
        f"{layout}: {', '.join(row.dtype for row in able if row.layout == layout) or 'none'}"
        for layout in LAYOUTS
    )


def _device_line(name: str, device: Any) -> str:
    if device.backend == "cpu":
        plural = "s" if device.threads != 1 else ""
        return f"{name}: {device.isa}, {device.threads} thread{plural} of {platform.machine()}"
    shared = device.shared_bytes_per_block // 1024
    return (
        f"{name}: {device.name}, {device.multiprocessors} multiprocessors, {device.lanes} lanes, {shared} "
        f"KiB shared memory per block"
    )


def report() -> str:
    """The text of `python -m convx info`."""
    from convx import __version__

    lines = [
        f"convx {__version__}, torch {torch.__version__}, Python {platform.python_version()}, "
        f"{platform.platform()}"
    ]
    lines += ["", "libraries"]
    for library in _libraries.load().values():
        state = f"loaded from {library.path}" if library.loaded else f"not loaded: {library.reason}"
        lines.append(f"  {library.name}: {state}")
    problem = _libraries.core_problem()
    lines.append(f"  planner: {problem or 'loaded'}")
    if problem:
        return "\n".join(lines)
    slow = _libraries.front_problem()
    lines.append(f"  front: {f'not used, calls take longer: {slow}' if slow else 'loaded'}")
    lines += ["", "build"]
    lines += [f"  {name}: {value}" for name, value in _libraries.core().build_info().items()]
    lines += ["", "devices"]
    lines += [f"  {_device_line(name, device)}" for name, device in devices().items()]
    lines += ["", "methods, in the order they are asked"]
    lines += [f"  {row['name']}: {row['summary']}" for row in _libraries.core().methods()]
    lines += ["", "what each method can run here"]
    lines += [f"  {line}" for line in aligned(capability_table(capabilities()))]
    return "\n".join(lines)
