"""How often the networks of Liu et al. have each layer of its tables 3 and 4, for images of 224 by 224.

Counted in torchvision's EfficientNet-B0, MnasNet 1.0, MobileNetV2 and ShuffleNetV2 x0.5, whose layers the
paper's are. Layers that its tables leave out are left out: three or four of a network, none of MobileNetV2.
"""

from __future__ import annotations

from collections import Counter

_LAYERS = {
    "EfficientNet-B0": (
        "D1 D2 D3 D6 D7 2xD8 D9 D10 3xD11 D13 2xD18 D19 P1 P2 P3 2xP4 P5 P9 2xP10 P11 P18 2xP20 P21 "
        "3xP22 2xP23 P28 P29 4xP30 3xP31 P32"
    ),
    "MnasNet": (
        "D1 D8 2xD9 D10 3xD11 D16 2xD20 2xD21 D25 D26 D27 P1 P10 2xP16 P17 P18 2xP20 P28 4xP30 3xP31 P32 "
        "P33 P34 3xP35 2xP36 P37 2xP38 2xP39 P40 P41"
    ),
    "MobileNetV2": (
        "D1 D2 4xD4 3xD5 D6 D12 2xD14 D15 2xD16 D17 P1 P2 P3 2xP4 P5 P6 3xP7 2xP8 P12 4xP13 3xP14 P15 "
        "3xP16 2xP17 P24 3xP25 2xP26 P27 P28"
    ),
    "ShuffleNetV2": ("3xD22 7xD23 3xD24 2xD28 2xD29 2xD30 8xP42 16xP43 8xP44 P45"),
}


def _counted(layers: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for each in layers.split():
        count, _, layer = each.rpartition("x")
        counts[layer] += int(count or 1)
    return counts


NETWORKS = {name: _counted(layers) for name, layers in _LAYERS.items()}
