"""RestoreOperators: kernels that were made of operators, and not changed since, are these again."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op, tir, topi
from relax2xla.ir import Function, IRModule, assert_structural_equal, structural_equal
from relax2xla.ir.rewrite import bindings_of, reads
from relax2xla.script import ir as I
from relax2xla.script import relax as R
from relax2xla.script import tir as T
from relax2xla.testing import evaluate
from relax2xla.tir import PrimFunc
from relax2xla.transform import (
    AnnotateTIROpPattern,
    CanonicalizeBindings,
    FuseOps,
    FuseTIR,
    LegalizeOps,
    RestoreOperators,
    Sequential,
    get_pipeline,
)
from relax2xla.transform.lower import kernel_rows
from tests.transform.lower.kernel_cases import CASES
from tests.transform.lower.test_to_kernels import CALLED, module, ops_of, values

KERNELS = LegalizeOps(to="kernels")
FUSED = Sequential([KERNELS, AnnotateTIROpPattern(), FuseOps(), FuseTIR()])
# Of a shape alone, which is no operand of the kernel; of no kernel at all.
SHAPES = {"full_like", "ones_like", "zeros_like", "eye_like", "collapse_sum_like"}
MARKS = {"arange", "grad.no_grad", "grad.start_checkpoint", "grad.end_checkpoint"}
# Made of one kernel in either order; a constant is computed at once.
OTHERWISE = {"logical_and", "logical_or", "astype"}
EACH = {n for n in CASES if f"relax.{n}" not in CALLED} - SHAPES - MARKS - OTHERWISE


def kernels(mod: IRModule) -> list[PrimFunc]:
    return [f for f in mod.functions.values() if isinstance(f, PrimFunc)]


@pytest.mark.parametrize("name", sorted(EACH))
def test_the_operator_is_there_again(name: str) -> None:
    before = module({str(n): case for n, case in enumerate(CASES[name])})
    after = CanonicalizeBindings()(RestoreOperators()(KERNELS(before)))
    assert_structural_equal(after["main"], CanonicalizeBindings()(before)["main"])


@pytest.mark.parametrize("name", sorted(OTHERWISE))
def test_it_may_be_written_otherwise(name: str) -> None:
    before = module({str(n): case for n, case in enumerate(CASES[name])})
    after = RestoreOperators()(KERNELS(before))
    assert "relax.call_tir" not in ops_of(after)
    arrays = [a for case in CASES[name] for a in case.arrays]
    found, wanted = (rx.VirtualMachine(rx.build(m))["main"](*arrays) for m in (after, before))
    for a, b in zip(values(found), values(wanted), strict=True):
        np.testing.assert_array_equal(a, b)


def network(seed: int = 0) -> tuple[IRModule, np.ndarray[Any, Any]]:
    """Two convolutions of one kind with weights of their own, one that is given to both of two."""
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal((4, 4, 3, 3), dtype=np.float32) for _ in range(2))
    builder = rx.BlockBuilder()
    x = rx.Var("x", R.Tensor((1, 4, 8, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.nn.conv2d(x, rx.const(a), padding=1))
            y = builder.emit(op.nn.relu(op.add(y, rx.const(np.float32(0.5)))))
            y = builder.emit(op.nn.conv2d(y, rx.const(b), padding=1))
            out = builder.emit_output(op.add(op.multiply(y, y), x))
        builder.emit_func_output(out)
    return builder.get(), rng.standard_normal((1, 4, 8, 8), dtype=np.float32)


def result(mod: IRModule, x: Any) -> Any:
    return next(values(rx.VirtualMachine(rx.build(mod))["main"](x)))


@pytest.mark.parametrize("lowered", [KERNELS, FUSED], ids=["kernels", "fused"])
def test_each_call_has_its_own_constants(lowered: Any) -> None:
    mod, x = network()
    made = lowered(mod)
    assert any(k.origin is not None for k in kernels(made))
    # Both convolutions call one function.
    assert len(kernels(made)) < len(list(bindings_of(mod["main"].body)))
    after = get_pipeline("default")(made)
    assert "relax.call_tir" not in ops_of(after)
    np.testing.assert_allclose(result(made, x), result(mod, x), rtol=1e-5, atol=1e-5)


def test_what_was_changed_is_what_it_was_changed_to() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            y = R.nn.relu(x)
            return y

    made = KERNELS(Module)
    ((gvar, kernel),) = [(g, f) for g, f in made.items() if isinstance(f, PrimFunc)]

    def minus(s: Any) -> Any:
        if not isinstance(s, tir.BufferStore):
            return None
        return tir.BufferStore(s.buffer, s.value - tir.const(1.0, "float32"), s.indices)

    body = tir.stmt_functor.ir_transform(kernel.body, None, minus, ["tir.BufferStore"])
    other = made.replace({**made.functions, gvar: kernel.with_body(body)})
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    np.testing.assert_allclose(result(made, x), np.maximum(x, 0))
    np.testing.assert_allclose(result(other, x), np.maximum(x, 0) - 1)


def test_copies_keep_it_and_comparisons_do_not_see_it() -> None:
    mod, _ = network()
    kernel = next(k for k in kernels(KERNELS(mod)) if k.origin is not None)
    assert isinstance(kernel.origin, Function)
    assert kernel.with_attr("a", 1).without_attr("a").origin is kernel.origin
    assert kernel.with_body(kernel.body).origin is None
    assert structural_equal(kernel, kernel.with_origin(None))
    assert "origin" not in kernel.script()


@pytest.mark.parametrize("size", [3, 5])
def test_symbolic_sizes(size: int) -> None:
    n = tir.Var("n", "int64")
    builder = rx.BlockBuilder()
    x, w = rx.Var("x", R.Tensor((n, 4), "float32")), rx.Var("w", R.Tensor((4, 6), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            y = builder.emit(op.nn.softmax(op.matmul(x, w)))
            out = builder.emit_output(op.reshape(y, (n * 6,)))
        builder.emit_func_output(out)
    mod = builder.get()
    rng = np.random.default_rng(size)
    given = rng.random((size, 4), np.float32), rng.random((4, 6), np.float32)
    made = KERNELS(mod)
    found, wanted = (rx.VirtualMachine(rx.build(m))["main"](*given) for m in (made, mod))
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-6)
    assert {"relax.matmul", "relax.nn.softmax"} <= ops_of(RestoreOperators()(made))


def test_several_results_and_functions() -> None:
    builder = rx.BlockBuilder()
    x = rx.Var("x", R.Tensor((6, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            parts = builder.emit(op.split(x, 3, axis=0))
            out = builder.emit_output(op.concat([parts[2], op.exp(parts[0]), parts[1]], axis=1))
        builder.emit_func_output(out)
    mod = builder.get()
    made = KERNELS(mod)
    restored = RestoreOperators()(made)
    assert {"relax.split", "relax.concat", "relax.exp"} <= ops_of(restored)
    data = np.random.default_rng(0).random((6, 4), np.float32)
    want = np.concatenate([data[4:], np.exp(data[:2]), data[2:4]], axis=1)
    for each in itertools.chain([made, restored]):
        np.testing.assert_allclose(result(each, data), want, rtol=1e-6)


def test_what_a_program_makes_of_an_operator_stays() -> None:
    mod, x = network()

    def halves(bb: Any, call: Any) -> Any:
        return bb.call_te(lambda t: topi.multiply(t, tir.const(0.5, "float32")), call.args[0])

    made = LegalizeOps({"relax.nn.relu": halves}, to="kernels")(mod)
    assert "relax.nn.relu" not in ops_of(RestoreOperators()(made))
    assert np.abs(result(made, x) - result(mod, x)).max() > 0.1


def test_rows_that_are_registered_take_the_place_of_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mod, _ = network()
    monkeypatch.setitem(kernel_rows._ROWS, "relu", lambda call: (call.tensors[0],))
    found = ops_of(RestoreOperators()(KERNELS(mod)))
    assert "relax.nn.relu" not in found
    assert "relax.nn.conv2d" in found


def test_a_kernel_that_changes_an_argument_is_in_none() -> None:
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def one_more(x: T.Buffer((8,), "float32")):
            for i in range(8):
                with T.block("add"):
                    v = T.axis.spatial(8, i)
                    x[v] = x[v] + T.float32(1)

        @R.function(private=True)
        def fused(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            R.func_attr({"Primitive": True})
            cls = Module
            with R.dataflow():
                y = R.exp(x)
                z = R.call_tir_inplace(
                    cls.one_more, (y,), inplace_indices=[0], out_sinfo=R.Tensor((8,), "float32")
                )
                R.output(z)
            return z

        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            cls = Module
            with R.dataflow():
                z = cls.fused(x)
                R.output(z)
            return z

    made = FuseTIR()(KERNELS(Module))
    assert [k.origin for k in kernels(made)] == [None]
    x = np.linspace(-1, 1, 8, dtype=np.float32)
    np.testing.assert_allclose(result(made, x), np.exp(x) + 1, rtol=1e-6)


@pytest.mark.parametrize("name", sorted(EACH))
def test_operands_of_one_kind_are_in_their_order(name: str) -> None:
    """So that a call which reads a tensor twice tells which operand is which for others."""
    for n, case in enumerate(CASES[name]):
        for kernel in kernels(KERNELS(module({str(n): case}))):
            if kernel.origin is None:
                continue
            ((binding,),) = [[*bindings_of(kernel.origin.body)]]
            params = list(kernel.origin.params)
            read = [params.index(v) for v in reads(binding.value) if v in params]
            for info in {str(p.struct_info) for p in params}:
                same = [p for p in read if str(params[p].struct_info) == info]
                assert same == sorted(same)


TWICE: dict[str, Callable[[rx.Expr, rx.Expr], rx.Expr]] = {
    "multiply": op.multiply,
    "subtract": op.subtract,
    "maximum": op.maximum,
    "concat": lambda a, b: op.concat((a, b), axis=0),
    "where": lambda a, b: op.where(op.greater(a, rx.const(0.0, "float32")), a, b),
    "matmul": op.matmul,
}


@pytest.mark.parametrize("name", TWICE)
def test_a_kernel_whose_first_call_reads_one_tensor_twice(name: str) -> None:
    """The next call reads two: which operand is which does not follow from the first."""
    info = rx.TensorStructInfo((4, 4), "float32")
    v, w = rx.Var("v", info), rx.Var("w", info)
    builder = rx.BlockBuilder()
    with builder.function("main", [v, w]):
        with builder.dataflow():
            both = [builder.emit(TWICE[name](a, b)) for a, b in ((v, v), (v, w), (w, v))]
            made = builder.emit_output(rx.Tuple(both))
        builder.emit_func_output(made)
    mod = builder.get()
    rng = np.random.default_rng(2)
    given = [rng.standard_normal((4, 4), "float32") for _ in range(2)]
    wanted = evaluate(mod["main"], given)
    got = rx.VirtualMachine(rx.build(KERNELS(mod), "cpu"))["main"](*given)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-5)
