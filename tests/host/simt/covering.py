"""Problems for the host executor's drivers: few, and every pair of values of every two properties occurs."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

from convx._core import Device

OPERATIONS = ("forward", "input_grad", "weight_grad")
LAYOUTS = ("nchw", "channels_last")

# Under the sanitizers a product costs about 100 ns.
MOST_PRODUCTS = 800_000

Values = dict[str, list[Any]]
Problem = dict[str, Any]

# What the fast families are made for. Widths lie around and beyond what a warp covers at 16 bytes a lane.
COMMON: Values = {
    "dtype": ["float32", "bfloat16", "float16", "float64"],
    "filter": [(3, 3), (5, 5), (7, 7)],
    "stride": [(1, 1), (2, 2)],
    "padding": ["same", "none", "ragged"],
    "size": [(1, 1), (4, 4), (7, 7), (14, 14), (8, 16), (13, 17), (5, 33), (28, 28), (3, 150), (2, 530)],
    "channels": [1, 3, 8, 33],
    "batch": [1, 2, 5],
    "epilogue": [
        *("", "bias", "bias relu", "relu6", "bias silu", "hardswish", "bias gelu"),
        *("scale bias residual relu", "residual silu", "scale relu6 residual", "bias gelu residual"),
    ],
}

# The square planes of a network's last layers, which have families of their own.
SMALL_PLANES: Values = {
    "dtype": ["float32", "bfloat16", "float16"],
    "filter": [(3, 3), (5, 5)],
    "stride": [(1, 1)],
    "padding": ["same"],
    "size": [(7, 7), (14, 14)],
    "channels": [1, 3, 8, 33, 64],
    "batch": [1, 2, 5, 9],
    "epilogue": ["", "bias", "bias relu6", "bias silu", "scale bias residual relu", "bias silu residual"],
}

# Filters that matrix units take, in regions of 16 by 16 results; nothing for those who have float32 alone.
LARGE_FILTERS: Values = {
    "dtype": ["bfloat16", "float16"],
    "filter": [(5, 5), (13, 13), (31, 31), (9, 17), (32, 6), (5, 32)],
    "stride": [(1, 1)],
    "padding": ["same", "none", "ragged"],
    "size": [(7, 7), (16, 16), (33, 17), (35, 70), (1, 40)],
    "channels": [1, 3, 8, 12],
    "batch": [1, 2, 5],
    "epilogue": ["", "bias", "bias relu", "scale bias residual relu", "residual silu", "bias gelu residual"],
}

# What convolutions may be beside.
GENERAL: Values = {
    "dtype": ["float32", "bfloat16", "float16", "float64"],
    "filter": [(1, 1), (3, 3), (5, 5), (1, 5), (2, 4), (9, 3)],
    "stride": [(1, 1), (2, 2), (3, 3), (2, 1), (1, 4)],
    "dilation": [(1, 1), (2, 2), (1, 3)],
    "padding": ["same", "none", "ragged"],
    "size": [(1, 1), (5, 7), (13, 17), (12, 16), (2, 70)],
    "channels": [1, 3, 8, 33],
    "multiplier": [1, 2, 3],
    "batch": [1, 2, 3],
    "epilogue": ["", "bias", "bias relu6", "gelu", "scale residual relu6", "scale bias silu residual"],
}

# Convolutions over channels, for the methods beside depthwise; each takes those that it supports.
DENSE: Values = {
    "dtype": ["float32", "bfloat16", "float16", "float64"],
    "tf32": [0, 1],
    "filter": [(1, 1), (3, 3), (5, 5), (1, 3), (4, 2), (7, 7)],
    "stride": [(1, 1), (2, 2), (1, 3)],
    "dilation": [(1, 1), (2, 2)],
    "padding": ["same", "none", "ragged"],
    "size": [(1, 1), (4, 4), (7, 7), (14, 14), (5, 33), (2, 130)],
    "channels": [1, 3, 8, 16, 34, 64],
    "out_channels": [1, 4, 16, 34, 72],
    "groups": [1, 2],
    "batch": [1, 2, 5],
    "epilogue": [
        *("", "bias", "bias relu6", "bias silu", "gelu"),
        *("scale bias residual relu", "residual", "scale hardswish residual", "bias silu residual"),
    ],
}

# The plain ones that networks are full of: every pair of what is left.
DENSE_COMMON: Values = {
    "dtype": ["float32", "bfloat16", "float16"],
    "tf32": [0, 1],
    "filter": [(1, 1), (3, 3)],
    "stride": [(1, 1), (2, 2)],
    "padding": ["same"],
    "size": [(4, 4), (7, 7), (14, 14), (12, 20)],
    "channels": [8, 16, 40, 64],
    "out_channels": [8, 24, 64],
    "groups": [1],
    "batch": [1, 2, 3],
    "epilogue": ["", "bias", "bias relu", "scale bias residual relu", "bias relu residual"],
}


def padding_of(kind: str, problem: Problem) -> tuple[int, int, int, int]:
    """Rows above and below, columns left and right."""
    extent = [(size - 1) * step for size, step in zip(problem["filter"], dilation_of(problem), strict=True)]
    if kind == "none":
        return 0, 0, 0, 0
    if kind == "same":
        return extent[0] // 2, extent[0] - extent[0] // 2, extent[1] // 2, extent[1] - extent[1] // 2
    return extent[0], 1, 0, extent[1] + 2


def dilation_of(problem: Problem) -> tuple[int, int]:
    """Rows and columns between the filter's elements."""
    dilation: tuple[int, int] = problem.get("dilation", (1, 1))
    return dilation


def is_valid(problem: Problem) -> bool:
    """Whether the filter fits the padded input, and groups divide channels that are not too many."""
    if "out_channels" in problem:
        groups, channels, out_channels = (
            problem.get("groups", 1),
            problem["channels"],
            problem["out_channels"],
        )
        if channels % groups or out_channels % groups:
            return False
        products = problem["batch"] * out_channels * channels // groups
        if products * math.prod(problem["filter"]) * math.prod(problem["size"]) > MOST_PRODUCTS:
            return False
    pads = padding_of(problem["padding"], problem)
    for axis in (0, 1):
        reach = (problem["filter"][axis] - 1) * dilation_of(problem)[axis] + 1
        if reach > problem["size"][axis] + pads[2 * axis] + pads[2 * axis + 1]:
            return False
    return True


def products(problem: Problem) -> int:
    """Of a depthwise problem, by all of the filter's elements at every pixel."""
    count: int = problem["batch"] * problem["channels"] * problem.get("multiplier", 1)
    return count * math.prod(problem["filter"]) * math.prod(problem["size"])


def covering(values: Values, seed: int, most_products: float = math.inf) -> list[Problem]:
    """Rows that hold every pair of values of two properties that can occur together; always the same."""
    source = random.Random(seed)
    names = list(values)

    def pairs_of(problem: Problem) -> set[Any]:
        return set(itertools.combinations([(name, problem[name]) for name in names], 2))

    wanted = {
        ((a, x), (b, y)) for a, b in itertools.combinations(names, 2) for x in values[a] for y in values[b]
    }
    rows: list[Problem] = []
    while wanted:
        (a, x), (b, y) = min(wanted, key=str)
        best: Problem | None = None
        gain = 0
        for _ in range(60):
            problem = {name: source.choice(values[name]) for name in names} | {a: x, b: y}
            if not is_valid(problem) or (most_products < math.inf and products(problem) > most_products):
                continue
            if len(pairs_of(problem) & wanted) > gain:
                best, gain = problem, len(pairs_of(problem) & wanted)
        if best is None:  # such as no padding and a filter larger than the input
            wanted.discard(((a, x), (b, y)))
            continue
        wanted -= pairs_of(best)
        rows.append(best)
    return rows


def line(problem: Problem, operation: str, layout: str, device: str, order: str) -> str:
    """The problem as the drivers read it."""
    items = {
        "device": device,
        "operation": operation,
        "layout": layout,
        "dtype": problem["dtype"],
        "batch": problem["batch"],
        "channels": problem["channels"],
        "multiplier": problem.get("multiplier", 1),
        **{name: problem[name] for name in ("out_channels", "groups", "tf32") if name in problem},
        "size": "{},{}".format(*problem["size"]),
        "filter": "{},{}".format(*problem["filter"]),
        "stride": "{},{}".format(*problem["stride"]),
        "dilation": "{},{}".format(*dilation_of(problem)),
        "padding": "{},{},{},{}".format(*padding_of(problem["padding"], problem)),
        "orders": order,
    }
    if operation == "forward":
        words = problem["epilogue"].split()
        if Device.known_device(device).backend == "hip":  # kernels add neither there
            words = [word for word in words if word not in ("scale", "residual")]
        items |= epilogue_items(" ".join(words))
    return " ".join(f"{name}={value}" for name, value in items.items())


def epilogue_items(text: str) -> dict[str, Any]:
    """What "scale bias residual relu" asks of the drivers; a residual is before relu or behind it."""
    words = text.split()
    operands = [word for word in words if word in ("bias", "scale", "residual")]
    items: dict[str, Any] = {name: int(name in operands) for name in ("bias", "scale")}
    items["activation"] = next((word for word in words if word not in operands), "none")
    if "residual" in operands:
        items["residual"] = "after" if words[0] != "residual" and words[-1] == "residual" else "before"
    return items


def chosen_line(problem: str, device: str, orders: str, **more: str) -> str:
    """A line for the driver; groups are 1 unless the problem says otherwise."""
    channels, _, rest = problem.partition(" ")
    groups = "" if rest.startswith("groups") else " groups=1"
    items = "".join(f" {key}={value}" for key, value in more.items())
    return f"device={device} {channels}{groups} {rest} orders={orders}{items}"
