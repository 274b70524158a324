"""What a written function leaves out: the root block, and what blocks read and write.

Source of the semantics: TVM's ``ScriptComplete``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer
from relax2xla.tir.kernel.access import access_regions
from relax2xla.tir.node import Var

_HOLDING = (
    *(s.For, s.While, s.LetStmt, s.AssertStmt, s.AttrStmt, s.Allocate, s.AllocateConst),
    *(s.BufferRealize, s.DeclBuffer),
)


def with_root(body: s.Stmt, allocated: Sequence[Buffer]) -> s.Stmt:
    """``body`` in a block ``root`` where it has blocks, or buffers of the function's own."""
    lone = isinstance(body, s.BlockRealize)
    if not allocated:
        if lone and not body.block.iter_vars:
            return body
        if not lone and not s.has_block(body):
            return body
    block = s.Block((), (), (), "root", body, alloc_buffers=tuple(allocated))
    return s.BlockRealize((), s.TRUE, block)


def with_regions(
    body: s.Stmt,
    memory: Mapping[Var, Buffer],
    missing: Mapping[int, Collection[str]],
) -> s.Stmt:
    """``body`` with the reads and writes of the blocks in ``missing`` (by id) filled in.

    ``missing`` says of a block which of "reads" and "writes" it lacks; the outermost block keeps
    none. ``memory`` are the function's own buffers by their pointers.
    """
    known = dict(memory)

    def complete(node: s.Stmt, outermost: bool) -> s.Stmt:
        # Statements are as deep as their text is indented, but for those that stand flat in it
        # and hold what follows.
        around: list[s.Stmt] = []
        added: list[Var] = []
        while isinstance(node, _HOLDING):
            around.append(node)
            if isinstance(node, s.DeclBuffer) and node.buffer.data not in known:
                known[node.buffer.data] = node.buffer
                added.append(node.buffer.data)
            node = node.body
        if isinstance(node, s.BlockRealize):
            block = complete_block(node.block, outermost)
            made: s.Stmt = node if block is node.block else replace(node, block=block)
        else:
            made = s.map_children(node, lambda child: complete(child, outermost))
        for data in added:
            del known[data]
        for outer in reversed(around):
            made = s.with_children(outer, (made,))
        return made

    def complete_block(block: s.Block, outermost: bool) -> s.Block:
        own = [b.data for b in block.alloc_buffers]
        own += [m.buffer.data for m in block.match_buffers]
        known.update((b.data, b) for b in block.alloc_buffers)
        known.update((m.buffer.data, m.buffer) for m in block.match_buffers)
        body = complete(block.body, False)
        init = None if block.init is None else complete(block.init, False)
        for data in own:
            known.pop(data, None)
        lacks = missing.get(id(block), ())
        made = block
        if body is not block.body or init is not block.init:
            made = replace(block, body=body, init=init)
        if lacks and not outermost:
            reads, writes = access_regions(made, known)
            made = replace(
                made,
                reads=reads if "reads" in lacks else made.reads,
                writes=writes if "writes" in lacks else made.writes,
            )
        return made

    return complete(body, True)
