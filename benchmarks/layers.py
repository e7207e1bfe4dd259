"""The layers that the papers report, as plain data. All have 'same' padding, filter // 2 a side."""

from __future__ import annotations

# The paper on GPU memory transactions, its table of 3D convolutions: channels and side of the square map, as
# depthwise layers of stride 1. The paper's batch is 512, its filters are 3x3 and 5x5.
TRANSACTIONS = (
    (32, 112),
    (96, 112),
    (144, 56),
    (160, 56),
    (192, 28),
    (240, 28),
    (256, 28),
    (384, 14),
    (480, 14),
    (672, 14),
    (672, 7),
    (960, 7),
    (1152, 7),
)
TRANSACTIONS_BATCH = 512
TRANSACTIONS_FILTERS = (3, 5)

# "Optimizing depthwise separable convolution on DCU", its table of the depthwise layers D1 to D30 of four
# mobile networks: channels, side of the square map, side of the filter, stride.
SEPARABLE = (
    (32, 112, 3, 1),
    (144, 56, 3, 1),
    (240, 28, 5, 1),
    (384, 14, 3, 1),
    (960, 7, 3, 1),
    (96, 112, 3, 2),
    (240, 28, 3, 2),
    (480, 14, 3, 1),
    (480, 14, 5, 1),
    (1152, 7, 3, 1),
    (1152, 7, 5, 1),
    (144, 56, 3, 2),
    (144, 56, 5, 2),
    (192, 28, 3, 1),
    (192, 28, 3, 2),
    (576, 14, 3, 1),
    (576, 14, 3, 2),
    (672, 14, 5, 1),
    (672, 14, 5, 2),
    (72, 56, 3, 1),
    (120, 28, 5, 1),
    (24, 28, 3, 1),
    (48, 14, 3, 1),
    (96, 7, 3, 1),
    (48, 112, 3, 2),
    (72, 56, 5, 2),
    (576, 14, 5, 2),
    (24, 56, 3, 2),
    (48, 28, 3, 2),
    (96, 14, 3, 2),
)
SEPARABLE_BATCHES = (1, 16, 64)

# The same paper's table of the pointwise layers P1 to P45: input channels, side of the square map, filters.
POINTWISE = (
    (32, 112, 16),
    (16, 112, 96),
    (96, 56, 24),
    (24, 56, 144),
    (144, 56, 24),
    (144, 28, 32),
    (32, 28, 192),
    (192, 28, 32),
    (144, 28, 40),
    (40, 28, 240),
    (240, 28, 40),
    (192, 14, 64),
    (64, 14, 384),
    (384, 14, 64),
    (384, 14, 96),
    (96, 14, 576),
    (576, 14, 96),
    (240, 14, 80),
    (80, 14, 240),
    (480, 14, 80),
    (480, 14, 112),
    (112, 14, 672),
    (672, 14, 112),
    (576, 7, 160),
    (160, 7, 960),
    (960, 7, 160),
    (960, 7, 320),
    (320, 7, 1280),
    (672, 7, 192),
    (192, 7, 1152),
    (1152, 7, 192),
    (1152, 7, 320),
    (16, 112, 48),
    (48, 56, 24),
    (24, 56, 72),
    (72, 56, 24),
    (72, 28, 40),
    (40, 28, 120),
    (120, 28, 40),
    (480, 14, 96),
    (576, 7, 192),
    (24, 28, 24),
    (48, 14, 48),
    (96, 7, 96),
    (192, 7, 1024),
)
POINTWISE_BATCHES = (1, 8, 64)
MODULE_BATCHES = (1, 8, 16, 32, 64)  # of its tables of modules, all of the paper's

# "HNTMP", its table of ResNet's 3x3 layers at one image: channels, side of the square map, filters.
RESNET = ((64, 56, 64), (128, 28, 128), (256, 14, 256), (512, 7, 512))

# Where networks halve their maps, in no paper's table: the first layers of ResNet, MobileNetV2 and V3, then
# the layers of stride 2 of ResNet-18 and ResNet-50. Channels, side of the square map, filters, side of the
# filter.
STRIDED = (
    (3, 224, 64, 7),
    (3, 224, 32, 3),
    (3, 224, 16, 3),
    (64, 56, 128, 3),
    (128, 28, 256, 3),
    (256, 14, 512, 3),
    (64, 56, 128, 1),
    (128, 28, 256, 1),
    (256, 14, 512, 1),
    (128, 56, 128, 3),
    (256, 28, 256, 3),
    (512, 14, 512, 3),
    (256, 56, 512, 1),
    (512, 28, 1024, 1),
    (1024, 14, 2048, 1),
)

# "cuConv": the layers of stride 1 of five networks, and batches of its evaluation.
CUCONV_BATCHES = (1, 8, 32)

# GoogLeNet's inception blocks: side of the map, input channels, then filters of the 1x1 branch, of the 3x3
# branch (reduced, whole), of the 5x5 branch (reduced, whole) and of the projection after pooling.
_INCEPTION = (
    (28, 192, 64, 96, 128, 16, 32, 32),
    (28, 256, 128, 128, 192, 32, 96, 64),
    (14, 480, 192, 96, 208, 16, 48, 64),
    (14, 512, 160, 112, 224, 24, 64, 64),
    (14, 512, 128, 128, 256, 24, 64, 64),
    (14, 512, 112, 144, 288, 32, 64, 64),
    (14, 528, 256, 160, 320, 32, 128, 128),
    (7, 832, 256, 160, 320, 32, 128, 128),
    (7, 832, 384, 192, 384, 48, 128, 128),
)
# SqueezeNet 1.0's fire modules: side of the map, input channels, filters squeezed to, filters of each half.
_FIRE = (
    (55, 96, 16, 64),
    (55, 128, 16, 64),
    (55, 128, 32, 128),
    (27, 256, 32, 128),
    (27, 256, 48, 192),
    (27, 384, 48, 192),
    (27, 384, 64, 256),
    (13, 512, 64, 256),
)
# Others as (side, filter, filters, channels): GoogLeNet's stem; SqueezeNet's last layer, AlexNet, ResNet-50's
# first block, VGG19.
_STEM = ((56, 1, 64, 64), (56, 3, 192, 64))
_OTHERS = (
    (13, 1, 1000, 512),
    (27, 5, 256, 96),
    (13, 3, 384, 256),
    (13, 3, 384, 384),
    (13, 3, 256, 384),
    (56, 3, 64, 64),
    (56, 1, 256, 64),
    (56, 1, 64, 256),
    (224, 3, 64, 3),
    (224, 3, 64, 64),
    (112, 3, 128, 64),
    (112, 3, 128, 128),
    (56, 3, 256, 128),
    (56, 3, 256, 256),
    (28, 3, 512, 256),
    (28, 3, 512, 512),
    (14, 3, 512, 512),
)


def googlenet() -> set[tuple[int, int, int, int]]:
    """Side of the square map, side of the filter, filters, channels."""
    found = set(_STEM)
    for side, channels, one, reduced_3, three, reduced_5, five, projected in _INCEPTION:
        found |= {(side, 1, filters, channels) for filters in (one, reduced_3, reduced_5, projected)}
        found |= {(side, 3, three, reduced_3), (side, 5, five, reduced_5)}
    return found


def cuconv() -> list[tuple[int, int, int, int]]:
    """As googlenet, of all five networks: each layer once, sorted."""
    found = {*_OTHERS, *googlenet()}
    for side, channels, squeezed, half in _FIRE:
        found |= {(side, 1, squeezed, channels), (side, 1, half, squeezed), (side, 3, half, squeezed)}
    for side, width in ((28, 128), (14, 256), (7, 512)):
        found |= {(side, 3, width, width), (side, 1, 4 * width, width), (side, 1, width, 4 * width)}
    return sorted(found)
