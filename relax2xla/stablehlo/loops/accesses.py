"""What the body of a loop reads and writes, with its inner loops as axes: material for proofs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from relax2xla import tir
from relax2xla.ir.expr import Constant
from relax2xla.op.shared.lowering import scalar
from relax2xla.stablehlo.loops.accumulate import accumulation, loads_of, selections
from relax2xla.stablehlo.loops.affine import Form, of_axis, plus
from relax2xla.stablehlo.loops.axes import Axis, Value
from relax2xla.stablehlo.loops.forms import decided, form_of, settled, sides_of
from relax2xla.stablehlo.loops.memory import viewed_indices
from relax2xla.stablehlo.loops.state import Kernel, Scope
from relax2xla.tir import stmt as st
from relax2xla.tir.buffer import Buffer, BufferRegion, Let
from relax2xla.tir.convert import as_prim_expr
from relax2xla.tir.functor import post_order, substitute

Kind = Literal["read", "write", "init", "select", "accumulate"]

_UNKNOWN: Final = Value(scalar(0, "int64"), (Axis(1, "unknown"),))
"""What a variable is while a proof is made, of which no form is known."""
assert isinstance(_UNKNOWN.expr, Constant)


@dataclass(frozen=True, slots=True)
class Access:
    """One read or write: the memory, index forms (None: not affine), what it does, its block."""

    buffer: Buffer
    indices: tuple[tir.PrimExpr, ...]
    forms: tuple[Form | None, ...]
    kind: Kind
    block: st.Block | None
    row: str = ""
    always: bool = False
    """Whether it takes place in each iteration, under no condition."""


@dataclass(slots=True)
class Body:
    """All accesses of a loop's body, its own memory, and by what its variables are divided.

    ``edges``: axes of which a condition tells the first place apart (0), or the last one (-1).
    """

    accesses: list[Access]
    private: set[tir.Var]
    divisors: dict[Axis, set[int]]
    edges: set[tuple[Axis, int]] = field(default_factory=set[tuple[Axis, int]])


def statements(root: st.Stmt) -> Iterator[st.Stmt]:
    """Every statement below ``root``, it included, in order."""
    stack = [root]
    while stack:
        s = stack.pop()
        yield s
        stack.extend(reversed(parts_of(s)))


def parts_of(s: st.Stmt) -> list[st.Stmt]:
    """The statements directly below one."""
    match s:
        case st.SeqStmt():
            return list(s.seq)
        case st.BlockRealize():
            return [s.block]
        case st.Block():
            return [s.body] if s.init is None else [s.init, s.body]
        case st.IfThenElse():
            return [s.then_case] if s.else_case is None else [s.then_case, s.else_case]
        case (
            st.For()
            | st.While()
            | st.LetStmt()
            | st.AssertStmt()
            | st.AttrStmt()
            | st.Allocate()
            | st.AllocateConst()
            | st.DeclBuffer()
        ):
            return [s.body]
        case _:
            return []


def own_memory(kernel: Kernel, root: st.Stmt) -> set[tir.Var]:
    """Data variables of what is allocated below ``root``."""
    own: set[tir.Var] = set()
    for s in statements(root):
        if isinstance(s, st.Block):
            own |= {b.data for b in s.alloc_buffers}
        elif isinstance(s, st.Allocate | st.AllocateConst):
            own.add(s.buffer_var)
        elif isinstance(s, st.DeclBuffer) and s.buffer.data not in kernel.memory:
            own.add(s.buffer.data)
    return own


def expressions_of(s: st.Stmt) -> list[tir.PrimExpr]:
    """The expressions of a statement itself."""
    match s:
        case st.BufferStore():
            return [s.value, *s.indices]
        case st.For():
            return [e for e in (s.min, s.extent) if isinstance(e, tir.PrimExpr)]
        case st.BlockRealize():
            return [*s.iter_values, s.predicate]
        case st.IfThenElse() | st.While() | st.AssertStmt():
            return [s.condition]
        case st.LetStmt() | st.AttrStmt() | st.Evaluate():
            return [s.value]
        case _:
            return []


def resolved(views: Mapping[Buffer, BufferRegion], buffer: Buffer) -> Buffer:
    """The buffer that has the memory which ``buffer`` views."""
    while buffer in views:
        buffer = views[buffer].buffer
    return buffer


def views_below(root: st.Stmt) -> dict[Buffer, BufferRegion]:
    """Buffers that are regions of others, below ``root``."""
    return {
        m.buffer: m.source
        for s in statements(root)
        if isinstance(s, st.Block)
        for m in s.match_buffers
    }


def written(kernel: Kernel, root: st.Stmt) -> list[tir.Var]:
    """Data variables of the memory from outside that is written below ``root``."""
    views = {**kernel.views, **views_below(root)}
    found: dict[tir.Var, None] = {}
    for s in statements(root):
        if isinstance(s, st.BufferStore):
            data = resolved(views, s.buffer).data
            if data in kernel.memory:
                found[data] = None
    own = own_memory(kernel, root)
    return [d for d in found if d not in own]


# ---- bodies of blocks
def flat_stores(body: st.Stmt) -> list[st.BufferStore] | None:
    """The stores of a body that is nothing but ``let`` and stores, with the lets put in place.

    None where it is something else, or where a store reads what another one has written.
    """
    lets: dict[tir.Var, tir.Dim] = {}
    found: list[st.BufferStore] = []
    stack = [body]

    def put(e: tir.PrimExpr) -> tir.PrimExpr:
        return as_prim_expr(substitute(e, lets), e.dtype) if lets else e

    while stack:
        s = stack.pop()
        if isinstance(s, st.SeqStmt):
            stack.extend(reversed(s.seq))
        elif isinstance(s, st.LetStmt):
            lets[s.var] = put(s.value)
            stack.append(s.body)
        elif isinstance(s, st.BufferStore):
            found.append(replace(s, value=put(s.value), indices=tuple(map(put, s.indices))))
        else:
            return None
    return found if len(found) > 1 or lets else None


def body_of(block: st.Block) -> tuple[list[st.BufferStore], bool] | None:
    """The stores of a block that reduces, and whether they select together; None: as it stands."""
    if block.init is None:
        return None
    stores = flat_stores(block.body)
    if stores is None:
        return None
    memory = {s.buffer.data for s in stores}
    if len(memory) != len(stores):
        return None
    terms = [accumulation(s) for s in stores]
    apart = [t[1] for t in terms if t is not None]
    if len(apart) == len(stores):
        clean = all(load.buffer.data not in memory for load in loads_of(*apart))
        return (stores, False) if clean else None
    if len(stores) > 1 and starts_of(block.init, stores) and selections(stores) is not None:
        return stores, True
    return None


def starts_of(
    init: st.Stmt, stores: Sequence[st.BufferStore]
) -> list[tir.IntImm | tir.FloatImm] | None:
    """The numbers that ``init`` puts where the stores accumulate."""
    inits = flat_stores(init) or ([init] if isinstance(init, st.BufferStore) else [])
    by_memory = {s.buffer.data: s.value for s in inits}
    values = [by_memory.get(s.buffer.data) for s in stores]
    numbers = [v for v in values if isinstance(v, tir.IntImm | tir.FloatImm)]
    return numbers if len(numbers) == len(stores) else None


# ---- the walk
class _Walk:
    def __init__(self, kernel: Kernel, root: st.Stmt) -> None:
        self.kernel = kernel
        self.views = {**kernel.views, **views_below(root)}
        self.body = Body([], own_memory(kernel, root), {})
        self.selected: frozenset[tir.Var] = frozenset()
        # How many conditions stand around the statement at work.
        self.conditions = 0

    def form(self, e: tir.Dim, scope: Scope) -> Form | None:
        if isinstance(e, int):
            return Form(const=e)
        return form_of(self.kernel, e, scope, scalars=False)

    def expr(self, e: tir.PrimExpr, scope: Scope, block: st.Block | None) -> None:
        """Note what an expression reads, and divisions that split loops."""
        e = settled(self.kernel, e, scope)
        for node in post_order(e):
            if isinstance(node, Let):
                scope = scope.bind(node.var, self.form(node.value, scope) or _UNKNOWN)
            sides = sides_of(node)
            if sides is not None:
                self.condition(sides[0], scope)
            by = self.divisor(node, scope)
            if by is not None:
                form = self.form(node.children()[0], scope)
                for axis, k in ({} if form is None else form.terms).items():
                    k = abs(k)
                    if k % by and by % k == 0 and by // k < axis.size:
                        self.body.divisors.setdefault(axis, set()).add(by // k)
        for load in loads_of(e):
            self.access(load.buffer, load.indices, scope, "read", block)

    def divisor(self, e: tir.PrimExpr, scope: Scope) -> int | None:
        """The number by which ``e`` divides, if it is a division of integers."""
        shift = isinstance(e, tir.Call) and e.op == "tir.shift_right"
        if not shift and not isinstance(e, tir.FloorDiv | tir.FloorMod | tir.Mod | tir.Div):
            return None
        form = self.form(e.children()[1], scope)
        by = form.const if form is not None and form.is_number else 0
        if shift:
            return 1 << by if 0 < by < 20 else None
        return by if by > 1 else None

    def condition(self, e: tir.PrimExpr, scope: Scope) -> None:
        """Note which edges of loops a condition tells apart."""
        for node in post_order(e):
            if not isinstance(node, tir.CmpExpr) or not tir.is_int(node.a.dtype):
                continue
            a, b = self.form(node.a, scope), self.form(node.b, scope)
            if a is None or b is None:
                continue
            difference = plus(a, b, -1)
            if difference.scalar is not None or len(difference.terms) != 1:
                continue
            ((axis, step),) = difference.terms.items()
            first, last = sorted((difference.const, difference.const + step * (axis.size - 1)))
            step = abs(step)
            self.body.edges |= {
                (axis, at if difference.terms[axis] > 0 else -1 - at)
                for at, gap in ((0, first), (-1, -last))
                if -step <= gap <= 0
            }

    def access(
        self,
        buffer: Buffer,
        indices: tuple[tir.PrimExpr, ...],
        scope: Scope,
        kind: Kind,
        block: st.Block | None,
        row: str = "",
    ) -> None:
        while buffer in self.views:
            indices = viewed_indices(self.views[buffer], buffer, indices)
            buffer = self.views[buffer].buffer
        forms = tuple(self.form(i, scope) for i in indices)
        always = self.conditions == 0
        self.body.accesses.append(Access(buffer, indices, forms, kind, block, row, always))

    def store(
        self, s: st.BufferStore, scope: Scope, block: st.Block | None, kind: Kind | None
    ) -> None:
        for index in s.indices:
            self.expr(index, scope, block)
        s = replace(s, value=settled(self.kernel, s.value, scope))
        found = accumulation(s) if kind is None else None
        if found is not None:
            self.expr(found[1], scope, block)
            self.access(s.buffer, s.indices, scope, "accumulate", block, found[0])
            return
        start = len(self.body.accesses)
        self.expr(s.value, scope, block)
        if kind == "select":
            made = self.body.accesses
            data = {a.buffer.data for a in made[start:]} & self.selected
            made[start:] = [
                replace(a, kind="select") if a.buffer.data in data else a for a in made[start:]
            ]
        self.access(s.buffer, s.indices, scope, kind or "write", block)

    def walk(self, s: st.Stmt, scope: Scope, block: st.Block | None, init: bool = False) -> None:
        match s:
            case st.SeqStmt():
                for part in s.seq:
                    self.walk(part, scope, block, init)
            case st.BufferStore():
                self.store(s, scope, block, "init" if init else None)
            case st.For():
                self.loop(s, scope, block, init)
            case st.BlockRealize():
                self.block(s, scope)
            case st.IfThenElse() if (truth := decided(self.kernel, s.condition, scope)) is not None:
                branch = s.then_case if truth else s.else_case
                if branch is not None:
                    self.walk(branch, scope, block, init)
            case st.IfThenElse() | st.While():
                self.condition(s.condition, scope)
                self.expr(s.condition, scope, block)
                self.conditions += 1
                for part in parts_of(s):
                    self.walk(part, scope, block, init)
                self.conditions -= 1
            case st.LetStmt():
                self.expr(s.value, scope, block)
                scope = scope.bind(s.var, self.form(s.value, scope) or _UNKNOWN)
                self.walk(s.body, scope, block, init)
            case st.AttrStmt(node=st.IterVar() as thread):
                extent = self.form(s.value, scope)
                known = scope.threads.get(thread.thread_tag)
                if known is None and extent is not None and extent.is_number:
                    known = of_axis(Axis(max(extent.const, 1), thread.var.name))
                scope = scope.bind(thread.var, known or _UNKNOWN)
                self.walk(s.body, scope, block, init)
            case st.Evaluate():
                self.expr(s.value, scope, block)
            case _:
                for part in parts_of(s):
                    self.walk(part, scope, block, init)

    def loop(self, s: st.For, scope: Scope, block: st.Block | None, init: bool) -> None:
        for e in (s.min, s.extent):
            if isinstance(e, tir.PrimExpr):
                self.expr(e, scope, block)
        low, extent = self.form(s.min, scope), self.form(s.extent, scope)
        maybe = extent is None or not extent.is_number or extent.const < 1
        held: Form | Value = _UNKNOWN
        tag = s.thread_binding.thread_tag if s.thread_binding else ""
        if tag in scope.threads and low is not None:
            held = plus(scope.threads[tag], low)
        elif low is not None and extent is not None and extent.scalar is None:
            size = max(extent.range()[1], 1)
            held = plus(of_axis(Axis(size, s.loop_var.name)), low)
        self.conditions += maybe
        self.walk(s.body, scope.bind(s.loop_var, held), block, init)
        self.conditions -= maybe

    def block(self, s: st.BlockRealize, scope: Scope) -> None:
        inner = scope
        for axis, value in zip(s.block.iter_vars, s.iter_values, strict=True):
            self.expr(value, scope, s.block)
            inner = inner.bind(axis.var, self.form(value, scope) or _UNKNOWN)
        self.expr(s.predicate, inner, s.block)
        maybe = not (isinstance(s.predicate, tir.IntImm) and s.predicate.value)
        self.conditions += maybe
        self._in_block(s.block, inner)
        self.conditions -= maybe

    def _in_block(self, block: st.Block, inner: Scope) -> None:
        if block.init is not None:
            reduces = any(a.iter_type == "reduce" for a in block.iter_vars)
            self.walk(block.init, inner, block, init=reduces)
        found = body_of(block)
        if found is None:
            self.walk(block.body, inner, block)
            return
        stores, together = found
        outer, self.selected = self.selected, frozenset(x.buffer.data for x in stores)
        for store in stores:
            self.store(store, inner, block, "select" if together else None)
        self.selected = outer


def accesses_of(kernel: Kernel, body: st.Stmt, scope: Scope) -> Body:
    """What ``body`` does in ``scope``."""
    walk = _Walk(kernel, body)
    walk.walk(body, scope, None)
    return walk.body
