"""Benchmarks: python -m benchmarks. Records of convx.tune are left out, unless CONVX_CACHE_DIR names some."""

import atexit
import os
import shutil
import tempfile

if "CONVX_CACHE_DIR" not in os.environ:  # read when convx is imported
    os.environ["CONVX_CACHE_DIR"] = tempfile.mkdtemp(prefix="convx-benchmarks-")
    atexit.register(shutil.rmtree, os.environ["CONVX_CACHE_DIR"], ignore_errors=True)
