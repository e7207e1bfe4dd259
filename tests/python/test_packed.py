"""Filters that layers keep packed: never another weight's, whatever happens to the weight in between."""

from __future__ import annotations

import copy
import io
import pickle
import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from at_once import at_once
from packed_layers import (
    CHANNELS,
    FILTERS,
    add_in_place,
    assert_right,
    expected_of,
    in_another_order,
    packed_input,
    packed_layer,
)
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import convx
from convx import _libraries, dispatch
from convx.dispatch import packed
from convx.dispatch.packed import _MOST, PackedFilters, forget_all


@pytest.mark.parametrize("has_front", [True, False])
def test_the_state_of_tensors(has_front: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one for every write, other memory and other tensor, in each place."""
    if not has_front:
        monkeypatch.setattr(packed, "_front", None)
    tensors = [torch.randn(3) for _ in range(4)]
    seen = {packed.state_of(tensors)}
    assert packed.state_of(list(tensors)) in seen
    for place in range(4):
        tensors[place].mul_(2)
        seen.add(packed.state_of(tensors))
        tensors[place].data = torch.randn(3)
        seen.add(packed.state_of(tensors))
        other = tensors[place].detach().clone()
        seen.add(packed.state_of([*tensors[:place], other, *tensors[place + 1 :]]))
        tensors[place].requires_grad_()
        seen.add(packed.state_of(tensors))
        tensors[place].requires_grad_(False)
    seen |= {packed.state_of(tensors[::-1]), packed.state_of(tensors[1:]), packed.state_of([])}
    assert len(seen) == 1 + 4 * 4 + 3
    held = torch.nn.Linear(2, 3)._parameters
    before = packed.state_of([held])
    assert before == packed.state_of([held])
    held["bias"] = None
    assert packed.state_of([held]) != before
    with torch.inference_mode():
        uncounted = torch.ones(2)
    with pytest.raises(RuntimeError, match="version counter"):
        packed.state_of([uncounted])


def _packed_copies(layer: convx.nn.Conv2d) -> list[Tensor | None]:
    """One for each input size."""
    assert layer._packed is not None
    snapshot = layer._packed._snapshot
    return [] if snapshot is None else list(snapshot.packed.values())


def _load(layer: convx.nn.Conv2d) -> None:
    layer.load_state_dict({name: value + 1 for name, value in layer.state_dict().items()})


def _step(layer: convx.nn.Conv2d, **options: bool) -> None:
    layer(packed_input()).square().sum().backward()
    torch.optim.Adam(layer.parameters(), 0.1, **options).step()


def _fused_step(layer: convx.nn.Conv2d) -> None:
    version = layer.weight._version
    _step(layer, fused=True)
    assert layer.weight._version == version, "torch counts these writes now: the hook is not needed any more"


def _foreach_step(layer: convx.nn.Conv2d) -> None:
    _step(layer, foreach=True)


def _write_unseen(layer: convx.nn.Conv2d) -> None:
    """As the replay of a training step that was captured in a CUDA graph does."""
    layer.train()
    layer.weight.data.add_(1)
    layer.eval()


def _write_unseen_in_training(layer: convx.nn.Conv2d) -> None:
    layer.train()
    assert_right(layer, packed_input())
    layer.weight.data.add_(1)


def _load_into_another_tensor(layer: convx.nn.Conv2d) -> None:
    """As sharded parameters do, of which a layer sees a gathered copy in memory that stays the same."""
    layer._load_from_state_dict({}, "", {}, False, [], [], [])
    layer.weight.data.add_(1)


def _replace(layer: convx.nn.Conv2d) -> None:
    layer.weight = torch.nn.Parameter(torch.randn_like(layer.weight))


def _set_data(layer: convx.nn.Conv2d) -> None:
    layer.weight.data = torch.randn_like(layer.weight)


def _swap_data_twice(layer: convx.nn.Conv2d) -> None:
    for _ in range(2):  # the second may well get the memory that the first has given back
        layer.weight.data = torch.randn_like(layer.weight)


CHANGES = (
    add_in_place,
    _load,
    _step,
    _fused_step,
    _foreach_step,
    _replace,
    _set_data,
    _swap_data_twice,
    _write_unseen,
    _write_unseen_in_training,
    _load_into_another_tensor,
)


@pytest.mark.parametrize("made", [packed_layer, in_another_order])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_weight_is_packed_anew(
    change: Callable[[convx.nn.Conv2d], None], made: Callable[[], convx.nn.Conv2d]
) -> None:
    layer, x = made(), packed_input()
    assert_right(layer, x)
    change(layer)
    assert_right(layer, x)
    assert_right(layer, x)


def test_filters_are_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    pack = convx.operators.pack_weight
    monkeypatch.setattr(
        convx.operators, "pack_weight", lambda *arguments: calls.append(1) or pack(*arguments)
    )
    layer, x = packed_layer(), packed_input()
    for _ in range(3):
        assert_right(layer, x)
    assert len(calls) == 1
    assert_right(layer, torch.randn(1, CHANNELS, 20, 20))
    assert len(calls) == 2
    forget_all()
    assert_right(layer, x)
    assert len(calls) == 3


def _copies(call: Callable[[], Any]) -> int:
    """That torch makes, of whatever, while kept filters serve the call."""
    with torch.no_grad():
        call()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            call()
    return sum(each.count for each in seen.key_averages() if each.key == "aten::copy_")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("made", [packed_layer, in_another_order])
def test_a_weight_in_another_order_is_copied_once(
    made: Callable[[], convx.nn.Conv2d], dtype: torch.dtype
) -> None:
    """For kernels with an order of their own and for those that read torch's, by each way of a call."""
    layer, x = made().to(dtype), packed_input().to(dtype)
    if made is packed_layer:
        layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    assert not layer.weight.is_contiguous()
    assert _copies(lambda: layer(x)) == 0
    assert layer.train() and _copies(lambda: layer(x)) > 0
    packed, residual = PackedFilters(), layer(x).detach()

    def function(**more: Any) -> Tensor:
        rest: Any = (1, 1, 1, layer.groups)
        choice = {"algorithm": layer.algorithm, **more}
        return convx.functional.conv2d(x, layer.weight, layer.bias, *rest, **choice)

    assert _copies(lambda: function(packed=packed)) == 0
    assert _copies(lambda: function(packed=packed, residual=residual)) == 0
    with torch.no_grad():
        with_residual, alone = function(packed=packed, residual=residual), function(packed=packed)
    assert torch.equal(alone, residual)
    torch.testing.assert_close(with_residual, alone + residual, rtol=2e-2, atol=2e-2)


def test_writes_that_no_version_counts_need_forget() -> None:
    layer, x = packed_layer(), packed_input()
    assert_right(layer, x)
    layer.weight.data.add_(1)
    assert layer._packed is not None
    layer._packed.forget()
    assert_right(layer, x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_another_dtype(dtype: torch.dtype) -> None:
    layer, x = packed_layer(), packed_input()
    assert_right(layer, x)
    layer.to(dtype)
    with torch.no_grad():
        exact = torch.nn.functional.conv2d(
            x.to(dtype).double(), layer.weight.double(), layer.bias.double(), padding=1
        )
        torch.testing.assert_close(layer(x.to(dtype)).double(), exact, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_pack_for_themselves(how: Callable[[convx.nn.Conv2d], convx.nn.Conv2d]) -> None:
    layer, x = packed_layer(), packed_input()
    assert_right(layer, x)
    other = how(layer)
    assert not _packed_copies(other) and len(_packed_copies(layer)) == 1
    add_in_place(other)
    assert_right(other, x)
    assert_right(layer, x)


def test_packed_filters_are_no_state() -> None:
    layer, x = packed_layer(), packed_input()
    assert_right(layer, x)
    assert set(layer.state_dict()) == {"weight", "bias"}
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    assert buffer.tell() < 3 * sum(value.nbytes for value in layer.state_dict().values()) + 4096


def test_many_sizes_do_not_pile_up() -> None:
    layer = packed_layer()
    for size in range(4, 6 + _MOST):
        assert_right(layer, torch.randn(1, CHANNELS, 4, size))
        assert 0 < len(_packed_copies(layer)) <= _MOST


def test_input_sizes_share_a_copy_of_the_same_bytes() -> None:
    layer = packed_layer()
    for size in (5, 6, 9, 17):
        assert_right(layer, torch.randn(1, CHANNELS, size, size))
    copies = _packed_copies(layer)
    assert len(copies) == 4 and None not in copies
    assert len({each.data_ptr() for each in copies if each is not None}) == 1


def test_a_weight_that_goes_elsewhere_leaves_nothing_behind() -> None:
    layer = packed_layer()
    assert_right(layer, packed_input())
    weight, copy_of_it = weakref.ref(layer.weight), weakref.ref(_packed_copies(layer)[0])
    layer.to("meta")
    assert weight() is None and copy_of_it() is None


@pytest.mark.parametrize("mode", [nullcontext, FakeTensorMode], ids=["meta", "fake"])
def test_weights_that_hold_nothing(mode: Callable[[], Any]) -> None:
    device = "meta" if mode is nullcontext else "cpu"
    with mode(), torch.no_grad():
        layer = packed_layer(device)
        for size in (5, 6):
            shape = layer(torch.empty(1, CHANNELS, size, size, device=device)).shape
            assert shape == (1, FILTERS, size, size)


def test_nothing_is_kept_in_training() -> None:
    layer = packed_layer().train()
    assert_right(layer, packed_input())
    assert not _packed_copies(layer)


def test_a_weight_that_processes_share_is_packed_at_each_call() -> None:
    """The others' writes are counted there."""
    layer, x = packed_layer(), packed_input()
    assert_right(layer, x)
    layer.share_memory()
    assert_right(layer, x)
    layer.weight.data.add_(1)
    assert_right(layer, x)


def test_threads_share_a_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread packs while another changes the weight: what it keeps then is nobody's."""
    pack, packs, written = convx.operators.pack_weight, threading.Event(), threading.Event()
    layer, x = packed_layer(), packed_input()

    def slow(*arguments: Any) -> Tensor:
        packed: Tensor = pack(*arguments)
        packs.set()
        assert written.wait(60)
        return packed

    def call() -> None:
        with torch.no_grad():
            layer(x)

    monkeypatch.setattr(convx.operators, "pack_weight", slow)
    other = threading.Thread(target=call)
    other.start()
    assert packs.wait(60)
    monkeypatch.setattr(convx.operators, "pack_weight", pack)
    add_in_place(layer)
    assert_right(layer, x)
    written.set()
    other.join()
    assert_right(layer, x)


def test_threads_of_many_sizes() -> None:
    layer = packed_layer()

    def call(index: int) -> None:
        for size in range(20 * index, 20 * index + 40):
            assert_right(layer, torch.randn(1, CHANNELS, 3, 3 + size % 90))

    at_once(4, call)


def test_training_with_a_method_that_has_no_weight_gradient() -> None:
    layer, x = packed_layer(), packed_input().requires_grad_()
    layer(x).square().sum().backward()
    ours = x.grad, layer.weight.grad
    native, y = torch.nn.Conv2d(CHANNELS, FILTERS, 3, padding=1), x.detach().clone().requires_grad_()
    native.load_state_dict(layer.state_dict())
    native(y).square().sum().backward()
    torch.testing.assert_close(ours, (y.grad, native.weight.grad), rtol=1e-3, atol=1e-3)


def test_inference_mode_and_gradients_agree() -> None:
    layer, x = packed_layer(), packed_input()
    with torch.inference_mode():
        inference = layer(x)
    torch.testing.assert_close(layer(x), inference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("replaced", [False, True], ids=["made", "data_replaced"])
def test_a_layer_made_in_inference_mode(replaced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weight has no version that would tell when it changes; where it says so itself, nobody asks for
    what can't be kept."""
    weight, asked = torch.randn(FILTERS, CHANNELS, 3, 3), []
    of = PackedFilters.of
    monkeypatch.setattr(PackedFilters, "of", lambda *args, **rest: asked.append(1) or of(*args, **rest))
    with torch.inference_mode():
        layer = packed_layer()
        if replaced:
            layer.weight.data = weight
        assert_right(layer, packed_input())
        layer.weight.add_(1)
        assert_right(layer, packed_input())
    assert bool(asked) == (replaced or _libraries.front() is None)


def test_reverting_leaves_nothing_behind() -> None:
    layer, x = torch.nn.Conv2d(CHANNELS, FILTERS, 3, padding=1), packed_input()
    attributes = set(vars(layer))
    convx.convert_(layer, algorithm="hntmp")
    with torch.no_grad():
        layer(x)
    convx.revert_(layer)
    assert set(vars(layer)) == attributes


def test_packed_bytes_of_another_size_are_refused() -> None:
    x, w = packed_input(), torch.randn(FILTERS, CHANNELS, 3, 3)
    rest = ((1, 1), (1, 1, 1, 1), (1, 1), 1, "none", "hntmp", 0)
    packed = torch.ops.convx.pack_weight(x, w, None, *rest)
    assert packed.dtype == torch.uint8 and packed.numel() >= w.nbytes
    with pytest.raises((RuntimeError, ValueError), match=r"packed_weight must hold the \d+ bytes"):
        torch.ops.convx.conv2d(x, w, None, *rest, packed[1:])
    with pytest.raises((RuntimeError, ValueError), match="float32"):
        torch.ops.convx.conv2d(x, w, None, *rest, packed[:4].view(torch.float32))


def test_a_plan_in_torchs_order_has_no_packed_bytes() -> None:
    x, w = torch.randn(1, 8, 9, 9), torch.randn(8, 1, 3, 3)
    rest = ((1, 1), (1, 1, 1, 1), (1, 1), 8, "none", "depthwise", 0)
    packed = torch.ops.convx.pack_weight(x, w, None, *rest)
    assert packed.shape == (0,)


def test_packed_bytes_in_torchs_order() -> None:
    """Of a weight in another one, where a kernel reads them."""
    x, w = torch.randn(1, 8, 9, 9), torch.randn(3, 3, 1, 8).permute(3, 2, 0, 1)
    geometry = ((1, 1), (1, 1, 1, 1), (1, 1), 8)
    rest = (*geometry, "none", "depthwise", 0)
    packed = torch.ops.convx.pack_weight(x, w, None, *rest)
    assert torch.equal(packed.view(torch.float32), w.flatten())
    expected = torch.ops.convx.conv2d(x, w, None, *rest)
    assert torch.equal(torch.ops.convx.conv2d(x, w, None, *rest, packed), expected)
    with pytest.raises((RuntimeError, ValueError), match=r"288 bytes of the weight in torch's order"):
        torch.ops.convx.conv2d(x, w, None, *rest, packed[1:])
    assert torch.ops.convx.pack_weight(x, w, None, *geometry, "none", "native", 0).shape == (0,)


def test_packing_counts_where_nobody_keeps_the_filters() -> None:
    x = torch.empty(1, 64, 56, 56, device="meta")
    layer = torch.nn.Conv2d(64, 64, 3, padding=1, bias=False, device="meta").eval()
    kept = convx.explain(layer, x, device="h200")
    alone = convx.explain(x, layer.weight, padding=1, device="h200")
    times = {row.plan: row.predicted_us for row in kept.rows if row.can_run}
    packed = [row.plan for row in alone.rows if row.can_run and row.predicted_us > times[row.plan] + 1]
    same = [row.plan for row in alone.rows if row.can_run and row.predicted_us == times[row.plan]]
    assert any(plan.startswith("hntmp/") for plan in packed)
    assert "native" in same and any(plan.startswith("cuconv/fused") for plan in same)
    assert len(packed) + len(same) == len(times)
    gradient = {"operation": "input_grad", "device": "h200"}
    rows = zip(
        convx.explain(layer, x, **gradient).rows,
        convx.explain(x, layer.weight, padding=1, **gradient).rows,
        strict=True,
    )
    assert all(a == b for a, b in rows), "a gradient always packs"


def test_one_object_serves_the_functional_form() -> None:
    packed, x, w = PackedFilters(), packed_input(), torch.randn(FILTERS, CHANNELS, 3, 3)
    for _ in range(2):
        y = convx.functional.conv2d(x, w, padding=1, algorithm="hntmp", packed=packed)
        torch.testing.assert_close(y, torch.nn.functional.conv2d(x, w, padding=1), rtol=1e-4, atol=1e-4)
        w.mul_(2)


def test_what_is_kept_is_asked_for_where_a_kernel_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by torch's convolution, nor where a gradient is wanted."""
    asked, kept = [0], PackedFilters.of

    def of(self: PackedFilters, *arguments: Any) -> Tensor | None:
        asked[0] += 1
        return kept(self, *arguments)

    monkeypatch.setattr(PackedFilters, "of", of)
    packed, x, w = PackedFilters(), packed_input(), torch.randn(FILTERS, CHANNELS, 3, 3)
    expected = torch.nn.functional.conv2d(x, w, padding=1)
    for algorithm, needs_grad, times in (("native", False, 0), ("hntmp", True, 0), ("hntmp", False, 3)):
        w.requires_grad_(needs_grad)
        before = asked[0]
        for _ in range(3):
            y = convx.functional.conv2d(x, w, padding=1, algorithm=algorithm, packed=packed)
            torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
            assert y.requires_grad == needs_grad
        assert asked[0] - before == times
    assert packed._snapshot is not None and len(packed._snapshot.packed) == 1


def test_rows_have_filters_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of layers and of functions, by the front alone where there is one."""
    packed, x, w = PackedFilters(), torch.randn(2, CHANNELS, 50), torch.randn(FILTERS, CHANNELS, 3)
    layer = convx.nn.Conv1d(CHANNELS, FILTERS, 3, padding=1, algorithm="hntmp").eval()
    if dispatch._front is not None:
        monkeypatch.setattr(dispatch, "_images", None)
    with torch.no_grad():
        for _ in range(2):
            expected = torch.nn.functional.conv1d(x, layer.weight, layer.bias, padding=1)
            torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-4)
            assert layer._packed._snapshot is not None and len(layer._packed._snapshot.packed) == 1
            layer.weight.mul_(2)
    for _ in range(2):
        y = convx.functional.conv1d(x, w, padding=1, algorithm="hntmp", packed=packed)
        torch.testing.assert_close(y, torch.nn.functional.conv1d(x, w, padding=1), rtol=1e-4, atol=1e-4)
        assert packed._snapshot is not None and len(packed._snapshot.packed) == 1
        w.mul_(2)


@torch.no_grad()
@pytest.mark.parametrize("after", [False, True])
def test_calls_with_a_residual_keep_their_filters(after: bool) -> None:
    layer, x = packed_layer(), packed_input()
    packed, residual = PackedFilters(), torch.randn(2, FILTERS, 9, 11)

    def call(**options: Any) -> Tensor:
        return convx.functional.conv2d(
            *(x, layer.weight, layer.bias),
            padding=1,
            algorithm="hntmp",
            activation="relu",
            residual=residual,
            residual_after_activation=after,
            **options,
        )

    for _ in range(2):
        assert torch.equal(call(packed=packed), call())
        assert packed._snapshot is not None and len(packed._snapshot.packed) == 1
        assert next(iter(packed._snapshot.packed.values())) is not None
        add_in_place(layer)
    sums = expected_of(layer, x)
    expected = sums.relu() + residual if after else (sums + residual).relu()
    torch.testing.assert_close(call(packed=packed), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(convx.InvalidArgument, match="residual must have the shape"):
        convx.functional.conv2d(x, layer.weight, padding=1, packed=packed, residual=residual[:1])
