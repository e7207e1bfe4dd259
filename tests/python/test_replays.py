"""Times of calls on a GPU: what is in them and what is not."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from convx.tune import replays
from convx.tune.replays import InNetwork, Queued, Replays

CPU = torch.device("cpu")


def least(timer: Callable[[], float]) -> float:
    """Other tests run on the GPU meanwhile."""
    return min(timer() for _ in range(20))


def test_what_a_network_has_between_calls_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[int] = []

    def timer_of(call: Callable[[int], Any], *rest: Any, **options: Any) -> Callable[[], float]:
        launched.clear()
        other = call(0)
        us = 8.0 * len(launched) + 1.5  # the call's, if it is one, and the other kernel's
        assert launched or other.tolist() == [1.0] * 32
        return lambda: us

    monkeypatch.setattr(replays, "Replays", timer_of)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    assert InNetwork(CPU).timer(launched.append)() == 8.0


@pytest.mark.gpu
def test_what_goes_before_is_not_counted() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    small, large = (torch.zeros(size << 20, device=device) for size in (1, 512))
    timer = Replays(lambda _: small.add_(1), device)
    assert least(lambda: timer(lambda: large.zero_())) < 3 * least(timer)


@pytest.mark.gpu
def test_a_long_call_takes_as_much_longer_as_it_does_more() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    few, many = (torch.zeros(size << 20, device=device) for size in (64, 256))
    makers = (Replays, Queued)
    alone = [lambda call, maker=maker: maker(call, device) for maker in makers]
    for timer_of in (*alone, *(InNetwork(device, each).timer for each in alone)):
        short, long = (timer_of(lambda _, each=each: each.add_(1)) for each in (few, many))
        assert 3 < least(long) / least(short) < 5


@pytest.mark.gpu
def test_what_the_host_takes_is_not_counted() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    values = torch.zeros(32, device=device)

    def call(index: int) -> None:
        time.sleep(2e-4)
        values.add_(1)

    assert least(Queued(call, device)) < 100


@pytest.mark.gpu
def test_sets_of_operands_take_turns() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    counts = torch.zeros(5, device=device)
    timer = Replays(lambda index: counts[index].add_(1), device, sets=5)
    torch.cuda.synchronize()
    before = counts.clone()
    timer(lambda: None)
    each = (counts - before).tolist()
    assert min(each) > 10 and max(each) - min(each) <= 1


@pytest.mark.gpu
def test_a_call_that_fails_does_not_keep_the_next_from_being_timed() -> None:
    device = torch.device("cuda", torch.cuda.current_device())

    def fails(index: int) -> None:
        raise ValueError("no such call")

    network = InNetwork(device)
    with pytest.raises(ValueError):
        network.timer(fails)
    values = torch.zeros(8 << 20, device=device)
    for call in (lambda _: values + 1, lambda _: values.add_(1)):
        assert network.timer(call)() > 1


@pytest.mark.gpu
def test_nothing_is_collected_during_a_capture() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    values = torch.zeros(8 << 20, device=device)
    enabled = []

    def call(index: int) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            enabled.append(gc.isenabled())
        return values + 1

    assert Replays(call, device)() > 1
    assert enabled and not any(enabled) and gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with replays.no_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pytest.raises(ValueError), replays.no_collector():
        raise ValueError
    assert gc.isenabled()
