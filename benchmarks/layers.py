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
