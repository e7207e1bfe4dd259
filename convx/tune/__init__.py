"""Measuring every way to run a convolution, and keeping the fastest: convx.tune.

>>> import torch, convx
>>> layer = convx.nn.Conv2d(8, 8, 3, padding=1, groups=8)
>>> report = convx.tune(layer, torch.randn(1, 8, 14, 14), rounds=2, progress=False)
>>> len(report.rows)
1
"""

from __future__ import annotations

from convx.tune.records import forget, load
from convx.tune.tuning import TunedProblem, TuningReport, tune

__all__ = ["TunedProblem", "TuningReport", "forget", "load", "tune"]
