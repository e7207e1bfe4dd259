"""convx.optimize: what is fused into what, that results stay right, and that nothing else changes."""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from optimized import ACTIVATIONS, LAYOUTS, Model, block, fused, fused_is_the_fastest, image, optimized_agrees
from processes import run_python
from torch import Tensor, nn
from unfused import UNFUSED

import convx
from convx._arguments import is_channels_last
from convx.optimize import check
from convx.optimize.check import Reference
from convx.optimize.layers import FusedConv2d
from convx.optimize.parts import Served

__all__ = ["fused_is_the_fastest"]


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
    def run(model: Any, x: Tensor) -> Tensor:
        return torch.relu(model.one(x) + model.two(x * 2))  # of one image they would be one convolution

    model = Model(run, one=block()[:2], two=block()[:2])
    assert fused(optimized_agrees(model, image())) == [("batch norm", "residual", "relu"), ("batch norm",)]


@pytest.mark.parametrize("run", UNFUSED, ids=lambda run: run.__name__)
def test_what_a_kernel_can_not_do_stays(run: Callable[[Any, Tensor], Tensor]) -> None:
    optimized = optimized_agrees(Model(run, first=block()), image())
    assert fused(optimized) == [()] and optimized.report is not None and not optimized.report.reason


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
    with pytest.raises(convx.InvalidArgument, match="asserts how many dimensions tensors have"):
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


def test_calls_with_the_same_behind_them_have_one_layer() -> None:
    """As a detector's head, which all levels of a pyramid share, so that filters are kept once."""

    def run(model: Any, x: Tensor) -> Tensor:
        levels = [x, F.avg_pool2d(x, 2), x + 1]
        means = [model.last(model.head(each)).mean((2, 3)) for each in levels]
        return torch.cat([*means, F.relu(model.last(x)).mean((2, 3))], 1)

    model = Model(run, head=block(12), last=nn.Conv2d(12, 12, 1)).eval()
    optimized = optimized_agrees(model, image())
    assert sorted(fused(optimized)) == [(), ("batch norm", "relu"), ("relu",)]
    names = [name for name, each in optimized.network.named_modules() if isinstance(each, nn.Conv2d)]
    assert sorted(names) == ["head.0", "last", "last_0"]
    assert len({*optimized.parameters()}) == 4


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
    assert fused(optimized) == [("batch norm", "relu")]  # of the part that it can follow
    assert optimized.report is not None
    assert optimized.report.reason.startswith("layers are run one by one but for first: TraceError")
    assert "one by one" in str(optimized.report)
    assert type(optimized.network.first) is Served


def test_what_torch_fx_takes_for_something_else_is_run_layer_by_layer() -> None:
    def run(model: Any, x: Tensor) -> Tensor:
        y = z = x * 2
        y += model.first(x)
        return y * z

    optimized = optimized_agrees(Model(run, first=block()), image())
    assert fused(optimized) == [("batch norm", "relu")]
    assert optimized.report is not None and "its error on the example" in optimized.report.reason


@pytest.mark.parametrize("always", [False, True])
def test_chance_on_the_example_is_no_error(always: bool) -> None:
    """Eight times the model's own error on one input, but not on others like it."""
    model, x = nn.Sequential(nn.Conv2d(12, 12, 3), nn.Softmax(1)).eval(), image()
    exact = copy.deepcopy(model).double()

    class Candidate(nn.Module):
        def forward(self, given: Tensor) -> Tensor:
            own, true = model(given), exact(given.double())
            return own if not always and not torch.equal(given, x) else true + 8 * (own - true)

    with torch.no_grad():
        reference = Reference(model, (x,), {})
        error = reference.error_of(Candidate())
        assert error > 7.9 * reference.error
        assert bool(reference.disagrees(Candidate(), error)) == always
        assert reference.disagrees(Candidate(), math.nan)


@pytest.mark.parametrize("setting", [0, check.CONVOLUTIONS, check.CONVOLUTIONS + check.PRODUCTS])
def test_rounding_that_torchs_settings_allow_is_the_models_own(
    setting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch may have chosen kernels that don't round; those of an optimized model may all the same."""
    model = nn.Sequential(nn.Conv2d(12, 12, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)).eval()
    x = image()
    model(x)
    exact = copy.deepcopy(model).double()
    monkeypatch.setattr(check, "tf32_setting", lambda on_gpu, dtype: setting)

    class Candidate(nn.Module):
        """Rounds what its settings let it."""

        def __init__(self, rounds: int) -> None:
            super().__init__()
            self.rounds = rounds

        def forward(self, given: Tensor) -> Tensor:
            with check._RoundingToTf32(self.rounds):
                return exact(given.double())

    with torch.no_grad():
        reference = Reference(model, (x,), {})
        for rounds in {setting, check.CONVOLUTIONS} - {0}:
            candidate = Candidate(rounds)
            error = reference.error_of(candidate)
            assert 2e-5 < error < 2e-3 and error > 10 * reference.error
            assert bool(reference.disagrees(candidate, error)) == (not setting)


def test_hooks_of_what_is_looked_into_see_every_call() -> None:
    model, seen = nn.Sequential(block()), []
    model[0].register_forward_hook(lambda layer, args, output: seen.append(type(output)))
    optimized = optimized_agrees(model, image())
    assert optimized.report is not None and "0 has hooks" in optimized.report.reason
    count = len(seen)
    optimized(image())
    assert len(seen) == count + 1 and set(seen) == {Tensor}


def test_other_convolutions_are_converted() -> None:
    model = nn.Sequential(nn.Conv1d(4, 4, 3, groups=4), nn.BatchNorm1d(4), nn.ReLU())
    optimized = convx.optimize(model.eval(), torch.randn(2, 4, 20))
    assert fused(optimized) == [()] and type(optimized.network.get_submodule("0")) is convx.nn.Conv1d
    volumes = Model(
        lambda own, x: own.conv(x[:, None]), conv=nn.Conv3d(1, 2, 3)
    )  # of a layer without layouts
    assert "Conv3d" in optimized_agrees(volumes, image()).report.rows[0].reason  # type: ignore[union-attr]
    transposed = nn.Sequential(nn.ConvTranspose2d(12, 12, 3))
    report = convx.optimize(transposed, image()).report
    assert report is not None and "ConvTranspose2d" in report.rows[0].reason and report.left == report.rows


@dataclass
class Output(OrderedDict):  # type: ignore[type-arg]
    """As the models of transformers return."""

    features: Tensor | None = None
    mean: Tensor | None = None

    def __post_init__(self) -> None:
        self.update(features=self.features)


def test_results_of_a_class_stay_of_it() -> None:
    optimized = convx.optimize(Model(lambda own, x: Output(own.conv(x)), conv=block()).eval(), image())
    assert not optimized.report.reason  # type: ignore[union-attr]
    for _ in range(2):
        result = optimized(image())
        assert type(result) is Output and result.mean is None
        assert result.features is result["features"] and result.features.shape == image().shape


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


@pytest.mark.parametrize("inside", LAYOUTS)
@pytest.mark.parametrize("outside", LAYOUTS)
def test_every_layer_has_the_layout_inside(outside: str, inside: str, device: str) -> None:
    """Also after filters of 1x1, or of one channel, which are contiguous in both layouts."""
    layers = (nn.Conv2d(12, 16, 1), nn.Conv2d(16, 16, 3, groups=16), nn.Conv2d(16, 8, 1), nn.Conv2d(8, 8, 3))
    model = nn.Sequential(*layers).to(device, memory_format=LAYOUTS[outside])
    x = image(device, layout=outside)
    optimized = convx.optimize(model, x, layout=inside, tune=False, cuda_graphs=0)
    seen: list[bool] = []
    for each in optimized.network.modules():
        if isinstance(each, nn.Conv2d):
            each.register_forward_hook(lambda _, __, result: seen.append(is_channels_last(result)))
    given, _ = optimized.in_own_layout((x,), {})
    with torch.no_grad():
        optimized.network(*given)
    assert seen == [inside == "channels_last"] * len(layers)


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
    with pytest.raises(convx.InvalidArgument, match="tune must be True or False"):
        convx.optimize(block(), image(), tune="thoroughly")  # type: ignore[arg-type]
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


_FIRST_OF_A_PROCESS = """
import gc
import torch
import convx
from torch import nn

class Model(nn.Sequential):
    def forward(self, x):
        return torch.flatten(super().forward(x), 1)

model = Model(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
optimized = convx.optimize(model, torch.randn(1, 4, 9, 9))
optimized(torch.randn(1, 4, 9, 9))
del model, optimized
gc.collect()
print([type(each).__name__ for each in gc.get_objects() if issubclass(type(each), nn.Module)])
overridable = torch.overrides.get_overridable_functions().values()
print([each for some in overridable for each in some if "convx" in str(getattr(each, "__module__", ""))])
"""


def test_nothing_is_left_of_the_first_network_of_a_process() -> None:
    """Whose trace replaces torch.tensor for its time, which torch may look up once and keep."""
    done = run_python(_FIRST_OF_A_PROCESS, timeout=100)
    assert done.stdout == "[]\n[]\n", done.stderr[-2000:]
