"""Statements of loop-level functions: loops, blocks, stores.

Semantics are those of TVM v0.20's ``tir``; names and fields are its, too. Nodes are immutable;
equality is by identity (``structural_equal`` compares up to renaming).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

from .bounds import Range
from .buffer import Buffer, BufferRegion
from .node import Dim, IntImm, PrimExpr, StandsForExpr, StringImm, Var

ForKind: TypeAlias = Literal["serial", "parallel", "vectorized", "unroll", "thread_binding"]
IterType: TypeAlias = Literal["spatial", "reduce", "scan", "opaque", "thread"]

Annotations: TypeAlias = Mapping[str, object]


def _none() -> Annotations:
    return MappingProxyType({})


TRUE = IntImm("bool", 1)


@dataclass(frozen=True, slots=True, eq=False)
class Stmt:
    """Base class of the statements. ``line`` is the line of the script it was read from, or 0."""

    line: int = field(default=0, kw_only=True)


@dataclass(frozen=True, slots=True, eq=False)
class IterVar(StandsForExpr):
    """An axis of a block, or a thread: ``var`` runs over ``dom``, and is what it stands for.

    ``thread_tag`` names the thread axis (``threadIdx.x``) of a bound loop or of
    ``AttrStmt("thread_extent")``.
    """

    var: Var
    dom: Range | None
    iter_type: IterType
    thread_tag: str = ""

    @property
    def dtype(self) -> str:
        """dtype of the variable."""
        return self.var.dtype

    def as_expr(self) -> PrimExpr:
        return self.var


@dataclass(frozen=True, slots=True, eq=False)
class BufferStore(Stmt):
    """``buffer[indices] = value``"""

    buffer: Buffer
    value: PrimExpr
    indices: tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SeqStmt(Stmt):
    """Statements one after the other; two or more, none of them a ``SeqStmt``."""

    seq: tuple[Stmt, ...]

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
    kind: ForKind
    body: Stmt
    thread_binding: IterVar | None = None
    annotations: Annotations = field(default_factory=_none)


@dataclass(frozen=True, slots=True, eq=False)
class MatchBufferRegion:
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


@dataclass(frozen=True, slots=True, eq=False)
class BlockRealize(Stmt):
    """One run of ``block`` with its axes at ``iter_values``, where ``predicate`` holds."""

    iter_values: tuple[PrimExpr, ...]
    predicate: PrimExpr
    block: Block


@dataclass(frozen=True, slots=True, eq=False)
class IfThenElse(Stmt):
    """``if condition: then_case else: else_case``"""

    condition: PrimExpr
    then_case: Stmt
    else_case: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False)
class While(Stmt):
    """``while condition: body``"""

    condition: PrimExpr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class LetStmt(Stmt):
    """``body`` with ``var`` standing for ``value``, which is computed once."""

    var: Var
    value: PrimExpr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class AssertStmt(Stmt):
    """``body``, after an error with ``message`` where ``condition`` does not hold."""

    condition: PrimExpr
    message: StringImm
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class AttrStmt(Stmt):
    """``body`` under an attribute of ``node``, such as ``thread_extent`` of an ``IterVar``."""

    node: object
    attr_key: str
    value: PrimExpr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Evaluate(Stmt):
    """An expression for its effect; a literal does nothing."""

    value: PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Allocate(Stmt):
    """Memory for ``body``: ``buffer_var`` points to ``extents`` elements of ``dtype``."""

    buffer_var: Var
    dtype: str
    extents: tuple[Dim, ...]
    condition: PrimExpr
    body: Stmt
    scope: str = "global"
    annotations: Annotations = field(default_factory=_none)


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


# -- walking -------------------------------------------------------------------------------------
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
        case For() | While() | LetStmt() | AssertStmt() | AttrStmt() | Allocate() | DeclBuffer():
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
        case For() | While() | LetStmt() | AssertStmt() | AttrStmt() | Allocate() | DeclBuffer():
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
    flat: list[Stmt] = []
    for x in statements:
        flat += x.seq if isinstance(x, SeqStmt) else (x,)
    if not flat:
        return Evaluate(IntImm("int32", 0), line=line)
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat), line=line)
