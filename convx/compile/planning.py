"""Which convolutions of a recorded graph are run by convx: the planner's word on the sizes that it was
recorded with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from convx import _planning
from convx._arguments import has_channels_last_order
from convx.compile.graph import Call, needs_gradient, value
from convx.dispatch import tf32_of
from convx.dispatch.situation import Situation
from convx.optimize.chains import Chain

_NATIVE = "native"


@dataclass(frozen=True)
class Choice:
    """What the planner says of a convolution with what is fused into it."""

    plan: str
    """Of the forward pass."""
    is_torchs: bool
    """Whether torch's own convolution is taken in every pass."""
    us: float
    """Of all passes, as predicted."""
    torch_us: float
    """By torch's own in the layout that inductor would give it."""
    channels_last: bool


def sizes(tensor: Tensor) -> tuple[list[int], list[int]] | None:
    """Its shape and strides; symbolic ones as they were while the graph was recorded, where that is known."""
    numbers = [_number(each) for each in (*tensor.shape, *tensor.stride())]
    if None in numbers:
        return None
    return numbers[: tensor.dim()], numbers[tensor.dim() :]  # type: ignore[return-value]


def _number(size: Any) -> int | None:
    if isinstance(size, torch.SymInt):
        return int(size.node.hint) if size.node.has_hint() else None
    return int(size)


def choice(chain: Chain[Call, Any]) -> Choice | None:
    """None where convx has nothing to say: no planner for the device, sizes that depend on data."""
    call = chain.convolution
    input, weight = value(call.input), value(call.weight)
    found = sizes(input), sizes(weight)
    if found[0] is None or found[1] is None:
        return None
    rank = 4 - call.has_rows
    last = rank == 4 and any(has_channels_last_order(*each) for each in found)  # type: ignore[misc]
    shapes = [[*size[:2], *(1,) * (4 - rank), *size[2:]] for size, _ in found]  # type: ignore[misc]
    try:
        device = _planning.device(input.device)
        problems = list(_problems(chain, shapes, last))
        plans = [_planning.core().select(each, device).plan for each in problems]
        others = problems if last or not _inductor_lays_out(input) else list(_problems(chain, shapes, True))
        own = [_planning.core().select(each, device, _NATIVE).plan for each in others]
    except (ImportError, RuntimeError, ValueError):
        return None
    return Choice(
        plan="/".join(filter(None, (plans[0].method, plans[0].candidate))),
        is_torchs=all(plan.method == _NATIVE and not plan.candidate for plan in plans),
        us=sum(plan.predicted_us for plan in plans),
        torch_us=sum(plan.predicted_us for plan in own),
        channels_last=last,
    )


def _inductor_lays_out(input: Tensor) -> bool:
    """Whether it may run torch's convolutions in channels_last, whatever layout they are given."""
    return input.device.type == "cpu" or all(isinstance(size, int) for size in input.shape)


def _problems(chain: Chain[Call, Any], shapes: Sequence[Any], channels_last: bool) -> Iterator[Any]:
    """Of the passes that there will be; the graph packs its filters at each call."""
    call = chain.convolution
    is_trained = needs_gradient(call.node)
    passes = {
        "forward": True,
        "input_grad": is_trained and needs_gradient(call.input),
        "weight_grad": is_trained and needs_gradient(call.weight),
    }
    for operation, is_wanted in passes.items():
        if is_wanted:
            yield _planning.problem(
                operation,
                value(call.node).dtype,
                channels_last,
                input_size=shapes[0],
                weight_size=shapes[1],
                stride=call.stride,
                padding=call.padding,
                dilation=call.dilation,
                groups=call.groups,
                bias=call.bias is not None or chain.norm is not None,
                activation=chain.activation,
                tf32=tf32_of(Situation.RECORDED, value(call.node)),
                packs_each_call=True,
                residual=chain.residual is not None,
                residual_after_activation=chain.residual_after_activation,
            )


def are_faster(choices: Sequence[Choice]) -> bool:
    """Whether the graph is, with these convolutions by convx where the planner would have them there.
    Inductor runs torch's in channels_last where it finds nothing but those."""
    return sum(each.us for each in choices) < sum(each.torch_us for each in choices)
