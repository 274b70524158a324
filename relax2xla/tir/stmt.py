"""Statements of loop-level functions: loops, blocks, stores.

Semantics are those of TVM v0.20's ``tir``; names and fields are its, too. Nodes are immutable;
equality is by identity (``structural_equal`` compares up to renaming).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias, cast

import numpy as np

from relax2xla.errors import OperandTypeError
from relax2xla.tir.arith.bounds import Range
from relax2xla.tir.buffer import Buffer, BufferRegion, PointerVar, check_indices, check_predicate
from relax2xla.tir.convert import as_dim, as_expr
from relax2xla.tir.node import (
    Dim,
    IntImm,
    Node,
    PrimExpr,
    StandsForExpr,
    StringImm,
    Var,
    is_int,
    lanes_of,
    set_field,
)

LoopKind: TypeAlias = Literal["serial", "parallel", "vectorized", "unroll", "thread_binding"]
IterType: TypeAlias = Literal["spatial", "reduce", "scan", "opaque", "thread"]
LOOP_KINDS: tuple[LoopKind, ...] = ("serial", "parallel", "vectorized", "unroll", "thread_binding")
# By TVM's numbers; the last two kinds of axes have none of their own here.
ITER_TYPES: tuple[IterType, ...] = ("spatial", "thread", "reduce", "scan", "opaque")


class ForKind:
    """The kinds of loops under TVM's names."""

    SERIAL, PARALLEL, VECTORIZED, UNROLLED, THREAD_BINDING = LOOP_KINDS


Annotations: TypeAlias = Mapping[str, object]


def _none() -> Annotations:
    return MappingProxyType({})


TRUE = IntImm("bool", 1)


@dataclass(frozen=True, slots=True, eq=False)
class Stmt(Node):
    """Base class of the statements. ``line`` is the line of the script it was read from, or 0.

    Constructors take numbers for expressions, as TVM's do, and lists for tuples.
    """

    line: int = field(default=0, kw_only=True)

    def _expressions(self, *names: str) -> None:
        """Fields that hold an expression."""
        for name in names:
            value = getattr(self, name)
            if not isinstance(value, PrimExpr):
                set_field(self, name, as_expr(value))

    def _mapping(self, name: str) -> None:
        """A field that holds a mapping; None is an empty one."""
        if getattr(self, name) is None:
            set_field(self, name, _none())

    def _sequences(self, *names: str) -> None:
        """Fields that hold a tuple; None is an empty one."""
        for name in names:
            value = getattr(self, name)
            if not isinstance(value, tuple):
                set_field(self, name, () if value is None else tuple(value))


@dataclass(frozen=True, slots=True, eq=False)
class IterVar(StandsForExpr, Node):
    """An axis of a block, or a thread: ``var`` runs over ``dom``, and is what it stands for.

    ``thread_tag`` names the thread axis (``threadIdx.x``) of a bound loop or of
    ``AttrStmt("thread_extent")``.
    """

    DataPar: ClassVar[IterType] = "spatial"
    ThreadIndex: ClassVar[IterType] = "thread"
    CommReduce: ClassVar[IterType] = "reduce"
    Ordered: ClassVar[IterType] = "scan"
    Opaque: ClassVar[IterType] = "opaque"

    dom: Range | None
    var: Var
    iter_type: IterType
    thread_tag: str = ""

    def __post_init__(self) -> None:
        dom: Any = self.dom
        if isinstance(dom, list | tuple):
            dom = Range(*(as_expr(d) for d in cast("Sequence[object]", dom)))
        if dom is not None and not isinstance(dom, Range):
            raise TypeError(
                f"tir.IterVar: dom is a Range, a pair of ends or None; got {type(dom).__name__}"
            )
        var: Any = self.var
        if isinstance(var, str):
            extent = None if dom is None else dom.extent
            var = Var(var, extent.dtype if isinstance(extent, PrimExpr) else "int32")
        if not isinstance(var, Var):
            raise TypeError(f"tir.IterVar: var is a variable or its name; got {var!r}")
        kind: Any = self.iter_type
        if isinstance(kind, int):
            if not 0 <= kind < len(ITER_TYPES):
                raise ValueError(f"tir.IterVar: no kind of axis has the number {kind}")
            set_field(self, "iter_type", ITER_TYPES[kind])
        set_field(self, "dom", dom)
        set_field(self, "var", var)

    @property
    def dtype(self) -> str:
        """dtype of the variable."""
        return self.var.dtype

    def as_expr(self) -> PrimExpr:
        return self.var


@dataclass(frozen=True, slots=True, eq=False)
class BufferStore(Stmt):
    """``buffer[indices] = value``, in the lanes for which ``predicate`` holds."""

    buffer: Buffer
    value: PrimExpr
    indices: tuple[PrimExpr, ...]
    predicate: PrimExpr | None = None

    def __post_init__(self) -> None:
        self._expressions("value")
        self._sequences("indices")
        if not all(isinstance(i, PrimExpr) for i in self.indices):
            set_field(self, "indices", tuple(map(as_expr, self.indices)))
        check_indices(self.buffer, self.indices)
        if self.predicate is not None:
            lanes = lanes_of(self.value.dtype)
            check_predicate(self.predicate, lanes, "value dtype", "store a value")


@dataclass(frozen=True, slots=True, eq=False)
class SeqStmt(Stmt):
    """Statements one after the other; two or more, none of them a ``SeqStmt``.

    The statements of one among ``seq`` take its place.
    """

    seq: tuple[Stmt, ...]

    def __post_init__(self) -> None:
        self._sequences("seq")
        if any(isinstance(x, SeqStmt) for x in self.seq):
            set_field(self, "seq", tuple(_flat(self.seq)))

    def __getitem__(self, index: int) -> Stmt:
        return self.seq[index]

    def __len__(self) -> int:
        return len(self.seq)


@dataclass(frozen=True, slots=True, eq=False)
class For(Stmt):
    """``for loop_var in [min, min + extent)``; ``thread_binding`` says the axis of a bound loop."""

    loop_var: Var
    min: Dim
    extent: Dim
    kind: LoopKind
    body: Stmt
    thread_binding: IterVar | None = None
    annotations: Annotations = field(default_factory=_none)

    def __post_init__(self) -> None:
        kind: Any = self.kind
        if isinstance(kind, int):
            if not 0 <= kind < len(LOOP_KINDS):
                raise ValueError(f"tir.For: no kind of loop has the number {kind}")
            set_field(self, "kind", LOOP_KINDS[kind])
        for name in ("min", "extent"):
            value = getattr(self, name)
            if isinstance(value, PrimExpr) and not is_int(value.dtype):
                raise TypeError(
                    f"the loop {self.loop_var.name} has the {name} `{value}`, which is "
                    f"{value.dtype}; bounds of loops are integers"
                )
            # A number of Python is an int64 here; a loop over int32 has bounds of int32.
            if type(value) is int and self.loop_var.dtype != "int64":
                set_field(self, name, as_dim(IntImm(self.loop_var.dtype, value)))
        self._mapping("annotations")


@dataclass(frozen=True, slots=True, eq=False)
class MatchBufferRegion(Node):
    """``buffer`` is another view of the region ``source`` (``T.match_buffer`` of a region)."""

    buffer: Buffer
    source: BufferRegion


@dataclass(frozen=True, slots=True, eq=False)
class Block(Stmt):
    """A block: axes, what it reads and writes, its own buffers, an init for reductions, a body."""

    iter_vars: tuple[IterVar, ...]
    reads: tuple[BufferRegion, ...]
    writes: tuple[BufferRegion, ...]
    name_hint: str
    body: Stmt
    init: Stmt | None = None
    alloc_buffers: tuple[Buffer, ...] = ()
    match_buffers: tuple[MatchBufferRegion, ...] = ()
    annotations: Annotations = field(default_factory=_none)

    def __post_init__(self) -> None:
        self._sequences("iter_vars", "reads", "writes", "alloc_buffers", "match_buffers")
        self._mapping("annotations")


@dataclass(frozen=True, slots=True, eq=False)
class BlockRealize(Stmt):
    """One run of ``block`` with its axes at ``iter_values``, where ``predicate`` holds."""

    iter_values: tuple[PrimExpr, ...]
    predicate: PrimExpr
    block: Block

    def __post_init__(self) -> None:
        self._sequences("iter_values")
        if not all(isinstance(v, PrimExpr) for v in self.iter_values):
            set_field(self, "iter_values", tuple(map(as_expr, self.iter_values)))
        self._expressions("predicate")


@dataclass(frozen=True, slots=True, eq=False)
class IfThenElse(Stmt):
    """``if condition: then_case else: else_case``"""

    condition: PrimExpr
    then_case: Stmt
    else_case: Stmt | None = None

    def __post_init__(self) -> None:
        self._expressions("condition")


@dataclass(frozen=True, slots=True, eq=False)
class While(Stmt):
    """``while condition: body``"""

    condition: PrimExpr
    body: Stmt

    def __post_init__(self) -> None:
        self._expressions("condition")


@dataclass(frozen=True, slots=True, eq=False)
class LetStmt(Stmt):
    """``body`` with ``var`` standing for ``value``, which is computed once."""

    var: Var
    value: PrimExpr
    body: Stmt

    def __post_init__(self) -> None:
        self._expressions("value")
        if self.value.dtype != self.var.dtype and self.var.dtype != "handle":
            raise OperandTypeError(
                f"LetStmt: {self.var.name} is {self.var.dtype}, and cannot stand for "
                f"`{self.value}` of {self.value.dtype}; cast the value"
            )


@dataclass(frozen=True, slots=True, eq=False)
class AssertStmt(Stmt):
    """``body``, after an error with ``message`` where ``condition`` does not hold."""

    condition: PrimExpr
    message: StringImm
    body: Stmt

    def __post_init__(self) -> None:
        self._expressions("condition", "message")


@dataclass(frozen=True, slots=True, eq=False)
class AttrStmt(Stmt):
    """``body`` under an attribute of ``node``, such as ``thread_extent`` of an ``IterVar``."""

    node: object
    attr_key: str
    value: PrimExpr
    body: Stmt

    def __post_init__(self) -> None:
        self._expressions("value")


@dataclass(frozen=True, slots=True, eq=False)
class Evaluate(Stmt):
    """An expression for its effect; a literal does nothing."""

    value: PrimExpr

    def __post_init__(self) -> None:
        self._expressions("value")


@dataclass(frozen=True, slots=True, eq=False)
class Allocate(Stmt):
    """Memory for ``body``: ``buffer_var`` points to ``extents`` elements of ``dtype``."""

    buffer_var: Var
    dtype: str
    extents: tuple[Dim, ...]
    condition: PrimExpr
    body: Stmt
    scope: str = ""
    annotations: Annotations = field(default_factory=_none)

    def __post_init__(self) -> None:
        self._expressions("condition")
        set_field(self, "extents", _sizes(self.extents))
        if not self.scope:
            var = self.buffer_var
            set_field(self, "scope", var.scope if isinstance(var, PointerVar) else "global")
        self._mapping("annotations")


@dataclass(frozen=True, slots=True, eq=False)
class AllocateConst(Stmt):
    """Memory that holds ``data`` for ``body``: ``buffer_var`` points to its elements."""

    buffer_var: Var
    dtype: str
    extents: tuple[Dim, ...]
    data: np.ndarray
    body: Stmt
    annotations: Annotations = field(default_factory=_none)

    def __post_init__(self) -> None:
        set_field(self, "extents", _sizes(self.extents))
        data = np.asarray(self.data)
        if str(data.dtype) != self.dtype:
            raise TypeError(
                f"tir.AllocateConst: the data are {data.dtype}, but dtype is {self.dtype}"
            )
        set_field(self, "data", data)
        self._mapping("annotations")


@dataclass(frozen=True, slots=True, eq=False)
class BufferRealize(Stmt):
    """``body`` with memory for ``bounds``, a box of ``buffer``, where ``condition`` holds."""

    buffer: Buffer
    bounds: tuple[Range, ...]
    condition: PrimExpr
    body: Stmt

    def __post_init__(self) -> None:
        self._sequences("bounds")
        self._expressions("condition")


@dataclass(frozen=True, slots=True, eq=False)
class Prefetch(Stmt):
    """A hint that ``bounds``, a box of ``buffer``, is read soon."""

    buffer: Buffer
    bounds: tuple[Range, ...]

    def __post_init__(self) -> None:
        self._sequences("bounds")


@dataclass(frozen=True, slots=True, eq=False)
class DeclBuffer(Stmt):
    """``body`` with another view of memory, ``buffer``."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Text(Stmt):
    """A body that the parser cannot read, kept as its text: printed as it is, never run.

    ``why`` names the first construct that was not understood, with its line.
    """

    text: str
    why: str


def _sizes(extents: Sequence[Dim]) -> tuple[Dim, ...]:
    """Sizes of memory; a number of Python is an int32, unlike one in the shape of a buffer."""
    return tuple(map(as_expr, extents))


# -- walking -------------------------------------------------------------------------------------
_WITH_BODY = (
    *(For, While, LetStmt, AssertStmt, AttrStmt, Allocate, AllocateConst, BufferRealize),
    DeclBuffer,
)


def children(node: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside ``node``; of a block realisation the block's own."""
    match node:
        case SeqStmt():
            return node.seq
        case BlockRealize():
            return children(node.block)
        case Block():
            return (node.body,) if node.init is None else (node.init, node.body)
        case IfThenElse():
            if node.else_case is None:
                return (node.then_case,)
            return (node.then_case, node.else_case)
        case _ if isinstance(node, _WITH_BODY):
            return (node.body,)
        case _:
            return ()


def with_children(node: Stmt, new: Sequence[Stmt]) -> Stmt:
    """``node`` with other statements inside; itself where they are the same."""
    old = children(node)
    if len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True)):
        return node
    match node:
        case SeqStmt():
            return seq(new, node.line)
        case BlockRealize():
            block = with_children(node.block, new)
            return replace(node, block=block) if isinstance(block, Block) else node
        case Block():
            *init, body = new
            return replace(node, init=init[0] if init else None, body=body)
        case IfThenElse():
            return replace(node, then_case=new[0], else_case=new[1] if len(new) > 1 else None)
        case _ if isinstance(node, _WITH_BODY):
            return replace(node, body=new[0])
        case _:
            return node


def map_children(node: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """``node`` with ``change`` applied to the statements directly inside."""
    return with_children(node, [change(child) for child in children(node)])


def walk(root: Stmt) -> Iterator[Stmt]:
    """Every statement in ``root``, outer ones first, in the order of the text."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def has_block(root: Stmt) -> bool:
    """Whether there is a block in ``root``."""
    return any(isinstance(node, BlockRealize) for node in walk(root))


def seq(statements: Iterable[Stmt], line: int = 0) -> Stmt:
    """Statements one after the other: nothing is ``Evaluate(0)``, one is itself."""
    flat = _flat(statements)
    if not flat:
        return Evaluate(IntImm("int32", 0), line=line)
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat), line=line)


def stmt_seq(*args: object) -> Stmt:
    """Statements, and expressions for their effect, one after the other."""
    return seq(x if isinstance(x, Stmt) else Evaluate(as_expr(x)) for x in args)


def stmt_list(stmt: Stmt) -> list[Stmt]:
    """The statements of a sequence; of another statement it alone."""
    return list(stmt.seq) if isinstance(stmt, SeqStmt) else [stmt]


def _flat(statements: Iterable[Stmt]) -> list[Stmt]:
    """Statements, those of a ``SeqStmt`` in its place."""
    flat: list[Stmt] = []
    for x in statements:
        flat += x.seq if isinstance(x, SeqStmt) else (x,)
    return flat
