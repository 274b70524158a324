"""What the text of a loop-level function may leave out, and where its names live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from relax2xla import tir
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer, BufferLoad
from relax2xla.tir.functor import free_vars, post_order
from relax2xla.tir.kernel.use import expressions


def handle_uses(func: tir.PrimFunc) -> Counter[tir.Var]:
    """How often the body names each handle whose buffer might stand in the signature."""
    handles = set(func.buffer_map)
    counts: Counter[tir.Var] = Counter()
    if handles:
        for node in s.walk(func.body):
            for e in expressions(node):
                for v in free_vars(e):
                    if v in handles:
                        counts[v] += 1
    return counts


def is_simple(buffer: Buffer | None, shared: Counter[tir.Var]) -> bool:
    """Whether a buffer can stand in the signature."""
    return (
        buffer is not None
        and not buffer.strides
        and not any(free_vars(d) for d in buffer.shape)
        and buffer.elem_offset == 0
        and buffer.scope == "global"
        and buffer.data_alignment == 64
        and buffer.offset_factor == 1
        and buffer.buffer_type == "default"
        and not buffer.axis_separators
        and shared[buffer.data] == 1
    )


def is_implicit(body: s.BlockRealize) -> bool:
    """Whether the parser puts this root block around the body by itself."""
    block = body.block
    if body.iter_values or body.predicate != s.TRUE or block.init is not None:
        return False
    if block.annotations or block.match_buffers or block.reads or block.writes:
        return False
    if block.alloc_buffers:
        return True
    if isinstance(block.body, s.BlockRealize):
        return bool(block.body.block.iter_vars)
    return s.has_block(block.body)


def is_pair(node: s.Allocate, buffer: Buffer) -> bool:
    """Whether ``T.decl_buffer`` without ``data`` makes both statements."""
    return (
        node.buffer_var is buffer.data
        and node.dtype == buffer.dtype
        and node.condition == s.TRUE
        and not node.annotations
        and len(node.extents) == len(buffer.shape)
        and all(tir.structural_equal(a, b) for a, b in zip(node.extents, buffer.shape, strict=True))
    )


def common_paths(root: s.Stmt) -> dict[int, list[object]]:
    """Of every variable and buffer the statements, from the outermost, that hold all its uses."""
    found: dict[int, list[object]] = {}
    stack: list[tuple[s.Stmt, tuple[object, ...]]] = [(root, ())]
    while stack:
        node, above = stack.pop()
        path = (*above, node, node.block) if isinstance(node, s.BlockRealize) else (*above, node)
        for e in expressions(node):
            for x in post_order(e):
                if isinstance(x, tir.Var):
                    _meet(found, x, path)
                elif isinstance(x, BufferLoad):
                    _meet(found, x.buffer, path)
        if isinstance(node, s.BufferStore):
            _meet(found, node.buffer, path)
        if isinstance(node, s.AttrStmt) and isinstance(node.node, s.IterVar):
            _meet(found, node.node.var, path)
        stack.extend((child, path) for child in s.children(node))
    return found


def _meet(found: dict[int, list[object]], thing: object, path: Sequence[object]) -> None:
    old = found.get(id(thing))
    if old is None:
        found[id(thing)] = list(path)
        return
    n = 0
    for a, b in zip(old, path, strict=False):
        if a is not b:
            break
        n += 1
    del old[n:]
