"""Optimized models against programs that nobody wrote."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import CHANNELS, Program, layers, steps

import convx
from convx.optimize import optimizing


@pytest.mark.slow
@pytest.mark.parametrize("fallback", [False, True], ids=["as it comes", "fused or nothing"])
@given(layers(), steps(), st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_programs(fallback: bool, layers: list[str], program: list[tuple[str, int, int]], seed: int) -> None:
    torch.manual_seed(seed)
    model = Program(layers, program).eval()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            optimizing, "_times", lambda calls, *_: {name: float(i) for i, name in enumerate(calls)}
        )
        patch.setattr(optimizing, "gc", SimpleNamespace(collect=lambda: 0))
        if fallback:  # what the check on the example would have caught is not to be wrong in the first place
            patch.setattr(optimizing.Reference, "disagrees", lambda *_: "")
        optimized = convx.optimize(model, torch.randn(1, CHANNELS, 5, 7), layout="as given", tune=False)
    for batch in (1, 3):
        x = torch.randn(batch, CHANNELS, 5, 7)
        exact = copy.deepcopy(model).double()(x.double())
        for own, reached, true in zip(model(x), optimized(x), exact, strict=True):
            allowed = 2 * (own - true).norm() + 1e-5 * true.norm() + 1e-12
            assert (reached - true).norm() <= allowed, optimized.network
