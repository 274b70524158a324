"""What raising costs: deep programs, long ones, and work that grows with the program only."""

from __future__ import annotations

import pytest

from relax2xla import op as R
from relax2xla.ir import Expr, Function, IRModule, TensorStructInfo, Var
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.stablehlo import parse, read
from relax2xla.transform import LegalizeOps, RaiseStableHLO
from tests.transform.raising.support import (
    names,
    raised_text,
)
from tests.work import calls

T = TensorStructInfo
F, INT, B, H, U = "float32", "int32", "bool", "float16", "uint32"


def test_two_hundred_nested_branches() -> None:
    inner = "%x"
    text = ["func.func @main(%p: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> {"]
    for i in range(200):
        text += [f'%r{i} = "stablehlo.if"(%p) ({{']
    text += [f"%e = stablehlo.exponential {inner} : tensor<4xf32>"]
    result = "%e"
    for i in reversed(range(200)):
        text += [f"stablehlo.return {result} : tensor<4xf32>", "}, {"]
        text += ["stablehlo.return %x : tensor<4xf32>", "}) : (tensor<i1>) -> tensor<4xf32>"]
        result = f"%r{i}"
    text += [f"return {result} : tensor<4xf32>", "}"]
    made = RaiseStableHLO()(read(parse("\n".join(text))))
    found = [n for f in post_order_deep(made["main"]) if isinstance(f, Function) for n in names(f)]
    assert found.count("exp") == 1


def test_a_chain_of_20_000_rows() -> None:
    x = Var("x", T((4,)))
    value: Expr = x
    for _ in range(20_000):
        value = R.negative(value)
    rows = LegalizeOps()(IRModule({"main": Function([x], value)}))
    assert names(RaiseStableHLO()(rows)["main"]) == ["negative"] * 20_000


def layers(count: int, kind: str) -> str:
    """A program of ``count`` operations of one kind, or of all kinds in turn."""
    t, v = "tensor<8x8xf32>", "tensor<8xf32>"
    kinds = {
        "matrices": [
            f"%{{n}} = stablehlo.dot_general %{{x}}, %w, contracting_dims = [1] x [0] "
            f": ({t}, {t}) -> {t}",
            f"%{{n}} = stablehlo.tanh %{{x}} : {t}",
            f"%{{n}} = stablehlo.transpose %{{x}}, dims = [1, 0] : ({t}) -> {t}",
        ],
        "softmax": [
            f"%m{{n}} = stablehlo.reduce(%{{x}} init: %low) applies stablehlo.maximum "
            f"across dimensions = [1] : ({t}, tensor<f32>) -> {v}",
            f"%b{{n}} = stablehlo.broadcast_in_dim %m{{p}}, dims = [0] : ({v}) -> {t}",
            f"%s{{n}} = stablehlo.subtract %{{x}}, %b{{p}} : {t}",
            f"%e{{n}} = stablehlo.exponential %s{{p}} : {t}",
            f"%r{{n}} = stablehlo.reduce(%e{{p}} init: %zero) applies stablehlo.add "
            f"across dimensions = [1] : ({t}, tensor<f32>) -> {v}",
            f"%d{{n}} = stablehlo.broadcast_in_dim %r{{p}}, dims = [0] : ({v}) -> {t}",
            f"%{{n}} = stablehlo.divide %e{{q}}, %d{{p}} : {t}",
        ],
        "norms": [
            f"%s{{n}} = stablehlo.multiply %{{x}}, %{{x}} : {t}",
            f"%{{n}} = stablehlo.rsqrt %s{{p}} : {t}",
            f"%{{n}} = stablehlo.add %{{x}}, %w : {t}",
            f"%{{n}} = stablehlo.multiply %{{x}}, %w : {t}",
        ],
        "copies": [f"%{{n}} = stablehlo.convert %{{x}} : {t}"],
        "axes": [
            f"%f{{n}} = stablehlo.reshape %{{x}} : ({t}) -> tensor<8x1x8xf32>",
            f"%{{n}} = stablehlo.reshape %f{{p}} : (tensor<8x1x8xf32>) -> {t}",
        ],
    }
    rows = [r for k, own in kinds.items() if kind in (k, "all") for r in own]
    lines = [
        f"func.func @main(%x0: {t}, %w: {t}) -> {t} {{",
        "%low = stablehlo.constant dense<0xFF800000> : tensor<f32>",
        "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
    ]
    x = "x0"
    for n in range(1, count + 1):
        row = rows[(n - 1) % len(rows)]
        lines.append(row.format(n=n, x=x, p=n - 1, q=n - 3))
        x = str(n) if row.startswith("%{n}") else x
    return "\n".join([*lines, f"return %{x} : {t}", "}"])


@pytest.mark.parametrize("kind", ["all", "matrices", "softmax", "norms", "copies", "axes"])
def test_the_work_grows_with_the_program(kind: str) -> None:
    def work(count: int) -> float:
        mod = read(parse(layers(count, kind)))
        return calls(lambda: RaiseStableHLO()(mod)) / count

    few, many = work(1_020), work(8_160)
    # Templates are made once, so that an operation of a longer program costs less.
    assert many <= 1.01 * few, (few, many)
    assert many < 400, many


def test_a_chain_of_scalar_sums_of_unknown_numbers() -> None:
    text = ["func.func @main(%v0: tensor<f32>, %c: tensor<f32>) -> tensor<f32> {"]
    text += [f"%v{i + 1} = stablehlo.add %v{i}, %c : tensor<f32>" for i in range(5_000)]
    text += ["return %v5000 : tensor<f32> }"]
    assert names(raised_text("\n".join(text))) == ["add"] * 5_000
