"""``T.tvm_thread_allreduce``: what the threads of a block make of a value of each, for all of them.

The statement is made a store first, whose value is a call of an operator of our own, so that what
finds out which memory is read and written needs to know stores alone. Threads are axes; the value
is combined over those that the call names.
"""

from __future__ import annotations

from typing import Final

from relax2xla import tir
from relax2xla.op.shared.lowering import identity_of, scalar, select
from relax2xla.stablehlo.loops.affine import Form
from relax2xla.stablehlo.loops.axes import (
    Axis,
    Value,
    elementwise,
    in_order,
    known,
    reduced,
    spread,
)
from relax2xla.stablehlo.loops.state import Kernel, Scope
from relax2xla.tir import stmt as st
from relax2xla.tir.buffer import BufferLoad
from relax2xla.tir.reduce import CommReducer
from relax2xla.tir.stmt_functor import transformed

ALLREDUCE: Final = "tir.tvm_thread_allreduce"
_STORED: Final = "tir.allreduce."
_ROWS: Final[dict[type[tir.PrimExpr], str]] = {
    tir.Add: "add",
    tir.Mul: "multiply",
    tir.Max: "maximum",
    tir.Min: "minimum",
}


def allreduces_as_stores(root: st.Stmt) -> st.Stmt:
    """``root`` with ``result = allreduce(value)`` in the place of each call for its effect.

    Those of several values, and reducers that are no sum, product, maximum or minimum, stay.
    """
    if not any(_is_scope(s) for s in st.walk(root)):
        return root
    return transformed(root, _in_scope)


def _is_scope(s: st.Stmt) -> bool:
    return isinstance(s, st.AttrStmt) and isinstance(s.node, CommReducer)


def _in_scope(s: st.Stmt) -> st.Stmt:
    if not isinstance(s, st.AttrStmt) or not isinstance(s.node, CommReducer):
        return s
    reducer = s.node
    row = _ROWS.get(type(reducer.result[0]))
    operands = reducer.result[0].children()
    if row is None or len(reducer.result) > 1 or {*operands} != {reducer.lhs[0], reducer.rhs[0]}:
        return s
    return transformed(s.body, lambda inner: _as_store(inner, row, reducer.identity_element[0]))


def _as_store(s: st.Stmt, row: str, neutral: tir.PrimExpr) -> st.Stmt:
    call = s.value if isinstance(s, st.Evaluate) else None
    if not isinstance(call, tir.Call) or call.op != ALLREDUCE or len(call.args) < 5:
        return s
    _, value, condition, result, *threads = call.args
    if not isinstance(result, BufferLoad):
        return s
    made = tir.Call(result.dtype, _STORED + row, (value, condition, neutral, *threads))
    return st.BufferStore(result.buffer, made, result.indices, line=s.line)


def meets(s: st.BufferStore) -> bool:
    """Whether a store is one of these."""
    return isinstance(s.value, tir.Call) and s.value.op.startswith(_STORED)


def across_threads(kernel: Kernel, e: tir.Call, scope: Scope) -> Value | None:
    """The value of such a call; None for any other."""
    if not e.op.startswith(_STORED):
        return None
    row = e.op.removeprefix(_STORED)
    given, condition, neutral, *threads = e.args
    axes: set[Axis] = set()
    for thread in threads:
        held = scope.env.get(thread) if isinstance(thread, tir.Var) else None
        over = set(held.terms) if isinstance(held, Form) else None
        if over is None or not all(a.thread.startswith("threadIdx") for a in over):
            raise kernel.error(
                f"tvm_thread_allreduce combines over threads of one block (threadIdx); got {thread}"
            )
        axes |= over
    kernel.count("allreduce")
    value = kernel.evaluate(given, scope)
    value = _where(kernel.evaluate(condition, scope), value, kernel.evaluate(neutral, scope))
    # Threads that do not get here have no value.
    none = Value(scalar(identity_of(row, value.dtype), value.dtype))
    value = _where(scope.mask, value, none)
    axes -= scope.fixed.keys()
    wide = in_order({*value.axes, *axes})
    return reduced(row, Value(spread(value, wide), tuple(wide)), in_order(axes))


def _where(condition: Value | None, value: Value, other: Value) -> Value:
    if condition is None or known(condition):
        return value
    return elementwise(select, condition, value, other)
