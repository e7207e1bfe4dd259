"""convx.InvalidArgument is a RuntimeError, as torch's own convolutions raise, and a ValueError."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import convx
from convx.functional import conv1d, conv2d, conv2d_input_grad, conv2d_weight_grad

# What torch's functions refuse with a RuntimeError: (arguments of conv1d or conv2d).
REFUSED: dict[str, dict[str, Any]] = {
    "channels": {"input": torch.randn(1, 5, 8, 8)},
    "channels of a group": {"groups": 2},
    "output channels of a group": {"weight": torch.randn(3, 2, 3, 3), "groups": 2},
    "filter larger than the image": {"input": torch.randn(1, 4, 1, 1)},
    "filter larger than the row": {"input": torch.randn(1, 4, 2), "weight": torch.randn(4, 4, 3)},
    "dilated filter larger than the image": {"input": torch.randn(1, 4, 4, 4), "dilation": 2},
    "negative padding": {"padding": -1},
    "negative stride": {"stride": -1},
    "no stride": {"stride": 0},
    "no stride in a row": {"input": torch.randn(1, 4, 8), "weight": torch.randn(4, 4, 3), "stride": 0},
    "no dilation": {"dilation": 0},
    "no groups": {"groups": 0},
    "size of bias": {"bias": torch.randn(3)},
    "dimensions of bias": {"bias": torch.randn(4, 1)},
    "dtype of weight": {"weight": torch.randn(4, 4, 3, 3, dtype=torch.float64)},
    "dtype of bias": {"bias": torch.randn(4, dtype=torch.float64)},
    "five dimensions": {"input": torch.randn(1, 4, 1, 8, 8)},
    "two dimensions": {"input": torch.randn(4, 8)},
    "one dimension": {"input": torch.randn(4), "weight": torch.randn(4, 4, 3)},
    "weight of three dimensions": {"weight": torch.randn(4, 4, 3), "padding": "same"},
    "padding of another name": {"padding": "full"},
    "same with stride": {"padding": "same", "stride": 2},
    "three strides": {"stride": (1, 1, 1)},
}


def arguments_of(name: str) -> dict[str, Any]:
    return {"input": torch.randn(1, 4, 8, 8), "weight": torch.randn(4, 4, 3, 3), **REFUSED[name]}


def is_1d(arguments: dict[str, Any]) -> bool:
    return arguments["weight"].dim() == 3 and arguments.get("padding") != "same"


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused_alike(name: str) -> None:
    arguments = arguments_of(name)
    with pytest.raises(RuntimeError):
        (F.conv1d if is_1d(arguments) else F.conv2d)(**arguments)
    for kind in (ValueError, RuntimeError, convx.InvalidArgument):
        with pytest.raises(kind):
            (conv1d if is_1d(arguments) else conv2d)(**arguments)


@pytest.mark.parametrize("how", ["meta", "grad", "inference", "vmap", "func", "autocast"])
@pytest.mark.parametrize("name", REFUSED)
def test_whatever_way_the_call_takes(name: str, how: str) -> None:
    arguments = arguments_of(name)
    call: Callable[..., Any] = conv1d if is_1d(arguments) else conv2d
    tensors = {key: value for key, value in arguments.items() if isinstance(value, torch.Tensor)}
    rest = {key: value for key, value in arguments.items() if key not in tensors}
    if how == "autocast" and name.startswith("dtype"):
        pytest.skip("autocast makes them alike")

    def run(given: dict[str, torch.Tensor]) -> Any:
        return call(**given, **rest)

    with pytest.raises(convx.InvalidArgument):
        if how == "meta":
            run({key: value.to("meta") for key, value in tensors.items()})
        elif how == "grad":
            run({key: value.requires_grad_() for key, value in tensors.items()})
        elif how == "inference":
            with torch.inference_mode():
                run(tensors)
        elif how == "vmap":
            torch.vmap(run)({key: torch.stack([value, value]) for key, value in tensors.items()})
        elif how == "func":
            torch.func.grad(lambda given: run(given).sum())(tensors)
        else:
            with torch.autocast("cpu", torch.bfloat16):
                run(tensors)


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("name", ["channels", "no stride", "size of bias", "filter larger than the image"])
def test_compiled_calls_raise_what_torchs_do(name: str, fullgraph: bool) -> None:
    """Dynamo wraps what it meets while it records: a RuntimeError, whose text has the error's."""
    torch._dynamo.reset()
    arguments = arguments_of(name)
    with pytest.raises(convx.InvalidArgument) as seen:
        conv2d(**arguments)
    with pytest.raises(RuntimeError) as compiled:
        torch.compile(conv2d, backend="aot_eager", fullgraph=fullgraph)(**arguments)
    assert str(seen.value) in str(compiled.value)


def test_exported_calls() -> None:
    class Model(nn.Module):
        def forward(self, input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return conv2d(input, weight)

    with pytest.raises(convx.InvalidArgument, match="weight must have input channels / groups"):
        torch.export.export(Model(), (torch.randn(1, 4, 8, 8), torch.randn(4, 3, 3, 3)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_layers_refuse_images_as_torchs_do(dtype: torch.dtype) -> None:
    """As in torch's own tests: inputs of other dimensions, dtypes, channels, and too small ones."""
    for original in (nn.Conv1d, nn.Conv2d):
        spatial = 1 if original is nn.Conv1d else 2
        layer = original(3, 8, 3, stride=2).to(dtype)
        converted = original(3, 8, 3, stride=2).to(dtype)
        converted.load_state_dict(layer.state_dict())
        assert convx.convert_(converted).converted
        other = torch.float64 if dtype != torch.float64 else torch.float32
        images = [
            *(torch.empty((3,) * rank, dtype=dtype) for rank in (0, 1, spatial + 3)),
            torch.empty((1, 3, *(7,) * spatial), dtype=other),
            torch.empty((1, 4, *(7,) * spatial), dtype=dtype),
            torch.empty((1, 3, *(2,) * spatial), dtype=dtype),
        ]
        for image in images:
            for each in (layer, converted, converted.eval()):
                with pytest.raises(RuntimeError):
                    each(image)


def test_gradients_planner_filters_and_layers_raise_it() -> None:
    image, weight = torch.randn(1, 4, 8, 8), torch.randn(4, 1, 3, 3)
    calls: list[Callable[[], Any]] = [
        lambda: conv2d_input_grad(image, weight, (1, 4, 8, 8), groups=4),
        lambda: conv2d_weight_grad(image, image, (4, 1, 3, 3), groups=4),
        lambda: conv2d(image, weight, groups=4, algorithm="pointwise"),
        lambda: conv2d(image, weight, groups=4, algorithm="fastest"),
        lambda: conv2d(image, weight, groups=4, activation="tanh"),
        lambda: convx.explain(image, weight, groups=3),
        lambda: convx.explain(image, weight, groups=4, stride=2**70),
        lambda: convx.explain(image, weight, groups=4, algorithm="pointwise"),
        lambda: convx.explain(image, weight, groups=4, operation="backward"),
        lambda: convx.convert_(nn.Conv2d(4, 4, 3), algorithm="fastest"),
        lambda: convx.tune(nn.Conv2d(4, 4, 3), image, rounds=0),
        lambda: convx.nn.Conv2d(4, 4, 3, activation="tanh"),
        lambda: convx.nn.GaussianBlur2d(-1.0),
        lambda: convx.nn.GaussianBlur2d(10**400),
        lambda: convx.nn.GaussianBlur2d(1.0, 2**70 + 1),
        lambda: convx.nn.Filter2d(torch.randn(3)),
        lambda: convx.functional.filter2d(image, weight),
        lambda: convx.functional.filter2d(image, weight[0], "mirror"),
        lambda: convx.functional.filter2d(image.int(), weight[0, 0].int()),
        lambda: convx.functional.separable_filter2d(image, weight, [1.0]),
        lambda: convx._core.Problem(batch=1, in_channels=0, in_height=1, in_width=1, out_channels=1,
                                    filter_height=1, filter_width=1),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(convx.InvalidArgument) as seen:
            call()
        assert isinstance(seen.value, ValueError) and isinstance(seen.value, RuntimeError)


def test_it_can_be_pickled() -> None:
    """As between the processes of a data loader."""
    error = pickle.loads(pickle.dumps(convx.InvalidArgument("groups")))
    assert type(error) is convx.InvalidArgument and str(error) == "groups"


def test_other_errors_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that runs out of memory has no argument to blame."""

    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(convx.dispatch, "_front", None)
    monkeypatch.setattr(convx.operators, "conv2d", fail)
    with pytest.raises(RuntimeError, match="out of memory") as seen:
        conv2d(torch.randn(1, 4, 8, 8), torch.randn(4, 1, 3, 3), groups=4)
    assert type(seen.value) is RuntimeError


def test_symbolic_sizes_are_integers() -> None:
    def both(input: torch.Tensor) -> tuple[torch.Tensor, ...]:
        channels, height, width = input.shape[1:]
        weight = torch.ones(channels, 1, 3, 3)
        output = conv2d(input, weight, groups=channels, stride=(1, height // height))
        grad = torch.ones(1, channels, height - 2, width - 2)
        return output, conv2d_input_grad(grad, weight, input.shape, groups=channels)

    image = torch.randn(1, 4, 9, 8)
    expected = both(image)
    for recorded in (
        make_fx(both, tracing_mode="symbolic")(image),
        torch.compile(both, dynamic=True, fullgraph=True, backend="aot_eager"),
    ):
        for result, wanted in zip(recorded(image), expected, strict=True):
            torch.testing.assert_close(result, wanted)


def test_symbolic_sizes_are_judged_by_what_they_stand_for() -> None:
    """A program that is recorded with sizes that work is held to nothing: its operators judge others."""

    def call(input: torch.Tensor) -> torch.Tensor:
        return conv2d(input, torch.ones(4, 1, 9, 9), groups=4)

    reason = "the filter spans 9 in height .* has only 6"
    with pytest.raises(convx.InvalidArgument, match=reason):
        make_fx(call, tracing_mode="symbolic")(torch.randn(1, 4, 6, 6))
    program = make_fx(call, tracing_mode="symbolic")(torch.randn(1, 4, 12, 12))
    assert program(torch.randn(2, 4, 10, 9)).shape == (2, 4, 2, 1)
    with pytest.raises(ValueError, match=reason):
        program(torch.randn(1, 4, 6, 6))
