"""Statements that are emitted one after another, and kernels of te made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import te, tir
from relax2xla.ir import assert_structural_equal
from relax2xla.script import tir as T
from relax2xla.tir import ir_builder


def run(tensors: list[te.Tensor], *args: Any) -> Any:
    """What a kernel of te gives for arrays."""
    func = te.create_prim_func(tensors)
    given = [*args, *(np.zeros([int(d) for d in t.shape], t.dtype) for t in tensors[len(args) :])]
    return np.asarray(rx.VirtualMachine(rx.build(func))["main"](*given))


def test_statements_are_those_of_a_script() -> None:
    A, B = tir.decl_buffer((8, 4), name="A"), tir.decl_buffer((32,), "int32", name="B")
    ib = ir_builder.create()
    a, b = ib.buffer_ptr(A), ib.buffer_ptr(B)
    with ib.for_range(0, 8) as i, ib.for_range(2, 4) as j:
        with ib.if_scope(ib.likely(i < j)):
            kept = ib.allocate("float32", (4,), "kept", scope="local")
            kept[0] = a[i * 4 + j] + 1
            a[i, j] = kept[0]
        with ib.else_scope():
            ib.emit(T.call_extern("int32", "nothing", i))
    n = ib.let("n", b[0] + 1)
    with ib.while_loop(b[0] < n):
        b[0] = b[0] + 1
    with ib.new_scope(), ib.for_range(0, n, "k", kind="parallel") as k:
        b[k] = 0
    made = tir.PrimFunc([tir.Var("a", "handle"), tir.Var("b", "handle")], ib.get())
    made = tir.PrimFunc(made.params, made.body, None, dict(zip(made.params, (A, B), strict=True)))

    @T.prim_func(private=True)
    def expected(A: T.Buffer((8, 4), "float32"), B: T.Buffer((32,), "int32")):
        for i in range(8):
            for j in range(2, 4):
                if T.likely(i < j):
                    kept_data = T.allocate([4], "float32", "local")
                    kept = T.Buffer((4,), data=kept_data, scope="local")
                    kept[0] = A[(i * 4 + j) // 4, (i * 4 + j) % 4] + T.float32(1)
                    A[i, j] = kept[0]
                else:
                    T.call_extern("int32", "nothing", i)
        n: T.int32 = B[0] + 1
        while B[0] < n:
            B[0] = B[0] + 1
        for k in T.parallel(n):
            B[k] = 0

    assert_structural_equal(made, expected)
    body = expected.body
    assert isinstance(body, tir.SeqStmt)
    assert tir.stmt_list(body) == list(body.seq)
    assert [tir.stmt_list(x) for x in body.seq] == [[x] for x in body.seq]
    assert tir.stmt_seq(body.seq[0], 1).seq[1].value == 1
    assert str(ib.get()) == str(tir.Evaluate(tir.const(0, "int32")))


def test_a_kernel_of_te_runs() -> None:
    def body(ins: Any, outs: Any) -> tir.Stmt:
        """Running sums of rows whose first element is positive, else -1."""
        ib = ir_builder.create()
        x, out = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 5, "row", kind="parallel") as row:
            with ib.if_scope(x[row, 0] > 0):
                total = ib.allocate("float32", 1, "total", scope="local")
                total[0] = 0
                with ib.for_range(0, 6, "at") as at:
                    total[0] = total[0] + x[row, at]
                    out[row, at] = total[0]
            with ib.else_scope(), ib.for_range(0, 6, "at") as at:
                out[row, at] = -1
        return ib.get()

    x = np.random.default_rng(3).integers(-3, 4, (5, 6)).astype("float32")
    x[0, 0], x[1, 0] = 1, -1
    given = te.placeholder(x.shape, name="x")
    made = te.extern(x.shape, [given], body, name="sums", dtype="float32")
    expected = np.where(x[:, :1] > 0, np.cumsum(x, 1), -1)
    np.testing.assert_array_equal(run([given, made], x), expected)


def test_threads() -> None:
    def body(ins: Any, outs: Any) -> tir.Stmt:
        ib = ir_builder.create()
        x, out = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        bx, tx = te.thread_axis("blockIdx.x"), te.thread_axis((0, 8), "threadIdx.x", "tx")
        ib.scope_attr(bx, "thread_extent", 3)
        ib.scope_attr(tx, "thread_extent", 8)
        at = bx * 8 + tx
        with ib.if_scope(at < 20):
            out[at] = x[19 - at]
        return ib.get()

    x = np.arange(20, dtype="int32")
    given = te.placeholder(x.shape, "int32", name="x")
    made = te.extern(x.shape, [given], body, name="back", dtype="int32")
    np.testing.assert_array_equal(run([given, made], x), x[::-1])
    with pytest.raises(ValueError, match=r"te\.thread_axis: say which threads"):
        te.thread_axis((0, 8))


def test_what_does_not_fit() -> None:
    ib = ir_builder.create()
    a = ib.pointer("int32", "a")
    with pytest.raises(
        ValueError, match=r"a holds int32, and `T\.float32\(1\.0\)` is float32; cast"
    ):
        a[0] = tir.const(1.0, "float32")
    with pytest.raises(ValueError, match="comes right after a `with"):
        ib.else_scope()
    with ib.for_range(0, 3), pytest.raises(ValueError, match="call it after that"):
        ib.get()
