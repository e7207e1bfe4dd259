"""Optimized and converted models in torch.export and AOTInductor: what other processes load has operators
and weights alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from block_kernels import kernels_are_the_fastest
from optimized import LAYOUTS, Model, distance, fused_is_the_fastest
from processes import run_python
from test_optimize_blocks import as_mobile, excited, layer, residual, three
from torch import Tensor, nn
from torch.export import ExportedProgram
from tuned import own_folder

import convx
from convx._blocks import Block

__all__ = ["fused_is_the_fastest", "kernels_are_the_fastest", "own_folder"]


def squeeze_excite(model: Any, x: Tensor) -> Tensor:
    wide = model.first(x)
    gates = model.excite(F.silu(model.squeeze(F.adaptive_avg_pool2d(wide, 1))))
    return wide * torch.sigmoid(gates)  # type: ignore[no-any-return]


def excited_alone() -> Model:
    layers = {"squeeze": nn.Conv2d(16, 8, 1), "excite": nn.Conv2d(8, 16, 1)}
    return Model(squeeze_excite, first=layer(16, 16, 5, nn.Hardswish, groups=16), **layers)


MODELS: dict[str, Callable[[], Model]] = {
    "residual": lambda: Model(residual, **three()),
    "excited residual": lambda: Model(as_mobile, **excited()),
    "excited alone": excited_alone,
}
ANY_BATCH = (({0: torch.export.Dim("batch", min=1, max=64)},),)
LOAD = """
import sys, torch, convx
torch.backends.cudnn.allow_tf32 = False
for path in sys.argv[1:]:
    is_package = path.endswith(".aoti.pt2")
    run = torch._inductor.aoti_load_package(path) if is_package else torch.export.load(path).module()
    for x, expected in torch.load(f"{path}.calls"):
        result = run(x)
        assert result.stride() == expected.stride(), (path, result.stride())
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    print(path)
"""
TORCHS_OWN = """
import sys, torch
device, path = sys.argv[1:]
model, x = torch.nn.Conv2d(2, 2, 1).to(device), torch.zeros(1, 2, 8, 8, device=device)
with torch.no_grad():
    program = torch.export.export(model, (x,))
torch._inductor.aoti_compile_and_package(program, package_path=path)
torch._inductor.aoti_load_package(path)
"""


def image(device: str = "cpu", layout: str = "channels_last", batch: int = 2) -> Tensor:
    return torch.randn(batch, 16, 12, 13, device=device).contiguous(memory_format=LAYOUTS[layout])


def targets(program: ExportedProgram) -> set[str]:
    return {str(node.target) for node in program.graph.nodes if node.op == "call_function"}


def exported(model: nn.Module, x: Tensor, **options: Any) -> ExportedProgram:
    """With convx's operators and the model's parameters alone, and nothing said of side effects."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*side effects")
        program = torch.export.export(model, (x,), **options)
    for each in (program, program.run_decompositions()):
        names = {name for name in targets(each) if "conv" in name or "norm" in name}
        assert names == {"convx.conv2d.default"}
        assert not each.constants and each.state_dict.keys() == model.state_dict().keys()
    return program


def close(reached: Tensor, expected: Tensor) -> None:
    assert reached.stride() == expected.stride() and distance(reached, expected) < 2e-6


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("given", "inside"), [("nchw", "nchw"), ("nchw", "channels_last"), ("channels_last", "channels_last")]
)
@pytest.mark.parametrize("name", MODELS)
def test_export(name: str, given: str, inside: str, strict: bool, device: str) -> None:
    x = image(device, given)
    optimized = convx.optimize(MODELS[name]().to(device), x, layout=inside)
    program = exported(optimized, x, strict=strict, dynamic_shapes=ANY_BATCH)
    for batch in (1, 2, 5):
        other = image(device, given, batch)
        close(program.module()(other), optimized(other))
    close(program.run_decompositions().module()(x), optimized(x))


@pytest.mark.usefixtures("kernels_are_the_fastest", "own_folder")
@pytest.mark.parametrize("name", MODELS)
def test_blocks_are_their_layers(name: str) -> None:
    """Kernels of whole blocks, and what they have packed, are of this machine."""
    x = image()
    optimized = convx.optimize(MODELS[name](), x)
    expected = optimized(x)
    block = next(each for each in optimized.modules() if isinstance(each, Block))
    assert block.prepared_call(x) is not None
    for strict in (False, True):
        close(exported(optimized, x, strict=strict).module()(x), expected)
        assert torch.equal(optimized(x), expected)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_residuals_of_other_shapes(after: bool, strict: bool, device: str) -> None:
    """Which the operator does not add: the call that it refuses is not in the program."""

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(16, 16, 3, padding="same")

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return F.relu(self.conv(x)) + y if after else F.relu(self.conv(x) + y)

    x, y = image(device), image(device)
    optimized = convx.optimize(Sum().to(device), (x, y))
    for skip, is_added_apart in ((y, False), (y[:1], True)):
        program = torch.export.export(optimized, (x, skip), strict=strict)
        close(program.module()(x, skip), optimized(x, skip))
        assert ("aten.add.Tensor" in targets(program)) == is_added_apart


@pytest.mark.slow
@pytest.mark.usefixtures("kernels_are_the_fastest", "own_folder")
@torch.compiler.config.patch(force_disable_caches=True)  # not what another checkout has compiled
def test_another_process_loads_them(tmp_path: Path, device: str) -> None:
    """As programs and as AOTInductor's packages."""
    x = image(device, "nchw")
    optimized = convx.optimize(MODELS["excited residual"]().to(device), x, layout="channels_last")
    converted = nn.Sequential(nn.Conv2d(16, 16, 3, groups=16), nn.ReLU6(), nn.Conv2d(16, 8, 1)).to(device)
    convx.convert_(converted.eval().requires_grad_(False))
    paths = []
    for name, model, batches in (("optimized", optimized, (2, 1, 5)), ("converted", converted, (2,))):
        program = exported(model, x, dynamic_shapes=ANY_BATCH if len(batches) > 1 else None)
        inputs = [image(device, "nchw", batch) for batch in batches]
        made = [str(tmp_path / f"{name}.pt2"), str(tmp_path / f"{name}.aoti.pt2")]
        torch.export.save(program, made[0])
        torch._inductor.aoti_compile_and_package(program, package_path=made[1])
        for path in made:
            torch.save([(each, model(each)) for each in inputs], f"{path}.calls")
        paths += made
    done = run_python(LOAD, *paths)
    if done.returncode < 0 and run_python(TORCHS_OWN, device, str(tmp_path / "own.pt2")).returncode < 0:
        pytest.skip("this torch crashes when it loads a package, of its own layers and without convx too")
    assert done.stdout.split() == paths, done.stderr[-3000:]
