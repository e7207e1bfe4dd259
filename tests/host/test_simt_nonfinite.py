"""Infinity and NaN in the GPU kernels, on the host executor: they affect what they meet and nothing else,
although zeros stand for what lies outside of the tensors."""

from __future__ import annotations

import pytest
from simt import build as programs
from simt.covering import LAYOUTS
from test_simt import FAMILIES, needs_compiler, run_all

pytestmark = [needs_compiler, pytest.mark.slow(by="name")]

OPERANDS = {"forward": ["input"], "input_grad": ["output_grad"], "weight_grad": ["input", "output_grad"]}
# (channels, filters, groups, size, filter, stride, padding)
LAYERS = {
    "depthwise": [
        (10, 10, 10, (9, 14), 3, 2, 1),
        (10, 10, 10, (6, 7), 3, 1, 1),
        (10, 10, 10, (5, 21), 5, 1, 2),
        (10, 10, 10, (7, 7), 3, 1, 1),
        (20, 20, 20, (14, 14), 5, 1, 2),
        (10, 10, 10, (7, 7), 7, 2, 3),
        (10, 10, 10, (6, 9), 3, 3, 2),
        (10, 10, 10, (6, 19), 9, 1, 4),
    ],
    "dense": [
        (10, 6, 1, (6, 7), 3, 2, 1),
        (10, 6, 1, (6, 7), 3, 1, 1),
        (10, 6, 1, (3, 4), 1, 1, 0),
        (16, 8, 1, (4, 5), 3, 1, 1),  # channels of whole pieces, which some kernels need in channels_last
        (16, 8, 1, (4, 5), 1, 1, 0),
    ],
    "filter2d": [(1, 2, 1, (4, 5), 3, 1, 1)],
}


def lines(device: str, kind: str) -> list[str]:
    """Each pixel of the operand is infinite or NaN in one of a layer's problems."""
    result = []
    for channels, filters, groups, size, taps, stride, padding in LAYERS[kind]:
        out_height, out_width = ((n + 2 * padding - taps) // stride + 1 for n in size)
        turns = {
            "input": -(-size[0] * size[1] // channels),
            "output_grad": -(-out_height * out_width // filters),
        }
        result += [
            f"device={device} operation={operation} layout={layout} batch=2 channels={channels} "
            f"out_channels={filters} groups={groups} size={size[0]},{size[1]} filter={taps} stride={stride} "
            f"padding={padding} dtype={('float32', 'bfloat16')[turn // 2 % 2]} "
            f"special={operand},{('nan', 'inf')[turn % 2]},{turn} orders=shuffled"
            for operation, operands in OPERANDS.items()
            for operand in operands
            for layout in LAYOUTS
            for turn in range(turns[operand])
        ]
    return result


@pytest.mark.parametrize("device", ["h200", "mi250"])
@pytest.mark.parametrize("name", [*FAMILIES, *programs.methods()])
def test_infinity_and_nan_reach_what_they_meet(name: str, device: str) -> None:
    """By every plan."""
    kind = "depthwise" if name in FAMILIES else name if name in LAYERS else "dense"
    output = run_all(programs.build([name]) / name, lines(device, kind))
    assert output.count("\nRUN ") >= 5, "this family ran hardly any of the problems"
