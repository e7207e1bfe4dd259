"""convx.optimize of models that torch.fx can't follow as a whole, and of what it follows by and by."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from optimized import Model, block, distance, fused, fused_is_the_fastest, image
from torch import Tensor, nn

import convx
from convx.optimize import cuda_graphs, optimizing
from convx.optimize.graph import Reader, trace
from convx.optimize.inputs import Inputs
from convx.optimize.parts import Served

__all__ = ["fused_is_the_fastest"]
WHOLE = ("batch norm", "relu")


def by_values(own: Any, x: Tensor) -> list[Tensor]:
    """As a detector: features, what is chosen of them by values, and more layers for that."""
    features = own.backbone(x)
    kept = features.mean((1, 2, 3)) > features.mean() - 1
    if not kept.any():
        return []
    return [own.single(own.head(features[kept])), features]


def detector(device: str) -> nn.Module:
    backbone = nn.Sequential(block(), block())
    return Model(by_values, backbone=backbone, head=block(), single=nn.Conv2d(12, 4, 1)).eval().to(device)


def agree(optimized: nn.Module, model: nn.Module, x: Tensor) -> bool:
    exact = copy.deepcopy(model).double()(x.double())
    return all(
        distance(one, right) <= 2 * distance(own, right) + 1e-6
        for one, own, right in zip(optimized(x), model(x), exact, strict=True)
    )


def test_parts_are_fused_and_told_by_the_models_names(device: str) -> None:
    model, x = detector(device), image(device)
    optimized = convx.optimize(model, x)
    report = optimized.report
    assert report is not None
    assert [row.name for row in report.rows] == ["backbone.0.0", "backbone.1.0", "head.0", "single"]
    assert fused(optimized) == [WHOLE, WHOLE, WHOLE, ()] and not report.left
    why = "layers are run one by one but for backbone, head: TraceError: symbolically traced"
    assert report.reason.startswith(why) and "backbone.1.0" in str(report)
    assert f"parts are fused: {why}" in str(report)
    assert report.optimized_error <= 2 * report.native_error + 1e-6
    for other in (x, x[:1], x[..., :9]):
        assert agree(optimized, model, other)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_have_the_parts(again: Any) -> None:
    model, x = detector("cpu"), image()
    made = again(convx.optimize(model, x))
    assert sum(isinstance(each, Served) for each in made.modules()) == 2 and agree(made, model, x)


@pytest.mark.gpu
def test_parts_before_the_choice_are_replayed() -> None:
    """Those behind it meet other sizes with each input."""
    model, x = detector("cuda"), image("cuda")
    optimized = convx.optimize(model, x)
    assert optimized.report is not None and optimized.report.cuda_graphs
    parts = {name: each for name, each in optimized.network.named_children() if isinstance(each, Served)}
    assert {name for name, each in parts.items() if len(each.by.graphs)} == {"backbone"}  # type: ignore[arg-type]


def test_parts_that_gain_nothing_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizing, "_times", lambda calls, *_: dict.fromkeys(calls, 1.0))
    optimized = convx.optimize(detector("cpu"), image())
    assert not any(isinstance(each, Served) for each in optimized.modules())
    assert optimized.report is not None and "but for" not in optimized.report.reason
    assert [row.name for row in optimized.report.rows] == ["backbone.0.0", "backbone.1.0", "head.0", "single"]


def test_a_wrong_part_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it changes no result."""

    def nothing(own: Any, x: Tensor) -> list[Tensor]:
        return [] if float(own.backbone(x).sum()) < float("inf") else [x]

    found = optimizing._found

    def wrong(*args: Any) -> Any:
        made = found(*args)
        if isinstance(args[0], nn.Sequential):
            made.model.network.get_submodule("0").weight.mul_(1.01)
        return made

    monkeypatch.setattr(optimizing, "_found", wrong)
    with pytest.raises(RuntimeError, match="not used: backbone: its error on the example"):
        convx.optimize(Model(nothing, backbone=block()), image())


@pytest.mark.gpu
def test_sizes_that_depend_on_values_are_in_no_graph() -> None:
    model = Model(lambda own, x: own.layer(x)[x[:, 0, 0, 0] > 0], layer=block()).eval().cuda()
    x = image("cuda", batch=8)
    optimized = convx.optimize(model, x)
    assert optimized.report is not None and not optimized.report.cuda_graphs and not optimized.report.reason
    assert optimized.report.not_replayed == "it asks for values of tensors"
    for given in (x, -x, x.abs()):
        assert optimized(given).shape == model(given).shape


def test_results_in_an_order_stay_such() -> None:
    model = Model(lambda own, x: OrderedDict(out=own.layer(x), rest=[x]), layer=block()).eval()
    for optimized in (made := convx.optimize(model, image()), pickle.loads(pickle.dumps(made))):
        result = optimized(image())
        assert type(result) is OrderedDict and list(result) == ["out", "rest"]
    assert fused(made) == [WHOLE]


def scaled(own: Any, x: Tensor) -> Tensor:
    """By tensors of sizes, which torchvision's optical flow and boxes have."""
    height, width = x.shape[-2:]
    size = torch.tensor([height, width], dtype=x.dtype, device=x.device)
    return own.layer(x) / torch.sqrt(size.prod() + torch.tensor(2.0))  # type: ignore[no-any-return]


def test_tensors_of_sizes_are_followed(device: str) -> None:
    model = Model(scaled, layer=block()).eval().to(device)
    made = convx.optimize(model, image(device))
    assert fused(made) == [WHOLE] and made.report is not None and not made.report.reason
    assert torch.tensor(3).item() == 3
    for optimized in (made, pickle.loads(pickle.dumps(made))):
        for x in (image(device), image(device)[..., :7]):
            assert distance(optimized(x), model(x)) < 1e-5


def by_way_of_the_cpu(own: Any, x: Tensor) -> Tensor:
    return own.layer(x) + torch.arange(3).repeat(x.shape[-1])[: x.shape[-1]].to(x.device)  # type: ignore[no-any-return]


@pytest.mark.gpu
def test_copies_from_the_cpu_are_in_no_graph() -> None:
    model, x = Model(by_way_of_the_cpu, layer=block()).eval().cuda(), image("cuda")
    made = convx.optimize(model, x)
    report = made.report
    assert report is not None and fused(made) == [WHOLE] and not report.cuda_graphs
    assert report.not_replayed.startswith("RuntimeError: Cannot copy between CPU and CUDA tensors")
    assert f"no CUDA graph: {report.not_replayed}" in str(report) and report.not_replayed in report.to_html()
    for given in (x, x[..., :7]):
        assert distance(made(given), model(given)) < 1e-5


@pytest.mark.gpu
def test_what_no_graph_can_be_made_of_runs_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever torch refuses while it captures."""

    def refused(*_: Any, **__: Any) -> Any:
        raise RuntimeError("not while a graph is captured")

    monkeypatch.setattr(cuda_graphs, "captured", refused)
    model, x = Model(lambda own, x: own.layer(x), layer=block()).eval().cuda(), image("cuda")
    made = convx.optimize(model, x)
    report = made.report
    assert report is not None and fused(made) == [WHOLE] and not report.cuda_graphs
    assert report.not_replayed == "RuntimeError: not while a graph is captured"
    assert distance(made(x), model(x)) < 1e-5


def kept(own: Any, x: Tensor) -> Tensor:
    own.pyramid = [own.layer(x), x]
    return F.avg_pool2d(own.pyramid[0], 2) if x.shape[-1] > 5 else own.pyramid[1]


def test_what_the_model_keeps_for_itself_is_no_tracers() -> None:
    model = Model(kept, layer=block()).eval()
    optimized = pickle.loads(pickle.dumps(convx.optimize(model, image())))
    for x in (image(), image()[..., :4]):
        assert distance(optimized(x), model(x)) < 1e-5


LAYERS = {
    "Conv3d": (nn.Conv3d(12, 12, 3), (2, 12, 5, 6, 7)),
    "BatchNorm3d": (nn.BatchNorm3d(12), (2, 12, 5, 6, 7)),
    "MaxPool3d": (nn.MaxPool3d(2), (2, 12, 5, 6, 7)),
    "Conv1d": (nn.Conv1d(12, 12, 3), (2, 12, 9)),
    "LayerNorm": (nn.LayerNorm(9), (2, 12, 9)),
    "repeat_interleave": (Model(lambda _, x: torch.repeat_interleave(x, 2, dim=0)), (2, 12, 9)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_writing_to_a_layers_result_leaves_nothing_changed(name: str) -> None:
    """So that such networks are replayed as graphs on GPUs."""
    layer, size = LAYERS[name]
    x = torch.randn(size)
    for first, has_effects in ((layer, False), (nn.Identity(), True)):
        module = trace(nn.Sequential(first, nn.ReLU(inplace=True)).eval(), Inputs(layer, (x,), {}), [x])
        assert Reader(module).has_effects() == has_effects
