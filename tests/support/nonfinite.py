"""Infinity and NaN at every place of inputs and gradients: what they meet is infinite or NaN, nothing else
is. (What a filter's own meet at the padding, nothing or a zero, differs among torch's convolutions too.)"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from extreme import OPERATIONS, Extreme, algorithms, compute, images_of, reference, weight_of
from torch import Tensor

LAYER = Extreme(20, 20, 20, (14, 14), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1))
LAYERS = [
    LAYER,
    replace(LAYER, size=(5, 37), stride=(1, 1)),
    replace(LAYER, size=(14, 13), filter=(5, 5), padding=(2, 2, 2, 2)),
    replace(LAYER, size=(6, 19), filter=(5, 5), stride=(1, 1), padding=(2, 2, 2, 2)),
    replace(LAYER, size=(7, 7), filter=(7, 7), stride=(1, 1), padding=(3, 3, 3, 3)),
    replace(LAYER, size=(9, 10), filter=(7, 7), padding=(3, 3, 3, 3), batch=1),
    replace(LAYER, size=(9, 11), stride=(1, 2), padding=(2, 1, 3, 0), dilation=(2, 2)),
    replace(LAYER, size=(8, 9), filter=(2, 4), stride=(3, 1), padding=(0, 1, 2, 2), batch=1),
    replace(LAYER, size=(1, 40), filter=(1, 5), stride=(1, 2), padding=(0, 0, 2, 2)),
    replace(LAYER, size=(4, 4), stride=(3, 3), padding=(3, 3, 3, 3), filter=(2, 2), batch=5),
    replace(LAYER, channels=10, groups=10, size=(7, 9)),
    replace(LAYER, channels=6, filters=8, groups=2, size=(5, 6), stride=(1, 1)),
    replace(LAYER, channels=5, filters=7, groups=1, size=(6, 5), stride=(1, 1)),
    replace(LAYER, channels=9, filters=7, groups=1, size=(6, 5), filter=(1, 1), padding=(0, 0, 0, 0)),
]
KINDS = [("float32", False), ("float32", True), ("bfloat16", False), ("bfloat16", True), ("float64", False)]
OPERANDS = {"forward": ["input"], "input_grad": ["grad"], "weight_grad": ["input", "grad"]}
VALUES = (float("nan"), float("inf"), float("-inf"))


def with_special(tensor: Tensor, turn: int) -> Tensor:
    """One pixel of each channel becomes infinite or NaN: another one in each, in one of the images."""
    result, (images, channels, _, width) = tensor.clone(), tensor.shape
    places = pixels(tensor)
    for c in range(channels):
        place = turn * channels + c
        y, x = divmod(place % places, width)
        result[(turn + c) % images, c, y, x] = VALUES[(place // places + c % 2) % len(VALUES)]
    return result


def pixels(tensor: Tensor) -> int:
    return tensor.shape[2] * tensor.shape[3]


def turns(tensor: Tensor) -> int:
    """Until each pixel was each of the values, in one channel or another."""
    return -(-len(VALUES) * pixels(tensor) // tensor.shape[1])


def same(result: Tensor, exact: Tensor, tolerance: float) -> bool:
    return torch.allclose(result.double(), exact, rtol=tolerance, atol=tolerance, equal_nan=True)


def check(case: Extreme) -> int:
    """Every operation by every plan; how many results were compared."""
    tolerance = {"float32": 1e-4, "float64": 1e-9, "bfloat16": 0.1}[case.dtype]
    operands = {
        "input": images_of(case, case.channels, case.size),
        "weight": weight_of(case),
        "grad": images_of(case, case.filters, case.out_size),
    }
    compared = 0
    for operation in OPERATIONS:
        names = [name for name in algorithms(case, operation, **operands) if name != "auto"]
        for operand in OPERANDS[operation]:
            for turn in range(turns(operands[operand]) if names else 0):
                special = {**operands, operand: with_special(operands[operand], turn)}
                with np.errstate(invalid="ignore"):
                    exact = reference(case, operation, **special)
                assert not exact.isfinite().all()
                for name in names:
                    result = compute(case, operation, name, **special)
                    assert same(result, exact, tolerance), f"{operation} by {name}, {operand} {turn}: {case}"
                    compared += 1
    return compared


def main() -> None:
    compared = 0
    for layer in LAYERS:
        for dtype, channels_last in KINDS:
            compared += check(replace(layer, dtype=dtype, channels_last=channels_last))
    assert compared > 1000
