"""torch.compile(model, backend="convx") with inductor, its modes, and CUDA graphs of compiled calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from compiled import (
    Graphs,
    agrees,
    all_by_convx,
    captured,
    compiled,
    fresh,
    gradients_agree,
    graphs,
    in_parts,
    take_all,
    without_inductor,
)
from models import enliven, torchvision_network
from optimized import LAYOUTS, block, image
from torch import nn

import convx
from convx.compile import backend

__all__ = ["all_by_convx", "fresh", "graphs", "without_inductor"]


@pytest.mark.slow
def test_inductor(graphs: Graphs) -> None:
    """As it comes: what the planner wants, and inductor's code around it."""
    network: Any = torchvision_network("mobilenet_v2")
    model, x = network.features[:3], torch.randn(1, 3, 112, 112)
    enliven(model, x)
    call = compiled(model, fullgraph=True)
    with torch.no_grad():
        agrees(call, model, x)
        model[0][0].weight.mul_(2)
        agrees(call, model, x)
    # Inductor's norms round more often than torch's: with AVX2 beyond this bound, whatever the backend.
    has_avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
    gradients_agree(call, model.train(), x, times=8, peer=None if has_avx512 else torch.compile(model))
    inference, training = graphs()
    assert all("batch norm" in each for each in inference)
    # With AVX2 the planner leaves all of them to torch.
    by_convx = {each for each in inference if "torch" not in each}
    assert ("batch norm", "relu6") in by_convx or not has_avx512
    assert len(training) == len(inference)


@pytest.mark.slow
@pytest.mark.usefixtures("all_by_convx")
def test_inductor_with_everything_by_convx() -> None:
    model, x = nn.Sequential(block(), block(groups=12, activation="silu")), image()
    call = compiled(model, dynamic=True)
    gradients_agree(call, model, x, times=8)
    model.eval()
    with torch.no_grad():
        for batch in (1, 4):
            agrees(call, model, image(batch=batch))


@pytest.mark.parametrize(
    "asked, given",
    [
        ({"mode": "default"}, {}),
        ({"mode": "reduce-overhead"}, {"triton.cudagraphs": True}),
        (
            {"options": {"max_autotune": True, "layout-optimization": True}},
            {"max_autotune": True, "layout_optimization": True},
        ),
    ],
)
def test_inductor_is_given_what_was_asked_for(
    asked: Any, given: Any, monkeypatch: pytest.MonkeyPatch, graphs: Graphs
) -> None:
    seen: list[Any] = []

    def compiler(module: Any, examples: Any, config_patches: Any) -> Any:
        seen.append(config_patches)
        return module

    take_all(monkeypatch)
    monkeypatch.setattr(backend, "compile_fx", compiler)
    with torch.no_grad():
        compiled(block().eval(), **asked)(image())
        compiled(block().eval(), **asked)(image(layout="channels_last"))
    # Beside convx's operators, torch's convolutions keep the layout that they are given.
    assert seen == [{"layout_optimization": False, **given}, given]


@pytest.mark.parametrize(
    "asked, message",
    [
        ({"mode": "fastest"}, "Unrecognized mode"),
        ({"options": {"speed": 9}}, "Unexpected optimization option"),
    ],
)
def test_what_inductor_does_not_know_is_refused(asked: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        compiled(block(), **asked)(image())


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_modes_gpu(dtype: torch.dtype, layout: str, mode: str, all_by_convx: None) -> None:
    """CUDA graphs read what is folded where it is: replays see weights that have changed."""
    model = nn.Sequential(block(), block(groups=12, activation="silu")).eval().to("cuda", dtype)
    call = compiled(model, mode=mode)
    with torch.no_grad():
        for step in range(6):
            if step == 4:
                model[0][0].weight.mul_(2)  # type: ignore[index,union-attr,operator]
            x = image("cuda", dtype, layout)
            agrees(lambda x: call(x).clone(), model, x)


@pytest.mark.gpu
def test_training_gpu(all_by_convx: None) -> None:
    model = nn.Sequential(block(), block(groups=12, activation="silu")).cuda()
    for mode in ("default", "reduce-overhead"):
        call = compiled(model, mode=mode)
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            gradients_agree(call, model, image("cuda"), times=8)


@pytest.mark.gpu
@in_parts
def test_a_cuda_graph_of_a_compiled_call_folds_in_the_graph() -> None:
    model, x = block().eval().cuda(), image("cuda")
    call = compiled(model)
    with torch.no_grad():
        graph, output = captured(call, x)
        for _ in range(2):
            model[0].weight.mul_(2)  # type: ignore[union-attr,operator]
            graph.replay()
            agrees(lambda _: output, model, x)
            agrees(call, model, x)


@pytest.mark.gpu
@in_parts
def test_a_cuda_graph_within_constant_filters_reads_what_is_kept() -> None:
    model, x = block().eval().cuda(), image("cuda")
    call = compiled(model)
    with torch.no_grad(), convx.constant_filters():
        graph, output = captured(call, x)
        graph.replay()
        agrees(lambda _: output, model, x)
        before = output.clone()
        model[0].weight.mul_(2)  # type: ignore[union-attr,operator]
        graph.replay()
        assert torch.equal(output, before)
        agrees(call, model, x)
