"""LegalizeOps: rows only, names and spans kept, promises checked, linear in the bindings."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla import stablehlo, tir, topi
from relax2xla.analysis import check_well_formed
from relax2xla.errors import LegalizeError
from relax2xla.ir.op import Op, op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.transform import LegalizeOps
from relax2xla.transform.core import run_on_function
from relax2xla.transform.lower.legalize import LegalizeStatic, is_row
from tests.work import calls

T = rx.TensorStructInfo


def test_what_the_host_computes_stays() -> None:
    """As in TVM; ``every`` refuses it."""
    x = rx.Var("x", T((2, 3)))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(R.nonzero(R.exp(x))))
    legal = LegalizeOps()(builder.get())
    names = [b.value.op.name for b in bindings_of(legal["main"].body)]
    assert names == ["relax.stablehlo.exponential", "relax.nonzero"]
    found = rx.VirtualMachine(rx.build(legal), "cpu")["main"](np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(found, np.indices((2, 3)).reshape(2, 6))
    with pytest.raises(LegalizeError, match=r"relax\.nonzero has no lowering"):
        LegalizeOps(every=True)(builder.get())


def tiled(decompose: bool) -> rx.IRModule:
    """``main(x, repeats)`` repeats ``x``, by sizes that are values."""
    mod = rx.script.from_source(
        "@I.ir_module\nclass Module:\n    @R.function\n"
        "    def main(x: R.Tensor(('a', 'b'), 'float32'), repeats: R.Tensor((2,), 'int64')):\n"
        "        a, b = T.int64(), T.int64()\n"
        "        m, n = T.int64(), T.int64()\n"
        "        with R.dataflow():\n"
        "            s = R.tensor_to_shape(repeats)\n"
        "            t = R.match_cast(s, R.Shape([m, n]))\n"
        "            y = R.reshape(x, R.shape([1, a, 1, b]))\n"
        "            z = R.broadcast_to(y, R.shape([m, a, n, b]))\n"
        "            w = R.reshape(z, R.shape([m * a, n * b]))\n"
        "            R.output(w)\n"
        "        return w\n"
    )
    assert isinstance(mod, rx.IRModule)
    return rx.transform.DecomposeOpsForInference()(mod) if decompose else mod


@pytest.mark.parametrize("decompose", [True, False])
def test_sizes_that_are_computed_keep_their_names(decompose: bool) -> None:
    with rx.transform.PassContext(instruments=[rx.instrument.VerifyEachPass()]):
        legal = LegalizeOps()(tiled(decompose))
    check_well_formed(legal)
    x = np.arange(6.0, dtype="float32").reshape(2, 3)
    for repeats in ([2, 1], [1, 3]):
        made = rx.VirtualMachine(rx.build(legal), "cpu")["main"](x, np.array(repeats))
        np.testing.assert_array_equal(made, np.tile(x, repeats))
    if not decompose:
        with pytest.raises(LegalizeError, match="computed from data"):
            LegalizeOps(every=True)(tiled(decompose))


def test_a_result_whose_size_depends_on_values_is_computed_later() -> None:
    x = rx.Var("x", T((8,)))
    at = [rx.Var(name, T((1,), "int64")) for name in ("begin", "end", "strides")]
    builder = rx.BlockBuilder()
    with builder.function("main", [x, *at]):
        made = builder.emit(R.dynamic_strided_slice(R.exp(x), *at))
        builder.emit_func_output(made)
    legal = LegalizeOps()(builder.get())
    names = [b.value.op.name for b in bindings_of(legal["main"].body)]
    assert names == ["relax.stablehlo.exponential", "relax.dynamic_strided_slice"]
    with pytest.warns(UserWarning, match=r"relax\.dynamic_strided_slice"):
        LegalizeOps(enable_warning=True)(builder.get())
    values = np.linspace(0, 1, 8, dtype="float32")
    bounds = [np.array([n]) for n in (1, 7, 2)]
    found = rx.VirtualMachine(rx.build(legal), "cpu")["main"](values, *bounds)
    np.testing.assert_allclose(found, np.exp(values)[1:7:2], rtol=1e-6)


def test_only_rows_and_the_variable_survive() -> None:
    x = rx.Var("x", T((2, 3)))
    span = rx.Span("encoder.softmax")
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(R.nn.softmax(x, axis=-1), name_hint="probabilities", span=span)
            out = builder.emit_output(R.exp(y))
        builder.emit_func_output(out)
    func = LegalizeOps()(builder.get())["main"]
    bindings = list(bindings_of(func.body))
    assert all(is_row(b.value.op) for b in bindings if isinstance(b.value, rx.Call))
    softmax = [b for b in bindings if b.span == span or b.var.span == span]
    assert softmax[-1].var.name_hint == "probabilities"
    assert len(softmax) > 3


def test_shared_expressions_are_bound_once() -> None:
    x = rx.Var("x", T((4,)))
    e = R.exp(x)
    func = run_on_function([LegalizeStatic()], rx.Function([x], R.add(e, e)), "main")
    names = [b.value.op.name for b in bindings_of(func.body) if isinstance(b.value, rx.Call)]
    assert names == ["relax.stablehlo.exponential", "relax.stablehlo.add"]


def test_a_lowering_that_breaks_its_promise_is_an_error() -> None:
    @op("relax.test_promise")
    def promise(x: rx.Expr) -> rx.StructInfo:
        """Promises a vector, gives a scalar."""
        return T((3,))

    @promise.legalize
    def _(x: rx.Expr) -> rx.Expr:
        return rx.const(np.float32(1))

    try:
        x = rx.Var("x", T((3,)))
        with pytest.raises(LegalizeError, match=r"inferred as Tensor\(\(3,\).*lowering gives"):
            run_on_function([LegalizeStatic()], rx.Function([x], promise(x)), "main")
    finally:
        del Op.registry["relax.test_promise"]


def test_what_needs_a_number_is_refused_with_advice() -> None:
    x = rx.Var("x", T((tir.Var("n"), 3)))
    unbound = R.strided_slice(x, axes=[0], begin=[0], end=[tir.Var("m")])

    def tiled(_: rx.BlockBuilder, call: rx.Call) -> rx.Expr:
        v = call.args[0]
        return R.tile(v, [len(range(v.struct_info.dims[0])), 1])

    numbers = {"relax.exp": tiled}
    for value, rules, reason in (
        (unbound, {}, "no dimension of a parameter defines the symbolic variable m"),
        (R.exp(x), numbers, "exp.* cannot be lowered over symbolic dimensions"),
    ):
        mod = rx.IRModule({"main": rx.Function([x], value)})
        with pytest.raises(LegalizeError, match=f"{reason}.*bind_symbolic_vars") as error:
            LegalizeOps(rules)(mod)
        assert any("in the function main" in note for note in error.value.__notes__)


def test_custom_lowerings() -> None:
    x = rx.Var("x", T((3,)))
    mod = rx.IRModule({"main": rx.Function([x], R.exp(x))})
    new = LegalizeOps({"relax.exp": lambda bb, call: R.tanh(call.args[0])})(mod)["main"]
    assert [b.value.op.name for b in bindings_of(new.body)] == ["relax.stablehlo.tanh"]


def test_custom_lowerings_that_emit_and_call_te() -> None:
    x = rx.Var("x", T((3,)))
    func = rx.Function([x], R.exp(R.add(x, x)), attrs={"global_symbol": "main"})
    mod = rx.IRModule({"main": func})

    def emitted(bb: rx.BlockBuilder, call: rx.Call) -> rx.Expr:
        return R.sqrt(bb.emit(R.multiply(*call.args)))

    def looped(bb: rx.BlockBuilder, call: rx.Call) -> rx.Expr:
        return bb.call_te(topi.exp, call.args[0])

    new = LegalizeOps({"relax.add": emitted, "relax.exp": looped})(mod)
    ops = [b.value.op.name for b in bindings_of(new["main"].body)]
    assert ops == ["relax.stablehlo.multiply", "relax.stablehlo.sqrt", "relax.call_tir"]
    assert [g.name_hint for g in new] == ["main", "exp"]
    given = np.float32([1, 2, 3])
    got = rx.testing.evaluate(new, [given])
    np.testing.assert_allclose(got, np.exp(given), rtol=1e-5)
    kept = LegalizeOps({"relax.add": lambda bb, call: call})(mod)["main"]
    assert next(iter(bindings_of(kept.body))).value.op.name == "relax.add"


def test_local_functions_are_inlined_at_each_call() -> None:
    mod = rx.script.from_source(
        """
@R.function
def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    @R.function
    def inner(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        b: R.Tensor((2,), "float32") = R.add(a, x)
        return b
    y: R.Tensor((2,), "float32") = inner(x)
    z: R.Tensor((2,), "float32") = inner(y)
    return z
"""
    )
    result = rx.testing.evaluate(mod, [np.array([1, 2], "f")])
    np.testing.assert_array_equal(result, [3, 6])


def test_calls_of_local_functions_that_hold_regions() -> None:
    # Both loops of each call of outer have functions of their own, which see what outer sees.
    mod = rx.script.from_source(
        """
@R.function
def main(x: R.Tensor((2,), "float32")):
    @R.function
    def outer(a: R.Tensor((2,), "float32")):
        @R.function
        def inner(a: R.Tensor((2,), "float32")):
            @R.function
            def cond(b: R.Tensor((2,), "float32")):
                c = R.less(R.sum(b), R.const(10.0))
                return c
            @R.function
            def body(b: R.Tensor((2,), "float32")):
                c = R.add(b, a)
                return c
            d = R.stablehlo.while_(body(a), cond, body)
            return d
        e = R.add(inner(a), inner(x))
        return e
    y = outer(x)
    z = outer(R.multiply(x, R.const(10.0)))
    return (y, z)
"""
    )
    y, z = rx.testing.evaluate(mod, [np.array([1, 2], "f")])
    np.testing.assert_array_equal(y, [8, 16])  # 4 and 8 twice
    np.testing.assert_array_equal(z, [24, 48])  # 20 and 40, and 4 and 8


def test_a_chain_of_100_000_bindings_is_lowered_and_emitted_in_linear_work() -> None:
    def lower(count: int) -> int:
        x = rx.Var("x", T((2,)))
        value: rx.Expr = x
        for _ in range(count):
            value = R.negative(value)
        func = rx.Function([x], value, attrs={"global_symbol": "main"})
        func = run_on_function([LegalizeStatic()], func, "main")
        module = stablehlo.emit(rx.IRModule({"main": func}))
        return len(list(module.body.operations[0].entry_block.operations))

    lower(1)  # what is imported and registered at first use
    assert calls(lambda: lower(2000)) < 2.1 * calls(lambda: lower(1000))
    assert lower(100_000) == 100_001
