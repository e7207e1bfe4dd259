"""Blocks of a recorded graph that convx runs by kernels of their own, and who says so.

No estimate tells a block's kernel from its layers: they are run by it where it was measured to be faster than
them, by convx.optimize in this process, or here, where torch.backends.cudnn.benchmark asks for choices by
time. Sizes have to be known, for times are of one size; under gradients there are no kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from convx import _planning
from convx._arguments import has_channels_last_order
from convx._block_kinds import Inversion
from convx.compile import planning
from convx.compile.calls import Call, is_plain, needs_gradient, value
from convx.compile.graph import RecordedReader
from convx.optimize.chains import Chain
from convx.optimize.matching import Layer, Layers, Match, matches
from convx.tune import first_call, records

_NATIVE = "native"


@dataclass(frozen=True)
class ChosenBlock:
    """A block that is run by a kernel."""

    match: Match
    plan: str
    algorithm: str
    """By which the operator takes it."""
    packed_bytes: int
    """That its filters take in the kernel's order, 0 where it reads them as they are."""
    us: float
    torch_us: float
    """By its layers, each by what was the fastest."""
    problem: Any


def chosen_blocks(reader: RecordedReader, chains: Sequence[Chain[Call, fx.Node]]) -> list[ChosenBlock]:
    """chains: all of the graph's convolutions, with what is fused into them."""
    layers = Layers(layer for chain in chains if (layer := _layer(chain)) is not None)
    found: dict[fx.Node, ChosenBlock] = {}

    def is_wanted(match: Match) -> bool:
        chosen = _choice(match) if _can_be_kernels(match) else None
        if chosen is not None:
            found[match.nodes[-1]] = chosen
        return chosen is not None

    return [found[match.nodes[-1]] for match in matches(reader, layers, is_wanted)]


def _layer(chain: Chain[Call, fx.Node]) -> Layer | None:
    call = chain.convolution
    filter = call.centred_filter
    if filter is None or call.has_rows or filter[0] != filter[1] or call.stride[0] != call.stride[1]:
        return None
    out_channels, inside = (int(each) for each in value(call.weight).shape[:2])
    return Layer(
        chain,
        chain.nodes,
        call.input,
        chain.residual,
        chain.activation,
        inside * call.groups,
        out_channels,
        call.groups,
        filter[0],
        call.stride[0],
    )


def _can_be_kernels(match: Match) -> bool:
    """Whether the operator takes what it is given here."""
    tensors = [value(node) for node in (match.input, *match.nodes)]
    input = tensors[0]
    if needs_gradient(match.nodes[-1]) or not all(map(is_plain, tensors)):
        return False
    if any(each.dtype != input.dtype for each in tensors) or not _is_of_one_size(input):
        return False
    # Plans of GPUs are of one layout, and strides of sizes of 1, which tell it, are what inductor makes them.
    if input.device.type == "cuda" and any(each == 1 for each in input.shape[1:]):
        return False
    kind = match.kind
    for layer in match.layers.values():
        call = layer.source.convolution
        operands = [each for each in (call.weight, call.bias) if each is not None]
        is_cast = layer.source.norm is None and any(value(each).dtype != input.dtype for each in operands)
        if (is_cast or isinstance(kind, Inversion)) and not call.keeps_weights:
            return False  # filters that are packed, or cast, at each call
    if not isinstance(kind, Inversion) or _is_channels_last(input):
        return True
    return kind.reads_patches and _is_channels_last(value(match.layers["expand"].source.convolution.weight))


def _is_of_one_size(input: Tensor) -> bool:
    return all(isinstance(each, int) for each in (*input.shape, *input.stride()))


def _is_channels_last(tensor: Tensor) -> bool:
    return has_channels_last_order(tensor.shape, tensor.stride())


def _choice(match: Match) -> ChosenBlock | None:
    """None where its layers are to be run."""
    kind, input, where = match.kind, value(match.input), value(match.input).device
    try:
        problem = kind.problem(tuple(input.shape), input.dtype, _is_channels_last(input))
        device = _planning.device(where)
        able, _ = _planning.core().supports(kind.method, problem, device)
        if not able:
            return None
        if torch.backends.cudnn.benchmark:
            _measure(match, problem, where)
        plan = _planning.core().select(problem, device).plan
    except (RuntimeError, ValueError):
        return None
    record = records.remembered(problem, device)
    if plan.method == _NATIVE or record is None:
        return None
    name = "/".join(filter(None, (plan.method, plan.candidate)))
    return ChosenBlock(
        match,
        name,
        # On CPUs tilings are of a number of threads, which may change; packed filters are the same for all.
        plan.name if where.type == "cuda" else "|".join(dict.fromkeys((name, plan.method))),
        plan.packed_weight_bytes,
        record.us,
        record.candidates.get(_NATIVE, record.us),
        problem,
    )


def _measure(match: Match, problem: Any, where: torch.device) -> None:
    """First what the block is held against: its layers, and the squeeze-and-excitation inside."""
    layers = [planning.choice(layer.source) for layer in match.layers.values()]
    inner = getattr(problem, "excitation", None)
    problems = [*(each.problem for each in layers if each is not None), inner, problem]
    index = -1
    if where.type == "cuda":
        index = torch.cuda.current_device() if where.index is None else where.index
    with unset_fake_temporarily(), torch.inference_mode(False):
        for each in filter(None, problems):
            first_call.measure(each, index)
