"""Walks over statements, rewriting, specialize, and rules of well-formedness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relax2xla import ir, tir
from relax2xla.errors import WellFormedError
from relax2xla.script import from_source
from relax2xla.script import tir as T
from relax2xla.tir import stmt_functor
from relax2xla.tir.analysis import undefined_vars, verify_well_formed
from relax2xla.tir.kernel.interpret import interpret

COPY = """
@T.prim_func
def f(a: T.handle, b: T.handle, m: T.int32):
    n = T.int32()
    A = T.match_buffer(a, (m, n))
    B = T.match_buffer(b, (m, n))
    for i, j in T.grid(m, n):
        with T.block("copy"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.Cast("float32", m)
"""


def parse(text: str, check: bool = True) -> tir.PrimFunc:
    made = from_source(text, check_well_formed=check)
    assert isinstance(made, tir.PrimFunc)
    return made


def test_visits_meet_inner_nodes_first_or_last() -> None:
    func = parse(COPY)
    after: list[Any] = []
    stmt_functor.post_order_visit(func.body, after.append)
    kinds = [type(n).__name__ for n in after]
    assert kinds[-1] == "BlockRealize"
    assert kinds.index("BufferLoad") < kinds.index("BufferStore") < kinds.index("For")
    assert kinds.count("Block") == 2
    before: list[Any] = []
    stmt_functor.pre_order_visit(
        func,
        lambda n: before.append(n) or not isinstance(n, tir.For),  # type: ignore[func-returns-value]
    )
    assert [type(n).__name__ for n in before][-1] == "For"


def test_ir_transform_replaces_what_is_enabled() -> None:
    func = parse(COPY)

    def parallel(node: Any) -> Any:
        return tir.For(node.loop_var, node.min, node.extent, "parallel", node.body)

    made = stmt_functor.ir_transform(func.body, None, parallel, ["tir.For"])
    kinds = [n.kind for n in tir.stmt.walk(made) if isinstance(n, tir.For)]
    assert kinds == ["parallel", "parallel"]
    assert stmt_functor.ir_transform(func.body, lambda n: None, lambda n: None) is func.body

    def one(node: Any) -> Any:
        return tir.FloatImm("float32", 1.0)

    made = stmt_functor.ir_transform(func.body, one, None, ["tir.BufferLoad"])
    assert "= T.Mul(T.float32(1.0), " in func.with_body(made).script()


def test_substitute_reaches_buffers_and_keeps_what_is_not_named() -> None:
    func = parse(COPY)
    m = func.params[2]
    assert stmt_functor.substitute(func.body, {}) is func.body
    made = stmt_functor.substitute(func.body, {m: tir.IntImm("int32", 4)})
    loop = next(n for n in tir.stmt.walk(made) if isinstance(n, tir.For))
    assert loop.extent == 4
    stores = [n for n in tir.stmt.walk(made) if isinstance(n, tir.BufferStore)]
    assert stores[0].buffer.shape[0] == 4
    # Nothing is folded.
    assert 'T.Cast("float32", 4)' in func.with_body(made).script()
    expr = m + 1
    assert stmt_functor.substitute(expr, {m: tir.IntImm("int32", 2)}) == 3


def test_specialize_memory() -> None:
    func = parse("""
@T.prim_func
def f(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
    a = T.decl_buffer((16,), data=A.data)
    b = T.decl_buffer((16,), data=B.data)
    for i in range(15):
        b[i + 1] = a[i] * 2.0
""")
    made = func.specialize({func.params[1]: func.buffer_map[func.params[0]]})
    assert func.params == made.params
    assert "B = T.match_buffer(B_handle, (4, 4), data=A.data)" in made.script()
    assert "b = T.decl_buffer((16,), data=A.data)" in made.script()
    # Both are one memory: each step reads what the one before wrote.
    x = np.ones((4, 4), "float32")
    interpret(made, x, x)
    assert x.ravel()[:4].tolist() == [1, 2, 4, 8]


def test_specialize_a_pointer() -> None:
    func = parse("""
@T.prim_func(private=True)
def f(x: T.handle("float32"), y: T.handle("float32")):
    a = T.decl_buffer(32, data=x)
    b = T.decl_buffer(16, data=y)
    for i in range(16):
        b[i] = a[i] * 2.0
""")
    wanted = parse("""
@T.prim_func(private=True)
def f(x: T.handle("float32")):
    a = T.decl_buffer(32, data=x)
    y: T.Ptr[T.float32] = T.address_of(a[16])
    b = T.decl_buffer(16, data=y)
    for i in range(16):
        b[i] = a[i] * 2.0
""")
    assert isinstance(func.body, tir.DeclBuffer)
    made = func.specialize({func.params[1]: T.address_of(func.body.buffer[16])})
    ir.assert_structural_equal(made, wanted)


def test_specialize() -> None:
    func = parse(COPY)
    a, b, m = func.params
    wanted = parse("""
@T.prim_func
def f(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
    for i, j in T.grid(4, 8):
        with T.block("copy"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(4)
""")
    sizes = (tir.IntImm("int32", 4), tir.IntImm("int32", 8))
    made = func.specialize({a: tir.decl_buffer(sizes)})
    ir.assert_structural_equal(made, wanted)
    n = func.buffer_map[a].shape[1]
    assert isinstance(n, tir.Var)
    half = func.specialize({m: tir.IntImm("int32", 4)})
    assert [p.name for p in half.params] == ["a", "b"]
    assert half.buffer_map[b].shape[1] is n
    with pytest.raises(ValueError, match="x is no parameter"):
        func.specialize({tir.Var("x", "int32"): 1})
    with pytest.raises(ValueError, match="holds float32 in 2 axes; got float32 in 1"):
        func.specialize({a: tir.decl_buffer((4,))})
    with pytest.raises(ValueError, match="is a handle"):
        func.specialize({a: 3})


def test_well_formedness() -> None:
    func = parse(COPY)
    assert verify_well_formed(func)
    assert undefined_vars(func.body) == [func.params[2], *undefined_vars(func.body)[1:]]
    loop = next(n for n in tir.stmt.walk(func.body) if isinstance(n, tir.For))
    alone = func.with_body(loop.body)
    assert not verify_well_formed(alone, assert_mode=False)
    with pytest.raises(WellFormedError, match=f"the variable {loop.loop_var.name} is not defined"):
        verify_well_formed(alone)
    twice = func.with_body(tir.For(loop.loop_var, loop.min, loop.extent, "serial", loop))
    with pytest.raises(WellFormedError, match="is defined twice"):
        verify_well_formed(twice)
    inner = next(
        n for n in tir.stmt.walk(loop) if isinstance(n, tir.BlockRealize) and n.iter_values
    )
    after = func.with_body(tir.SeqStmt((loop, inner)))
    with pytest.raises(WellFormedError, match="is used outside of its scope"):
        verify_well_formed(after)
    again = func.with_body(tir.SeqStmt((loop, loop)))
    with pytest.raises(WellFormedError, match="is defined in two places"):
        verify_well_formed(again)


def test_sequences_in_sequences_are_flat() -> None:
    a, b, c = (tir.Evaluate(i) for i in range(3))
    assert tir.SeqStmt([tir.SeqStmt([a, b]), c]).seq == (a, b, c)
