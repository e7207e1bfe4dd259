"""convx.optimize: a copy of a model that runs as fast as convx can make it, for inference.

The model is followed by torch.fx (graph.py; branches.py decides what depends on sizes). Linear layers and
norms of images with their channels last are taken for layers of images (permutes.py), what comes before and
behind each convolution goes into its layer (constants.py, pads.py, fuse.py, layers.py), layers into blocks
(blocks.py), means of planes into one layer, pooling without the places of what it finds (pools.py).
On GPUs classifiers are convolutions too (linears.py), and the whole is a CUDA graph (cuda_graphs.py),
on CPUs layers, pooling and moves of channels (moves.py) that follow one another are one call
(cpu_programs.py). The network is timed in each layout (layouts.py), and in stretches of either (cuts.py,
stretches.py) where its layers' times promise something by that. Where there is something to gain by it
(worth.py), it is compiled (compiled.py) and held against that.
"""

from __future__ import annotations

from convx.optimize.model import OptimizedModel
from convx.optimize.optimizing import optimize
from convx.optimize.report import FusionReport, OptimizationReport

__all__ = ["FusionReport", "OptimizationReport", "OptimizedModel", "optimize"]
