"""Lowerings that are played again give what lowering anew gives; numpy judges the values."""

from __future__ import annotations

from typing import Any

import numpy as np

import relax2xla as rx
from relax2xla import op
from relax2xla.ir import Call, Span, TensorStructInfo, Var, assert_structural_equal
from relax2xla.ir.check import check_well_formed
from relax2xla.ir.rewrite import bindings_of
from relax2xla.testing import evaluate
from relax2xla.transform import LegalizeOps


def layers(count: int, dataflow: bool = True) -> rx.IRModule:
    """Softmax, a norm and a sum over and over, with constants and attributes that differ."""
    x = Var("x", TensorStructInfo((2, 6), "float32"))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):

        def body() -> Any:
            y: Any = x
            for i in range(count):
                with builder.source(Span(name=f"layer{i}")):
                    scale = rx.const(np.arange(6, dtype="float32") / (i + 1))
                    z = builder.emit(op.nn.softmax(y, axis=-1))
                    z = builder.emit(op.nn.layer_norm(z, scale, scale, axes=[-1]))
                    y = builder.emit(op.add(op.clip(z, -i, i + 0.5), op.add(y, y)))
                    y = builder.emit(op.subtract(y, op.sum(y, axis=i % 2, keepdims=True)))
            return y

        if dataflow:
            with builder.dataflow():
                out = builder.emit_output(body())
        else:
            out = body()
        builder.emit_func_output(out)
    return builder.get()


def anew(mod: rx.IRModule) -> rx.IRModule:
    """Without a memory, which customised lowerings have not."""
    return LegalizeOps({"relax.erf": lambda bb, call: call})(mod)


def test_played_again_is_the_same() -> None:
    for dataflow in (True, False):
        mod = layers(5, dataflow)
        made = LegalizeOps()(mod)
        check_well_formed(made)
        assert_structural_equal(made, anew(mod))
        assert rx.to_stablehlo(made) == rx.to_stablehlo(anew(mod))
        given = np.random.default_rng(0).standard_normal((2, 6)).astype("f")
        want = given.astype("float64")
        for i in range(5):
            e = np.exp(want - want.max(-1, keepdims=True))
            s, scale = e / e.sum(-1, keepdims=True), np.arange(6) / (i + 1)
            z = (s - s.mean(-1, keepdims=True)) / np.sqrt(s.var(-1, keepdims=True) + 1e-5)
            want = np.clip(z * scale + scale, -i, i + 0.5) + 2 * want
            want = want - want.sum(i % 2, keepdims=True)
        np.testing.assert_allclose(evaluate(mod, [given]), want, rtol=1e-3, atol=1e-3)


def test_spans_are_those_of_each_layer() -> None:
    names = {
        b.var.span.name
        for b in bindings_of(LegalizeOps()(layers(4))["main"].body)
        if b.var.span is not None
    }
    assert names == {f"layer{i}" for i in range(4)}


def test_attributes_that_are_equal_but_not_the_same() -> None:
    x = Var("x", TensorStructInfo((2,), "float32"))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        clipped = [builder.emit(op.clip(x, low, 1)) for low in (0.0, -0.0, 0)]
        square = builder.emit(op.multiply(x, x))
        product = builder.emit(op.multiply(x, square))
        builder.emit_func_output(rx.Tuple([*clipped, square, product]))
    mod = builder.get()
    assert_structural_equal(LegalizeOps()(mod), anew(mod))
    rows = [b.value for b in bindings_of(LegalizeOps()(mod)["main"].body)]
    last = [r for r in rows if isinstance(r, Call)][-1]
    assert last.args[0] is not last.args[1]


def test_scalar_constants_are_known_by_their_bits() -> None:
    x = Var("x", TensorStructInfo((2,), "float32"))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        values = [builder.emit(op.multiply(x, rx.const(c, "float32"))) for c in (0.0, -0.0, 0.0)]
        builder.emit_func_output(rx.Tuple(values))
    mod = builder.get()
    assert_structural_equal(LegalizeOps()(mod), anew(mod))
    signs = [np.signbit(v).tolist() for v in evaluate(mod, [np.ones(2, "f4")])]
    assert signs == [[False] * 2, [True] * 2, [False] * 2]
