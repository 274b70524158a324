"""What is open while a ``T.prim_func`` is read: loops, blocks, and statements that hold the rest.

``x = T.allocate(...)`` stands flat in a text, and what follows it is its body. Such a statement is
an ``Opener``; closing a frame puts the rest into it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from relax2xla import tir
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer, BufferRegion


@dataclass(slots=True)
class Opener:
    """A statement that takes a body; ``value`` is what a name is given for it."""

    wrap: Callable[[s.Stmt], s.Stmt]
    value: Any = None


@dataclass(slots=True)
class Loop:
    """``T.grid(...)`` or a loop of another kind: variables and the ranges they run over."""

    vars: list[tir.Var]
    ranges: list[tir.Range]
    kind: s.LoopKind
    annotations: dict[str, Any]
    thread: str = ""


@dataclass(slots=True)
class BlockOpener:
    """``T.block(name)`` and what the statements at its head say of it."""

    name: str
    realized: bool = True
    iter_vars: list[s.IterVar] = field(default_factory=list[s.IterVar])
    iter_values: list[tir.PrimExpr] = field(default_factory=list[tir.PrimExpr])
    predicate: tir.PrimExpr | None = None
    reads: tuple[BufferRegion, ...] | None = None
    writes: tuple[BufferRegion, ...] | None = None
    init: s.Stmt | None = None
    alloc_buffers: list[Buffer] = field(default_factory=list[Buffer])
    match_buffers: list[s.MatchBufferRegion] = field(default_factory=list[s.MatchBufferRegion])
    annotations: dict[str, Any] | None = None


def block_of(
    opened: BlockOpener, body: s.Stmt, line: int
) -> tuple[s.BlockRealize, tuple[str, ...]]:
    """The block, and which of "reads" and "writes" it does not state."""
    block = s.Block(
        tuple(opened.iter_vars),
        opened.reads or (),
        opened.writes or (),
        opened.name,
        body,
        opened.init,
        tuple(opened.alloc_buffers),
        tuple(opened.match_buffers),
        opened.annotations or {},
        line=line,
    )
    lacks = tuple(name for name in ("reads", "writes") if getattr(opened, name) is None)
    predicate = s.TRUE if opened.predicate is None else opened.predicate
    return s.BlockRealize(tuple(opened.iter_values), predicate, block, line=line), lacks


class InitOpener:
    """``T.init()``"""


@dataclass(slots=True)
class Branch:
    """``T.If(condition)``, ``T.Then()`` and ``T.Else()``: contexts of Python and of scripts.

    ``frames`` are those of the parser; the branches that are open above say whose this is.
    """

    frames: list[Frame]
    kind: Literal["if", "then", "else"]
    line: int
    condition: tir.PrimExpr | None = None
    bodies: dict[str, s.Stmt] = field(default_factory=dict[str, s.Stmt])

    def __enter__(self) -> None:
        self.frames.append(Frame(branch=self))

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        inner = self.frames.pop()
        if kind is not None:
            return
        if self.kind != "if":
            owner = self.frames[-1].branch
            if owner is None or owner.kind != "if" or self.kind in owner.bodies:
                raise ValueError("T.Then and T.Else stand once each, directly in T.If")
            owner.bodies[self.kind] = inner.close()
            return
        if self.condition is None or inner.entries or "then" not in self.bodies:
            raise ValueError("T.If holds T.Then, and perhaps T.Else, and nothing else")
        made = s.IfThenElse(
            self.condition, self.bodies["then"], self.bodies.get("else"), line=self.line
        )
        self.frames[-1].entries.append(made)


@dataclass(slots=True)
class Frame:
    """Statements being collected: the body of ``loop``, ``block`` or ``branch``."""

    loop: Loop | None = None
    block: BlockOpener | None = None
    branch: Branch | None = None
    entries: list[s.Stmt | Opener] = field(default_factory=list[s.Stmt | Opener])

    def close(self) -> s.Stmt:
        """The statements in one."""
        rest: list[s.Stmt] = []
        for entry in reversed(self.entries):
            if isinstance(entry, Opener):
                rest = [entry.wrap(s.seq(reversed(rest)))]
            else:
                rest.append(entry)
        return s.seq(reversed(rest))


def nested(loop: Loop, body: s.Stmt, line: int) -> s.Stmt:
    """``body`` in the loops."""
    for var, dom in reversed(list(zip(loop.vars, loop.ranges, strict=True))):
        binding = None
        if loop.kind == "thread_binding":
            binding = s.IterVar(None, tir.Var("iter", var.dtype), "thread", loop.thread)
        low, extent = (promoted(d, var.dtype) for d in (dom.min, dom.extent))
        body = s.For(var, low, extent, loop.kind, body, binding, loop.annotations, line=line)
    return body


def promoted(value: tir.Dim, dtype: str) -> tir.Dim:
    """A literal in ``dtype``; another expression as it is."""
    if isinstance(value, int | tir.IntImm):
        return tir.as_dim(tir.IntImm(dtype, int(value)))
    return value


def widest(*values: tir.Dim) -> str:
    """The widest dtype among bounds, of the kind of the first."""
    dtypes = ["int64" if isinstance(v, int) else v.dtype for v in values]
    kind = dtypes[0].rstrip("0123456789")
    return kind + str(max(int(d.removeprefix("u").removeprefix("int")) for d in dtypes))


def flat(values: Sequence[Any]) -> list[Any]:
    """Arguments given one by one or as one list."""
    if len(values) == 1 and isinstance(values[0], list | tuple):
        return list(values[0])
    return list(values)
