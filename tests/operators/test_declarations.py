"""Operators and what Python declares of them: nothing is missing, and names are the schema's."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from convx import dispatch, operators
from convx.operators.operator import Operator

DECLARED = operators.DECLARED


def _schema_names() -> set[str]:
    schemas = torch._C._jit_get_all_schemas()
    return {each.name.removeprefix("convx::") for each in schemas if each.name.startswith("convx::")}


def test_every_operator_is_declared() -> None:
    assert set(DECLARED) == _schema_names()


@pytest.mark.parametrize("operator", DECLARED.values(), ids=DECLARED)
def test_arguments_are_the_schemas(operator: Operator) -> None:
    schema = operator.call._schema.arguments
    assert operator.arguments._fields == tuple(each.name for each in schema)
    defaults = {each.name: each.default_value for each in schema if each.has_default_value()}
    assert operator.arguments._field_defaults == defaults


def test_one_more_argument_is_a_change_of_the_schema_alone() -> None:
    """Where a derivative or a rule of vmap has nothing to say of it."""
    schema = str(torch.ops.convx.conv2d.default._schema).removeprefix("convx::conv2d")
    more = schema.replace(") -> Tensor", ", Tensor? addend=None, bool late=False) -> Tensor")
    count = len(torch.ops.convx.conv2d.default._schema.arguments)
    library = torch.library.Library("convx_test", "DEF")
    library.define(f"conv2d{more}")
    library.impl("conv2d", lambda *given, **named: torch.ops.convx.conv2d(*given[:count]), "CPU")
    operator = dataclasses.replace(DECLARED["conv2d"])
    vars(operator)["call"] = torch.ops.convx_test.conv2d.default
    assert operator.arguments._fields[-2:] == ("addend", "late")

    calls = SimpleNamespace(
        conv2d=lambda *given: dispatch.conv2d(*given[:count]),
        conv2d_input_grad=dispatch.conv2d_input_grad,
        conv2d_weight_grad=dispatch.conv2d_weight_grad,
    )
    call = operator.transformed(lambda: calls)
    rest: Any = (None, (1, 1), (1, 1, 1, 1), (1, 1), 4, "none", "auto", 0)
    x, weight = torch.randn(3, 2, 4, 5, 6), torch.randn(4, 1, 3, 3)

    def loss(image: Tensor) -> Tensor:
        return call(image, weight, *rest).square().sum()

    def expected(image: Tensor) -> Tensor:
        return torch.nn.functional.conv2d(image, weight, padding=1, groups=4).square().sum()

    torch.testing.assert_close(torch.func.grad(loss)(x[0]), torch.func.grad(expected)(x[0]))
    torch.testing.assert_close(torch.func.vmap(loss)(x), torch.func.vmap(expected)(x))
    torch.testing.assert_close(
        torch.func.jvp(loss, (x[0],), (x[1],))[1], torch.func.jvp(expected, (x[0],), (x[1],))[1]
    )
