"""Tensors to convolve, in as many sets as it takes to keep caches cold."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from benchmarks.suites import DTYPES, Problem

Pair = tuple[Tensor, Tensor]
_MOST_SETS = 256  # more than the launches that are timed together


def sets_for(problem: Problem, cache_bytes: int) -> int:
    """How many sets to rotate over so that a set has left the cache when its turn comes again."""
    if problem.bytes >= 4 * cache_bytes or cache_bytes == 0:
        return 1
    return min(_MOST_SETS, 1 + math.ceil(2 * cache_bytes / problem.bytes))


def operands(problem: Problem, sets: int, device: torch.device) -> list[Pair]:
    """(input, weight) for forward, (output_grad, weight) or (input, output_grad) for the gradients. Weights
    have the layout of the images, as `model.to(memory_format=...)` gives it to them."""
    shape, batch = problem.shape, problem.batch
    taps = math.sqrt(math.prod(shape.weight_size[1:]))
    weights = [
        tensor / taps for tensor in _random(shape.weight_size, problem.layout, problem.dtype, 1, device)
    ] * sets
    inputs, outputs = shape.input_size(batch), shape.output_size(batch)
    if problem.operation == "forward":
        return list(zip(_random(inputs, problem.layout, problem.dtype, sets, device), weights, strict=True))
    gradients = _random(outputs, problem.layout, problem.dtype, sets, device)
    if problem.operation == "input_grad":
        return list(zip(gradients, weights, strict=True))
    return list(zip(_random(inputs, problem.layout, problem.dtype, sets, device), gradients, strict=True))


def in_layout(pairs: list[Pair], layout: str) -> list[Pair]:
    """The same values in another layout."""
    wanted = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    return [(a.contiguous(memory_format=wanted), b.contiguous(memory_format=wanted)) for a, b in pairs]


def _random(
    size: tuple[int, int, int, int], layout: str, dtype: str, sets: int, device: torch.device
) -> list[Tensor]:
    """Random tensors of one size in one allocation, each aligned as torch's allocator would."""
    batch, channels, height, width = size
    elements = batch * channels * height * width
    stride = math.ceil(elements / 256) * 256
    buffer = torch.randn(sets * stride, dtype=DTYPES[dtype], device=device)
    tensors = []
    for index in range(sets):
        flat = buffer[index * stride : index * stride + elements]
        if layout == "channels_last":
            tensors.append(flat.view(batch, height, width, channels).permute(0, 3, 1, 2))
        else:
            tensors.append(flat.view(size))
    return tensors
