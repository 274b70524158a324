"""Gradient: what the adjoint function is, and where there is none."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relax2xla import BlockBuilder, VirtualMachine, build, op
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Function,
    IRModule,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    const,
)
from relax2xla.ir.equal import assert_structural_equal
from relax2xla.ir.rewrite import rewrite_function
from relax2xla.op import register_gradient
from relax2xla.script import ir as I
from relax2xla.script import relax as R
from relax2xla.transform import Gradient

VECTOR = TensorStructInfo((3,), "float32")


@I.ir_module
class Product:
    @R.function
    def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
        with R.dataflow():
            a = R.multiply(x, y)
            b = R.multiply(a, x)
            gv = R.sum(b)
            R.output(gv)
        return gv


def run(mod: IRModule, *values: Any) -> Any:
    return VirtualMachine(build(mod, "cpu", relax_pipeline="zero"))["main_adjoint"](*values)


def test_the_program() -> None:
    """A variable that is read twice has two adjoints, the second one the sum."""

    @I.ir_module
    class Expected:
        @R.function
        def main_adjoint(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
            with R.dataflow():
                a = R.multiply(x, y)
                b = R.multiply(a, x)
                gv = R.sum(b)
                one = R.ones(R.shape([]), "float32")
                b_adjoint = R.broadcast_to(one, R.shape([3]))
                a_adjoint = R.multiply(b_adjoint, x)
                x_adjoint = R.multiply(b_adjoint, a)
                more = R.multiply(a_adjoint, y)
                x_adjoint1 = R.add(x_adjoint, more)
                y_adjoint = R.multiply(a_adjoint, x)
                x_out = x_adjoint1
                y_out = y_adjoint
                R.output(gv, x_out, y_out)
            return (gv, (x_out, y_out))

    made = Gradient("main")(Product)
    assert made["main"] is Product["main"]
    assert_structural_equal(made["main_adjoint"].body, _like(made, Expected).body)
    x, y = np.float32([1, 2, 3]), np.float32([4, 5, 6])
    value, grads = run(made, x, y)
    np.testing.assert_allclose(value, np.sum(x * x * y))
    np.testing.assert_allclose(grads[0], 2 * x * y)
    np.testing.assert_allclose(grads[1], x * x)


def _like(made: IRModule, expected: IRModule) -> Function:
    """The expected function over the parameters of the one that was made."""
    func = expected["main_adjoint"]
    params = dict(zip(func.params, made["main_adjoint"].params, strict=True))
    return rewrite_function(func.replace(params=list(params.values())), values=params)


def test_variables_of_the_block_and_one_field_of_the_result() -> None:
    @I.ir_module
    class Two:
        @R.function
        def main(x: R.Tensor((3,), "float32"), k: R.Tensor((3,), "int64")):
            with R.dataflow():
                a = R.exp(x)
                b = R.sum(R.multiply(a, a))
                c = R.sum(a)
                R.output(b, c)
            return (b, c)

    inner = Two["main"].body.blocks[0].bindings[0].var
    made = Gradient("main", [inner, Two["main"].params[0]], target_index=1)(Two)
    x = np.float32([0.1, 0.2, 0.3])
    (b, c), (by_a, by_x) = run(made, x, np.zeros(3, np.int64))
    np.testing.assert_allclose([b, c], [np.sum(np.exp(2 * x)), np.sum(np.exp(x))], rtol=1e-6)
    np.testing.assert_allclose(by_a, np.ones(3))
    np.testing.assert_allclose(by_x, np.exp(x), rtol=1e-6)


def test_tuples() -> None:
    """Parameters, fields, and variables that are tuples in tuples, one field of which is unused."""
    pair = TupleStructInfo([VECTOR, TupleStructInfo([VECTOR, VECTOR])])
    builder, t = BlockBuilder(), Var("t", pair)
    with builder.function("main", [t]):
        with builder.dataflow():
            a, inner = builder.emit(TupleGetItem(t, 0)), builder.emit(TupleGetItem(t, 1))
            mixed = builder.emit(Tuple([a, builder.emit(op.sin(inner[0])), a]))
            joined = op.concat(mixed, axis=0)
            result = builder.emit_output(op.sum(op.multiply(joined, joined)))
        builder.emit_func_output(result)
    made = Gradient("main")(builder.get())
    x, y, z = (np.float32(v) for v in ([1, 2, 3], [4, 5, 6], [7, 8, 9]))
    _, ((by_x, (by_y, by_z)),) = run(made, (x, (y, z)))
    np.testing.assert_allclose(by_x, 4 * x)
    np.testing.assert_allclose(by_y, 2 * np.sin(y) * np.cos(y), rtol=1e-5)
    np.testing.assert_allclose(by_z, np.zeros(3))


def test_no_grad_stops_and_casts_pass() -> None:
    @I.ir_module
    class Stopped:
        @R.function
        def main(x: R.Tensor((3,), "float32"), y: R.Tensor(("n",), "float32")):
            with R.dataflow():
                a = R.grad.no_grad(x)
                b = R.match_cast(y, R.Tensor((3,), "float32"))
                gv = R.sum(R.multiply(R.multiply(a, b), x))
                R.output(gv)
            return gv

    made = Gradient("main")(Stopped)
    x, y = np.float32([1, 2, 3]), np.float32([4, 5, 6])
    _, (by_x, by_y) = run(made, x, y)
    np.testing.assert_allclose(by_x, x * y)
    np.testing.assert_allclose(by_y, x * x)


def test_checkpoints() -> None:
    """Between the marks values are computed again; what is before and after is kept."""

    @I.ir_module
    class Marked:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                start = R.grad.start_checkpoint(a)
                b = R.sin(start)
                c = R.sin(b)
                end = R.grad.end_checkpoint(c)
                gv = R.sum(R.cos(end))
                R.output(gv)
            return gv

    made = Gradient("main")(Marked)
    bindings = made["main_adjoint"].body.blocks[0].bindings
    called = [b.value.op.name for b in bindings if hasattr(b.value, "op")]
    assert "relax.grad.start_checkpoint" not in called
    # sin of a: forward, and again; that of b: forward, and again as the argument of cos.
    assert called.count("relax.exp") == 1
    assert [b.var.name_hint for b in bindings if b.var.name_hint.endswith("_cp")] == [
        "b_cp",
        "c_cp",
    ]
    x = np.float32([0.1, 0.2, 0.3])
    _, (grad,) = run(made, x)
    want = jax.grad(lambda v: jnp.sum(jnp.cos(jnp.sin(jnp.sin(jnp.exp(v))))))(x)
    np.testing.assert_allclose(grad, want, rtol=1e-5)


def test_calls_of_functions_and_operators_without_an_expression() -> None:
    """Both are differentiated through JAX, equal ones by one function."""

    @I.ir_module
    class Calls:
        @R.function(private=True)
        def layer(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 3), "float32")):
            y = R.nn.gelu(R.matmul(x, w))
            return y

        @R.function
        def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 3), "float32")):
            cls = Calls
            with R.dataflow():
                a = cls.layer(x, w)
                b = cls.layer(a, w)
                t = R.topk(R.nn.gelu(b), k=2)
                gv = R.sum(t[0])
                R.output(gv)
            return gv

    made = Gradient("main")(Calls)
    assert {g.name_hint for g in made} == {
        *("layer", "main", "main_adjoint", "layer_vjp", "nn_gelu_vjp", "topk_vjp")
    }
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 3)).astype("f"), rng.normal(size=(3, 3)).astype("f")

    def main(x: Any, w: Any) -> Any:
        for _ in range(2):
            x = jax.nn.gelu(x @ w, approximate=False)
        return jnp.sum(jax.lax.top_k(jax.nn.gelu(x, approximate=False), 2)[0])

    value, grads = run(made, x, w)
    np.testing.assert_allclose(value, main(x, w), rtol=1e-5)
    for got, want in zip(grads, jax.grad(main, (0, 1))(x, w), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_the_gradient_of_a_gradient() -> None:
    made = Gradient("main")(Product)
    builder = BlockBuilder(made)
    x, y = Var("x", VECTOR), Var("y", VECTOR)
    with builder.function("twice", [x, y]):
        with builder.dataflow():
            both = builder.emit(made.get_global_var("main_adjoint")(x, y))
            slope = builder.emit(both[1][0])
            result = builder.emit_output(op.sum(op.multiply(slope, slope)))
        builder.emit_func_output(result)
    again = Gradient("twice")(builder.get())
    values = np.float32([1, 2, 3]), np.float32([4, 5, 6])
    _, grads = VirtualMachine(build(again, "cpu"))["twice_adjoint"](*values)
    np.testing.assert_allclose(grads[0], 8 * values[0] * values[1] ** 2)
    np.testing.assert_allclose(grads[1], 8 * values[0] ** 2 * values[1])


def test_a_gradient_of_ones_own() -> None:
    old = op.nn.relu.get_attr("FPrimalGradient")
    try:

        @register_gradient("relax.nn.relu")
        def _(out: Var, call: Any, grad: Var, ctx: BlockBuilder) -> Any:
            return [op.multiply(grad, const(7.0))]

        builder, x = BlockBuilder(), Var("x", VECTOR)
        with builder.function("main", [x]):
            with builder.dataflow():
                result = builder.emit_output(op.sum(op.nn.relu(x)))
            builder.emit_func_output(result)
        _, (grad,) = run(Gradient("main")(builder.get()), np.float32([-1, 0, 1]))
        np.testing.assert_allclose(grad, [7, 7, 7])
    finally:
        register_gradient("relax.nn.relu", old)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_index": 1}, "one value"),
        ({"require_grads": Var("z", VECTOR)}, "no variable"),
        ({"require_grads": [Product["main"].params[0]] * 2}, "twice"),
    ],
)
def test_wrong_settings(options: Any, message: str) -> None:
    with pytest.raises(TransformError, match=message):
        Gradient("main", **options)(Product)


def test_functions_of_another_form() -> None:
    with pytest.raises(ValueError, match="no function 'other'"):
        Gradient("other")(Product)

    @I.ir_module
    class Plain:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            y = R.sum(x)
            return y

    with pytest.raises(TransformError, match="one dataflow block"):
        Gradient("main")(Plain)

    @I.ir_module
    class Vector:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                y = R.exp(x)
                R.output(y)
            return y

    with pytest.raises(TransformError, match="rank 0"):
        Gradient("main")(Vector)

    @I.ir_module
    class Symbolic:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            with R.dataflow():
                y = R.sum(R.nn.gelu(x))
                R.output(y)
            return y

    with pytest.raises(TransformError, match="Bind symbolic variables"):
        Gradient("main")(Symbolic)


def test_symbolic_sizes_where_expressions_allow() -> None:
    @I.ir_module
    class Symbolic:
        @R.function
        def main(x: R.Tensor(("n", 3), "float32"), w: R.Tensor((3, 2), "float32")):
            with R.dataflow():
                y = R.sum(R.tanh(R.matmul(x, w)))
                R.output(y)
            return y

    rng = np.random.default_rng(0)
    vm = VirtualMachine(build(Gradient("main")(Symbolic), "cpu"))
    w = rng.normal(size=(3, 2)).astype("f")
    for n in (2, 5):
        x = rng.normal(size=(n, 3)).astype("f")
        _, grads = vm["main_adjoint"](x, w)
        want = jax.grad(lambda x, w: jnp.sum(jnp.tanh(x @ w)), (0, 1))(x, w)
        for a, b in zip(grads, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_a_long_chain_costs_what_it_is_long() -> None:
    def seconds(count: int) -> float:
        builder, x = BlockBuilder(), Var("x", VECTOR)
        with builder.function("main", [x]):
            with builder.dataflow():
                y = builder.emit(op.tanh(x))
                for _ in range(count):
                    y = builder.emit(op.tanh(y))
                result = builder.emit_output(op.sum(y))
            builder.emit_func_output(result)
        mod = builder.get()
        start = time.perf_counter()
        made = Gradient("main")(mod)
        took = time.perf_counter() - start
        assert len(made["main_adjoint"].body.blocks[0].bindings) > 4 * count
        return took

    seconds(10)
    assert seconds(8000) < 16 * max(seconds(2000), 0.02)


def test_foreign_calls_have_no_gradient() -> None:
    @I.ir_module
    class Foreign:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                a = R.call_dps_packed("f", (x,), out_sinfo=R.Tensor((3,), "float32"))
                y = R.sum(a)
                R.output(y)
            return y

    with pytest.raises(TransformError, match=r"JAX cannot differentiate relax\.call_dps_packed"):
        Gradient("main")(Foreign)


def test_formulas_of_equal_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients that are made again of those of equal calls are those that each rule gives."""
    bb, info = BlockBuilder(), TensorStructInfo((3, 3), "float32")
    x, w, row = Var("x", info), Var("w", info), Var("row", TensorStructInfo((3,), "float32"))
    with bb.function("main", [x, w, row]):
        with bb.dataflow():
            y = x
            for i in range(3):
                y = bb.emit(op.nn.silu(op.matmul(y, w)))
                y = bb.emit(op.multiply(y, const(i % 2 + 0.5, "float32")))
                y = bb.emit(op.multiply(y, y))
                y = bb.emit(op.add(op.maximum(y, x), row))
                y = bb.emit(op.split(y, 3, axis=i % 2)[0])
                y = bb.emit(op.concat([y, y, y], axis=i % 2))
            out = bb.emit_output(op.sum(y))
        bb.emit_func_output(out)
    again = Gradient("main")(bb.get())
    monkeypatch.setattr("relax2xla.transform.grad.adjoints.OF_TABLE", frozenset())
    assert_structural_equal(again, Gradient("main")(bb.get()))
