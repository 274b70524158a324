"""What the forms of ``T`` need of who reads them: open frames, and what is known so far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from relax2xla import tir
from relax2xla.script.prim_func.frames import BlockOpener, Frame, block_of
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer
from relax2xla.tir.kernel.complete import with_regions, with_root
from relax2xla.tir.kernel.use import expressions


class Owner(Protocol):
    """What the forms need of the parser."""

    frames: list[Frame]
    func: FunctionHead
    line: int

    def symbol_named(self, name: str) -> tir.Dim:
        """The symbolic variable that a string names."""
        ...


class FunctionHead:
    """What is known of the function so far."""

    def __init__(self) -> None:
        self.params: list[tir.Var] = []
        self.buffer_map: dict[tir.Var, Buffer] = {}
        self.attrs: dict[str, Any] = {}
        self.allocated: list[Buffer] = []
        self.threads: dict[tir.Var, s.IterVar] = {}
        # Which blocks, by their ids, lack "reads" or "writes"; the blocks are kept alive with it.
        self.missing: dict[int, tuple[str, ...]] = {}
        self.kept: list[s.Block] = []

    def block(self, opened: BlockOpener, body: s.Stmt, line: int) -> s.BlockRealize:
        """A block that ends; what it does not say of its accesses is found out at the end."""
        made, lacks = block_of(opened, body, line)
        if lacks:
            self.missing[id(made.block)] = lacks
            self.kept.append(made.block)
        return made

    def opaque(self) -> Iterator[tuple[str, int]]:
        """Blocks that use a pointer of a buffer and do not say their accesses, with the line."""
        pointers = {b.data: b for b in (*self.buffer_map.values(), *self.allocated)}
        for block in self.kept:
            pointers.update((b.data, b) for b in block.alloc_buffers)
        for block in self.kept:
            stack = [block.body] if block.init is None else [block.init, block.body]
            while stack:
                node = stack.pop()
                if isinstance(node, s.BlockRealize):
                    continue
                stack += s.children(node)
                used = (x for e in expressions(node) for x in _pointers(e))
                found = next((pointers[x] for x in used if x in pointers), None)
                if found is not None:
                    yield (
                        f"the block {block.name_hint!r} hands on {found.name}.data, so what it "
                        "reads and writes cannot be told; say it with T.reads and T.writes",
                        block.line,
                    )
                    break

    def finished(self, body: s.Stmt, ret: str | None, attrs: dict[str, Any]) -> tir.PrimFunc:
        """The function of a body: with its root block, and what its blocks read and write."""
        memory = {b.data: b for b in (*self.buffer_map.values(), *self.allocated)}
        whole = with_regions(with_root(body, self.allocated), memory, self.missing)
        return tir.PrimFunc(self.params, whole, ret, self.buffer_map, attrs)


def _pointers(root: tir.PrimExpr) -> Iterator[tir.Var]:
    """The handles in an expression, but for those of T.tvm_access_ptr, which says the access."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, tir.Var) and node.dtype == "handle":
            yield node
        if not (isinstance(node, tir.Call) and node.op == "tir.tvm_access_ptr"):
            stack += node.children()


def innermost(owner: Owner, what: str) -> BlockOpener:
    """The innermost open block, which must be what is open last, but for flat statements."""
    for frame in reversed(owner.frames):
        if frame.block is not None:
            return frame.block
    raise ValueError(f"{what} stands in a block: `with T.block(...):`")
