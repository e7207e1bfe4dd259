"""What each method would do with a convolution, what is chosen, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor

from convx import _planning
from convx._arguments import Padding, integer, padding_1d, padding_2d, pair, single
from convx._errors import (
    InvalidArgument,
    require_batched_or_not,
    require_name,
    require_strided,
    require_tensors,
    shape,
)
from convx.images.functional import described, filter_dtype
from convx.images.layers import FilterLayer
from convx.operators.checks import check_dtype, check_per_channel

__all__ = ["Explanation", "Row", "explain", "explain_filter2d"]

_OPERATIONS = ("forward", "input_grad", "weight_grad")


@dataclass(frozen=True)
class Row:
    """One plan of one method, or the condition that keeps the method from running."""

    method: str
    can_run: bool
    reason: str
    """The condition that fails; empty where can_run."""
    candidate: str
    tiling: dict[str, int]
    workspace_bytes: int
    predicted_us: float
    source: str
    """Of predicted_us: "estimated", "measured on NVIDIA H200", "scaled from NVIDIA H200", "fitted on ..."."""
    chosen: bool
    by_name_only: bool = False
    """A paper's own kernel, or a form that it compares its idea with: "auto" never takes it."""

    @property
    def algorithm(self) -> str:
        """What names this plan's kernel as `algorithm`."""
        return f"{self.method}/{self.candidate}" if self.candidate else self.method

    @property
    def plan(self) -> str:
        """The kernel and its tiling, or the condition that fails."""
        if not self.can_run:
            return f"can't run: {self.reason}"
        return " ".join([self.algorithm, *(f"{name}={value}" for name, value in self.tiling.items())])


@dataclass(frozen=True)
class Explanation:
    """The answer of convx.explain; prints as a table, the chosen plan marked with an arrow."""

    problem: str
    device: str
    rows: tuple[Row, ...]
    why: str

    @property
    def chosen(self) -> Row:
        return next(row for row in self.rows if row.chosen)

    def __str__(self) -> str:
        table = [("", "method", "plan", "workspace", "predicted", "prediction")]
        for row in self.rows:
            measures = ("", "", "")
            if row.can_run:
                source = f"{row.source}, by name only" if row.by_name_only else row.source
                measures = (f"{row.workspace_bytes} B", f"{row.predicted_us:.1f} us", source)
            table.append(("->" if row.chosen else "", row.method, row.plan, *measures))
        lines = [self.problem, f"on {self.device}", *aligned(table)]
        return "\n".join([*lines, f"takes {self.chosen.algorithm}: {self.why}"])


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table whose columns are padded to one width."""
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]


def explain_problem(problem: Any, device: Any, algorithm: str = "auto") -> Explanation:
    """As explain, for the planner's own Problem or FilterProblem and Device."""
    core = _planning.core()
    choice = core.select(problem, device, algorithm)
    wanted = choice.plan.describe()
    rows = []
    marked = False
    for method in core.explain(problem, device):
        if not method.supported:
            rows.append(Row(method.method, False, method.reason, "", {}, 0, 0.0, "", False))
        for plan in method.plans:
            chosen = not marked and method.method == choice.plan.method and plan.describe() == wanted
            marked = marked or chosen
            rows.append(
                Row(
                    method.method,
                    True,
                    "",
                    plan.candidate,
                    dict(plan.tiling),
                    plan.workspace_bytes,
                    plan.predicted_us,
                    plan.source,
                    chosen,
                    plan.by_name_only,
                )
            )
    text = device.name
    if device.backend == "cpu":
        text += f" ({device.isa}, {device.threads} thread{'s' if device.threads != 1 else ''})"
    return Explanation(problem.describe(), text, tuple(rows), choice.why)


@overload
def explain(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    activation: str = "none",
    algorithm: str = "auto",
    operation: str = "forward",
    device: torch.device | str | None = None,
) -> Explanation: ...
@overload
def explain(
    input: torch.nn.Conv1d | torch.nn.Conv2d | FilterLayer,
    weight: Tensor,
    *,
    operation: str = "forward",
    device: torch.device | str | None = None,
) -> Explanation: ...
def explain(
    input: Tensor | torch.nn.Module,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    activation: str = "none",
    algorithm: str = "auto",
    operation: str = "forward",
    device: torch.device | str | None = None,
) -> Explanation:
    """What each method would do with convx.functional.conv2d(input, weight, ...), and which one is taken.

    Such a call packs its filters where a kernel wants that, and on a GPU the time it takes counts. A layer
    in eval mode keeps them from call to call, and is explained as there.

    Args:
        input, weight, bias, stride, padding, dilation, groups, activation, algorithm: as conv2d takes them;
            only the tensors' shapes, dtype, layout and device are read, so that meta and fake tensors do.
            With 3D
            weights: as conv1d takes them. Or explain(layer, input) for a Conv1d or Conv2d, torch's or
            convx's, or for convx's Filter2d or Sobel2d; explain_filter2d is of functional.filter2d.
        operation: "forward", "input_grad" or "weight_grad"; the gradients are taken to have the input's
            layout.
        device: plan for this device in place of the input's: a torch device or a name that the planner knows
            ("a100", "h200", "b200", "mi250", "mi300", "rx6900", "rx7900", "rx9070", "dcu-z100").

    Returns:
        Explanation: print it, or read rows, chosen and why. Times are in microseconds, predicted from bytes,
        flops and each kernel's measured efficiency (torch's matrix products on a GPU: no less than their
        calls take the host); workspace in bytes.

    Raises:
        convx.InvalidArgument: a convolution that means nothing, or a named algorithm that can't run it.
        TypeError: arguments of another type.

    >>> import torch, convx
    >>> x, w = torch.empty(1, 32, 56, 56, device="meta"), torch.empty(32, 1, 3, 3, device="meta")
    >>> convx.explain(x, w, padding=1, groups=32, algorithm="native").chosen.method
    'native'
    """
    rest = (stride, padding, dilation, groups, activation, algorithm, operation, device)
    if isinstance(input, torch.nn.Module):
        _refuse_what_layers_have(bias, *rest[:6])
        return _explain_layer(input, weight, operation, device)
    for name, value in (("input", input), ("weight", weight)):
        if not isinstance(value, Tensor):
            raise TypeError(
                f"{name} must be a tensor, got {type(value).__name__}; explain takes (input, weight, ...) as "
                f"conv2d does, or (layer, input)"
            )
    return _explain_call(input, weight, bias, *rest, packs_each_call=True)


def _refuse_what_layers_have(*given: object) -> None:
    names = ("bias", "stride", "padding", "dilation", "groups", "activation", "algorithm")
    plain = (None, 1, 0, 1, 1, "none", "auto")
    for name, value, default in zip(names, given, plain, strict=True):
        if value is not default and value != default:
            raise TypeError(
                f"{name} is the layer's own: explain(layer, input) takes operation and device besides, got "
                f"{name}={value!r}; set layer.{name}, or call explain(input, layer.weight, ...)"
            )


def _explain_call(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int | Sequence[int],
    padding: Padding,
    dilation: int | Sequence[int],
    groups: int,
    activation: str,
    algorithm: str,
    operation: str,
    device: torch.device | str | None,
    packs_each_call: bool,
) -> Explanation:
    if operation not in _OPERATIONS:
        raise InvalidArgument(f"operation must be one of {', '.join(_OPERATIONS)}, got {operation!r}")
    require_tensors(bias=bias)
    require_name("activation", activation)
    require_name("algorithm", algorithm)
    if weight.dim() not in (3, 4) or input.dim() not in (weight.dim() - 1, weight.dim()):
        raise InvalidArgument(
            f"explain takes an input of 3 or 4 dimensions and a weight of 4 (one fewer each in 1D), got "
            f"input of shape {shape(input.shape)} and weight of shape {shape(weight.shape)}"
        )
    require_strided("input", input)
    require_strided("weight", weight)
    check_dtype("input", input)
    if bias is not None:
        check_per_channel("bias", bias, weight.size(0))
    if weight.dim() == 3:
        step, spread = single("stride", stride), single("dilation", dilation)
        strides, dilations = (1, step), (1, spread)
        paddings = padding_1d(padding, weight.shape[2:], step, spread)
        input, weight = input.unsqueeze(-2), weight.unsqueeze(-2)
    else:
        strides, dilations = pair("stride", stride), pair("dilation", dilation)
        paddings = padding_2d(padding, weight.shape, strides, dilations)
    if input.dim() == 3:
        input = input.unsqueeze(0)
    where = _planning.device(input.device if device is None else device)
    problem = _planning.problem_of(
        operation,
        where,
        input,
        weight,
        bias,
        strides,
        paddings,
        dilations,
        integer("groups", groups),
        activation,
        packs_each_call,
    )
    return explain_problem(problem, where, algorithm)


def _explain_layer(
    layer: torch.nn.Module, input: Tensor, operation: str, device: torch.device | str | None
) -> Explanation:
    if not isinstance(layer, (torch.nn.Conv1d, torch.nn.Conv2d, FilterLayer)):
        raise TypeError(f"explain takes a Conv1d, Conv2d, Filter2d or Sobel2d, got {type(layer).__name__}")
    if not isinstance(input, Tensor):
        raise TypeError(f"the layer's input must be a tensor, got {type(input).__name__}")
    if isinstance(layer, FilterLayer):
        return _explain_filter_layer(layer, input, operation, device)
    padding: Any = layer.padding
    if layer.padding_mode != "zeros":
        require_batched_or_not(input, layer.weight)
        # Padded first with values, by torch; only the sizes matter here.
        input = torch.nn.functional.pad(input, layer._reversed_padding_repeated_twice)
        padding = 0
    return _explain_call(
        input,
        layer.weight,
        layer.bias,
        layer.stride,
        padding,
        layer.dilation,
        layer.groups,
        getattr(layer, "activation", "none"),
        getattr(layer, "algorithm", "auto"),
        operation,
        device,
        packs_each_call=layer.training,
    )


def _explain_filter_layer(
    layer: FilterLayer, images: Tensor, operation: str, device: torch.device | str | None
) -> Explanation:
    if operation != "forward":
        raise InvalidArgument(
            f"operation must be forward for a {type(layer).__name__}, got {operation!r}; its gradients are "
            f"convolutions with one input channel"
        )
    passes = layer.passes(images.dtype)
    if len(passes) > 1:
        sizes = " and ".join("x".join(map(str, size[1:])) for _, size in passes)
        raise TypeError(
            f"a {type(layer).__name__} makes {len(passes)} passes, of {sizes} here; explain_filter2d has "
            f"each: explain_filter2d(images, layer.column.unsqueeze(1), layer.border) is of the first"
        )
    ((dtype, size),) = passes
    seen = torch.empty(images.shape, dtype=dtype, device="meta")
    filters = torch.empty(size, dtype=filter_dtype(seen), device="meta")
    where = images.device if device is None else device
    return explain_filter2d(seen, filters, layer.border, algorithm=layer.algorithm, device=where)


def explain_filter2d(
    images: Tensor,
    filter: Tensor | Any,
    border: str = "zero",
    *,
    algorithm: str = "auto",
    device: torch.device | str | None = None,
) -> Explanation:
    """What each kernel would do with convx.functional.filter2d(images, filter, ...), and which one is taken.

    Args:
        images: (..., height, width), float32, float64, float16, bfloat16 or uint8; only shape, dtype and
            device are read, so that meta and fake tensors do.
        filter: (R, S) or a bank (filters, R, S), as filter2d takes it: its numbers don't matter.
        border, algorithm: as filter2d takes them.
        device: plan for this device in place of the images', as in explain.

    Returns:
        Explanation, as explain gives it. Plans marked "by name only" are the paper's own kernels, or
        forms that it compares its idea with: they run when they are named.

    Raises:
        TypeError: images is no tensor, or filter neither a tensor nor numbers.
        convx.InvalidArgument: what filter2d refuses, or a named algorithm that can't run it.

    >>> import torch, convx
    >>> photo = torch.empty(3, 480, 640, dtype=torch.uint8, device="meta")
    >>> convx.explain_filter2d(photo, torch.ones(5, 5) / 25, "reflect", device="h200").chosen.algorithm
    'filter2d/strip'
    """
    stack, filters = described(images, filter, border, algorithm)
    where = _planning.device(images.device if device is None else device)
    problem = _planning.filter_problem(stack.dtype, stack.shape, filters.shape, border)
    return explain_problem(problem, where, algorithm)
