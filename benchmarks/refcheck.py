"""How far results are from float64, on a part of the problem that float64 can afford."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.operands import Pair
from benchmarks.suites import Problem

_IMAGES, _CHANNELS = 4, 4


class Reference:
    """float64 results of one problem: of a few images, or for weight gradients of a few channels."""

    def __init__(self, problem: Problem, pair: Pair) -> None:
        shape = problem.shape
        step, sides, dilation = shape.strides, shape.paddings, shape.dilations
        first, second = pair
        self._images: Tensor | None = None
        self._channels: Tensor | None = None
        groups = shape.groups
        if problem.operation == "weight_grad" and shape.groups == shape.in_channels == shape.out_channels:
            self._channels = _spread(shape.in_channels, _CHANNELS, first.device)
            first, second = first[:, self._channels], second[:, self._channels]
            groups = len(self._channels)
        elif problem.operation != "weight_grad":
            self._images = _spread(problem.batch, _IMAGES, first.device)
            first = first[self._images]
        first, second = first.double().contiguous(), second.double().contiguous()
        if problem.operation == "forward":
            self.exact = torch.nn.functional.conv2d(first, second, None, step, sides, dilation, groups)
            return
        if problem.operation == "input_grad":
            gradient, weight = first, second
            x = first.new_empty(shape.input_size(len(first)))
        else:
            x, gradient = first, second
            weight = first.new_empty((second.shape[1], *shape.weight_size[1:]))
        mask = [problem.operation == "input_grad", problem.operation == "weight_grad", False]
        options = (step, sides, dilation, False, [0, 0], groups, mask)
        results = torch.ops.aten.convolution_backward(gradient, x, weight, None, *options)
        self.exact = results[0] if mask[0] else results[1]

    def error(self, result: Tensor) -> float:
        """The largest error, relative to the largest value."""
        if self._images is not None:
            result = result[self._images]
        elif self._channels is not None:
            result = result[self._channels]
        if result.shape != self.exact.shape:
            return float("inf")
        worst = (result.double() - self.exact).abs().max() / self.exact.abs().max()
        return float(worst.nan_to_num(float("inf")))


def error_ratio(error: float, torch_error: float, dtype: torch.dtype) -> float:
    """convx's error in units of torch's; a torch that is all but exact counts as a quarter of a rounding."""
    return error / max(torch_error, torch.finfo(dtype).eps / 8)


def _spread(count: int, wanted: int, device: torch.device) -> Tensor:
    """Up to wanted indices from first to last."""
    places = min(count, wanted)
    return torch.tensor([round(place * (count - 1) / max(1, places - 1)) for place in range(places)]).to(
        device
    )
