"""convert_ and revert_: what is swapped, what is left and why, and that nothing else changes."""

from __future__ import annotations

import copy
import io
import json
import pickle
import re
from typing import Any

import pytest
import torch
from models import torchvision_network
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import convx


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Conv2d(4, 8, 1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.5)
        self.row = nn.Conv1d(8, 8, 5, groups=8)

    def forward(self, input: Tensor) -> Tensor:
        hidden = self.drop(self.norm(self.depthwise(self.expand(input))))
        return self.row(hidden.flatten(2))


def depthwise(**options: Any) -> nn.Conv2d:
    return nn.Conv2d(8, 8, 3, padding=1, groups=8, **options)


def reason(module: nn.Module, **options: Any) -> str:
    report = convx.convert_(module, **options)
    assert not report.converted
    (row,) = report.left
    return row.reason


def test_swaps_in_place_and_back() -> None:
    model = Block()
    state = copy.deepcopy(model.state_dict())
    before = {name: module for name, module in model.named_modules()}
    types = {name: type(module) for name, module in before.items()}
    parameters = dict(model.named_parameters())
    input = torch.randn(2, 4, 10, 10)
    model.eval()
    expected = model(input)

    report = convx.convert_(model, algorithm="depthwise")
    assert [row.name for row in report.converted] == ["depthwise", "row"]
    assert [row.name for row in report.left] == ["expand"]
    assert type(model.depthwise) is convx.nn.Conv2d
    assert type(model.row) is convx.nn.Conv1d
    assert all(parameter is parameters[name] for name, parameter in model.named_parameters())
    assert all(module is before[name] for name, module in model.named_modules())
    torch.testing.assert_close(model(input), expected)

    assert convx.revert_(model) == 2
    assert {name: type(module) for name, module in model.named_modules()} == types
    assert list(model.state_dict()) == list(state)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not any(name.startswith("_convx") or name == "algorithm" for name in vars(model.depthwise))
    assert torch.equal(model(input), expected)
    assert convx.revert_(model) == 0


def test_auto_converts_every_layer_and_back() -> None:
    model, input = Block().eval(), torch.randn(2, 4, 10, 10)
    expected = model(input)
    report = convx.convert_(model, example_input=input)
    assert [row.name for row in report.converted] == ["expand", "depthwise", "row"]
    torch.testing.assert_close(model(input), expected)
    assert convx.revert_(model) == 3
    assert torch.equal(model(input), expected)


def test_report() -> None:
    report = convx.convert_(Block(), algorithm="depthwise")
    text = str(report)
    assert "depthwise" in text and "decided at the call" in text
    assert "left: depthwise: " in text
    assert text.endswith("2 of 3 convolution layers converted")
    data = json.loads(json.dumps(report.to_dict()))
    assert [layer["name"] for layer in data["layers"]] == ["expand", "depthwise", "row"]
    assert data["algorithm"] == "depthwise"


def test_example_input_names_the_method_and_leaves_no_trace() -> None:
    model = Block().train()
    model.drop.eval()
    state = copy.deepcopy(model.state_dict())
    report = convx.convert_(model, example_input=torch.randn(2, 4, 10, 10))
    flags = {name: module.training for name, module in model.named_modules()}
    assert flags.pop("drop") is False and all(flags.values())
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    rows = {row.name: row for row in report.rows}
    names = [row["name"] for row in convx.methods()]
    assert rows["depthwise"].method.split("/")[0] in names
    assert rows["depthwise"].shape == "8->8 3x3 g8 on 2x8x10x10"
    assert rows["row"].shape == "8->8 5 g8 on 2x8x1x100"
    assert not model.depthwise._forward_pre_hooks


def test_example_input_forms() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = depthwise(), depthwise()

        def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
            return self.a(x) * scale

    x = torch.randn(1, 8, 6, 6)
    for example in (x, (x,), [x], {"x": x, "scale": 2.0}):
        rows = convx.convert_(Two(), example_input=example).rows
        assert rows[0].shape.endswith("on 1x8x6x6")
        assert rows[1].method == "decided at the call (the example input did not reach it)"


def test_a_failing_example_changes_nothing() -> None:
    model = Block().train()
    with pytest.raises(RuntimeError):
        convx.convert_(model, example_input=torch.randn(2, 5, 10, 10))
    assert type(model.depthwise) is nn.Conv2d
    assert model.training and not model.expand._forward_pre_hooks


def test_the_model_may_be_a_layer() -> None:
    layer = depthwise()
    report = convx.convert_(layer)
    assert report.rows[0].name == "(model)" and type(layer) is convx.nn.Conv2d
    assert convx.revert_(layer) == 1 and type(layer) is nn.Conv2d


def test_filter() -> None:
    model = nn.Sequential(depthwise(), depthwise())
    report = convx.convert_(model, lambda module, name: name == "1")
    assert [row.converted for row in report.rows] == [False, True]
    assert report.rows[0].reason == "filter_fn is false for it"


def test_named_algorithm() -> None:
    model = nn.Sequential(depthwise(), nn.Conv2d(8, 8, 3))
    report = convx.convert_(model, algorithm="depthwise")
    assert [row.converted for row in report.rows] == [True, False]
    assert report.rows[1].reason.startswith("depthwise: ")
    assert model[0].algorithm == "depthwise"
    model = nn.Sequential(depthwise(), nn.Conv2d(8, 8, 3))
    assert len(convx.convert_(model, algorithm="native").converted) == 2
    assert "no candidate 'nonesuch'" in reason(depthwise(), algorithm="depthwise/nonesuch")


def test_tilings_are_of_sizes_that_the_call_tells() -> None:
    x, layer = torch.randn(1, 8, 30, 14), nn.Conv2d(8, 8, 3)
    (plan,) = [row.plan for row in convx.explain(x, layer.weight, layer.bias).rows if row.method == "hntmp"]
    expected = layer(x)
    assert " rows=" in plan and convx.convert_(layer, algorithm=plan).converted
    torch.testing.assert_close(layer(x), expected)
    with pytest.raises(convx.InvalidArgument, match="rows="):
        layer(x[..., :5, :5])
    assert "rows=" in reason(nn.Conv2d(8, 8, 3), algorithm=plan, example_input=x[..., :5, :5])


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"algorithm must be one of auto, .*native.*got 'deepwise'"):
        convx.convert_(Block(), algorithm="deepwise")
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got list"):
        convx.convert_([depthwise()])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"algorithm must be of type str, got None"):
        convx.convert_(Block(), algorithm=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"filter_fn must be a function of \(layer, name\), got Tensor"):
        convx.convert_(Block(), torch.randn(1, 4, 8, 8))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got str"):
        convx.revert_("x")  # type: ignore[arg-type]


class OverridesForward(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + 1


class OverridesConvForward(nn.Conv2d):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(input, weight + 1, bias)


class Renamed(nn.Conv2d):
    pass


def test_subclasses_are_left() -> None:
    arguments = (8, 8, 3, 1, 1, 1, 8)
    assert reason(OverridesForward(*arguments)) == "OverridesForward overrides Conv2d.forward"
    assert reason(OverridesConvForward(*arguments)) == "OverridesConvForward overrides Conv2d._conv_forward"
    assert reason(Renamed(*arguments)) == "Renamed is a subclass of Conv2d; its class is kept"
    assert reason(convx.nn.Conv2d(*arguments)) == "already a convx layer"


def test_a_replaced_forward_is_left() -> None:
    layer = depthwise()
    layer.forward = lambda input: input  # type: ignore[method-assign]
    assert reason(layer) == "its forward was replaced on the instance"


def test_other_kinds_are_left() -> None:
    assert "convx has Conv1d and Conv2d alone" in reason(nn.Conv3d(2, 2, 3, groups=2))
    assert "convx has Conv1d and Conv2d alone" in reason(nn.ConvTranspose2d(2, 2, 3, groups=2))
    assert reason(nn.LazyConv2d(8, 3, groups=8)).startswith("lazy")
    assert "dtype torch.complex64" in reason(depthwise(dtype=torch.complex64))
    assert convx.convert_(nn.Linear(2, 2)).rows == ()


def test_quantized_layers_are_left() -> None:
    quantized = pytest.importorskip("torch.ao.nn.quantized")
    assert "quantized" in reason(nn.Sequential(quantized.Conv2d(8, 8, 3, groups=8)))


def test_parametrized_layers() -> None:
    layer = parametrizations.weight_norm(depthwise())
    assert reason(layer).startswith("parametrized")
    layer = depthwise()
    convx.convert_(layer)
    parametrizations.weight_norm(layer)
    with pytest.raises(RuntimeError, match="remove_parametrizations"):
        convx.revert_(layer)
    parametrize.remove_parametrizations(layer, "weight")
    assert convx.revert_(layer) == 1 and type(layer) is nn.Conv2d


def test_compiled_convolutions_are_left_with_a_reason() -> None:
    model, x = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3), torch.nn.ReLU()), torch.randn(1, 4, 8, 8)
    for compiled in (torch.jit.script(model), torch.jit.trace(model, x)):
        (row,) = convx.convert_(torch.nn.Sequential(compiled)).left
        assert row.name == "0.0" and "convert the model before" in row.reason
    exported = torch.export.export(model.eval(), (x,)).module()
    (row,) = convx.convert_(exported).left
    assert row.name == "conv2d" and "before it is exported" in row.reason


def test_a_converted_layer_is_one_node_for_fx() -> None:
    model, x = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3), torch.nn.ReLU()).eval(), torch.randn(1, 4, 8, 8)
    convx.convert_(model)
    traced = torch.fx.symbolic_trace(model)
    assert [(node.op, node.target) for node in traced.graph.nodes][1] == ("call_module", "0")
    assert traced.get_submodule("0") is model[0]
    with torch.no_grad():
        assert torch.equal(traced(x), model(x))


def test_features_of_a_converted_network() -> None:
    model, x = torchvision_network("resnet18"), torch.randn(1, 3, 64, 64)
    extraction = pytest.importorskip("torchvision.models.feature_extraction")
    expected = extraction.create_feature_extractor(model, ["layer1"])(x)["layer1"]
    convx.convert_(model)
    result = extraction.create_feature_extractor(model, ["layer1"])(x)["layer1"]
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)


def test_fx_takes_the_functions() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4, 4, 3, 3))

        def forward(self, x: Tensor) -> Tensor:
            return convx.functional.conv2d(x, self.weight, padding=1, activation="relu")

    net, x = Net(), torch.randn(1, 4, 8, 8)
    traced = torch.fx.symbolic_trace(net)
    assert any(node.target is convx.functional.conv2d for node in traced.graph.nodes)
    torch.testing.assert_close(traced(x), net(x))


def test_hooks_are_kept() -> None:
    layer = depthwise()
    seen: list[str] = []
    layer.register_forward_pre_hook(lambda module, arguments: seen.append("before"))
    layer.register_forward_hook(lambda module, arguments, output: seen.append("after"))
    layer.register_full_backward_hook(lambda module, inputs, outputs: seen.append("backward"))
    convx.convert_(layer)
    layer(torch.randn(1, 8, 6, 6, requires_grad=True)).sum().backward()
    assert seen == ["before", "after", "backward"]


def test_shared_layers_are_one_row() -> None:
    shared = depthwise()
    model = nn.Sequential(shared, nn.ReLU(), shared)
    report = convx.convert_(model, example_input=torch.randn(1, 8, 6, 6))
    (row,) = report.rows
    assert row.name == "0, 2"
    assert model[0] is model[2] and type(model[0]) is convx.nn.Conv2d
    assert convx.revert_(model) == 1


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_modes(mode: str) -> None:
    layer, input = depthwise(padding_mode=mode), torch.randn(1, 8, 6, 6)
    expected = layer(input)
    assert convx.convert_(layer, example_input=input).converted
    torch.testing.assert_close(layer(input), expected)


def test_copies_of_a_converted_model_revert_too() -> None:
    model = nn.Sequential(depthwise())
    convx.convert_(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    twins = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)]
    input = torch.randn(1, 8, 6, 6)
    for twin in twins:
        assert type(twin[0]) is convx.nn.Conv2d
        assert torch.equal(twin(input), model(input))
        assert convx.revert_(twin) == 1 and type(twin[0]) is nn.Conv2d


def test_revert_refuses_what_torch_cannot_express() -> None:
    layer = depthwise()
    convx.convert_(layer)
    layer.activation = "relu"
    with pytest.raises(RuntimeError, match="activation 'relu'"):
        convx.revert_(layer)
    assert type(layer) is convx.nn.Conv2d


def test_layers_made_by_the_user_stay() -> None:
    model = nn.Sequential(convx.nn.Conv2d(8, 8, 3, groups=8), depthwise())
    convx.convert_(model)
    assert convx.revert_(model) == 1
    assert type(model[0]) is convx.nn.Conv2d


def test_training_goes_on_with_the_same_optimiser() -> None:
    model = nn.Sequential(depthwise())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    convx.convert_(model)
    before = model[0].weight.detach().clone()
    model(torch.randn(2, 8, 6, 6)).square().mean().backward()
    optimiser.step()
    assert not torch.equal(model[0].weight, before)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.Conv2d(4, 4, 3, stride=True), r"stride takes ints, got True \(bool\)"),
        (nn.Conv2d(4, 4, 3, dilation="2"), r"dilation takes ints, got '2' \(str\)"),
        (nn.Conv2d(4, 4, 3, stride=2**70), r"stride takes ints that fit into 64 bits"),
        (nn.Conv2d(4, 4, (3, 3, 3)), r"weight must have 4 dimensions, got 5: shape \(4, 4, 3, 3, 3\)"),
        (nn.Conv2d(4, 4, (3,), padding="same"), r"weight must have 4 dimensions, got 3"),
        (nn.Conv1d(4, 4, (3, 3), padding="same"), r"weight of a 1D convolution needs 3 dimensions.*got 4"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_layers_that_mean_nothing_are_left(layer: nn.Module, reason: str) -> None:
    """torch makes them, and runs none of them."""
    model = nn.Sequential(layer, nn.Conv2d(4, 4, 3, groups=4))
    report = convx.convert_(model)
    assert [row.name for row in report.converted] == ["1"]
    assert re.search(reason, report.left[0].reason)
