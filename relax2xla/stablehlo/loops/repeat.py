"""Loops that stay loops: steps written out where they are few, else ``stablehlo.while``.

The state of a ``while`` is the memory that the body writes. What it reads besides is found in what
was made of the body, and carried unchanged, for regions are closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from relax2xla import tir
from relax2xla.ir.expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    Function,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import children, post_order, rebuild
from relax2xla.op.shared.lowering import (
    compare,
    convert,
    hlo,
    info_of,
    outputs,
    reduce,
    scalar,
    select,
)
from relax2xla.op.statistical import scan
from relax2xla.stablehlo.loops.accesses import (
    flat_stores,
    resolved,
    statements,
    views_below,
    written,
)
from relax2xla.stablehlo.loops.accumulate import (
    accumulation,
    fixed_scope,
    loads_of,
    reads_buffer,
)
from relax2xla.stablehlo.loops.affine import INDEX, Form, number, plus, value_of
from relax2xla.stablehlo.loops.axes import Axis, NeedsLoop, Value, constant, elementwise
from relax2xla.stablehlo.loops.evaluate import evaluate
from relax2xla.stablehlo.loops.forms import decided, form_of, settled
from relax2xla.stablehlo.loops.reads import read
from relax2xla.stablehlo.loops.scalars import NODES, row
from relax2xla.stablehlo.loops.state import Kernel, Scope, StayedLoop, both
from relax2xla.stablehlo.loops.writes import write
from relax2xla.tir import stmt as st
from relax2xla.tir.buffer import BufferLoad

T = TypeVar("T")

FEW_STEPS = 8
MOST_STEPS = 16
"""Loops of up to 8 steps are written out, as long as nested ones give no more than 16 copies."""

MOST_SEQUENTIAL = 1 << 36
"""More steps one after the other than this take days, and nothing can interrupt them."""


def sequential(
    kernel: Kernel, s: st.For, scope: Scope, low: Form | None, count: int | None, why: str
) -> None:
    """Run a loop step by step; ``count`` and ``low``, if they are known before it runs."""
    if count is not None and low is not None and count <= FEW_STEPS:
        copies = scope.unrolled * count
        if copies <= MOST_STEPS and not low.terms:
            for i in range(count):
                step = scope.bind(s.loop_var, plus(number(i), low)).but(unrolled=copies)
                kernel.run(s.body, step)
            return
    if count is not None and count > MOST_SEQUENTIAL:
        raise kernel.error(
            f"the {count} steps of the loop {s.loop_var.name} would run one after the other "
            f"({why}); at most {MOST_SEQUENTIAL} are possible"
        )
    kernel.loops.append(StayedLoop(s.loop_var.name, count, why, s.line))
    kernel.count("while")
    _counted(kernel, s, scope, low, count)


def _counted(kernel: Kernel, s: st.For, scope: Scope, low: Form | None, count: int | None) -> None:
    dtype = s.loop_var.dtype
    start = _value(kernel, s.min, dtype, scope) if low is None else None
    lanes: Value | None = None
    if count is not None:
        end: Expr = scalar(count, dtype)
    else:
        extent = _value(kernel, s.extent, dtype, scope)
        if scope.mask is not None:
            extent = elementwise(select, scope.mask, extent, constant(0, dtype))
        end = extent.expr
        if extent.axes:
            lanes, end = extent, reduce(extent.expr, "maximum", range(len(extent.axes)))

    def body(counter: Expr) -> None:
        inner = scope
        place = Form(scalar=convert(counter, INDEX), key=(s.loop_var, len(kernel.loops)))
        if start is not None:
            value = elementwise(row("add"), start, Value(counter))
            inner = inner.bind(s.loop_var, value)
        else:
            assert low is not None
            inner = inner.bind(s.loop_var, plus(place, low))
        if lanes is not None:
            inner = inner.where(elementwise(NODES[tir.LT], Value(counter), lanes))
        kernel.run(s.body, inner)

    loop = _Loop(kernel, s.body, scope, [end, *([start.expr] if start else ())])
    if lanes is not None:
        loop.outside(lanes.expr)
    counter = Var("i", info_of(scalar(0, dtype)))
    results = loop.traced(lambda: body(counter))
    again = Var("i", counter.struct_info)
    test = compare(again, end, "LT")
    one = hlo("add", counter, scalar(1, dtype))
    loop.finish([scalar(0, dtype)], [counter], [one], results, [again], test, loop.fresh())


def _value(kernel: Kernel, e: tir.Dim, dtype: str, scope: Scope) -> Value:
    if isinstance(e, int):
        return constant(e, dtype)
    value = evaluate(kernel, e, scope)
    return Value(convert(value.expr, dtype), value.axes)


def while_statement(kernel: Kernel, s: st.While, scope: Scope) -> None:
    """``while condition: body``; lanes where the condition fails stand still."""
    if decided(kernel, s.condition, scope) is not False and _never_ends(kernel, s):
        raise kernel.error(
            f"the condition `{s.condition}` reads nothing that the body of the loop writes, so "
            "that the loop never ends once it has begun; write in the body what the condition "
            "reads, or use `if`"
        )
    kernel.loops.append(StayedLoop("while", None, "the program says so", s.line))
    kernel.count("while")
    loop = _Loop(kernel, s, scope, [])

    def condition() -> Value:
        value = evaluate(kernel, s.condition, scope)
        return value if scope.mask is None else both(scope.mask, value)

    def body() -> None:
        running = condition()
        kernel.run(s.body, scope.where(running) if running.axes else scope)

    results = loop.traced(body)
    tested = loop.fresh()
    test = loop.with_memory(tested, condition)
    if test.axes:
        test = Value(reduce(test.expr, "or", range(len(test.axes))))
    loop.finish([], [], [], results, [], test.expr, tested)


def _never_ends(kernel: Kernel, s: st.While) -> bool:
    """Whether nothing that the body does changes the condition or leaves the loop."""
    if any(
        isinstance(x, st.Evaluate) and isinstance(x.value, tir.Call) for x in statements(s.body)
    ):
        return False
    views = {**kernel.views, **views_below(s.body)}
    changed = {
        resolved(views, x.buffer).data for x in statements(s.body) if isinstance(x, st.BufferStore)
    }
    return all(resolved(views, x.buffer).data not in changed for x in loads_of(s.condition))


class _Loop:
    """A ``while`` in the making."""

    def __init__(self, kernel: Kernel, body: st.Stmt, scope: Scope, more: Sequence[Expr]) -> None:
        self.kernel = kernel
        self.names = written(kernel, body)
        self.before = dict(kernel.memory)
        self.carried = self.fresh()
        self.after: list[Expr] = []
        self.known: dict[int, Expr] = {}
        for memory in kernel.memory.values():
            self.outside(memory.expr)
        for held in [*scope.env.values(), *scope.threads.values(), scope.mask]:
            if isinstance(held, Value):
                self.outside(held.expr)
            elif held is not None and held.scalar is not None:
                self.outside(held.scalar)
        for expr in more:
            self.outside(expr)

    def outside(self, expr: Expr) -> None:
        """A value from before the loop, which the body may read."""
        if not isinstance(expr, Constant):
            self.known[id(expr)] = expr

    def fresh(self) -> list[Var]:
        """Variables for the memory that is written."""
        return [Var(d.name.replace(".", "_"), info_of(self.before[d].expr)) for d in self.names]

    def with_memory(self, variables: Sequence[Var], run: Callable[[], T]) -> T:
        """``run()`` while the memory is ``variables``."""
        for name, var in zip(self.names, variables, strict=True):
            self.kernel.memory[name] = replace(self.before[name], expr=var)
        result = run()
        memory = self.kernel.memory
        self.after = [memory[n].viewed(self.before[n].shape).expr for n in self.names]
        self.kernel.memory = dict(self.before)
        return result

    def traced(self, run: Callable[[], object]) -> list[Expr]:
        """The memory after the body."""
        self.with_memory(self.carried, run)
        return self.after

    def finish(
        self,
        start: Sequence[Expr],
        counter: Sequence[Var],
        counted: Sequence[Expr],
        results: Sequence[Expr],
        tested_counter: Sequence[Var],
        test: Expr,
        tested: Sequence[Var],
    ) -> None:
        """Make the row, and put what it gives into memory."""
        own = {id(v) for v in (*counter, *self.carried, *tested_counter, *tested)}
        seen: dict[int, Expr] = {}
        walked: set[int] = set()
        for root in (*counted, *results, test):
            for node in post_order(root, walked, self._below):
                if id(node) in self.known or (isinstance(node, Var) and id(node) not in own):
                    seen[id(node)] = node
        captured = list(seen.values())
        body_vars = [Var("c", info_of(x)) for x in captured]
        test_vars = [Var("c", info_of(x)) for x in captured]
        body = function(
            [*counter, *self.carried, *body_vars],
            [*counted, *results, *captured],
            {id(x): v for x, v in zip(captured, body_vars, strict=True)},
        )
        condition = function(
            [*tested_counter, *tested, *test_vars],
            [test],
            {id(x): v for x, v in zip(captured, test_vars, strict=True)},
        )
        operands = [*start, *(self.before[n].expr for n in self.names), *captured]
        made = hlo("while", *operands, condition, body)
        news = outputs(made)[len(start) : len(start) + len(self.names)]
        for name, expr in zip(self.names, news, strict=True):
            self.kernel.memory[name] = replace(self.before[name], expr=expr)

    def _below(self, node: Expr) -> Sequence[Expr]:
        return () if id(node) in self.known or isinstance(node, Function) else children(node)


def function(
    params: Sequence[Var], results: Sequence[Expr], by: Mapping[int, Expr] | None = None
) -> Function:
    """A function of what was computed with ``params``: one binding for each value.

    ``by``: what takes the place of values, by identity. Nested expressions that share parts would
    be walked once for each path to a part.
    """
    held = dict(by or {})
    bindings: list[Binding] = []

    def below(node: Expr) -> Sequence[Expr]:
        return () if id(node) in held or isinstance(node, Function) else children(node)

    seen: set[int] = set()
    done: dict[int, Expr] = dict(held)
    for root in results:
        for node in post_order(root, seen, below):
            if id(node) in held:
                continue
            kids = below(node)
            new = [done[id(k)] for k in kids]
            same = all(a is b for a, b in zip(kids, new, strict=True))
            value = node if same else rebuild(node, new)
            if isinstance(node, Call | TupleGetItem):
                var = Var("v", value.struct_info)
                bindings.append(VarBinding(var, value))
                value = var
            done[id(node)] = value
    leaves = [done[id(root)] for root in results]
    body = leaves[0] if len(leaves) == 1 else Tuple(leaves)
    return Function(params, SeqExpr([BindingBlock(bindings)] if bindings else [], body))


# ---- running sums
def running(kernel: Kernel, s: st.For, scope: Scope, low: Form, count: int) -> bool:
    """``x[i + 1] = x[i] + f(i)`` as a running sum; False if the loop is something else."""
    if scope.mask is not None or low.scalar is not None:
        return False
    axis = Axis(count, s.loop_var.name)
    inner = scope.bind(s.loop_var, plus(Form({axis: 1}), low))
    inner = inner.but(axes=(*scope.axes, axis))
    store = _only_store(kernel, s.body, inner)
    if store is None:
        return False
    parts = _recurrence(kernel, store, inner, axis)
    if parts is None:
        return False
    name, term, previous = parts
    if name not in ("add", "multiply", "maximum", "minimum"):
        return False
    kernel.line = store.line or kernel.line
    try:
        first = read(kernel, previous, fixed_scope(inner, {axis: 0}))
        value = evaluate(kernel, term, inner)
    except NeedsLoop:
        return False
    value = elementwise(lambda x, _: x, value, value_of(Form({axis: 1}), "int32"))
    if "float" in value.dtype and value.dtype not in ("float32", "float64"):
        return False
    total = Value(scan(value.expr, name, value.axes.index(axis), False), value.axes)
    kernel.count("scan")
    write(
        kernel,
        store.buffer,
        store.indices,
        elementwise(row(name), first, total),
        inner,
    )
    return True


def _only_store(kernel: Kernel, body: st.Stmt, scope: Scope) -> st.BufferStore | None:
    """The store that is all of a loop's body, as far as it is run."""
    while isinstance(body, st.IfThenElse):
        truth = decided(kernel, body.condition, scope)
        branch = body.then_case if truth else body.else_case
        if truth is None or branch is None:
            return None
        body = branch
    if not isinstance(body, st.BufferStore):
        found = flat_stores(body)
        if found is None or len(found) != 1:
            return None
        body = found[0]
    return replace(body, value=settled(kernel, body.value, scope))


def _recurrence(
    kernel: Kernel, s: st.BufferStore, scope: Scope, axis: Axis
) -> tuple[str, tir.PrimExpr, BufferLoad] | None:
    """The row, the term, and the read of the element before, of ``x[i] = x[i - 1] + term``."""
    value = s.value
    if not isinstance(value, tir.Add | tir.Mul | tir.Max | tir.Min):
        return None
    here = [form_of(kernel, i, scope, scalars=False) for i in s.indices]
    if s.buffer in kernel.views or any(f is None for f in here):
        return None
    for held, term in ((value.a, value.b), (value.b, value.a)):
        if not isinstance(held, BufferLoad) or held.buffer is not s.buffer:
            continue
        if reads_buffer(term, s.buffer):
            continue
        there = [form_of(kernel, i, scope, scalars=False) for i in held.indices]
        steps = [
            plus(a, b, -1) if a is not None and b is not None else None
            for a, b in zip(here, there, strict=True)
        ]
        moved = [0 if f is None else f.terms.get(axis, 0) for f in here]
        if any(moved) and all(
            d is not None and d.is_number and d.const == m
            for d, m in zip(steps, moved, strict=True)
        ):
            stub = st.BufferStore(
                s.buffer, type(value)(BufferLoad(s.buffer, s.indices), term), s.indices
            )
            found = accumulation(stub)
            return None if found is None else (found[0], term, held)
    return None
