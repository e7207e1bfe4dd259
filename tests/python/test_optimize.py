"""convx.optimize: what is fused into what, that results stay right, and that nothing else changes."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models import enliven, timm_network, torchvision_network
from torch import Tensor, nn

import convx
from convx.optimize import optimizing
from convx.optimize.graph import Reader
from convx.optimize.layers import FusedConv2d

LAYOUTS = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}
_measured = optimizing._times
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.ReLU(inplace=True),
    "relu6": lambda: nn.ReLU6(inplace=True),
    "silu": lambda: nn.SiLU(),
    "hardswish": lambda: nn.Hardswish(inplace=True),
    "gelu": lambda: nn.GELU(),
}


@pytest.fixture(autouse=True)
def _exact_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.fixture(autouse=True)
def _fused_is_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of small layers take as long as chance has it."""
    monkeypatch.setattr(optimizing, "_times", times_by_order)


def times_by_order(calls: dict[str, Any], *_: Any) -> dict[str, float]:
    own, first, *others = calls
    for call in calls.values():
        call()
    return {own: 2.0, first: 1.0, **dict.fromkeys(others, 3.0)}


def block(channels: int = 12, groups: int = 1, activation: str = "relu", bias: bool = False) -> nn.Sequential:
    """Convolution, batch norm with statistics of its own, activation."""
    norm = nn.BatchNorm2d(channels)
    with torch.no_grad():
        for values in (norm.running_mean, norm.bias):
            assert values is not None
            values.normal_()
        assert norm.running_var is not None
        norm.running_var.uniform_(0.5, 2)
        norm.weight.uniform_(-1, 2)
    conv = nn.Conv2d(channels, channels, 3, padding=1, groups=groups, bias=bias)
    return nn.Sequential(conv, norm, ACTIVATIONS[activation]())


class Model(nn.Module):
    """Layers by name, and what is done with them."""

    def __init__(self, run: Callable[[Any, Tensor], Any], **layers: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


def image(
    device: str = "cpu", dtype: torch.dtype = torch.float32, layout: str = "nchw", batch: int = 2
) -> Tensor:
    x = torch.randn(batch, 12, 11, 13)
    return x.to(device, dtype).contiguous(memory_format=LAYOUTS[layout])


def distance(result: Tensor, exact: Tensor) -> float:
    return float((result.detach().double() - exact.detach().double()).norm() / exact.detach().double().norm())


def optimized_agrees(model: nn.Module, x: Tensor, **options: Any) -> convx.OptimizedModel:
    """The optimized model, whose results are as near to float64 as the model's, and the model as before."""
    model.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimized = convx.optimize(model, x, **options)
    for given in (x, x[:1], torch.cat([x, x + 1])):
        exact = copy.deepcopy(model).double()(given.double())
        own, reached = model(given.clone()), optimized(given.clone())
        assert reached.shape == own.shape and reached.dtype == own.dtype
        allowed = 2 * distance(own, exact) + 4 * torch.finfo(x.dtype).eps
        assert distance(reached, exact) <= allowed
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    return optimized


def fused(optimized: convx.OptimizedModel) -> list[tuple[str, ...]]:
    assert optimized.report is not None
    return [row.fused for row in optimized.report.rows]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("groups", [1, 12])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_norm_and_activation(
    activation: str, groups: int, dtype: torch.dtype, layout: str, device: str
) -> None:
    model = block(12, groups, activation, bias=groups == 1).to(device, dtype)
    optimized = optimized_agrees(model, image(device, dtype, layout))
    assert fused(optimized) == [("batch norm", activation)]
    assert [type(each) for each in optimized.network.children()] == [FusedConv2d]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("place", ["before", "after"])
def test_skip_connections(place: str, dtype: torch.dtype, layout: str, device: str) -> None:
    def before(model: Any, x: Tensor) -> Tensor:
        y = model.first(x)
        y += x
        return F.relu(y, inplace=True)  # type: ignore[no-any-return]

    def after(model: Any, x: Tensor) -> Tensor:
        return x + F.silu(model.first(x))  # type: ignore[no-any-return]

    run = before if place == "before" else after
    model = Model(run, first=block()[:2]).to(device, dtype)
    expected = ("batch norm", "residual", "relu") if place == "before" else ("batch norm", "silu", "residual")
    assert fused(optimized_agrees(model, image(device, dtype, layout))) == [expected]


def test_two_branches_of_a_sum() -> None:
    model = Model(lambda model, x: torch.relu(model.one(x) + model.two(x)), one=block()[:2], two=block()[:2])
    assert fused(optimized_agrees(model, image())) == [("batch norm", "residual", "relu"), ("batch norm",)]


def sum_of_itself(model: Any, x: Tensor) -> Tensor:
    y = model.first[0](x)
    return y + y  # type: ignore[no-any-return]


def seen_twice(model: Any, x: Tensor) -> Tensor:
    y = model.first[0](x)
    return F.relu(y) * y


def relu_of_what_is_seen_later(model: Any, x: Tensor) -> Tensor:
    y = model.first[0](x)
    z = F.relu(y, inplace=True)
    return y * z


def input_is_written_to_in_between(model: Any, x: Tensor) -> Tensor:
    z = x * 1
    y = model.first[0](z)
    z.relu_()
    return y + z  # type: ignore[no-any-return]


def input_is_the_result_of_something_in_between(model: Any, x: Tensor) -> Tensor:
    z = x * 1
    y = model.first[0](z)
    torch.add(x, x, out=z)
    return y + x  # type: ignore[no-any-return]


def view_of_the_input_is_written_to(model: Any, x: Tensor) -> Tensor:
    z = x * 1
    view = z[:, :6]
    y = model.first[0](z)
    view.mul_(2)
    return y + x  # type: ignore[no-any-return]


def sum_into_the_other_term(model: Any, x: Tensor) -> Tensor:
    z = x * 1
    y = model.first[0](z)
    z.add_(y)
    return z * z


def broadcast_sum(model: Any, x: Tensor) -> Tensor:
    return model.first[0](x) + x.mean((2, 3), keepdim=True)  # type: ignore[no-any-return]


def approximate_gelu(model: Any, x: Tensor) -> Tensor:
    return F.gelu(model.first[0](x), approximate="tanh")


def scaled_sum(model: Any, x: Tensor) -> Tensor:
    return torch.add(model.first[0](x), x, alpha=3)


def other_clamp(model: Any, x: Tensor) -> Tensor:
    return F.hardtanh(model.first[0](x), 0.0, 5.0)


@pytest.mark.parametrize(
    "run",
    [
        *(sum_of_itself, seen_twice, relu_of_what_is_seen_later, input_is_written_to_in_between),
        input_is_the_result_of_something_in_between,
        *(view_of_the_input_is_written_to, sum_into_the_other_term, broadcast_sum, approximate_gelu),
        *(scaled_sum, other_clamp),
    ],
    ids=lambda run: run.__name__,
)
def test_what_a_kernel_can_not_do_stays(run: Callable[[Any, Tensor], Tensor]) -> None:
    assert fused(optimized_agrees(Model(run, first=block()), image())) == [()]


def test_batch_norm_alone_is_fused_where_others_see_its_result() -> None:
    def run(model: Any, x: Tensor) -> Tensor:
        y = model.first[1](model.first[0](x))
        return F.relu(y) + y

    assert fused(optimized_agrees(Model(run, first=block()), image())) == [("batch norm",)]


def test_functions_and_constants() -> None:
    def run(model: Any, x: Tensor) -> Tensor:
        norm = model.first[1]
        y = model.first[0](x)
        y = F.batch_norm(y, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.1, 1e-3)
        return F.hardtanh(F.dropout(y, 0.5, model.training), 0.0, 6.0)

    assert fused(optimized_agrees(Model(run, first=block()), image())) == [("batch norm", "relu6")]


def test_checks_of_the_rank_do_not_keep_results_apart() -> None:
    """As timm's norms have them."""

    def run(model: Any, x: Tensor) -> Tensor:
        y = model.first[0](x)
        torch._assert(y.ndim == 4, "rank")
        return F.relu(model.first[1](y))

    optimized = optimized_agrees(Model(run, first=block()), image())
    assert fused(optimized) == [("batch norm", "relu")]
    with pytest.raises(AssertionError, match="rank"):
        optimized(image()[0])


def test_identities_are_passed_over() -> None:
    conv, norm, relu = block()
    model = nn.Sequential(conv, nn.Identity(), norm, nn.Dropout2d(0.5), relu, nn.Dropout(0.3))
    optimized = optimized_agrees(model, image())
    assert fused(optimized) == [("batch norm", "relu")] and len(list(optimized.network.children())) == 1


def test_a_layer_that_is_called_twice_has_a_fused_layer_for_each_call() -> None:
    shared, other = block(), block()

    def run(model: Any, x: Tensor) -> Tensor:
        x = model.shared(x)
        return model.other[1](model.shared[0](x))  # type: ignore[no-any-return]

    optimized = optimized_agrees(Model(run, shared=shared, other=other), image())
    assert sorted(fused(optimized)) == [("batch norm",), ("batch norm", "relu")]


def test_residual_of_another_shape_than_in_the_example() -> None:
    """One per image in the example, one for all in other batches."""

    def run(model: Any, x: Tensor) -> Tensor:
        return F.relu(model.first[0](x) + model.first[0].position)

    model = Model(run, first=block())
    model.first[0].position = nn.Parameter(torch.randn(1, 12, 11, 13))  # type: ignore[union-attr]
    x = image(batch=1)
    optimized = convx.optimize(model.eval(), x)
    assert fused(optimized) == [("residual", "relu")]
    for batch in (1, 3):
        x = image(batch=batch)
        torch.testing.assert_close(optimized(x), model(x), rtol=1e-4, atol=1e-5)


def test_layers_with_hooks_or_a_norm_in_training_are_not_fused() -> None:
    model = nn.Sequential(*block(), *block()[:1], nn.BatchNorm2d(12, track_running_stats=False))
    seen: list[Tensor] = []
    model[0].register_forward_hook(lambda layer, args, output: seen.append(output))
    optimized = optimized_agrees(model, image())
    assert fused(optimized) == [(), ()]
    count = len(seen)
    optimized(image())
    assert len(seen) == count + 1


def test_activations_that_layers_have_already() -> None:
    layer = convx.nn.Conv2d(12, 12, 3, padding=1, activation="relu")
    optimized = optimized_agrees(nn.Sequential(layer, nn.BatchNorm2d(12)), image())
    assert fused(optimized) == [()]
    optimized = optimized_agrees(Model(lambda model, x: model.conv(x) + x, conv=layer), image())
    assert fused(optimized) == [("residual",)]


def test_what_torch_fx_can_not_follow_is_run_layer_by_layer() -> None:
    def run(model: Any, x: Tensor) -> Tensor:
        return model.first(x) if x.sum() > 0 else model.first(x) * 2  # type: ignore[no-any-return]

    optimized = optimized_agrees(Model(run, first=block()), image())
    assert fused(optimized) == [()]
    assert optimized.report is not None and "TraceError" in optimized.report.reason
    assert "one by one" in str(optimized.report)
    assert type(optimized.network.first[0]) is convx.nn.Conv2d  # type: ignore[index, union-attr]


def test_what_torch_fx_takes_for_something_else_is_run_layer_by_layer() -> None:
    def run(model: Any, x: Tensor) -> Tensor:
        y = z = x * 2
        y += model.first(x)
        return y * z

    optimized = optimized_agrees(Model(run, first=block()), image())
    assert fused(optimized) == [()]
    assert optimized.report is not None and "its error on the example" in optimized.report.reason


def test_hooks_of_what_is_looked_into_see_every_call() -> None:
    model, seen = nn.Sequential(block()), []
    model[0].register_forward_hook(lambda layer, args, output: seen.append(type(output)))
    optimized = optimized_agrees(model, image())
    assert optimized.report is not None and "0 has hooks" in optimized.report.reason
    count = len(seen)
    optimized(image())
    assert len(seen) == count + 1 and set(seen) == {Tensor}


def writes_to_its_input(model: Any, x: Tensor) -> Tensor:
    x[:, :3].mul_(2)
    return model.first(x)  # type: ignore[no-any-return]


def counts_calls(model: Any, x: Tensor) -> Tensor:
    model.first[1].num_batches_tracked.add_(1)
    return model.first(x)  # type: ignore[no-any-return]


def writes_to_a_part_of_its_input(model: Any, x: Tensor) -> Tensor:
    F.relu(x.flatten(1), inplace=True)
    return model.first(x)  # type: ignore[no-any-return]


def writes_to_its_own(model: Any, x: Tensor) -> Tensor:
    y = model.first(x) * 2
    y += 1
    return F.relu(y.add_(x), inplace=True)


def writes_to_a_view_of_its_own(model: Any, x: Tensor) -> Tensor:
    y = model.first(x).flatten(1)
    y[:, 1:].mul_(2)
    return y


def drops_in_place(model: Any, x: Tensor) -> Tensor:
    return model.drop(x.flatten(1))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("run", "effects"),
    [
        (writes_to_its_input, True),
        (writes_to_a_part_of_its_input, True),
        (counts_calls, True),
        (writes_to_its_own, False),
        (writes_to_a_view_of_its_own, False),
        (drops_in_place, False),
    ],
)
def test_calls_with_effects_are_no_cuda_graphs(run: Callable[[Any, Tensor], Tensor], effects: bool) -> None:
    optimized = convx.optimize(Model(run, first=block(), drop=nn.Dropout(0.5, inplace=True)).eval(), image())
    assert Reader(optimized.network).has_effects() == effects  # type: ignore[arg-type]
    assert (optimized.graphs.most == 0) == effects


def test_other_convolutions_are_converted() -> None:
    model = nn.Sequential(nn.Conv1d(4, 4, 3, groups=4), nn.BatchNorm1d(4), nn.ReLU())
    optimized = convx.optimize(model.eval(), torch.randn(2, 4, 20))
    assert fused(optimized) == [()] and type(optimized.network.get_submodule("0")) is convx.nn.Conv1d
    transposed = nn.Sequential(nn.ConvTranspose2d(12, 12, 3))
    report = convx.optimize(transposed, image()).report
    assert report is not None and "ConvTranspose2d" in report.rows[0].reason and report.left == report.rows


def test_arguments_and_results_of_any_kind() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = block()

        def forward(self, x: Tensor, factor: float = 1.0, *, other: Tensor | None = None) -> dict[str, Any]:
            y = self.conv(x) * factor
            return {"y": y, "both": [y, y if other is None else other]}

    model, x = Two().eval(), image()
    for args, named in (
        ((x,), {}),
        ((x, 2.0), {}),
        ((), {"x": x, "factor": 3.0}),
        ((), {"x": x, "other": x}),
    ):
        kwargs: dict[str, Any] = dict(named)  # type: ignore[arg-type]
        optimized = convx.optimize(model, kwargs or args)
        torch.testing.assert_close(optimized(*args, **kwargs), model(*args, **kwargs), rtol=1e-4, atol=1e-5)
        with pytest.raises(convx.InvalidArgument, match="optimized for calls with other arguments"):
            optimized(x, factor=7.0)
        with pytest.raises(TypeError, match="factors"):
            optimized(x, factors=2.0)
    optimized = convx.optimize(model, x)
    assert len(optimized.state_dict()) == 2 and optimized.report is not None and not optimized.report.reason
    torch.testing.assert_close(optimized(x=x, factor=1.0), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("inside", LAYOUTS)
@pytest.mark.parametrize("outside", LAYOUTS)
def test_results_have_the_layout_of_the_input(outside: str, inside: str, device: str) -> None:
    model, x = block().to(device), image(device, layout=outside)
    optimized = optimized_agrees(model, x, layout=inside)
    assert optimized.report is not None and optimized.report.layout == inside
    for layout in LAYOUTS:
        given = image(device, layout=layout)
        assert optimized(given).is_contiguous(memory_format=LAYOUTS[layout])


def test_example_and_model_stay_as_they_are() -> None:
    model = nn.Sequential(nn.ReLU(inplace=True), *block()).train()
    x = image()
    before, flags = x.clone(), [module.training for module in model.modules()]
    optimized = convx.optimize(model, x)
    assert torch.equal(x, before) and [module.training for module in model.modules()] == flags
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(parameter.requires_grad for parameter in optimized.parameters())
    optimized(x)
    assert torch.equal(x, before.relu()), "the model's own writing to its input is lost"


def test_copies_pickles_and_state() -> None:
    optimized, x = convx.optimize(block().eval(), image()), image()
    expected = optimized(x)
    for other in (copy.deepcopy(optimized), pickle.loads(pickle.dumps(optimized))):
        assert torch.equal(other(x), expected) and other.report == optimized.report
    file = io.BytesIO()
    torch.save(optimized.state_dict(), file)
    file.seek(0)
    other = convx.optimize(block().eval(), image())
    assert not torch.equal(other(x), expected)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x), expected)
    assert other.double()(x.double()).dtype == torch.float64


def test_weights_that_change_are_seen(device: str) -> None:
    optimized, x = convx.optimize(block().to(device).eval(), image(device)), image(device)
    first = optimized(x)
    with torch.no_grad():
        for parameter in optimized.parameters():
            parameter.mul_(2)
    torch.testing.assert_close(optimized(x), 2 * first, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        for parameter in optimized.parameters():
            parameter.zero_()
    assert not optimized(x).any()


def test_it_is_for_inference() -> None:
    optimized = convx.optimize(block(), image())
    with pytest.raises(RuntimeError, match="optimize that again"):
        optimized.train()
    assert optimized.eval() is optimized and not any(module.training for module in optimized.modules())
    x = image().requires_grad_()
    optimized(x).sum().backward()  # the input's gradient is there
    assert x.grad is not None and bool(x.grad.any())


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match="model must be a torch"):
        convx.optimize(lambda x: x, image())  # type: ignore[arg-type]
    with pytest.raises(convx.InvalidArgument, match="layout must be one of auto"):
        convx.optimize(block(), image(), layout="nhwc")
    for number in (-1, 1.5, True):
        with pytest.raises(convx.InvalidArgument, match="cuda_graphs must be a number"):
            convx.optimize(block(), image(), cuda_graphs=number)  # type: ignore[arg-type]


def test_wrong_results_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(FusedConv2d, "forward", lambda self, input, residual=None: input + 1)
        optimized = optimized_agrees(block(), image())
        assert fused(optimized) == [()]
    monkeypatch.setattr(convx.nn.Conv2d, "forward", lambda self, input: input + 1)
    with pytest.raises(RuntimeError, match="the model's own"):
        convx.optimize(block(), image())


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_torchs_own_layers_where_they_are_faster(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def times(calls: dict[str, Any], *_: Any) -> dict[str, float]:
        return {**dict.fromkeys(calls, 2.0), list(calls)[-1]: 1.0}

    monkeypatch.setattr(optimizing, "_times", times)
    optimized = optimized_agrees(block().to(device), image(device))
    report = optimized.report
    assert report is not None and fused(optimized) == [()] and report.layout == "as given"
    assert "torch's own layers take less time" in str(report) and report.left == report.rows
    assert type(optimized.network.get_submodule("0")) is nn.Conv2d


def test_layouts_are_chosen_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def times(calls: dict[str, Any], *arguments: Any) -> dict[str, float]:
        seen.append(list(calls))
        assert all(each > 0 for each in _measured(calls, *arguments).values())
        return {name: 1.0 if name in LAYOUTS else 1.02 for name in calls}

    monkeypatch.setattr(optimizing, "_times", times)
    for layout, other in (("nchw", "channels_last"), ("channels_last", "nchw")):
        for options in ({}, {"layout": "as given"}):
            report = optimized_agrees(block(), image(layout=layout), **options).report
            assert report is not None and report.layout == "as given"  # 2 % are no difference
            expected = ["native", "as given", *(() if options else (other,)), "torch's own layers"]
            assert seen.pop() == expected


def test_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizing, "_times", _measured)
    monkeypatch.setattr(optimizing, "_choose", lambda times, candidates: candidates[0])
    report = convx.optimize(nn.Sequential(*block(), nn.Flatten(1)), image()).report
    assert report is not None and not report.left and report.times_faster > 0
    text = str(report)
    assert "12->12 3x3 on 2x12x11x13" in text and "batch norm, relu" in text and "times as fast" in text
    assert "1 of 1 convolution layers run by convx" in text
    plain = report.to_dict()
    assert plain["rows"][0]["fused"] == ("batch norm", "relu") and plain["native_us"] > 0
    assert plain["optimized_error"] <= 2 * plain["native_error"] + 1e-6


NETWORKS = (
    *("mobilenet_v2", "mobilenet_v3_small", "mnasnet0_5", "shufflenet_v2_x0_5", "squeezenet1_1", "resnet18"),
    *(
        "googlenet",
        "densenet121",
        "regnet_y_400mf",
        "efficientnet_b0",
        "convnext_tiny",
        "vgg11_bn",
        "alexnet",
    ),
    *("resnext50_32x4d", "inception_v3", "swin_t", "maxvit_t"),
    *("timm/resnet18", "timm/efficientnet_b0", "timm/mobilenetv3_small_050", "timm/convnext_atto"),
    *("timm/densenet121", "timm/repvgg_a0", "timm/ghostnet_050", "timm/regnetx_002", "timm/xception41"),
)
UNFUSED = (
    "vit_b_32",
    "swin_t",
    "maxvit_t",
    "timm/convnext_atto",
    "convnext_tiny",
    "alexnet",
    "squeezenet1_1",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str) -> None:
    make = timm_network if name.startswith("timm/") else torchvision_network
    size = 224 if name in ("swin_t", "maxvit_t") else 96 if name != "inception_v3" else 160
    model, x = make(name.removeprefix("timm/")), torch.randn(2, 3, size, size)
    enliven(model, x)
    optimized = convx.optimize(model.eval(), x)
    report = optimized.report
    assert report is not None and not report.left
    assert not Reader(optimized.network).has_effects()  # type: ignore[arg-type]
    norms = sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())
    folded = sum("batch norm" in row.fused for row in report.rows)
    assert not report.reason and (folded > 0.4 * norms or name in UNFUSED), (folded, norms)
    exact = copy.deepcopy(model).double()(x.double())
    assert distance(optimized(x), exact) <= 2 * distance(model(x), exact) + 1e-6


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18", "efficientnet_b0", "googlenet"])
def test_networks_as_cuda_graphs(name: str, dtype: torch.dtype) -> None:
    model, x = torchvision_network(name).cuda(), torch.randn(2, 3, 64, 64, device="cuda")
    enliven(model, x)
    model, x = model.to(dtype).eval(), x.to(dtype)
    optimized = convx.optimize(model, x)
    assert optimized.report is not None and optimized.report.cuda_graphs
    results = []
    for _ in range(5):
        given = torch.randn_like(x)
        exact = copy.deepcopy(model).double()(given.double())
        with torch.no_grad():
            results.append((optimized(given), exact, distance(model(given), exact)))
    for reached, exact, own in results:  # no replay has written to results before
        assert distance(reached, exact) <= 2 * own + torch.finfo(dtype).eps


@pytest.mark.gpu
def test_graphs_are_kept_for_kinds_of_input() -> None:
    model = block().cuda().eval()
    optimized = convx.optimize(model, image("cuda"), cuda_graphs=2, layout="as given")
    graphs = optimized.graphs
    with torch.no_grad():
        for batch in (1, 2, 3, 1, 2, 3):
            x = image("cuda", batch=batch)
            torch.testing.assert_close(optimized(x), model(x), rtol=1e-4, atol=1e-5)
        assert len(graphs) == 2
        optimized(image("cuda", layout="channels_last", batch=3))
        assert len(graphs) == 2
        expected = model(x)
        with torch.autocast("cuda", torch.bfloat16):
            assert optimized(x).dtype == torch.bfloat16
        torch.testing.assert_close(optimized(x), expected, rtol=1e-4, atol=1e-5)
        with torch.inference_mode():
            torch.testing.assert_close(optimized(x), expected, rtol=1e-4, atol=1e-5)
    x.requires_grad_()
    optimized(x).sum().backward()
    assert x.grad is not None
    assert len(copy.deepcopy(optimized).graphs) == 0
    assert not convx.optimize(model, image("cuda"), cuda_graphs=0).graphs


@pytest.mark.gpu
def test_threads_and_streams_get_their_own_results() -> None:
    model = nn.Sequential(*(layer for _ in range(4) for layer in block())).cuda().eval()
    optimized = convx.optimize(model, image("cuda"))
    inputs = [image("cuda") * (index + 1) for index in range(4)]
    expected = [model(x).detach() for x in inputs]
    failures: list[str] = []

    def work(index: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
            for _ in range(50):
                reached = optimized(inputs[index])
                torch.cuda.current_stream().synchronize()
                if not torch.allclose(reached, expected[index], rtol=1e-3, atol=1e-4):
                    failures.append(f"thread {index}")

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.gpu
def test_inside_a_graph_of_the_caller_and_memory() -> None:
    model = block().cuda().eval()
    optimized, x = convx.optimize(model, image("cuda")), image("cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        optimized(x)
        with torch.cuda.graph(graph):
            result = optimized(x)
        x.copy_(image("cuda"))
        graph.replay()
        torch.testing.assert_close(result, model(x), rtol=1e-4, atol=1e-5)
        taken = []
        for _ in range(200):
            optimized(x)
            taken.append(torch.cuda.memory_allocated())
    assert len(set(taken[2:])) == 1, taken
