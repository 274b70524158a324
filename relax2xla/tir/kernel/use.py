"""The expressions that stand in a statement itself, not in the statements inside it."""

from __future__ import annotations

from collections.abc import Iterator

from relax2xla.tir import stmt as s
from relax2xla.tir.arith.bounds import Range
from relax2xla.tir.buffer import Buffer
from relax2xla.tir.convert import as_prim_expr
from relax2xla.tir.node import Dim, PrimExpr


def buffer_expressions(buffer: Buffer) -> Iterator[PrimExpr]:
    """The pointer, sizes, strides and offset of a buffer."""
    yield buffer.data
    for d in (*buffer.shape, *buffer.strides, buffer.elem_offset):
        yield as_prim_expr(d)


def _range(r: Range | None) -> tuple[Dim, ...]:
    return () if r is None else (r.min, r.extent)


def expressions(node: s.Stmt) -> Iterator[PrimExpr]:
    """The expressions of ``node`` itself, in the order of the text; of a block all at its head."""
    match node:
        case s.BufferStore():
            yield from node.indices
            yield node.value
            if node.predicate is not None:
                yield node.predicate
        case s.For():
            yield as_prim_expr(node.min)
            yield as_prim_expr(node.extent)
        case s.BlockRealize():
            yield from node.iter_values
            yield node.predicate
            for axis in node.block.iter_vars:
                for d in _range(axis.dom):
                    yield as_prim_expr(d)
            for region in (*node.block.reads, *node.block.writes):
                for r in region.region:
                    yield as_prim_expr(r.min)
                    yield as_prim_expr(r.extent)
            for m in node.block.match_buffers:
                for r in m.source.region:
                    yield as_prim_expr(r.min)
                    yield as_prim_expr(r.extent)
        case s.IfThenElse() | s.While():
            yield node.condition
        case s.LetStmt() | s.Evaluate():
            yield node.value
        case s.AssertStmt():
            yield node.condition
            yield node.message
        case s.AttrStmt():
            if isinstance(node.node, PrimExpr):
                yield node.node
            yield node.value
        case s.Allocate():
            for d in node.extents:
                yield as_prim_expr(d)
            yield node.condition
        case s.AllocateConst():
            for d in node.extents:
                yield as_prim_expr(d)
        case s.BufferRealize() | s.Prefetch():
            for r in node.bounds:
                yield as_prim_expr(r.min)
                yield as_prim_expr(r.extent)
            if isinstance(node, s.BufferRealize):
                yield node.condition
        case _:
            pass
