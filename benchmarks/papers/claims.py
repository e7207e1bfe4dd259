"""What the papers report: numbers with their places, times in microseconds on the papers' own hardware."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CuconvLayer:
    """One configuration of cuConv's tables 3 to 5."""

    table: str
    label: str  # side-batch-filter-filters-channels
    case: str  # of the suite small_batch
    batch: int
    cudnn: str  # the fastest of cuDNN's algorithms in that table
    cudnn_us: float
    products_us: float  # the kernel scalar_prods
    sum_us: float | None  # the kernel sum, which 1x1 filters do without

    @property
    def us(self) -> float:
        return self.products_us + (self.sum_us or 0)


CUCONV_HARDWARE = "NVIDIA Tesla V100-SXM2, CUDA 9.2, cuDNN 7.1"
CUCONV = (
    CuconvLayer("3", "7-1-1-256-832", "C832-7-1x1-256", 1, "GEMM implicit precomp.", 107.29, 58.56, None),
    CuconvLayer("3", "14-1-1-1024-256", "C256-14-1x1-1024", 1, "GEMM implicit precomp.", 45.23, 73.86, None),
    CuconvLayer("3", "27-1-1-256-64", "C64-27-1x1-256", 1, "GEMM implicit", 19.20, 22.53, None),
    CuconvLayer("4", "7-1-3-384-192", "C192-7-3x3-384", 1, "Winograd non-fused", 105.63, 52.86, 4.93),
    CuconvLayer("4", "13-1-3-384-384", "C384-13-3x3-384", 1, "Winograd", 232.35, 461.37, 5.31),
    CuconvLayer("5", "7-1-5-128-48", "C48-7-5x5-128", 1, "Winograd non-fused", 74.80, 16.80, 5.70),
    CuconvLayer("5", "7-8-5-128-48", "C48-7-5x5-128", 8, "Winograd non-fused", 76.58, 107.58, 9.02),
)
# Table 1: its layers of stride 1 by side of the filter, of its counts and its shares in percent (57.2, 23.8
# and 19 of GoogLeNet's 42, 71.4 and 28.6 of 21, 75 and 25 of 4, 66.7 and 33.3 of 12, 100 of 9).
CUCONV_LAYERS = {
    "GoogLeNet": {1: 24, 3: 10, 5: 8},
    "SqueezeNet": {1: 15, 3: 6},
    "AlexNet": {3: 3, 5: 1},
    "ResNet-50": {1: 8, 3: 4},
    "VGG19": {3: 9},
}
CUCONV_BATCHES = (1, 8, 16, 32, 64, 128, 256)
CUCONV_1X1_SHARE = 0.523  # of the configurations that it tested (section 4.1)
# Section 4.1: over the fastest of cuDNN's algorithms at one image; for 3x3 it names no mean.
CUCONV_MEAN = {1: 1.23, 5: 1.36}
CUCONV_MOST = {1: 2.29, 5: 1.97}
CUCONV_FASTER = 0.0831  # of all configurations, batches up to 256
CUCONV_FASTER_COUNT = 50  # of which "almost all" are of one image
CUCONV_FASTER_MEAN = 1.46  # on those
CUCONV_3X3_FASTER = 3  # layers at one image: its figure 6, all but "the three leftmost" equal or slower

HNTMP_HARDWARE = "Arm Mali-G76 MP10"
# Section 5.1: times of others over HNTMP's.
HNTMP_SPEEDUP = {"im2col": 14.6, "libdnn": 3.1, "Winograd F(2,3)": 10.7, "direct": 2.1}
# Table 1: how many 3x3 layers of so many channels a network has, on maps of 56, 28, 14 and 7 a side; what it
# prints where that can't be: 2x4 of 512 channels for ResNet-34, which has three blocks of two.
HNTMP_MISPRINTS = {("ResNet-34", 512): 8}
HNTMP_LAYERS = {
    "ResNet-18": {64: 4, 128: 4, 256: 4, 512: 4},
    "ResNet-34": {64: 6, 128: 8, 256: 12, 512: 6},
    "ResNet-50": {64: 3, 128: 4, 256: 6, 512: 3},
    "ResNet-101": {64: 3, 128: 4, 256: 23, 512: 3},
    "ResNet-152": {64: 3, 128: 8, 256: 36, 512: 3},
}
# Table 3, the 256x14x14 layer on an AMD Vega 8: algorithm, kernel, threads, bytes of shared memory, vector
# and scalar registers, use of the vector units in percent, kilobytes read and written, flat memory
# instructions of a thread.
HNTMP_PROFILE = (
    ("im2col", "im2col", "196x128", 0, "15+17", 94.4, "102+893", 18),
    ("im2col", "sgemm", "32x256", 4224, "35+25", 92.65, "10182+98", 1156),
    ("libdnn", "conv", "8x256", 4480, "75+26", 86.54, "9342+98", 2320),
    ("Winograd", "filters and input", "512x64", 1408, "50+19", 80.99, "102+513", 19),
    ("Winograd", "sgemm, one of 16", "16x256", 4224, "35+25", 95.73, "1065+32", 98),
    ("Winograd", "output", "128x256", 0, "38+19", 100, "517+98", 18),
    ("direct", "conv", "32x64", 640, "118+27", 98.53, "9627+98", 18704),
    ("HNTMP", "conv", "32x64", 640, "103+31", 97.32, "9331+98", 4944),
)

SEPARABLE_HARDWARE = "Hygon DCU Z100SM, 64 compute units, 1 TB/s"
# Batch: theirs, baseline, average speedup, which is of layers and not of these means. Tables 5 and 6: kernels
# and the fastest of MIOpen's algorithms; 7 and 8: modules and PyTorch's. Over D1-D30 and P1-P45.
DEPTHWISE_KERNELS = {
    1: (52.88, 173.59, 3.32),
    8: (81.83, 283.82, 3.47),
    16: (113.82, 387.94, 3.59),
    32: (183.84, 606.12, 3.44),
    64: (279.16, 782.29, 3.35),
}
POINTWISE_KERNELS = {
    1: (94.55, 332.32, 3.54),
    8: (160.96, 366.22, 2.48),
    16: (232.26, 300.86, 1.49),
    32: (349.77, 371.69, 1.31),
    64: (626.09, 449.29, 0.9),
}
DEPTHWISE_MODULES = {
    1: (68.52, 118.87, 1.73),
    8: (76.66, 230.21, 2.92),
    16: (90.88, 353.04, 3.7),
    32: (126.09, 598.39, 4.54),
    64: (202.65, 786.51, 4.49),
}
POINTWISE_MODULES = {
    1: (78.45, 140.21, 1.78),
    8: (115.74, 145.06, 1.33),
    16: (165.80, 166.84, 1.11),
    32: (260.97, 202.99, 0.9),
    64: (461.68, 300.53, 0.76),
}
# Table 9, milliseconds at one image and speedups: the baseline's time, then with depthwise layers replaced,
# with pointwise layers replaced, and with both.
NETWORKS_MS = {
    "EfficientNet-B0": (5.43, (4.54, 1.20), (3.70, 1.47), (3.17, 1.71)),
    "MnasNet": (5.59, (4.71, 1.19), (3.79, 1.48), (2.89, 1.94)),
    "MobileNetV2": (5.74, (4.87, 1.18), (3.86, 1.49), (2.97, 1.93)),
    "ShuffleNetV2": (5.89, (4.99, 1.18), (3.91, 1.51), (2.98, 1.98)),
}

REUSE_HARDWARE = "NVIDIA RTX 2080 Ti, CUDA 10.2, cuDNN 7.6.4"
# Section on single-channel convolution: mean speedups over im2col, images of 256 to 4096 a side.
FILTER_OVER_IM2COL = {"cuDNN's fastest": 1.09, "ArrayFire": 2.2, "NPP": 4.9, "column and row reuse": 6.5}
FILTER_OVER_IM2COL_BY_SIZE = {3: 5.4, 5: 7.7}
FILTER_OVER_NPP = {3: 1.3, 5: 1.28}
# It is the fastest of all on 6 of the 10 images and filters: on the large ones, NPP on the small; the turning
# point that it names for 3x3 is an image of 1024 a side.
FILTER_FASTEST = (6, 10)
FILTER_TURN = 1024
# Table 2dmemtrans, commented out in its source: read transactions of its kernels, by filter and image.
TRANSACTIONS_HARDWARE = "NVIDIA Tesla K40m"
FILTER_TRANSACTIONS = {
    3: {256: 7500, 512: 27000, 1024: 110000, 2048: 420000, 4096: 1600000},
    5: {256: 10000, 512: 33000, 1024: 130000, 2048: 490000, 4096: 1900000},
}
# The same table's other rows, of all memories together, textures and shared memory too. That of im2col has
# as many at 1024 a side as at 512 for 3x3, which can't be.
OTHERS_TRANSACTIONS = {
    "cuDNN": {
        3: {256: 6.0e5, 512: 2.4e6, 1024: 9.7e6, 2048: 3.9e7, 4096: 1.5e8},
        5: {256: 1.4e6, 512: 5.6e6, 1024: 2.2e7, 2048: 8.9e7, 4096: 3.6e8},
    },
    "im2col": {
        3: {256: 1.1e5, 512: 4.4e5, 1024: 4.4e5, 2048: 7.0e6, 4096: 2.8e7},
        5: {256: 2.3e5, 512: 9.3e5, 1024: 3.7e6, 2048: 1.5e7, 4096: 6.0e7},
    },
    "ArrayFire": {
        3: {256: 4.9e4, 512: 2.0e5, 1024: 7.9e5, 2048: 3.2e6, 4096: 1.3e7},
        5: {256: 1.1e5, 512: 4.2e5, 1024: 1.7e6, 2048: 6.8e6, 4096: 2.7e7},
    },
    "NPP": {
        3: {256: 6.0e4, 512: 2.4e5, 1024: 9.6e5, 2048: 3.8e6, 4096: 1.5e7},
        5: {256: 1.3e5, 512: 5.2e5, 1024: 2.1e6, 2048: 8.3e6, 4096: 3.3e7},
    },
}
# Section on depthwise convolution, CONV1-13 at 512 images: mean speedups over a direct kernel without reuse,
# and over cuDNN's fastest algorithm (the most in brackets there).
DEPTHWISE_OVER_DIRECT = {3: 4.5, 5: 7.6}
CUDNN_OVER_DIRECT = {3: 2.8, 5: 1.8}  # of its algorithms the implicit one, the fastest in all cases there
DEPTHWISE_OVER_CUDNN = {3: (1.5, 2.0), 5: (4.0, 4.5)}
