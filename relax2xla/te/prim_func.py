"""``te.create_prim_func``: a loop-level function that computes tensors, a block for each.

The form is TVM v0.20's: one loop nest a tensor, a loop an axis, spatial ones first; buffers of
tensors in between belong to the root block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from relax2xla import tir
from relax2xla.errors import TVMError
from relax2xla.te.tensor import (
    ComputeOp,
    ExternOp,
    Operation,
    PlaceholderOp,
    ProducerLoad,
    Reduce,
    Tensor,
)
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer, BufferLoad, buffer_of
from relax2xla.tir.complete import with_regions, with_root
from relax2xla.tir.node import PrimExpr


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


class _Function:
    """One function under construction."""

    def __init__(self, args: Sequence[Tensor | tir.Var], index_dtype: str | None) -> None:
        self.args = args
        self.index_dtype = index_dtype
        self.own = {a for a in args if isinstance(a, Tensor)}
        self.buffers: dict[Tensor, Buffer] = {}
        self.allocated: list[Buffer] = []
        self.missing: dict[int, tuple[str, ...]] = {}
        self.kept: list[s.Block] = []
        self.names: dict[str, int] = {}

    def made(self) -> tir.PrimFunc:
        """The whole function."""
        order = _ordered(a.op for a in self.args if isinstance(a, Tensor))
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
        attrs = {"global_symbol": "main", "tir.noalias": True}
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
        else:
            raise TVMError(f"{op.name}: no operation of te that can be lowered")

    # -- te.compute ------------------------------------------------------------------------------
    def compute(self, op: ComputeOp) -> s.Stmt:
        """The loops and blocks of a computation."""
        axes = (*op.axis, *op.reduce_axis)
        _check_independent(axes, op.name)
        loops: list[tuple[tir.Var, tir.Range]] = []
        for axis in axes:
            assert axis.dom is not None
            dom = self.index_range(axis.dom, axis.var.dtype)
            loops.append((tir.Var(axis.var.name, self.index(axis.var.dtype)), dom))
        outputs = list(op.outputs)
        for tensor in outputs:
            self.buffers[tensor] = self.result(tensor)
        buffers = [self.buffers[t] for t in outputs]
        blocks: list[s.Stmt] = []
        if isinstance(op.body[0], Reduce):
            blocks.append(self.block(op, op.name, axes, loops, buffers, None))
        else:
            for i, buffer in enumerate(buffers):
                blocks.append(self.block(op, buffer.name, axes, loops, [buffer], op.body[i]))
        body = s.seq(blocks)
        for var, dom in reversed(loops):
            body = s.For(var, dom.min, dom.extent, "serial", body)
        return body

    def block(
        self,
        op: ComputeOp,
        name: str,
        axes: Sequence[s.IterVar],
        loops: Sequence[tuple[tir.Var, tir.Range]],
        buffers: Sequence[Buffer],
        value: PrimExpr | None,
    ) -> s.Stmt:
        """One block; ``value``: its element, None for the reduction of ``op``."""
        remap: dict[tir.Var, PrimExpr] = {}
        iters: list[s.IterVar] = []
        for axis, (loop, dom) in zip(axes, loops, strict=True):
            own = tir.Var(f"v_{axis.var.name}", loop.dtype)
            remap[axis.var] = own
            iters.append(s.IterVar(dom, own, axis.iter_type, axis.thread_tag))
        values: list[PrimExpr] = [loop for loop, _ in loops]
        at = tuple(remap[a.var] for a in op.axis)
        if not iters:
            zero = tir.const(0, "int32")
            span = tir.Range.from_min_extent(tir.as_dim(zero), tir.as_dim(tir.const(1, "int32")))
            iters.append(s.IterVar(span, tir.Var("vi", "int32"), "spatial"))
            values.append(zero)
        init: s.Stmt | None = None
        if value is not None:
            body: s.Stmt = s.BufferStore(buffers[0], _simple(self.expr(value, remap)), at)
        else:
            init, body = self.reduction(op, remap, at, buffers)
        annotations = {k: self.annotation(v) for k, v in op.attrs.items()}
        block = s.Block(tuple(iters), (), (), self.fresh(name), body, init, annotations=annotations)
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
        starts = list(first.init) or list(first.combiner.identity([b.dtype for b in buffers]))
        init = s.seq(
            s.BufferStore(b, self.expr(e, remap), at) for b, e in zip(buffers, starts, strict=True)
        )
        old = [BufferLoad(b, at) for b in buffers]
        new = [_simple(self.expr(e, remap)) for e in first.source]
        made = list(first.combiner.combine(old, new))
        if len(made) != len(buffers):
            raise TVMError(
                f"te.{first.combiner.name}: the reducer gives {len(made)} values of {len(buffers)}"
            )
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
        known = self.buffers.get(tensor)
        if known is not None:  # an input of te.extern has one
            made = known
        else:
            made = self.buffer(tensor)
        if tensor not in self.own:
            self.allocated.append(made)
        return made

    def buffer(self, tensor: Tensor) -> Buffer:
        """A new buffer for a tensor."""
        sizes = [tir.as_dim(self.as_index(d)) for d in tensor.shape]
        return buffer_of(sizes, tensor.dtype, tensor.name)

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
                made = _rebuilt(node, children)
            done[id(node)] = made
        return tir.cast(root.dtype, done[id(root)])


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
    if isinstance(root, tir.Cast) and tir.is_int(root.value.dtype):
        return _widened(root.value, dtype)
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


def _check_independent(axes: Sequence[s.IterVar], name: str) -> None:
    """TVMError where the range of an axis depends on another one."""
    own = {a.var for a in axes}
    for a in axes:
        assert a.dom is not None
        for bound in (a.dom.min, a.dom.extent):
            if own & set(tir.free_vars(bound)):
                raise TVMError(
                    f"te.compute {name!r}: the range of the axis {a.var.name} depends on another "
                    "axis; reduce over the whole range with where="
                )


def _ordered(ops: Iterable[Operation]) -> list[Operation]:
    """What is needed for ``ops``, each after what it reads."""
    done: dict[int, Operation] = {}
    stack: list[tuple[Operation, bool]] = [(op, False) for op in reversed(list(ops))]
    while stack:
        op, ready = stack.pop()
        if id(op) in done:
            continue
        if ready:
            done[id(op)] = op
            continue
        stack.append((op, True))
        stack += [(t.op, False) for t in reversed(op.inputs)]
    return list(done.values())
