"""convx.optimize: a copy of a model that runs as fast as convx can make it, for inference.

The model is followed by torch.fx (graph.py), what comes behind each convolution goes into its layer (fuse.py,
layers.py). On GPUs the whole is a CUDA graph (cuda_graphs.py), on CPUs convolutions that follow one another
are one call (cpu_programs.py). Where there is something to gain by it
(worth.py), the network is compiled (compiled.py) and held against that.
"""

from __future__ import annotations

from convx.optimize.model import OptimizedModel
from convx.optimize.optimizing import optimize
from convx.optimize.report import FusionReport, OptimizationReport

__all__ = ["FusionReport", "OptimizationReport", "OptimizedModel", "optimize"]
