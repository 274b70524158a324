"""Rows that look like an operator and are none stay rows, and a report says why."""

from __future__ import annotations

from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import relax2xla as rx
from relax2xla.stablehlo import parse, read
from relax2xla.transform import RaiseStableHLO
from relax2xla.transform.raising.raise_stablehlo import Kept
from tests.transform.raising.support import (
    lowered,
    names,
    raised_text,
)

ROWS = {
    "an init value that is not the identity": (
        "stablehlo.reduce",
        """func.func @main(%a: tensor<4x8xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<1.0> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [1]
    : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32> }""",
    ),
    "a total order": (
        "stablehlo.compare",
        """func.func @main(%a: tensor<4xf32>) -> tensor<4xi1> {
  %0 = stablehlo.compare LT, %a, %a, TOTALORDER
    : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  return %0 : tensor<4xi1> }""",
    ),
    "floats to integers without a rule for NaN": (
        "stablehlo.convert",
        """func.func @main(%a: tensor<4xf32>) -> tensor<4xi32> {
  %0 = stablehlo.convert %a : (tensor<4xf32>) -> tensor<4xi32>
  return %0 : tensor<4xi32> }""",
    ),
    "a precision": (
        "stablehlo.dot_general",
        """func.func @main(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0],
    precision = [HIGHEST, HIGHEST] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32> }""",
    ),
    "a sum of narrow floats in their own dtype": (
        "stablehlo.dot_general",
        """func.func @main(%a: tensor<4x4xbf16>) -> tensor<4x4xbf16> {
  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]
    : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xbf16>
  return %0 : tensor<4x4xbf16> }""",
    ),
    "attributes of other dialects": (
        "stablehlo.add",
        """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %a {mhlo.frontend_attributes = {k = "v"}} : tensor<4xf32>
  return %0 : tensor<4xf32> }""",
    ),
    "floats with k": (
        "chlo.top_k",
        """func.func @main(%a: tensor<4xf32>) -> (tensor<2xf32>, tensor<2xi32>) {
  %0:2 = chlo.top_k(%a, k = 2) : tensor<4xf32> -> (tensor<2xf32>, tensor<2xi32>)
  return %0#0, %0#1 : tensor<2xf32>, tensor<2xi32> }""",
    ),
    "a dimension that is not known": (
        "stablehlo.reduce",
        """func.func @main(%a: tensor<?x8xf32>) -> tensor<?xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [1]
    : (tensor<?x8xf32>, tensor<f32>) -> tensor<?xf32>
  return %0 : tensor<?xf32> }""",
    ),
}


@pytest.mark.parametrize(("row", "text"), ROWS.values(), ids=ROWS)
def test_what_is_not_exact_stays_a_row(row: str, text: str) -> None:
    report: list[Kept] = []
    assert row in names(raised_text(text, report=report))
    assert [k.row for k in report] == [f"relax.{row}"]
    assert row in str(report[0])


def test_a_part_that_is_used_elsewhere_keeps_the_rows_apart() -> None:
    def fn(x: Any) -> Any:
        e = jax.numpy.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True), e

    func = RaiseStableHLO()(lowered(fn, (np.ones((4, 8), "f"),)))["main"]
    assert "divide" in names(func)
    assert "nn.softmax" not in names(func)


def test_an_operand_that_is_a_part_of_the_rows_stays() -> None:
    def fn(x: Any, gamma: Any) -> Any:
        off = x - x.mean(keepdims=True)
        return off * jax.lax.rsqrt((off * off).mean(keepdims=True) + 1e-5) * gamma + off

    x = np.linspace(-1, 2, 16, dtype="f")
    made = RaiseStableHLO()(lowered(fn, (x, x)))
    assert rx.analysis.well_formed(made)
    found = rx.VirtualMachine(rx.build(made))["main"](x, x)
    np.testing.assert_allclose(found, fn(x, x), rtol=1e-5, atol=1e-6)


def test_a_region_that_shares_its_parts() -> None:
    rows = [f"%v{i + 1} = stablehlo.multiply %v{i}, %v{i} : tensor<f32>" for i in range(60)]
    text = "\n".join(
        [
            "func.func @main(%a: tensor<4x8xf32>, %i: tensor<f32>) -> tensor<4xf32> {",
            '%0 = "stablehlo.reduce"(%a, %i) <{dimensions = array<i64: 1>}> ({',
            "^bb0(%x: tensor<f32>, %y: tensor<f32>):",
            "%v0 = stablehlo.add %x, %y : tensor<f32>",
            *rows,
            "stablehlo.return %v60 : tensor<f32>",
            "}) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>",
            "return %0 : tensor<4xf32> }",
        ]
    )
    assert "stablehlo.reduce" in names(raised_text(text))


def test_rows_alike_but_for_which_operand_is_which() -> None:
    # What is found for one row is used for rows like it; x * x is not like x * y.
    x, y = np.arange(4, dtype="f") + 1, np.arange(4, dtype="f") + 5
    for fn in (
        lambda x, y: (x * x, x * y, y * x, y * y, x * x),
        lambda x, y: (x * y, x * x, jnp.where(x > y, x, y), jnp.where(x > x, x, x)),
        lambda x, y: (x - x[:1], x - y[:1], y - x[:1], x[:1] - x),
    ):
        made = RaiseStableHLO()(lowered(fn, (x, y)))
        found = rx.VirtualMachine(rx.build(made))["main"](x, y)
        for a, b in zip(found, fn(x, y), strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_row_that_copies_its_operand_is_no_operator_of_itself() -> None:
    text = """func.func @main(%x: tensor<4xf32>, %p: tensor<4xi1>) -> tensor<4xf32> {
  %0 = stablehlo.select %p, %x, %x : tensor<4xi1>, tensor<4xf32>
  %1 = stablehlo.convert %0 : tensor<4xf32>
  return %1 : tensor<4xf32> }"""
    made = RaiseStableHLO()(read(parse(text)))
    assert rx.analysis.well_formed(made)
    assert names(made["main"])[0] == "where"


@pytest.mark.parametrize(
    ("kind", "number"), [("complex<f32>", "(1.0, 2.0)"), ("f32", "0x7F800000")]
)
def test_numbers_that_are_no_attribute_of_an_operator(kind: str, number: str) -> None:
    t = f"tensor<4x4x{kind}>"
    iota = "%i = stablehlo.iota dim = 0 : tensor<4x4xf32>\n" if kind == "f32" else ""
    mask = "stablehlo.compare EQ, %m, %m : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xi1>"
    rows = f"""%m = stablehlo.add %i, %n : {t}
  %q = {mask}
  %e = stablehlo.convert %q : (tensor<4x4xi1>) -> {t}
  %w = stablehlo.select %q, %3, %n : tensor<4x4xi1>, {t}"""
    text = f"""func.func @main(%a: {t}) -> {t} {{
  {iota}%n = stablehlo.constant dense<{number}> : {t}
  %0 = stablehlo.add %a, %n : {t}
  %1 = stablehlo.rsqrt %0 : {t}
  %2 = stablehlo.multiply %a, %1 : {t}
  %3 = stablehlo.add %2, %1 : {t}
  {rows if iota else ""}
  %4 = stablehlo.add %{"w" if iota else "3"}, %{"e" if iota else "2"} : {t}
  return %4 : {t} }}"""
    made = RaiseStableHLO()(read(parse(text)))
    assert rx.analysis.well_formed(made)
