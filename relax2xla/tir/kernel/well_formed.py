"""Rules that every loop-level function keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from relax2xla.errors import WellFormedError
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer, BufferLoad, Let
from relax2xla.tir.convert import as_prim_expr
from relax2xla.tir.function import PrimFunc
from relax2xla.tir.functor import free_vars, post_order
from relax2xla.tir.kernel.use import buffer_expressions, expressions
from relax2xla.tir.node import PrimExpr, Var


@dataclass(slots=True)
class _Scopes:
    """What is defined, and what was and is no more."""

    defined: set[Var] = field(default_factory=set[Var])
    ended: set[Var] = field(default_factory=set[Var])
    # The blocks with axes around, and how many there were around each loop that is open.
    blocks: list[str] = field(default_factory=list[str])
    loops: dict[Var, int] = field(default_factory=dict[Var, int])


def problems(func: PrimFunc) -> Iterator[tuple[str, int]]:
    """What is wrong, with the line of the script (0: not known).

    - A variable is defined before it is used, where it is used, and once.
    - The buffers that are read and written are those of parameters, allocated or declared ones.
    - A block sees the loops around it through its axes only.
    """
    state = _Scopes()
    define = state.defined.add
    for p in func.params:
        if p in state.defined:
            yield f"two parameters are the variable {p.name}", 0
        define(p)
    for b in func.buffer_map.values():
        for e in buffer_expressions(b):
            if isinstance(e, Var):
                define(e)
    for b in func.buffer_map.values():
        yield from _undefined(buffer_expressions(b), state, b.line)
    # Statements to look at, variables whose scope ends there, and blocks that do.
    stack: list[s.Stmt | frozenset[Var] | str] = [func.body]
    while stack:
        node = stack.pop()
        if isinstance(node, frozenset):
            state.defined -= node
            state.ended |= node
            for v in node:
                state.loops.pop(v, None)
            continue
        if isinstance(node, str):
            state.blocks.pop()
            continue
        yield from _undefined(_uses(node), state, node.line)
        new = _defines(node)
        for v in new:
            if v in state.defined:
                yield f"the variable {v.name} is defined twice", node.line
            elif v in state.ended and not isinstance(node, s.AttrStmt):
                yield f"the variable {v.name} is defined in two places", node.line
        own = frozenset(v for v in new if v not in state.defined)
        state.defined |= own
        stack.append(own)
        if isinstance(node, s.For):
            state.loops[node.loop_var] = len(state.blocks)
        if isinstance(node, s.BlockRealize):
            for b in node.block.alloc_buffers:
                sizes = (as_prim_expr(d) for d in b.shape)
                yield from _undefined(sizes, state, b.line or node.line)
            if node.block.iter_vars:
                state.blocks.append(node.block.name_hint)
                stack.append(node.block.name_hint)
            yield from _undefined(_inside_block(node.block), state, node.line)
        stack += reversed(s.children(node))


def _uses(node: s.Stmt) -> Iterator[PrimExpr]:
    if isinstance(node, s.BlockRealize):
        yield from node.iter_values
        yield node.predicate
        for axis in node.block.iter_vars:
            if axis.dom is not None:
                yield as_prim_expr(axis.dom.min)
                yield as_prim_expr(axis.dom.extent)
        return
    yield from expressions(node)
    if isinstance(node, s.BufferStore):
        yield node.buffer.data
    if isinstance(node, s.DeclBuffer):
        yield from buffer_expressions(node.buffer)


def _inside_block(block: s.Block) -> Iterator[PrimExpr]:
    for region in (*block.reads, *block.writes, *(m.source for m in block.match_buffers)):
        yield region.buffer.data
        for r in region.region:
            yield as_prim_expr(r.min)
            yield as_prim_expr(r.extent)


def _defines(node: s.Stmt) -> list[Var]:
    match node:
        case s.For():
            return [node.loop_var]
        case s.LetStmt():
            return [node.var]
        case s.Allocate() | s.AllocateConst():
            return [node.buffer_var]
        case s.AttrStmt() if isinstance(node.node, s.IterVar):
            return [node.node.var]
        case s.BlockRealize():
            block = node.block
            matched = [v for m in block.match_buffers for v in _new(m.buffer)]
            owned = [v for b in block.alloc_buffers for v in (b.data,)]
            return [*(a.var for a in block.iter_vars), *owned, *matched]
        case _:
            return []


def _new(buffer: Buffer) -> list[Var]:
    """The variables that matching a region defines."""
    return list({e: None for e in buffer_expressions(buffer) if isinstance(e, Var)})


def _undefined(exprs: Iterator[PrimExpr], state: _Scopes, line: int) -> Iterator[tuple[str, int]]:
    for e in exprs:
        bound: set[Var] = set()
        used: list[Var] = []
        for node in post_order(e):
            if isinstance(node, Let):
                bound.add(node.var)
            elif isinstance(node, BufferLoad):
                used.append(node.buffer.data)
            elif isinstance(node, Var):
                used.append(node)
        for v in used:
            if v not in state.defined and v not in bound:
                why = "used outside of its scope" if v in state.ended else "not defined"
                yield f"the variable {v.name} is {why}", line
                state.defined.add(v)  # one message each
            elif state.loops.get(v, len(state.blocks)) < len(state.blocks):
                block = state.blocks[-1]
                why = f"is used in the block {block!r}, which has axes; bind one to it, such as"
                yield f"the loop variable {v.name} {why} T.axis.spatial(n, {v.name})", line
                del state.loops[v]  # one message each


def verify_well_formed(func: PrimFunc, assert_mode: bool = True) -> bool:
    """Whether ``func`` keeps the rules; with ``assert_mode`` a WellFormedError says what is wrong.

    A function that is kept as text is taken to keep them.
    """
    if isinstance(func.body, s.Text):
        return True
    for message, line in problems(func):
        if not assert_mode:
            return False
        where = f" (line {line})" if line else ""
        raise WellFormedError(f"the PrimFunc is not well-formed: {message}{where}")
    return True


def undefined_vars(node: s.Stmt, defs: set[Var]) -> list[Var]:
    """Variables that ``node`` uses and neither defines nor ``defs`` holds, in order."""
    defined = set(defs)
    found: dict[Var, None] = {}
    for x in s.walk(node):
        defined.update(_defines(x))
    for x in s.walk(node):
        for e in _uses(x):
            bound = {n.var for n in post_order(e) if isinstance(n, Let)}
            used = [n.buffer.data for n in post_order(e) if isinstance(n, BufferLoad)]
            for v in (*free_vars(e), *used):
                if v not in defined and v not in bound:
                    found[v] = None
    return list(found)
