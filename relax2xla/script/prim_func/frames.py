"""What is open while a ``T.prim_func`` is read: loops, blocks, and statements that hold the rest.

``x = T.allocate(...)`` stands flat in a text, and what follows it is its body. Such a statement is
an ``Opener``; closing a frame puts the rest into it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

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
    kind: s.ForKind
    annotations: dict[str, Any]
    thread: str = ""


@dataclass(slots=True)
class BlockOpener:
    """``T.block(name)`` and what the statements at its head say of it."""

    name: str
    iter_vars: list[s.IterVar] = field(default_factory=list[s.IterVar])
    iter_values: list[tir.PrimExpr] = field(default_factory=list[tir.PrimExpr])
    predicate: tir.PrimExpr | None = None
    reads: tuple[BufferRegion, ...] | None = None
    writes: tuple[BufferRegion, ...] | None = None
    init: s.Stmt | None = None
    alloc_buffers: list[Buffer] = field(default_factory=list[Buffer])
    match_buffers: list[s.MatchBufferRegion] = field(default_factory=list[s.MatchBufferRegion])
    annotations: dict[str, Any] | None = None


class InitOpener:
    """``T.init()``"""


@dataclass(slots=True)
class Frame:
    """Statements being collected; ``loop`` or ``block`` is what they are the body of."""

    loop: Loop | None = None
    block: BlockOpener | None = None
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
            binding = s.IterVar(tir.Var("iter", var.dtype), None, "thread", loop.thread)
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
