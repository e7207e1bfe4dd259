"""Sources that the build writes: one for each CPU method and instruction set, one for each launcher and type.

They differ in nothing but names, and are files of their own so that they are compiled side by side. What is
instantiated for CONVX_INSTANCE stands at the end of a launcher, csrc/methods/**/launch.cuh.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CSRC = Path("csrc")
FOLDER = Path("build/generated") / CSRC  # not in git

# Names of element types, or of precisions of matrix units, and what they are in C++.
_CPP = {
    "float32": "float",
    "float64": "double",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "uint8": "uint8_t",
    "tf32": "matrix::kTf32",
    "split": "matrix::kSplit",
}
_PRECISIONS = {"float16": "matrix::kFloat16", "bfloat16": "matrix::kBfloat16"}
_REAL = ("float32", "float64", "float16", "bfloat16")
_SINGLE = ("float32", "float16", "bfloat16")
LAUNCHERS = {
    "cuconv/deep": ("tf32", "split", "float16", "bfloat16"),
    "cuconv/tensor": ("tf32", "split", "float16", "bfloat16"),
    "cuconv/tile": _REAL,
    "depthwise/banded": ("float16", "bfloat16"),
    "depthwise/channels": _SINGLE,
    "depthwise/channels_rolling": _SINGLE,
    "depthwise/channels_weight": _SINGLE,
    "depthwise/direct": _REAL,
    "depthwise/plane_split": _SINGLE,
    "depthwise/strip": _SINGLE,
    "depthwise/strip_weight": _SINGLE,
    "filter2d/general": (*_REAL, "uint8"),
    "filter2d/reuse": (*_SINGLE, "uint8"),
    "filter2d/rotation": (*_REAL, "uint8"),
    "filter2d/strip": (*_SINGLE, "uint8"),
    "hntmp": _REAL,
    "hntmp/forms": ("float32",),
    "hntmp/stem": _SINGLE,
    "hntmp/stem_tensor": ("float16", "bfloat16"),
    "inverted_residual": _SINGLE,
    "inverted_residual/banded": ("float16", "bfloat16"),
    "inverted_residual/excited": ("float16", "bfloat16"),
    "pointwise/deep": ("tf32", "split", "float16", "bfloat16"),
    "pointwise/fma": _REAL,
    "pointwise/shallow": ("float16", "bfloat16"),
    "pointwise/tensor": ("tf32", "split", "float16", "bfloat16"),
    "squeeze_excite": _SINGLE,
}
CPU_METHODS = (
    *("channel_norm", "cuconv", "depthwise", "filter2d", "hntmp", "inverted_residual", "pointwise"),
    *("pooling", "squeeze_excite"),
)
ISAS = ("avx512", "avx2", "baseline")

_LAUNCH = """\
#define CONVX_INSTANCE {instance}
#include "methods/{folder}/launch.cuh"
"""
# The headers of C++ and of the job come first: nothing of theirs may be compiled for one instruction set.
_CPU = """\
#include <immintrin.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "methods/{method}/cpu/job.h"
#include "platform/cpu/memory.h"

#include "platform/cpu/isa_{isa}.h"
#include "methods/{method}/cpu/kernels.h"
{end}"""


def texts() -> dict[Path, str]:
    """Every file by its path in the checkout."""
    found = {}
    for folder, names in LAUNCHERS.items():
        of_precisions = "tf32" in names
        for name in names:
            instance = _PRECISIONS.get(name, _CPP[name]) if of_precisions else _CPP[name]
            path = FOLDER / "methods" / folder / f"launch_{name}.cu"
            found[path] = _LAUNCH.format(instance=instance, folder=folder)
    for method in CPU_METHODS:
        for isa in ISAS:
            end = "" if isa == "baseline" else '#include "platform/cpu/isa_end.h"\n'
            path = FOLDER / "methods" / method / "cpu" / f"cpu_{isa}.cpp"
            found[path] = _CPU.format(method=method, isa=isa, end=end)
    return found


def write() -> list[Path]:
    """Writes those that are missing or say something else; all of them, relative to the checkout."""
    found = texts()
    for path, text in found.items():
        file = ROOT / path
        if file.exists() and file.read_text() == text:
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        # Another process may be compiling the same file.
        whole = file.with_name(f"{file.name}.{os.getpid()}")
        whole.write_text(text)
        whole.replace(file)
    return list(found)
