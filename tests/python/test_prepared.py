"""What layers remember of their calls: native's go to torch straight, others to kernels; none too many."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from processes import run_python
from torch import Tensor

import convx
from convx._libraries import front_problem
from convx.dispatch.packed import _MOST, forget_all
from convx.tune import records

pytestmark = pytest.mark.skipif(bool(front_problem()), reason=f"no convx._front: {front_problem()}")


def kinds(layer: Any) -> list[str]:
    """Who computes each call that the layer remembers."""
    return layer._packed.calls.kinds()  # type: ignore[no-any-return]


@pytest.fixture
def tuned() -> Iterator[Callable[..., None]]:
    """Lets auto take the best plan of a method for _input and a filter of the given fields."""
    core = convx._planning.core()

    def remember(operation: str, method: str, **fields: Any) -> None:
        problem = core.Problem(operation=operation, batch=2, in_height=9, in_width=11, **fields)
        device = core.Device.host_cpu(torch.get_num_threads())
        plan = core.select(problem, device, method).plan
        named = {"device": core.tuning_key(device), "algorithm": plan.name, "us": 1.0}
        core.remember_tuned(records.fields_text({**records.problem_fields(problem), **named}))

    yield remember
    records.forget()


def _layer(**options: Any) -> convx.nn.Conv2d:
    torch.manual_seed(0)
    return convx.nn.Conv2d(6, 10, 3, padding=1, **{"algorithm": "native", **options})


def _input(*size: int) -> Tensor:
    return torch.randn(*(size or (2, 6, 9, 11)))


def _torchs(layer: convx.nn.Conv2d, input: Tensor) -> Tensor:
    rest = (layer.stride, layer.padding, layer.dilation, layer.groups)
    return torch.nn.functional.conv2d(input, layer.weight, layer.bias, *rest)


@torch.no_grad()
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("bias", [True, False])
def test_native_is_torchs_own_call(layout: torch.memory_format, bias: bool) -> None:
    layer, x = _layer(bias=bias).to(memory_format=layout), _input().contiguous(memory_format=layout)
    for _ in range(3):
        result = layer(x)
        assert torch.equal(result, _torchs(layer, x))
        assert result.is_contiguous(memory_format=layout)
    assert kinds(layer) == ["torch"]


@torch.no_grad()
@pytest.mark.parametrize("algorithm", ["hntmp", "depthwise"])
def test_another_choice_is_a_kernel(monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    """At once, with filters that the layer keeps packed and without."""
    layer, x = convx.nn.Conv2d(6, 6, 3, padding=1, groups=6, algorithm=algorithm), _input()
    monkeypatch.setattr(convx.nn.Conv2d, "_function", None)
    for training in (False, False, True, True):
        layer.train(training)
        torch.testing.assert_close(layer(x), _torchs(layer, x))
        assert kinds(layer) == ["kernel"]
        kept = layer._packed._snapshot is not None
        assert kept == (algorithm == "hntmp" and not training)


@pytest.mark.parametrize("arguments", [{}, {"padding": 3, "stride": 2}, {"padding": "same", "dilation": 2}])
def test_rows_are_torchs_too(arguments: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer, x = convx.nn.Conv1d(6, 8, 3, algorithm="native", **arguments), torch.randn(2, 6, 30)
    rest = (layer.stride, layer.padding, layer.dilation, layer.groups)
    for needed in (False, True):
        x.requires_grad_(needed)
        result, expected = layer(x), torch.nn.functional.conv1d(x, layer.weight, layer.bias, *rest)
        assert torch.equal(result, expected) and result.stride() == expected.stride()
        tensors = [x, layer.weight, layer.bias] if needed else [layer.weight, layer.bias]
        for own, torchs in zip(
            torch.autograd.grad(result.square().sum(), tensors),
            torch.autograd.grad(expected.square().sum(), tensors),
            strict=True,
        ):
            assert torch.equal(own, torchs)
    assert set(kinds(layer)) == {"torch"}
    assert layer(x[0]).shape == expected[0].shape  # without a batch


@pytest.mark.parametrize("algorithm", ["native", "depthwise"])
def test_functions_are_prepared_too(monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    """Images, rows and what has no batch, with gradients and without: none of them goes by an operator."""
    monkeypatch.setattr(convx.dispatch, "_images", None)
    weight = torch.randn(6, 1, 3, requires_grad=True)
    rest: dict[str, Any] = {"padding": 1, "groups": 6}
    for x in (torch.randn(2, 6, 9), torch.randn(6, 9)):
        result = convx.functional.conv1d(x, weight, algorithm=algorithm, **rest)
        torch.testing.assert_close(result, torch.nn.functional.conv1d(x, weight, **rest))
        assert result.requires_grad
    filters = torch.randn(6, 1, 3, 3)
    for x in (torch.randn(2, 6, 9, 7), torch.randn(6, 9, 7)):
        result = convx.functional.conv2d(x, filters, algorithm=algorithm, **rest)
        torch.testing.assert_close(result, torch.nn.functional.conv2d(x, filters, **rest))


@torch.no_grad()
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("algorithm", ["native", "hntmp", "auto"])
@pytest.mark.parametrize(
    ("weight_size", "rest"),
    [
        ((10, 6, 3, 3), {"padding": 1}),
        ((12, 2, 3, 2), {"padding": (1, 0), "groups": 3}),
        ((8, 6, 1, 1), {}),
        ((6, 1, 3, 3), {"padding": "same", "dilation": 2, "groups": 6}),
        ((1, 6, 3, 3), {}),
    ],
)
def test_gradient_functions_are_prepared_too(
    monkeypatch: pytest.MonkeyPatch,
    layout: torch.memory_format,
    algorithm: str,
    weight_size: tuple[int, ...],
    rest: dict[str, Any],
) -> None:
    """With the operators' values and strides, bit for bit."""
    x, w = _input().contiguous(memory_format=layout), torch.randn(weight_size)
    grad = torch.randn_like(torch.nn.functional.conv2d(x, w, **rest)).contiguous(memory_format=layout)
    of_weight = "auto" if algorithm == "hntmp" else algorithm  # which has no weight gradient

    def gradients() -> tuple[Tensor, Tensor]:
        of_input = convx.functional.conv2d_input_grad(grad, w, x.shape, algorithm=algorithm, **rest)
        return of_input, convx.functional.conv2d_weight_grad(x, grad, w.shape, algorithm=of_weight, **rest)

    with monkeypatch.context() as patched:
        patched.setattr(convx.dispatch, "_front", None)
        expected = gradients()
    for name in ("conv2d_input_grad", "conv2d_weight_grad"):
        monkeypatch.setattr(convx.operators, name, None)
    for _ in range(2):
        for found, same in zip(gradients(), expected, strict=True):
            assert torch.equal(found, same) and found.stride() == same.stride()


@pytest.mark.parametrize("wanted", ["first", "second"])
def test_gradient_functions_that_are_differentiated_are_recorded(wanted: str) -> None:
    x, w = _input().requires_grad_(wanted == "second"), torch.randn(10, 6, 3, 3)
    grad = torch.randn(2, 10, 7, 9).requires_grad_(wanted == "first")
    for found in (
        convx.functional.conv2d_input_grad(grad, w.requires_grad_(wanted == "second"), x.shape),
        convx.functional.conv2d_weight_grad(x, grad, w.shape),
    ):
        assert found.requires_grad
        found.sum().backward()
    assert (grad if wanted == "first" else x).grad is not None


def test_a_choice_of_gradient_functions_made_anew_counts(tuned: Any) -> None:
    fields = {"in_channels": 6, "out_channels": 6, "filter_height": 3, "filter_width": 3, "groups": 6}
    w, grad = torch.randn(6, 1, 3, 3), torch.randn(2, 6, 7, 9)
    size, expected = (2, 6, 9, 11), None
    for method in ("native", "hntmp"):
        tuned("input_grad", method, **fields)
        found = convx.functional.conv2d_input_grad(grad, w, size, groups=6)
        named = convx.functional.conv2d_input_grad(grad, w, size, groups=6, algorithm=method)
        assert torch.equal(found, named)
        expected = found if expected is None else expected
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("activation", ["none", "relu", "silu"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_prepared_gradients_are_functionals(layout: torch.memory_format, activation: str) -> None:
    layer = convx.nn.Conv2d(6, 6, 3, padding=1, groups=6, algorithm="depthwise", activation=activation)
    layer, x = layer.to(memory_format=layout), _input().contiguous(memory_format=layout).requires_grad_()
    for _ in range(2):
        results = []
        for call in (layer, lambda x: layer._conv_forward(x, layer.weight, layer.bias)):
            result = call(x)
            gradients = torch.autograd.grad(result.square().sum(), [x, layer.weight, layer.bias])
            results.append([result, *gradients])
        for prepared, functionals in zip(*results, strict=True):
            assert torch.equal(prepared, functionals) and prepared.stride() == functionals.stride()


@pytest.mark.parametrize("algorithm", ["native", "depthwise"])
def test_transforms_go_through_prepared_layers(algorithm: str) -> None:
    layer = convx.nn.Conv2d(6, 6, 3, padding=1, groups=6, algorithm=algorithm).double()
    x, direction = torch.randn(2, 6, 5, 7, dtype=torch.float64).unbind(0)
    x, direction = x[None], direction[None]
    layer(x)  # prepared
    value, tangent = torch.func.jvp(layer, (x,), (direction,))
    torch.testing.assert_close(value, _torchs(layer, x))
    torch.testing.assert_close(tangent, _torchs(layer, direction) - layer.bias.view(1, -1, 1, 1))
    many = torch.func.vmap(layer)(torch.stack([x, direction]))
    torch.testing.assert_close(many, torch.stack([_torchs(layer, x), _torchs(layer, direction)]))
    gradient = torch.func.grad(lambda x: layer(x).square().sum())(x)
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(_torchs(layer, leaf).square().sum(), leaf)
    torch.testing.assert_close(gradient, expected)


@torch.no_grad()
def test_a_layer_that_was_mended_is_prepared() -> None:
    layer, x = _layer(), _input()
    layer.weight.data = layer.weight.data.double()
    with pytest.raises(convx.InvalidArgument, match="weight must have the dtype of input"):
        layer(x)
    layer.float()
    assert torch.equal(layer(x), _torchs(layer, x))
    assert kinds(layer) == ["torch"]


@torch.no_grad()
@pytest.mark.parametrize("algorithm", ["native", "depthwise"])
def test_what_goes_wrong_is_said_by_functional(algorithm: str) -> None:
    layer, x = convx.nn.Conv2d(6, 6, 3, groups=6, algorithm=algorithm), _input()
    layer(x)
    with pytest.raises(convx.InvalidArgument, match="input must be a dense tensor"):
        layer(x.to_sparse())
    with pytest.raises(convx.InvalidArgument, match="weight must have the dtype of input"):
        layer(x.double())
    layer.weight.data = layer.weight.data.double()
    with pytest.raises(convx.InvalidArgument, match="weight must have the dtype of input"):
        layer(x)
    with pytest.raises(convx.InvalidArgument, match="input channels"):
        layer(x.double()[:, :5])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("needed", [(True, False), (False, True), (True, True)])
def test_gradients_are_torchs_too(
    layout: torch.memory_format, autocast: bool, needed: tuple[bool, bool]
) -> None:
    layer, x = _layer().to(memory_format=layout), _input().contiguous(memory_format=layout)
    layer.weight.requires_grad_(needed[1])
    grad, found = torch.randn(2, 10, 9, 11), []
    for call in (layer, lambda x: _torchs(layer, x)):
        leaf = x.detach().requires_grad_(needed[0])
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            result = call(leaf)
        assert result.grad_fn.name() == "ConvolutionBackward0"
        tensors = [each for each in (leaf, layer.weight, layer.bias) if each.requires_grad]
        found.append([result, *torch.autograd.grad(result, tensors, grad.to(result.dtype))])
    for own, torchs in zip(*found, strict=True):
        assert torch.equal(own, torchs) and own.stride() == torchs.stride()
    assert kinds(layer) == ["torch"]


@pytest.mark.parametrize("operation", ["forward", "input_grad", "weight_grad"])
def test_a_gradient_by_another_method_is_convxs(tuned: Any, operation: str) -> None:
    """Where one of those that are needed is; where it is not needed it doesn't count."""
    case = {"in_channels": 6, "out_channels": 6, "groups": 6, "filter_height": 3, "filter_width": 3}
    for each in ("forward", "input_grad", "weight_grad"):
        tuned(each, "depthwise" if each == operation else "native", **case)
    for needed in ((True, False), (False, True), (True, True), (False, False)):
        layer = convx.nn.Conv2d(6, 6, 3, groups=6, bias=False)
        layer.weight.requires_grad_(needed[1])
        x = _input().requires_grad_(needed[0])
        by_convx = {"forward": True, "input_grad": needed[0], "weight_grad": needed[1]}[operation]
        y = layer(x)
        assert (kinds(layer) != ["torch"]) == by_convx
        if any(needed):
            tensors = [each for each in (x, layer.weight) if each.requires_grad]
            found = torch.autograd.grad(y.square().sum(), tensors)
            expected = torch.autograd.grad(_torchs(layer, x).square().sum(), tensors)
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("call", ["layer", "functional"])
def test_a_checkpoint_stops_what_it_computes_again(call: str) -> None:
    """By an exception out of a hook of saved tensors, which nobody on the way may take for an error."""
    layer = convx.nn.Conv2d(6, 6, 3, padding=1, groups=6, algorithm="depthwise")
    x = _input().requires_grad_()

    def run(x: Tensor) -> Tensor:
        rest = {"padding": 1, "groups": 6, "algorithm": "depthwise"}
        return layer(x) if call == "layer" else convx.functional.conv2d(x, layer.weight, layer.bias, **rest)

    def gradients(y: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(y.square().sum(), [x, layer.weight, layer.bias])

    expected = gradients(run(x))
    again = gradients(torch.utils.checkpoint.checkpoint(run, x, use_reentrant=False))
    torch.testing.assert_close(again, expected)

    def fail(tensor: Tensor) -> Tensor:
        raise KeyError("a hook's own")

    with torch.autograd.graph.saved_tensors_hooks(fail, fail), pytest.raises(KeyError, match="a hook's own"):
        run(x)


def test_what_is_needed_may_change() -> None:
    layer, x = _layer(), _input()
    for trains in (True, False, True):
        layer.requires_grad_(trains)
        for _ in range(2):
            assert layer(x).requires_grad == trains
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    assert layer(x).dtype == torch.float32
    x.requires_grad_()
    (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    assert torch.autograd.grad(first.sum(), layer.weight)[0].abs().sum() > 0
    assert set(kinds(layer)) == {"torch"}


def _of_a_slice(layer: convx.nn.Conv2d, x: Tensor) -> Tensor:
    wide = torch.cat([x, x], dim=3)
    return layer(wide[..., : x.shape[3]])


def _of_another_layout(layer: convx.nn.Conv2d, x: Tensor) -> Tensor:
    result: Tensor = layer(x.contiguous(memory_format=torch.channels_last))
    assert result.is_contiguous(memory_format=torch.channels_last)
    return result


def _without_a_batch(layer: convx.nn.Conv2d, x: Tensor) -> Tensor:
    return torch.stack([layer(image) for image in x])


def _fused(layer: convx.nn.Conv2d, x: Tensor) -> Tensor:
    layer.activation = "relu"
    result: Tensor = layer(x)
    layer.activation = "none"
    assert (result >= 0).all()
    return torch.where(result > 0, result, layer(x))


def _of_another_method(layer: convx.nn.Conv2d, x: Tensor) -> Tensor:
    layer.algorithm = "hntmp"
    return layer(x)


@torch.no_grad()
@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (_of_a_slice, "torch"),
        (_of_another_layout, "torch"),
        (_without_a_batch, "functional"),
        (_fused, "torch forward"),
        (_of_another_method, "kernel"),
    ],
)
def test_other_calls_of_a_layer_of_torchs(
    call: Callable[[convx.nn.Conv2d, Tensor], Tensor], kind: str
) -> None:
    layer, x = _layer(), _input()
    layer(x)  # remembered
    torch.testing.assert_close(call(layer, x), _torchs(layer, x))
    assert kinds(layer)[:2] == ["torch", kind]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("activation", ["none", "relu"])
def test_operands_that_are_not_dense_are_torchs_affair(dtype: torch.dtype, activation: str) -> None:
    """As in ConvNeXt, whose images are channels_last and weights are not; and parts of tensors."""
    layer = _layer(activation=activation).to(dtype)
    wide = torch.randn(2, 6, 9, 22, dtype=dtype)
    for x in (
        _input().to(dtype).contiguous(memory_format=torch.channels_last),
        wide[..., ::2],
        wide[:, :, :1],
    ):
        x.requires_grad_()
        result, expected = layer(x), _torchs(layer, x)
        if activation == "relu":
            expected = expected.relu()
        assert torch.equal(result, expected) and result.stride() == expected.stride()
        tensors = [x, layer.weight, layer.bias]
        torch.testing.assert_close(
            torch.autograd.grad(result.square().sum(), tensors),
            torch.autograd.grad(expected.square().sum(), tensors),
        )
    assert set(kinds(layer)) == {"torch" if activation == "none" else "torch forward"}


def test_a_backward_pass_computes_what_it_is_asked_for() -> None:
    layer, x = convx.nn.Conv2d(6, 6, 3, padding=1, groups=6, algorithm="depthwise"), _input().requires_grad_()
    result, expected = layer(x), _torchs(layer, x)
    for tensor in (x, layer.weight, layer.bias):
        found = torch.autograd.grad(result.square().sum(), tensor, retain_graph=True)
        torch.testing.assert_close(
            found, torch.autograd.grad(expected.square().sum(), tensor, retain_graph=True)
        )
    result.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        result.sum().backward()


@torch.no_grad()
def test_what_is_remembered_follows_the_layer() -> None:
    layer, x = _layer(), _input()
    layer(x)
    layer.weight.add_(1)
    assert torch.equal(layer(x), _torchs(layer, x))
    layer.dilation, layer.padding = (2, 2), (2, 2)
    assert torch.equal(layer(x), _torchs(layer, x))
    layer.weight.data = layer.weight.data.double()
    layer.bias.data = layer.bias.data.double()
    assert torch.equal(layer(x.double()), _torchs(layer, x.double()))
    assert set(kinds(layer)) == {"torch"}
    with pytest.raises(ValueError, match="weight must have the dtype of input"):
        layer(x)  # the message is the operator's


@torch.no_grad()
def test_padding_that_differs_between_sides() -> None:
    layer, x = _layer(), _input()
    layer.padding = ((0, 2), (1, 0))
    padded = torch.nn.functional.pad(x, (1, 0, 0, 2))
    expected = torch.nn.functional.conv2d(padded, layer.weight, layer.bias)
    torch.testing.assert_close(layer(x), expected)
    assert kinds(layer) == ["operators"]


@torch.no_grad()
def test_choices_made_anew_count(tuned: Any) -> None:
    layer, x = convx.nn.Conv2d(6, 6, 3, groups=6), _input()
    layer(x)
    forget_all()
    layer(x)
    assert len(kinds(layer)) == 2
    case = {"in_channels": 6, "out_channels": 6, "groups": 6, "filter_height": 3, "filter_width": 3}
    for algorithm, kind in (("native", "torch"), ("depthwise", "kernel")):
        tuned("forward", algorithm, bias=True, **case)
        torch.testing.assert_close(layer(x), _torchs(layer, x))
        assert kinds(layer)[-1] == kind


@torch.no_grad()
@pytest.mark.parametrize("how", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_remember_nothing(how: Callable[[convx.nn.Conv2d], convx.nn.Conv2d]) -> None:
    layer, x = _layer(), _input()
    expected = layer(x)
    assert kinds(layer)
    other = how(layer)
    assert not kinds(other)
    assert torch.equal(other(x), expected)


@torch.no_grad()
def test_a_list_that_is_changed_in_place_is_another_call() -> None:
    layer, x = _layer(), _input(1, 6, 9, 9)
    layer.stride = [1, 1]
    for height in (1, 2, 1):
        layer.stride[0] = height
        assert torch.equal(layer(x), _torchs(layer, x))


@torch.no_grad()
def test_many_sizes_do_not_pile_up() -> None:
    layer = _layer()
    for size in range(3, 5 + _MOST):
        x = _input(1, 6, size, 5)
        assert torch.equal(layer(x), _torchs(layer, x))
        assert 0 < len(kinds(layer)) <= _MOST


def test_a_layers_calls_are_called_with_three_things() -> None:
    calls = convx.nn.Conv2d(3, 4, 1)._packed.calls  # type: ignore[union-attr]
    assert len(calls) == 0 and calls.kinds() == []
    with pytest.raises(TypeError, match="a layer, its input and its PackedFilters"):
        calls(None)
    with pytest.raises(TypeError, match="a layer, its input and its PackedFilters"):
        calls(None, None, packed=None)


def test_first_calls_at_once() -> None:
    """While one of them imports what it needs, others come."""
    program = """
import importlib.abc, sys, time, torch, convx
from at_once import at_once

class Slowly(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *rest):
        if name == "convx.dispatch.attributes":
            time.sleep(0.5)

assert "convx.dispatch.attributes" not in sys.modules
sys.meta_path.insert(0, Slowly())
layers = [convx.nn.Conv2d(3, 4, 3).eval() for _ in range(4)]
at_once(4, lambda index: layers[index](torch.randn(1, 3, 8, 8)))
print([layer._packed.calls.kinds() != [] for layer in layers])
"""
    assert run_python(program, timeout=100).stdout == "[True, True, True, True]\n"


def test_layers_that_go_leave_nothing() -> None:
    """The type is written by hand: what a layer remembers, and the memory of that, goes with it."""
    kind = type(convx.nn.Conv2d(3, 4, 1)._packed.calls)  # type: ignore[union-attr]
    before = sys.getrefcount(kind)
    for _ in range(100):
        layer = _layer()
        layer(_input())
        assert kinds(layer) == ["torch"]
    del layer
    assert sys.getrefcount(kind) == before
