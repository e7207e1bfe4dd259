"""Which convolutions of a recorded graph are run by convx: the planner's word on the sizes that it was
recorded with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._inductor import config

from convx import _planning
from convx._arguments import has_channels_last_order
from convx.compile.calls import Call, needs_gradient, value
from convx.dispatch import tf32_of
from convx.dispatch.situation import Situation
from convx.optimize.chains import Chain
from convx.tune import records

_NATIVE = "native"
_GENERATED = "generated"  # a kernel that another process, which finds the graph compiled, may not have
AUTO = "auto"
# On CPUs plans depend on the number of threads, which may change.
PACKED_ON = ("cuda",)


@dataclass(frozen=True)
class Choice:
    """What the planner says of a convolution with what is fused into it."""

    plan: str
    """Of the forward pass."""
    algorithm: str
    """By which the operator takes the plan: it is held to one whose filters are kept packed."""
    packed_bytes: int
    """That such filters take, else 0."""
    is_torchs: bool
    """Whether torch's own convolution is taken in every pass."""
    us: float
    """Of all passes: measured, where convx.tune has measured torch's own beside it, else predicted."""
    torch_us: float
    """By torch's own in the layout that inductor would give it."""
    channels_last: bool
    problem: Any
    """Of the forward pass."""


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
    """None where convx has nothing to say: sizes that depend on data, filters that nobody could keep."""
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
        keeps = _can_be_packed(chain)
        problems = list(_problems(chain, shapes, last, packs_each_call=not keeps))
        plans = [_planning.core().select(each, device, AUTO).plan for each in problems]
        may_move = not last and _inductor_lays_out(input)
        others = list(_problems(chain, shapes, True, packs_each_call=False)) if may_move else problems
        own = [_planning.core().select(each, device, _NATIVE).plan for each in others]
    except (RuntimeError, ValueError):
        return None
    forward = plans[0]
    if forward.packing != "" and not call.sees_writes and input.device.type in PACKED_ON:
        return None  # packed at each call: a small network's launches take the host longer than torch's do
    us, torch_us = _measured(problems, others, device) or (_predicted(plans), _predicted(own))
    is_packed = keeps and forward.packing != "" and forward.candidate != _GENERATED
    return Choice(
        plan="/".join(filter(None, (forward.method, forward.candidate))),
        algorithm=forward.name if is_packed else AUTO,
        packed_bytes=forward.packed_weight_bytes if is_packed else 0,
        is_torchs=all(plan.method == _NATIVE and not plan.candidate for plan in plans),
        us=us,
        torch_us=torch_us,
        channels_last=last,
        problem=problems[0],
    )


def _measured(problems: Sequence[Any], others: Sequence[Any], device: Any) -> tuple[float, float] | None:
    """What these take, and others by torch's own, where all of that was measured: what was measured is not to
    be compared with what is predicted."""
    found = [records.remembered(each, device) for each in problems]
    torchs = [records.remembered(each, device) for each in others]
    natives = [each.candidates.get(_NATIVE) for each in torchs if each is not None]
    if None in found or len(natives) < len(others) or None in natives:
        return None
    return sum(each.us for each in found if each is not None), sum(us for us in natives if us is not None)


def _predicted(plans: Sequence[Any]) -> float:
    return float(sum(plan.predicted_us for plan in plans))


def _can_be_packed(chain: Chain[Call, Any]) -> bool:
    """Whether its filters can be kept in a kernel's order: of weights that stay, for one size of input."""
    call = chain.convolution
    input, weight, output = value(call.input), value(call.weight), value(chain.last)
    if input.device.type not in PACKED_ON or not call.keeps_weights or needs_gradient(chain.last):
        return False
    is_cast = chain.norm is None and weight.dtype != output.dtype  # by autocast
    is_of_one_size = all(isinstance(each, int) for each in (*input.shape, *input.stride()))
    if is_cast or not is_of_one_size:
        return False
    # Strides of sizes of 1, by which the operator tells the layout, are what inductor makes them.
    return all(each > 1 for each in input.shape[1:])


def _inductor_lays_out(input: Tensor) -> bool:
    """Whether it may run torch's convolutions in channels_last, whatever layout they are given."""
    may: bool = config.layout_optimization
    return may and (input.device.type == "cpu" or all(isinstance(size, int) for size in input.shape))


def _problems(
    chain: Chain[Call, Any], shapes: Sequence[Any], channels_last: bool, packs_each_call: bool
) -> Iterator[Any]:
    """Of the passes that there will be."""
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
                packs_each_call=packs_each_call,
                residual=chain.residual is not None,
                residual_after_activation=chain.residual_after_activation,
            )


class Times(Protocol):
    """Of what convx may run."""

    @property
    def us(self) -> float: ...
    @property
    def torch_us(self) -> float: ...


def are_faster(choices: Sequence[Times]) -> bool:
    """Whether the graph is, with these convolutions and blocks by convx where the planner would have them so.
    Inductor runs torch's in channels_last where it finds nothing but those."""
    return sum(each.us for each in choices) < sum(each.torch_us for each in choices)
