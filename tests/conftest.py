"""What every test shares: the gpu marker, turns of slow tests, and one seed."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# benchmarks/ and build_tools/ are not installed. Last, so that the source tree hides no installed convx.
sys.path.append(str(Path(__file__).resolve().parent.parent))
from build_tools import turns

# `make test` takes the same examples every time; pytest by itself tries others in every run.
settings.register_profile("repeatable", derandomize=True)

# Read when convx is imported: tuning records of whoever runs the tests would change what auto takes.
_cache = tempfile.TemporaryDirectory(prefix="convx-tests-")
os.environ["CONVX_CACHE_DIR"] = _cache.name

# Workers that each take all cores wait for one another. Two threads are left to each: loops stay shared out.
_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if _workers > 1:
    torch.set_num_threads(min(torch.get_num_threads(), max(2, torch.get_num_threads() // _workers)))


def pytest_unconfigure() -> None:
    _cache.cleanup()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--turn", type=turns.turn, help=f"of slow tests, {turns.HELP}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (turn := config.getoption("turn")) is not None:
        taken = {item: _takes(item, turn) for item in items}
        config.hook.pytest_deselected(items=[item for item in items if not taken[item]])
        items[:] = [item for item in items if taken[item]]
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a GPU that torch can use: torch.cuda.is_available() is False")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


def _takes(item: pytest.Item, turn: turns.Turn) -> bool:
    """Whether it is this slow test's turn; that of others it always is. What is compiled for several tests is
    so in one turn: the marker has the name of their group, or that of the parameter that has it."""
    mark = item.get_closest_marker("slow")
    if mark is None:
        return True
    group = mark.args[0] if mark.args else item.nodeid
    if "by" in mark.kwargs:
        group = item.callspec.params[mark.kwargs["by"]]  # type: ignore[attr-defined]
    return turn.has(str(group))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> None:
    """What is there by now, imported modules above all, is gone through by no collection any more: those that
    convx makes, before it takes times, would be much of the tests' time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)
