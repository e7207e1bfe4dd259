"""Fast convolutions for PyTorch where the stock libraries are weak.

>>> import torch, convx
>>> x, w = torch.randn(1, 32, 56, 56), torch.randn(32, 1, 3, 3)
>>> y = convx.functional.conv2d(x, w, padding=1, groups=32, activation="relu6")
>>> model = torch.nn.Sequential(torch.nn.Conv2d(32, 32, 3, padding=1, groups=32))
>>> report = convx.convert_(model)  # print(report) shows what became of each layer

`python -m convx info` shows what is installed and what runs where.
"""

from __future__ import annotations

from convx import _libraries, functional, nn
from convx._errors import InvalidArgument
from convx.compile import register as _register_backend
from convx.convert import ConversionReport, convert_, revert_
from convx.dispatch.packed import constant_filters
from convx.explain import Explanation, explain, explain_filter2d
from convx.optimize import OptimizationReport, OptimizedModel, optimize
from convx.tune import TuningReport, tune
from convx.tune.first_call import register as _register_first_call
from convx.tune.records import load as _load_records

__version__ = "0.1.0"
__all__ = [
    "ConversionReport",
    "Explanation",
    "InvalidArgument",
    "OptimizationReport",
    "OptimizedModel",
    "TuningReport",
    "constant_filters",
    "convert_",
    "explain",
    "explain_filter2d",
    "functional",
    "methods",
    "nn",
    "optimize",
    "revert_",
    "tune",
]

_load_records()
_register_first_call()
_register_backend()


def methods() -> list[dict[str, str]]:
    """The methods of convolution, in the order they are asked: [{"name": ..., "summary": ...}, ...].

    The last, "native", is torch's own convolution, which can run everything, and its matrix products.

    >>> import convx
    >>> [row["name"] for row in convx.methods()][-1]
    'native'
    """
    rows: list[dict[str, str]] = _libraries.core().methods()
    return rows
