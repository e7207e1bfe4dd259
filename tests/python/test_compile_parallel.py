"""torch.compile(model, backend="convx"): convolutions of the same images whose results are added are one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compiled import (
    agrees,
    all_by_convx,
    compiled,
    follows,
    fresh,
    gradients_agree,
    in_parts,
    without_inductor,
)
from compiled_blocks import seen
from optimized import distance, image
from test_optimize_parallel import APART, SUMS, conv, model_of, norm, of_layers
from torch import nn

from convx.compile import planning
from convx.compile.rewriting import Row
from convx.compile.watch import CompiledGraph

__all__ = ["all_by_convx", "fresh", "seen", "without_inductor"]

Seen = list[CompiledGraph]


def rows_of(seen: Seen) -> list[tuple[Row, ...]]:
    return [each.rewritten.rows for each in seen]


@in_parts
@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SUMS)
def test_sums_are_one_convolution(
    name: str, dtype: torch.dtype, layout: str, seen: Seen, device: str
) -> None:
    model = SUMS[name]().to(device, dtype)
    with torch.no_grad():
        agrees(compiled(model, fullgraph=True), model, image(device, dtype, layout))
    (rows,) = rows_of(seen)
    layers = [each for each in model.modules() if isinstance(each, nn.Conv2d)]
    first, *others = sorted(rows, key=lambda row: row.within)
    assert len(rows) == len(layers) and all(row.within == first.name for row in others)
    # A scale of channels, which comes between, is inductor's.
    assert first.fused == (("parallel layers",) if name == "difference" else ("parallel layers", "relu"))
    assert all(row.fused == ("parallel layers",) for row in others)
    largest = max(layers, key=lambda each: each.kernel_size[0] * each.kernel_size[1])
    assert first.weight == id(largest.weight)


@in_parts
@pytest.mark.parametrize("name", APART)
def test_others_are_left(name: str, seen: Seen) -> None:
    model = APART[name]()
    with torch.no_grad():
        agrees(compiled(model, fullgraph=True), model, image())
    (rows,) = rows_of(seen)
    assert len(rows) == sum(isinstance(each, nn.Conv2d) for each in model.modules())
    assert not any(row.within or "parallel layers" in row.fused for row in rows)


@in_parts
@pytest.mark.parametrize("name", ["dense", "four"])
def test_training_is_left_as_it_is(name: str, seen: Seen) -> None:
    """And merged where nothing is trained."""
    model = SUMS[name]()
    call = compiled(model, fullgraph=True)
    gradients_agree(call, model.train(), image())
    gradients_agree(call, model.eval(), image())
    assert not any("parallel layers" in row.fused for rows in rows_of(seen) for row in rows)
    model.requires_grad_(False)
    agrees(call, model, image())
    assert "parallel layers" in rows_of(seen)[-1][0].fused


def scaled(model: Any) -> None:
    model.a1[0].weight.mul_(2)


def moved(model: Any) -> None:
    model.a2.running_mean.add_(1)


def loaded(model: Any) -> None:
    model.load_state_dict(SUMS["dense"]().state_dict())


def stepped(model: Any) -> None:
    for each in model.parameters():
        each.grad = torch.ones_like(each)
    torch.optim.SGD(model.parameters(), lr=0.1).step()


@in_parts
@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("change", [scaled, moved, loaded, stepped], ids=lambda change: change.__name__)
def test_weights_that_change(
    change: Callable[[Any], None], packs: bool, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum of filters is made anew, and packed anew where a kernel has it so."""
    if packs:
        monkeypatch.setattr(planning, "PACKED_ON", ("cpu", "cuda"))
    model, x = SUMS["dense"](), image()
    call = compiled(model)
    follows(call, model, x, change, 0.001)
    makings = seen[0].rewritten.makings
    assert [type(each).__name__ for each in makings] == ["Folding"] + ["Packing"] * packs


@in_parts
def test_sums_one_after_another(seen: Seen) -> None:
    """What is in one sum is read by the next, and all are of one batch after another."""
    stages = [model_of(of_layers, conv(1), conv(3), norm()) for _ in range(3)]
    model = nn.Sequential(*stages).eval()
    call = compiled(model, fullgraph=True)
    with torch.no_grad():
        for batch in (2, 3, 4):
            agrees(call, model, image(batch=batch))
    for rows in rows_of(seen):
        assert [row.fused for row in rows if not row.within] == 3 * [("parallel layers", "relu")]
    assert len(seen) == 2


@in_parts
def test_autocast(seen: Seen) -> None:
    """A sum of bfloat16 alone; a norm of the images themselves is of float32 there."""
    models = [SUMS["four"](), SUMS["dense"]()]
    x = image()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for model in models:
            own, reached = model(x), compiled(model)(x)
            with torch.autocast("cpu", enabled=False):
                exact = copy.deepcopy(model).double()(x.double())
            assert reached.dtype == own.dtype and distance(reached, exact) <= 2 * distance(own, exact)
    assert ["parallel layers" in rows[0].fused for rows in rows_of(seen)] == [True, False]


@in_parts
def test_weights_that_nobody_could_keep(seen: Seen) -> None:
    """Each is run by itself: their sum would be made at each call."""
    with torch.inference_mode():
        model = SUMS["dense"]()
        agrees(compiled(model), model, image())
    assert not any("parallel layers" in row.fused for row in rows_of(seen)[0])


@pytest.mark.slow
def test_inductor(seen: Seen) -> None:
    """As it comes, by what the planner takes."""
    model, x = (
        nn.Sequential(*(model_of(of_layers, conv(3), conv(1), norm()) for _ in range(2))).eval(),
        image(),
    )
    call = compiled(model, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            agrees(call, model, x)
            for each in model.parameters():
                each.mul_(1.2)
    assert sum("parallel layers" in row.fused for row in rows_of(seen)[0]) == 4


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_modes_gpu(dtype: torch.dtype, mode: str, seen: Seen, all_by_convx: None) -> None:
    """CUDA graphs read the sum of filters where it is: replays see weights that have changed."""
    model = nn.Sequential(*(model_of(of_layers, conv(3), conv(1), norm()) for _ in range(2)))
    model.eval().to("cuda", dtype)
    call = compiled(model, mode=mode)
    with torch.no_grad():
        for step in range(6):
            if step == 4:
                model[1].a0[0].weight.mul_(2)  # type: ignore[index,union-attr,operator]
            agrees(lambda x: call(x).clone(), model, image("cuda", dtype))
    assert all("parallel layers" in row.fused for row in rows_of(seen)[0])
