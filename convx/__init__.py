"""Fast convolutions for PyTorch where the stock libraries are weak."""

from convx import _libraries

__version__ = "0.1.0"

_libraries.load()
