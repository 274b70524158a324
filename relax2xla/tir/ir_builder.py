"""``tir.ir_builder``: statements written one after another, such as those of ``te.extern``.

```py
ib = tir.ir_builder.create()
src, out = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
with ib.for_range(0, n, name="i") as i:
    out[i] = src[i] + 1.0
return ib.get()
```

Names and meaning are those of TVM v0.20. ``script.ir_builder`` is the builder of TVMScript.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, TypeAlias

from relax2xla.tir.arith.analyzer import simplify
from relax2xla.tir.buffer import Buffer, BufferLoad, PointerVar, decl_buffer
from relax2xla.tir.call import Call
from relax2xla.tir.convert import as_dim, as_expr, cast, match_dtypes
from relax2xla.tir.node import Dim, IntImm, PrimExpr, StandsForExpr, Var, element_of
from relax2xla.tir.stmt import (
    TRUE,
    Allocate,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    Stmt,
    While,
    seq,
)

# A statement, or one that what comes after it is the body of.
_Part: TypeAlias = Stmt | Callable[[Stmt], Stmt]


class BufferVar:
    """A buffer that is read and written by index: ``a[i, j]``, ``a[i] = value``.

    One index of a buffer of several axes counts its elements in row-major order.
    """

    def __init__(self, builder: IRBuilder, buffer: Buffer) -> None:
        self._builder, self.buffer = builder, buffer

    @property
    def dtype(self) -> str:
        """That of an element."""
        return self.buffer.dtype

    # Python would ask for one element after the other, without an end.
    __iter__: ClassVar[None] = None

    def __getitem__(self, index: Any) -> BufferLoad:
        return BufferLoad(self.buffer, self._indices(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        """Emit a store; ValueError for a value of another dtype."""
        made = as_expr(value)
        if not isinstance(value, PrimExpr | StandsForExpr):
            made = cast(self.dtype, made)
        if element_of(made.dtype) != element_of(self.dtype):
            raise ValueError(
                f"{self.buffer.name} holds {self.dtype}, and `{made}` is {made.dtype}; cast it by "
                f'.astype("{self.dtype}")'
            )
        self._builder.emit(BufferStore(self.buffer, made, self._indices(index)))

    def _indices(self, index: Any) -> tuple[PrimExpr, ...]:
        several = index if isinstance(index, tuple | list) else (index,)
        made = tuple(map(as_expr, several))
        if len(made) == 1 and self.buffer.ndim > 1:
            return _unraveled(made[0], self.buffer.shape)
        return made


def _unraveled(index: PrimExpr, shape: Sequence[Dim]) -> tuple[PrimExpr, ...]:
    """The indices of the element that ``index`` counts to, in row-major order."""
    made: list[PrimExpr] = []
    for size in reversed(shape[1:]):
        index, extent = match_dtypes(index, as_expr(size))
        made.append(index % extent)
        index = index // extent
    return (index, *reversed(made))


class IRBuilder:
    """Collects statements; what is opened with ``with`` takes those that are emitted within."""

    def __init__(self) -> None:
        self._open: list[list[_Part]] = [[]]
        self._loops = 0

    def emit(self, stmt: Any) -> None:
        """Add a statement, an expression for its effect, or a function of what comes after it."""
        part: Any = stmt
        if not isinstance(stmt, Stmt) and not callable(stmt):
            part = Evaluate(as_expr(stmt))
        self._open[-1].append(part)

    def get(self) -> Stmt:
        """All statements, once; ValueError where a ``with`` is still open."""
        if len(self._open) != 1:
            raise ValueError("ib.get() stands within a `with` of the builder; call it after that")
        made = _joined(self._open[0])
        self._open = [[]]
        return made

    # -- what takes the statements after it --------------------------------------------------------
    def scope_attr(self, node: Any, attr_key: str, value: Any) -> None:
        """An attribute of ``node`` (``thread_extent`` of an axis) around all that comes after."""
        made = as_expr(value)
        self.emit(lambda body: AttrStmt(node, attr_key, made, body))

    def let(self, var_name: str, value: Any) -> Var:
        """A variable that stands for ``value`` in what comes after."""
        made = as_expr(value)
        var = Var(var_name, made.dtype)
        self.emit(lambda body: LetStmt(var, made, body))
        return var

    def allocate(
        self,
        dtype: str,
        shape: Any,
        name: str = "buf",
        axis_separators: Sequence[int] | None = None,
        scope: str = "",
    ) -> BufferVar:
        """Memory for what comes after."""
        several = isinstance(shape, list | tuple)
        sizes = tuple(as_expr(d) for d in (shape if several else [shape]))
        data = PointerVar(name, dtype, scope or "global")
        buffer = decl_buffer(sizes, dtype, name, data, scope=scope, axis_separators=axis_separators)
        self.emit(lambda body: Allocate(data, dtype, sizes, TRUE, body))
        return BufferVar(self, buffer)

    # -- what has a body ---------------------------------------------------------------------------
    def for_range(
        self, begin: Any, end: Any, name: str = "i", dtype: str | None = None, kind: str = "serial"
    ) -> AbstractContextManager[Var]:
        """A loop from ``begin`` up to ``end``: ``with ib.for_range(0, n) as i:``.

        dtype: of the variable; that of the bounds by default, int32 of numbers. A loop that is
        given no name is i, j, k, then i_0, i_1 and so on.
        """
        if name == "i":
            at = self._loops
            name = "ijk"[at] if at < 3 else f"i_{at - 3}"
        self._loops += 1
        first, last = match_dtypes(as_expr(begin), as_expr(end))
        if dtype is not None:
            first, last = cast(dtype, first), cast(dtype, last)
        var = Var(name, first.dtype)
        zero = isinstance(first, IntImm) and first.value == 0
        extent = last if zero else as_expr(simplify(last - first))
        loop: Any = kind  # checked by the statement

        def make(body: Stmt) -> Stmt:
            known: LoopKind = "unroll" if loop == "unrolled" else loop
            return For(var, as_dim(first), as_dim(cast(first.dtype, extent)), known, body)

        return self._within(make, var)

    def while_loop(self, condition: Any) -> AbstractContextManager[None]:
        """``with ib.while_loop(condition):``"""
        made = as_expr(condition)
        return self._within(lambda body: While(made, body), None)

    def if_scope(self, cond: Any) -> AbstractContextManager[None]:
        """``with ib.if_scope(condition):``"""
        made = as_expr(cond)
        return self._within(lambda body: IfThenElse(made, body), None)

    def else_scope(self) -> AbstractContextManager[None]:
        """The other case of the ``if_scope`` before it; ValueError where there is none."""
        before = self._open[-1][-1] if self._open[-1] else None
        if not isinstance(before, IfThenElse) or before.else_case is not None:
            raise ValueError("ib.else_scope() comes right after a `with ib.if_scope(...)`")
        self._open[-1].pop()
        return self._within(lambda body: IfThenElse(before.condition, before.then_case, body), None)

    def new_scope(self) -> AbstractContextManager[None]:
        """Statements of their own: what they allocate is for them alone."""
        return self._within(lambda body: body, None)

    @contextmanager
    def _within(self, make: Callable[[Stmt], Stmt], value: Any) -> Generator[Any]:
        self._open.append([])
        yield value
        self.emit(make(_joined(self._open.pop())))

    # -- buffers and hints -------------------------------------------------------------------------
    def buffer_ptr(self, buf: Buffer) -> BufferVar:
        """A buffer to read and write by index."""
        return BufferVar(self, buf)

    def pointer(self, content_type: str, name: str = "ptr", scope: str = "") -> BufferVar:
        """Memory that something else allocates."""
        return BufferVar(self, decl_buffer([1], content_type, name, scope=scope))

    def likely(self, expr: Any) -> PrimExpr:
        """``expr``, which is expected to hold."""
        made = as_expr(expr)
        return Call(made.dtype, "tir.likely", (made,))


def _joined(parts: Sequence[_Part]) -> Stmt:
    """The statements as one; functions take those after them."""
    done: list[Stmt] = []  # the last first
    for part in reversed(parts):
        if isinstance(part, Stmt):
            done.append(part)
        else:
            done = [part(seq(reversed(done)))]
    return seq(reversed(done))


def create() -> IRBuilder:
    """A new builder."""
    return IRBuilder()
