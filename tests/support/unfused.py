"""What follows a model's first convolution, and can't be done by its kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def sum_of_itself(model: Any, x: Tensor) -> Tensor:
    y = model.first[0](x)
    return y + y  # type: ignore[no-any-return]


def seen_twice(model: Any, x: Tensor) -> Tensor:
    y = model.first[0](x)
    return F.relu(y) * y


def relu_of_what_is_seen_later(model: Any, x: Tensor) -> Tensor:
    y = model.first[0](x)
    z = F.relu(y, inplace=True)
    return y * z


def input_is_written_to_in_between(model: Any, x: Tensor) -> Tensor:
    z = x * 1
    y = model.first[0](z)
    z.relu_()
    return y + z  # type: ignore[no-any-return]


def input_is_told_by_place_to_be_written_to(model: Any, x: Tensor) -> Tensor:
    z = x * 1
    y = model.first[0](z)
    F.hardtanh(z, 0.0, 6.0, True)
    return y + z  # type: ignore[no-any-return]


def input_is_the_result_of_something_in_between(model: Any, x: Tensor) -> Tensor:
    z = x * 1
    y = model.first[0](z)
    torch.add(x, x, out=z)
    return y + x  # type: ignore[no-any-return]


def view_of_the_input_is_written_to(model: Any, x: Tensor) -> Tensor:
    z = x * 1
    view = z[:, :6]
    y = model.first[0](z)
    view.mul_(2)
    return y + x  # type: ignore[no-any-return]


def sum_into_the_other_term(model: Any, x: Tensor) -> Tensor:
    z = x * 1
    y = model.first[0](z)
    z.add_(y)
    return z * z


def broadcast_sum(model: Any, x: Tensor) -> Tensor:
    return model.first[0](x) + x.mean((2, 3), keepdim=True)  # type: ignore[no-any-return]


def approximate_gelu(model: Any, x: Tensor) -> Tensor:
    return F.gelu(model.first[0](x), approximate="tanh")


def scaled_sum(model: Any, x: Tensor) -> Tensor:
    return torch.add(model.first[0](x), x, alpha=3)


def other_clamp(model: Any, x: Tensor) -> Tensor:
    return F.hardtanh(model.first[0](x), 0.0, 5.0)


UNFUSED: tuple[Callable[[Any, Tensor], Tensor], ...] = (
    sum_of_itself,
    seen_twice,
    relu_of_what_is_seen_later,
    input_is_written_to_in_between,
    input_is_told_by_place_to_be_written_to,
    input_is_the_result_of_something_in_between,
    view_of_the_input_is_written_to,
    sum_into_the_other_term,
    broadcast_sum,
    approximate_gelu,
    scaled_sum,
    other_clamp,
)
