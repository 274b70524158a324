"""``te.create_prim_func``: a loop-level function that computes tensors, a block for each.

The form is TVM v0.20's: one loop nest a tensor, a loop an axis, spatial ones first; buffers of
tensors in between belong to the root block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from relax2xla import tir
from relax2xla.errors import TVMError
from relax2xla.te.operation import compute
from relax2xla.te.tensor import (
    ComputeOp,
    ExternOp,
    Operation,
    PlaceholderOp,
    ProducerLoad,
    ScanOp,
    Tensor,
    ordered,
)
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer, BufferLoad, buffer_of
from relax2xla.tir.kernel.complete import with_regions, with_root
from relax2xla.tir.node import PrimExpr
from relax2xla.tir.reduce import Reduce


def create_prim_func(
    ops: Sequence[Tensor | tir.Var] | Tensor, index_dtype_override: str | None = None
) -> tir.PrimFunc:
    """The function whose parameters are ``ops``: placeholders are read, computed tensors written.

    index_dtype_override: dtype of all indices, such as "int64"; otherwise each axis has that of its
    size. Variables among ``ops`` are scalar parameters. Raises TVMError where a placeholder is read
    that is no parameter.
    """
    args = [ops] if isinstance(ops, Tensor) else list(ops)
    for a in args:
        if not isinstance(a, Tensor | tir.Var):
            raise TypeError(f"create_prim_func takes tensors and variables; got {type(a).__name__}")
    twice = next((a for n, a in enumerate(args) if any(a is b for b in args[:n])), None)
    if twice is not None:
        raise TVMError(
            f"{twice.name} is twice among the arguments of the function; a result that is an "
            "argument, or the same tensor again, is a copy of its own (topi.identity)"
        )
    return _Function(args, index_dtype_override).made()


@dataclass(frozen=True, slots=True)
class _BoundAxis:
    """An axis of a block with its value, a loop's variable or what the block around it has."""

    axis: s.IterVar
    value: PrimExpr
    dom: tir.Range
    kind: s.IterType


class _Function:
    """One function under construction."""

    def __init__(self, args: Sequence[Tensor | tir.Var], index_dtype: str | None) -> None:
        self.args = args
        self.index_dtype = index_dtype
        self.own = {a for a in args if isinstance(a, Tensor)}
        self.layout_free: list[Tensor] = []
        self.placed: set[Tensor] = set()
        self.buffers: dict[Tensor, Buffer] = {}
        self.allocated: list[Buffer] = []
        self.missing: dict[int, tuple[str, ...]] = {}
        self.kept: list[s.Block] = []
        self.names: dict[str, int] = {}

    def made(self) -> tir.PrimFunc:
        """The whole function."""
        order = ordered(a.op for a in self.args if isinstance(a, Tensor))
        for op in order:
            if isinstance(op, ExternOp):
                for tensor, buffer in zip(op.given, op.input_buffers, strict=True):
                    self.buffers.setdefault(tensor, buffer)
        statements = [made for op in order for made in self.statements(op)]
        params: list[tir.Var] = []
        buffer_map: dict[tir.Var, Buffer] = {}
        for a in self.args:
            if isinstance(a, Tensor):
                handle = tir.Var(f"var_{a.name}", "handle")
                params.append(handle)
                buffer_map[handle] = self.buffers[a]
            else:
                params.append(a)
        body = with_root(s.seq(statements), self.allocated)
        memory = {b.data: b for b in buffer_map.values()}
        body = with_regions(body, memory, self.missing)
        attrs: dict[str, object] = {"global_symbol": "main", "tir.noalias": True}
        free = [i for i, a in enumerate(self.args) if any(a is t for t in self.layout_free)]
        if free:
            attrs["layout_free_buffers"] = free
        return tir.PrimFunc(params, body, None, buffer_map, attrs)

    def fresh(self, name: str) -> str:
        """A name that no block has."""
        count = self.names.get(name, -1) + 1
        self.names[name] = count
        return f"{name}_{count}" if count else name

    def statements(self, op: Operation) -> Iterator[s.Stmt]:
        """What one operation becomes."""
        if isinstance(op, PlaceholderOp):
            tensor = op.output(0)
            if tensor not in self.own:
                raise TVMError(
                    f"the placeholder {op.name} is read, and is no argument of the function; the "
                    f"arguments are {', '.join(a.name for a in self.args)}"
                )
            if tensor not in self.buffers:
                self.buffers[tensor] = self.buffer(tensor)
        elif isinstance(op, ComputeOp):
            yield self.compute(op)
        elif isinstance(op, ExternOp):
            yield self.extern(op)
        elif isinstance(op, ScanOp):
            yield from self.scan(op)
        else:
            raise TVMError(f"{op.name}: no operation of te that can be lowered")

    # -- te.compute ------------------------------------------------------------------------------
    def compute(self, op: ComputeOp, now: tir.Var | None = None) -> s.Stmt:
        """The loops and blocks of a computation; ``now``: of one element of its first axis."""
        for tensor in op.outputs:
            if tensor not in self.placed:
                self.buffers[tensor] = self.result(tensor)
        buffers = [self.buffers[t] for t in op.outputs]
        levels = _levels((*op.axis, *op.reduce_axis))
        bound = self.bound(levels[0], {})
        if now is not None:
            bound[0] = replace(bound[0], value=now, kind="scan")
        loops = [x for x in bound if x.value is not now]
        if isinstance(op.body[0], Reduce):
            return _looped(loops, self.block(op, op.name, levels, bound, buffers, None))
        blocks = [
            self.block(op, b.name, levels, bound, [b], op.body[i]) for i, b in enumerate(buffers)
        ]
        return _looped(loops, s.seq(blocks))

    def bound(
        self, axes: Sequence[s.IterVar], remap: Mapping[tir.Var, PrimExpr]
    ) -> list[_BoundAxis]:
        """Axes that new loops run over; their ranges may use those of ``remap``."""
        found: list[_BoundAxis] = []
        for axis in axes:
            assert axis.dom is not None
            of = (tir.as_prim_expr(d, axis.var.dtype) for d in (axis.dom.min, axis.dom.extent))
            low, extent = (tir.as_dim(self.expr(d, remap)) for d in of)
            dom = self.index_range(tir.Range.from_min_extent(low, extent), axis.var.dtype)
            loop = tir.Var(axis.var.name, self.index(axis.var.dtype))
            found.append(_BoundAxis(axis, loop, dom, axis.iter_type))
        return found

    def block(
        self,
        op: ComputeOp,
        name: str,
        levels: Sequence[Sequence[s.IterVar]],
        bound: Sequence[_BoundAxis],
        buffers: Sequence[Buffer],
        value: PrimExpr | None,
    ) -> s.Stmt:
        """One block over ``bound``; ``value``: its element, None for the reduction of ``op``.

        Axes of later ``levels``, whose ranges depend on the block's, are loops and blocks in it.
        """
        remap: dict[tir.Var, PrimExpr] = {}
        iters: list[s.IterVar] = []
        for x in bound:
            own = tir.Var(f"v_{x.axis.var.name}", x.value.dtype)
            remap[x.axis.var] = own
            iters.append(s.IterVar(x.dom, own, x.kind, x.axis.thread_tag))
        values: list[PrimExpr] = [x.value for x in bound]
        at = tuple(remap[a.var] for a in op.axis)
        init: s.Stmt | None = None
        if value is not None:
            body: s.Stmt = s.BufferStore(buffers[0], _simple(self.expr(value, remap)), at)
        else:
            init, body = self.reduction(op, remap, at, buffers)
            first = next(i for i, xs in enumerate(levels) if any(_reduces(x) for x in xs))
            if first != _level_of(levels, bound):
                init = None
        level = _level_of(levels, bound)
        if level + 1 < len(levels):
            again = [
                replace(x, value=remap[x.axis.var], dom=_one(remap[x.axis.var])) for x in bound
            ]
            more = self.bound(levels[level + 1], remap)
            inner = self.block(op, name, levels, [*again, *more], buffers, value)
            body = _looped(more, inner)
        if not iters:
            iters.append(s.IterVar(_one(tir.const(0, "int32")), tir.Var("vi", "int32"), "spatial"))
            values.append(tir.const(0, self.index("int32")))
        block = s.Block(
            tuple(iters), (), (), self.fresh(name), body, init, annotations=self.annotations(op)
        )
        self.missing[id(block)] = ("reads", "writes")
        self.kept.append(block)
        return s.BlockRealize(tuple(values), s.TRUE, block)

    def reduction(
        self,
        op: ComputeOp,
        remap: Mapping[tir.Var, PrimExpr],
        at: tuple[PrimExpr, ...],
        buffers: Sequence[Buffer],
    ) -> tuple[s.Stmt, s.Stmt]:
        """The init and the body of a reduction of one value or several."""
        first = op.body[0]
        assert isinstance(first, Reduce)
        if first.combiner is None:
            raise TVMError(f"te.compute {op.name!r}: the reduction has no combiner")
        starts = first.init or first.combiner.identity_element
        init = s.seq(
            s.BufferStore(b, self.expr(e, remap), at) for b, e in zip(buffers, starts, strict=True)
        )
        old = [BufferLoad(b, at) for b in buffers]
        new = [_simple(self.expr(e, remap)) for e in first.source]
        # A combiner may read tensors and axes of its own.
        made = [self.expr(e, remap) for e in first.combiner.combine(old, new)]
        if len(buffers) == 1:
            body: s.Stmt = s.BufferStore(buffers[0], made[0], at)
        else:
            temps = [tir.Var(f"v_{b.name}", b.dtype) for b in buffers]
            body = s.seq(s.BufferStore(b, t, at) for b, t in zip(buffers, temps, strict=True))
            for temp, value in reversed(list(zip(temps, made, strict=True))):
                body = s.LetStmt(temp, value, body)
        condition = _simple(self.expr(first.condition, remap))
        if not (isinstance(condition, tir.IntImm) and condition.value):
            body = s.IfThenElse(condition, body)
        return init, body

    # -- te.scan ---------------------------------------------------------------------------------
    def scan(self, op: ScanOp) -> Iterator[s.Stmt]:
        """The first elements along time, then a loop over the other ones."""
        _check_times(op)
        for state in op.state_placeholder:
            if state in self.own:
                raise TVMError(f"te.scan {op.name!r}: the state {state.name} is no argument")
        parts = zip(op.outputs, op.init, op.update, op.state_placeholder, strict=True)
        for made, first, step, state in parts:
            self.buffers[made] = self.result(made)
            start = compute(first.shape, lambda *at, first=first: first(*at), f"{made.name}_init")
            for tensor in (start, step, state):
                self.buffers[tensor] = self.buffers[made]
                self.placed.add(tensor)
            yield self.compute(start.op)
        (time,) = self.bound([op.scan_axis], {})
        assert isinstance(time.value, tir.Var)
        steps = [self.compute(x, time.value) for x in op.steps if isinstance(x, ComputeOp)]
        yield _looped([time], s.seq(steps))

    # -- te.extern -------------------------------------------------------------------------------
    def extern(self, op: ExternOp) -> s.Stmt:
        """The block of statements of one's own, over the function's buffers."""
        buffers: dict[Buffer, Buffer] = {}
        for tensor, buffer in zip(op.given, op.input_buffers, strict=True):
            buffers[buffer] = self.buffers[tensor]
        for tensor, buffer in zip(op.outputs, op.output_buffers, strict=True):
            self.buffers[tensor] = buffer
            if tensor not in self.own:
                self.allocated.append(buffer)
        body = _over(op.body, buffers)
        block = s.Block((), (), (), self.fresh(op.name), body, annotations=dict(op.attrs))
        self.missing[id(block)] = ("reads", "writes")
        self.kept.append(block)
        return s.BlockRealize((), s.TRUE, block)

    # -- expressions -----------------------------------------------------------------------------
    def result(self, tensor: Tensor) -> Buffer:
        """The buffer of a computed tensor; the root block's unless it is an argument."""
        if tensor in self.own:
            # An input of te.extern has one.
            return self.buffers.get(tensor) or self.buffer(tensor)
        # What the function allocates is not at an offset that callers say, as such an input is.
        made = self.buffer(tensor)
        self.allocated.append(made)
        return made

    def buffer(self, tensor: Tensor) -> Buffer:
        """A new buffer for a tensor."""
        sizes = [tir.as_dim(self.as_index(d)) for d in tensor.shape]
        return buffer_of(sizes, tensor.dtype, tensor.name)

    def annotations(self, op: ComputeOp) -> dict[str, object]:
        """The attributes of a block; arguments whose layout is free are the function's to say."""
        made: dict[str, object] = {}
        for key, value in op.attrs.items():
            if key == "layout_free_placeholders":
                self.layout_free += [t for t in value if t in self.own]
                value = [t for t in value if t not in self.own]
                if not value:
                    continue
            made[key] = self.annotation(value)
        return made

    def annotation(self, value: object) -> object:
        """An attribute of te; tensors become their buffers."""
        if isinstance(value, Tensor):
            return self.buffers[value]
        if isinstance(value, list | tuple):
            return [self.annotation(v) for v in value]
        return value

    def index(self, dtype: str) -> str:
        """The dtype of an index whose own is ``dtype``."""
        return self.index_dtype or dtype

    def index_range(self, dom: tir.Range, dtype: str) -> tir.Range:
        """The range of a loop, in the dtype of indices."""
        first = self.as_index(tir.as_prim_expr(dom.min, dtype))
        extent = self.as_index(tir.as_prim_expr(dom.extent, dtype))
        return tir.Range.from_min_extent(tir.as_dim(_simple(first)), tir.as_dim(_simple(extent)))

    def as_index(self, expr: PrimExpr) -> PrimExpr:
        """An index in the dtype that all have."""
        return expr if self.index_dtype is None else _widened(expr, self.index_dtype)

    def expr(self, root: PrimExpr, remap: Mapping[tir.Var, PrimExpr]) -> PrimExpr:
        """An expression over tensors as one over buffers and the block's axes."""
        done: dict[int, PrimExpr] = {}
        for node in tir.post_order(root):
            children = [done[id(c)] for c in node.children()]
            if isinstance(node, ProducerLoad):
                at = [_simple(self.as_index(c)) for c in children]
                made: PrimExpr = BufferLoad(self.buffers[node.producer], at)
            elif isinstance(node, tir.Var):
                made = remap.get(node, node)
            else:
                made = self.chosen(_rebuilt(node, children))
            done[id(node)] = made
        return tir.cast(root.dtype, done[id(root)])

    def chosen(self, node: PrimExpr) -> PrimExpr:
        """A choice whose condition compares integers in the dtype of indices, as TVM's do."""
        is_choice = isinstance(node, tir.Call) and node.op == "tir.if_then_else"
        if self.index_dtype is None or not (is_choice or isinstance(node, tir.Select)):
            return node
        condition, *values = node.children()
        done: dict[int, PrimExpr] = {}
        for inner in tir.post_order(condition):
            children = [done[id(c)] for c in inner.children()]
            if isinstance(inner, tir.CmpExpr) and all(c.dtype in _INDICES for c in children):
                # What is read from memory is no index.
                children = [
                    c if isinstance(c, BufferLoad) else _widened(c, self.index_dtype)
                    for c in children
                ]
                children = list(tir.match_dtypes(*children))
            done[id(inner)] = inner.rebuild(children) if children else inner
        return node.rebuild([done[id(condition)], *values])


# Dtypes of what counts as an index where integers are compared.
_INDICES: Final = ("int32", "int64")


def _rebuilt(node: PrimExpr, children: Sequence[PrimExpr]) -> PrimExpr:
    """``node`` over ``children``, some of which may be indices of a wider dtype than before."""
    old = node.children()
    if all(a is b for a, b in zip(children, old, strict=True)):
        return node
    wide = {c.dtype for c, o in zip(children, old, strict=True) if c.dtype != o.dtype}
    if not wide or isinstance(node, tir.Cast):
        return node.rebuild(children)
    if isinstance(node, tir.BinaryExpr) and len(wide) == 1:
        (dtype,) = wide
        return node.rebuild([_widened(c, dtype) for c in children])
    return node.rebuild([tir.cast(o.dtype, c) for c, o in zip(children, old, strict=True)])


def _simple(expr: PrimExpr) -> PrimExpr:
    return tir.as_prim_expr(tir.simplify(expr), expr.dtype)


def _widened(root: PrimExpr, dtype: str) -> PrimExpr:
    """An integer expression in another integer dtype, as far down as its arithmetic goes."""
    if root.dtype == dtype or not tir.is_int(root.dtype):
        return root
    if isinstance(root, tir.IntImm):
        return tir.const(root.value, dtype)
    if isinstance(root, tir.Cast):
        return tir.cast(dtype, _widened(root.value, dtype))
    plain = (tir.Add, tir.Sub, tir.Mul, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max)
    if isinstance(root, plain):
        return type(root).make(_widened(root.a, dtype), _widened(root.b, dtype))
    if isinstance(root, tir.Select):
        yes, no = _widened(root.true_value, dtype), _widened(root.false_value, dtype)
        return tir.Select(root.condition, yes, no)
    if isinstance(root, tir.Call) and root.op == "tir.if_then_else":
        condition, yes, no = root.args
        return tir.if_then_else(condition, _widened(yes, dtype), _widened(no, dtype))
    return tir.cast(dtype, root)


def _over(root: s.Stmt, buffers: Mapping[Buffer, Buffer]) -> s.Stmt:
    """Statements over other buffers, with what is said of their memory."""
    pointers: dict[tir.Var, tir.Dim] = {a.data: b.data for a, b in buffers.items()}
    for a, b in buffers.items():
        if isinstance(a.elem_offset, tir.Var):
            pointers[a.elem_offset] = b.elem_offset

    def expr(e: PrimExpr) -> PrimExpr:
        done: dict[int, PrimExpr] = {}
        for node in tir.post_order(e):
            children = [done[id(c)] for c in node.children()]
            if isinstance(node, BufferLoad):
                done[id(node)] = node.of(buffers.get(node.buffer, node.buffer), children)
            else:
                done[id(node)] = node.rebuild(children) if children else node
        return tir.as_prim_expr(tir.substitute(done[id(e)], pointers))

    def change(node: s.Stmt) -> s.Stmt:
        match node:
            case s.BufferStore():
                at = tuple(map(expr, node.indices))
                buffer = buffers.get(node.buffer, node.buffer)
                return replace(node, buffer=buffer, value=expr(node.value), indices=at)
            case s.Evaluate() | s.LetStmt() | s.AttrStmt():
                node = replace(node, value=expr(node.value))
            case s.IfThenElse() | s.While() | s.AssertStmt():
                node = replace(node, condition=expr(node.condition))
            case _:
                pass
        return s.map_children(node, change)

    return change(root)


def _levels(axes: Sequence[s.IterVar]) -> list[list[s.IterVar]]:
    """Axes by what their ranges need: those that need none, those that need these, and so on."""
    level: dict[tir.Var, int] = {}
    for a in axes:
        assert a.dom is not None
        needed = {v for bound in (a.dom.min, a.dom.extent) for v in tir.free_vars(bound)}
        level[a.var] = 1 + max((level[v] for v in needed if v in level), default=-1)
    depth = 1 + max(level.values(), default=0)
    return [[a for a in axes if level[a.var] == i] for i in range(depth)]


def _level_of(levels: Sequence[Sequence[s.IterVar]], bound: Sequence[_BoundAxis]) -> int:
    """Which of ``levels`` came last to ``bound``, which holds whole levels."""
    axes = {x.axis.var for x in bound}
    return max((i for i, xs in enumerate(levels) if any(x.var in axes for x in xs)), default=0)


def _reduces(axis: s.IterVar) -> bool:
    return axis.iter_type == "reduce"


def _one(value: PrimExpr) -> tir.Range:
    return tir.Range.from_min_extent(tir.as_dim(value), tir.as_dim(tir.const(1, value.dtype)))


def _looped(axes: Sequence[_BoundAxis], body: s.Stmt) -> s.Stmt:
    """``body`` in a loop for each of ``axes``."""
    for x in reversed(axes):
        assert isinstance(x.value, tir.Var)
        body = s.For(x.value, x.dom.min, x.dom.extent, "serial", body)
    return body


def _check_times(op: ScanOp) -> None:
    """TVMError where a step reads what is not there yet, or cannot be done one at a time."""
    steps = op.steps
    first = tir.simplify(op.init[0].shape[0])
    for step in steps:
        if not isinstance(step, ComputeOp):
            raise TVMError(f"te.scan {op.name!r}: {step.name} is no te.compute, but in the steps")
        time = step.axis[0].var
        for body in step.body:
            for load in tir.post_order(body):
                if not isinstance(load, ProducerLoad):
                    continue
                is_state = load.producer in op.state_placeholder
                if not is_state and load.producer.op not in steps:
                    continue
                back = tir.simplify(time - load.indices[0])
                known = int(back) if isinstance(back, int | tir.IntImm) else -1
                reach = int(first) if isinstance(first, int | tir.IntImm) else known
                if not (1 <= known <= reach if is_state else known == 0):
                    raise TVMError(
                        f"te.scan {op.name!r}: {step.name} reads {load.producer.name} at "
                        f"{load.indices[0]}; a step reads states at {time.name} - k, where k is 1 "
                        f"up to the number of first elements ({first}), and what is computed in "
                        f"the same step at {time.name}"
                    )
