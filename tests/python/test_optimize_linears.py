"""Linear layers of matrices as convolutions of single pixels, which optimize makes of them on GPUs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from optimized import fused_is_the_fastest
from torch import Tensor, nn
from torch.fx.passes.shape_prop import ShapeProp

import convx
from convx import _planning
from convx.optimize import linears
from convx.optimize.layers import FusedConv2d
from convx.optimize.linears import take_linears

__all__ = ["fused_is_the_fastest"]


class Classifier(nn.Module):
    """Linear layers in a row, one that is called twice, one of something else than a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.wide = nn.Linear(16, 24)
        self.same = nn.Linear(24, 24, bias=False)
        self.rows = nn.Linear(6, 6)
        self.last = nn.Linear(24, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv(self.rows(x))).mean((2, 3))
        x = nn.functional.hardswish(self.wide(x))
        return self.last(input=self.same(self.same(x)) + x)  # type: ignore[no-any-return]


def test_results_and_weights_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linears, "_has_kernel", lambda *_: True)
    model, x = Classifier().eval(), torch.randn(3, 3, 5, 6)
    state = {name: each.clone() for name, each in model.state_dict().items()}
    module = torch.fx.symbolic_trace(model)
    ShapeProp(module).propagate(x)
    take_linears(module)
    torch.testing.assert_close(module(x), model(x))
    assert module(x[:0]).shape == (0, 12)
    made = [each for each in module.modules() if isinstance(each, FusedConv2d)]
    assert len(made) == 4, "one of them for each call of the layer that is called twice"
    assert [type(each) for each in module.modules()].count(nn.Linear) == 1
    assert all(torch.equal(state[name], each) for name, each in model.state_dict().items())


def test_which_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """What GPUs have a kernel for that shares out the channels, and no large weights."""
    known = _planning.core().Device.known_device("h200")
    monkeypatch.setattr(_planning, "device", lambda where: known)

    def is_taken(rows: int, channels: int, classes: int, dtype: torch.dtype = torch.float32) -> bool:
        return linears._has_kernel(nn.Linear(channels, classes, dtype=dtype, device="meta"), rows)

    assert is_taken(1, 1280, 1000) and is_taken(64, 1280, 1000, torch.bfloat16) and is_taken(1, 4096, 1000)
    assert not is_taken(1, 1280, 10), "results in no whole pieces"
    assert not is_taken(1, 1282, 1000, torch.float16) and not is_taken(0, 1280, 1000)
    assert not is_taken(1, 25088, 4096) and not is_taken(5000, 1280, 1000)
    assert not is_taken(1, 1280, 1000, torch.float64)
    monkeypatch.undo()
    assert not linears._has_kernel(nn.Linear(64, 64), 1), "on a CPU"


@pytest.mark.gpu
@pytest.mark.usefixtures("fused_is_the_fastest")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_classifiers_on_a_gpu(dtype: torch.dtype) -> None:
    """Where means are the kernel's too: other batches, a wrong size."""
    model: Any = Classifier().eval().cuda().to(dtype)
    x = torch.randn(4, 3, 32, 6, device="cuda", dtype=dtype)
    optimized = convx.optimize(model, x)
    names = {row.name for row in optimized.report.rows}
    assert {"wide", "last"} <= names
    for batch in (4, 1, 7):
        given = torch.randn(batch, 3, 32, 6, device="cuda", dtype=dtype)
        exact = model.double()(given.double())
        own = (model.to(dtype)(given).double() - exact).abs().max()
        assert (optimized(given).double() - exact).abs().max() <= 2 * own + 1e-5
    with pytest.raises(RuntimeError):
        optimized(torch.randn(4, 3, 32, 7, device="cuda", dtype=dtype))
