"""Networks that are one chain, called in C++ from the second call on: as by the graph, whatever comes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from optimized import (
    LAYOUTS,
    WEIGHT_CHANGES,
    Model,
    block,
    fused_is_the_fastest,
    image,
    optimized_agrees,
)
from torch import Tensor, nn

import convx
from convx._libraries import front_problem
from convx.dispatch import packed
from convx.optimize.layers import FusedConv2d

__all__ = ["fused_is_the_fastest"]
pytestmark = pytest.mark.skipif(bool(front_problem()), reason=f"no convx._front: {front_problem()}")


class Watched:
    """What stands in the place of run_whole."""

    def __init__(self, optimized: convx.OptimizedModel) -> None:
        self.served: list[bool] = []
        self._run = optimized.programs.run_whole
        assert self._run is not None
        optimized.programs.run_whole = self

    def __call__(self, given: Any) -> Any:
        found = self._run(given)
        self.served.append(found is not None)
        return found


def _run(model: Any, x: Tensor) -> Tensor:
    return model.linear(model.two(model.one(x)).mean((2, 3)))  # type: ignore[no-any-return]


def _optimized(layout: str = "as given", model: nn.Module | None = None) -> convx.OptimizedModel:
    torch.manual_seed(0)
    if model is None:
        model = Model(_run, one=block(), two=block(), linear=nn.Linear(12, 7))
    optimized = optimized_agrees(model, image(), layout=layout)
    for layer in optimized.network.modules():
        if isinstance(layer, FusedConv2d):
            layer.algorithm = "hntmp"
    optimized.programs.forget()
    return optimized


def _ready(optimized: convx.OptimizedModel, x: Tensor) -> Watched:
    with torch.no_grad():
        optimized(x)
        assert optimized.programs.run_whole is not None
    return Watched(optimized)


def _by_layers(optimized: convx.OptimizedModel, x: Tensor) -> Any:
    return optimized.network(*optimized.in_own_layout((x,), {})[0])


def test_the_second_call_is_in_cpp() -> None:
    optimized, x = _optimized(), image()
    assert optimized.programs.run_whole is None
    watched = _ready(optimized, x)
    with torch.no_grad():
        results = [optimized(x + shift) for shift in (0, 1)]
        for shift, result in enumerate(results):  # each in memory of its own
            assert torch.equal(result, _by_layers(optimized, x + shift))
        assert torch.equal(optimized(nn.Parameter(x, requires_grad=False)), results[0])
    assert watched.served == [True, True, True]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_another_layout(layout: str) -> None:
    """Images that have to be copied first are Python's."""
    optimized = _optimized("channels_last")
    for given in (layout, *LAYOUTS):
        x = image(layout=given)
        with torch.no_grad():
            results = [optimized(x) for _ in range(3)]
            expected = _by_layers(optimized, x)
        assert all(torch.equal(result, expected) for result in results)


def test_results_that_are_images() -> None:
    model = Model(lambda model, x: model.two(model.one(x)), one=block(), two=block())
    for layout in ("as given", "nchw", "channels_last"):
        optimized = _optimized(layout, model)
        for given in LAYOUTS:
            x = image(layout=given)
            with torch.no_grad():
                results = [optimized(x) for _ in range(3)]
            assert all(torch.equal(result, results[0]) for result in results)
            assert {result.stride() for result in results} == {model(x).stride()}


@pytest.mark.parametrize("change", WEIGHT_CHANGES.values(), ids=WEIGHT_CHANGES)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_weights_that_change(place: int, change: Callable[[Any], object]) -> None:
    optimized, x = _optimized(), image()
    watched = _ready(optimized, x)
    layers = [each for each in optimized.network.modules() if isinstance(each, (FusedConv2d, nn.Linear))]
    with torch.no_grad():
        before = optimized(x)
        change(layers[place])
        after = [optimized(x) for _ in range(3)]
        expected = _by_layers(optimized, x)
    assert watched.served[:2] == [True, False] and not torch.equal(after[0], before)
    for each in after:
        torch.testing.assert_close(each, expected, rtol=1e-5, atol=1e-5)


PYTHONS: dict[str, Callable[[Any, Tensor], Any]] = {
    "autocast": lambda model, x: _with_autocast(model, x),
    "transform": lambda model, x: torch.func.vmap(model)(x[None])[0],
    "other size": lambda model, x: torch.cat([model(x[:1]), model(x[1:])]),
    "other layout": lambda model, x: model(x.contiguous(memory_format=torch.channels_last)),
    "gradients": lambda model, x: _with_gradient(model, x),
    "named": lambda model, x: model(x=x),
}


def _with_autocast(model: Any, x: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        result = model(x)
    assert result.dtype == torch.bfloat16
    return result.float()


def _with_gradient(model: Any, x: Tensor) -> Any:
    with torch.enable_grad():
        result = model(x.clone().requires_grad_())
    assert result.requires_grad
    return result


@pytest.mark.parametrize("call", PYTHONS.values(), ids=PYTHONS)
def test_what_is_pythons(call: Callable[[Any, Tensor], Any]) -> None:
    optimized, x = _optimized(), image()
    watched = _ready(optimized, x)
    with torch.no_grad():
        expected = optimized(x)
        torch.testing.assert_close(call(optimized, x), expected, rtol=0.05, atol=0.05)
        assert not any(watched.served[1:])
        assert torch.equal(optimized(x), expected)


def test_what_is_no_tensor() -> None:
    optimized = _optimized()
    watched = _ready(optimized, image())
    with pytest.raises(Exception, match=r".+"):
        optimized(None)
    assert watched.served == [False]


def test_plans_and_threads_that_change() -> None:
    optimized, x = _optimized(), image()
    watched, threads = _ready(optimized, x), torch.get_num_threads()
    with torch.no_grad():
        expected = optimized(x)
        packed.forget_all()
        assert torch.equal(optimized(x), expected)
        optimized.programs.run_whole = watched
        try:
            torch.set_num_threads(threads + 1)
            assert torch.equal(optimized(x), expected)
        finally:
            torch.set_num_threads(threads)
    assert watched.served == [True, False, False]


def test_one_call_at_a_time() -> None:
    optimized, x = _optimized(), image()
    watched = _ready(optimized, x)
    with torch.no_grad():
        expected = optimized(x)
        with optimized.programs._lock:
            torch.testing.assert_close(optimized(x), expected, rtol=1e-5, atol=1e-5)
        optimized.programs.run_whole = watched
        assert torch.equal(optimized(x), expected)
        assert optimized.programs._lock.acquire(blocking=False)  # nobody has kept it
    assert watched.served == [True, False, True]


def test_larger_memory_for_another_size() -> None:
    optimized = _optimized()
    small, large = image(batch=1), image(batch=40)
    with torch.no_grad():
        expected = [_by_layers(optimized, each) for each in (small, large)]
        for _ in range(3):
            for x, wanted in zip((small, large), expected, strict=True):
                assert torch.equal(optimized(x), wanted) and torch.equal(optimized(x), wanted)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_begin_anew(how: Callable[[Any], Any]) -> None:
    model = nn.Sequential(block(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    optimized, x = _optimized(model=model), image()
    _ready(optimized, x)
    optimized.programs.forget()
    with torch.no_grad():
        expected = optimized(x)
        made = how(optimized)
        assert made.programs.run_whole is None
        for _ in range(3):
            assert torch.equal(made(x), expected)


def test_hooks_of_the_model() -> None:
    optimized, x = _optimized(), image()
    _ready(optimized, x)
    seen: list[Any] = []
    optimized.register_forward_hook(lambda *_: seen.append(1))
    with torch.no_grad():
        optimized(x)
    assert seen == [1]


def test_recorded_calls_see_operators() -> None:
    optimized, x = _optimized(), image()
    watched = _ready(optimized, x)
    with torch.no_grad():
        expected = optimized(x)
        exported = torch.export.export(optimized, (x,)).module()
        torch.testing.assert_close(exported(x), expected, rtol=1e-5, atol=1e-5)
        traced = torch.jit.trace(optimized, (x,), check_trace=False)
        torch.testing.assert_close(traced(x + 1), optimized(x + 1), rtol=1e-5, atol=1e-5)
    assert watched.served[0]
