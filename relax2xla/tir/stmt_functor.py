"""Walks over loop-level functions and rewriting of them, under TVM's names.

A walk meets each node once, however often it stands in the tree. Rewriting never changes its
input, and gives back the very same node where nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeAlias, TypeVar

from relax2xla.tir import stmt as s
from relax2xla.tir.arith.bounds import Range
from relax2xla.tir.binary import BinaryExpr
from relax2xla.tir.buffer import Buffer, BufferLoad, BufferRegion
from relax2xla.tir.call import Call
from relax2xla.tir.convert import Cast, as_dim, as_prim_expr
from relax2xla.tir.expr import Not, Select
from relax2xla.tir.function import PrimFunc
from relax2xla.tir.functor import post_order
from relax2xla.tir.functor import substitute as substitute_expr
from relax2xla.tir.kernel.use import expressions
from relax2xla.tir.node import Dim, IntImm, PrimExpr, Var

Node: TypeAlias = s.Stmt | PrimExpr
T = TypeVar("T", bound=Node)


# -- walking -------------------------------------------------------------------------------------
def _below(node: Node) -> list[Node]:
    """What stands directly in a node, in the order of the text; a realisation holds its block."""
    match node:
        case s.BlockRealize():
            return [*node.iter_values, node.predicate, node.block]
        case PrimExpr():
            return list(node.children())
        case _:
            return [*expressions(node), *s.children(node)]


def _walk(root: Node) -> Iterator[tuple[Node, bool]]:
    """Each node twice, once before and once after what stands in it."""
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, after = stack.pop()
        if after:
            yield node, True
        elif id(node) not in seen:
            seen.add(id(node))
            yield node, False
            stack.append((node, True))
            stack += [(x, False) for x in reversed(_below(node))]


def post_order_visit(stmt: Node | PrimFunc, fvisit: Callable[[Any], object]) -> None:
    """Call ``fvisit`` on each statement and expression, inner ones first."""
    for node, after in _walk(stmt.body if isinstance(stmt, PrimFunc) else stmt):
        if after:
            fvisit(node)


def pre_order_visit(stmt: Node | PrimFunc, fvisit: Callable[[Any], bool]) -> None:
    """Call ``fvisit`` on each statement and expression, outer ones first.

    Where it gives False, what stands in the node is not visited.
    """
    seen: set[int] = set()
    stack: list[Node] = [stmt.body if isinstance(stmt, PrimFunc) else stmt]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if fvisit(node):
            stack += reversed(_below(node))


# -- rewriting -----------------------------------------------------------------------------------
class Rewriter:
    """Rebuilds statements with other expressions and buffers.

    ``leaf`` gives what takes the place of an expression whose operands are rewritten (None: it
    stays); ``fold``: operations on new operands fold as TVM's operators do. A buffer whose pointer,
    sizes, strides or offset change becomes a new one, the same wherever it stands.
    """

    def __init__(self, leaf: Callable[[PrimExpr], PrimExpr | None], *, fold: bool = False) -> None:
        self.leaf = leaf
        self.fold = fold
        self.buffers: dict[int, tuple[Buffer, Buffer]] = {}

    def expr(self, root: PrimExpr) -> PrimExpr:
        """The expression rewritten."""
        if isinstance(root, Var | IntImm):  # as most are
            instead = self.leaf(root)
            return root if instead is None else instead
        done: dict[int, PrimExpr] = {}
        for node in post_order(root):
            old = node.children()
            new = [done[id(c)] for c in old]
            made = node
            if isinstance(node, BufferLoad):
                buffer = self.buffer(node.buffer)
                if buffer is not node.buffer or _changed(old, new):
                    made = node.of(buffer, new)
            elif _changed(old, new):
                made = node.rebuild(new) if self.fold else rebuilt(node, new)
            replaced = self.leaf(made)
            done[id(node)] = made if replaced is None else replaced
        return done[id(root)]

    def dim(self, value: Dim) -> Dim:
        """A size or bound rewritten."""
        return value if isinstance(value, int) else as_dim(self.expr(value))

    def buffer(self, buffer: Buffer) -> Buffer:
        """The buffer in the place of ``buffer``."""
        known = self.buffers.get(id(buffer))
        if known is not None:
            return known[1]
        data = self.expr(buffer.data)
        parts = {
            "data": data if isinstance(data, Var) else buffer.data,
            "shape": self._dims(buffer.shape),
            "strides": self._dims(buffer.strides),
            "elem_offset": self.dim(buffer.elem_offset),
        }
        same = all(getattr(buffer, name) is value for name, value in parts.items())
        made = buffer if same else replace(buffer, **parts)
        self.buffers[id(buffer)] = (buffer, made)
        return made

    def _dims(self, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return self._each(dims, self.dim)

    @staticmethod
    def _each(old: tuple[Any, ...], change: Callable[[Any], Any]) -> tuple[Any, ...]:
        new = tuple(change(x) for x in old)
        return new if any(a is not b for a, b in zip(old, new, strict=True)) else old

    def stmt(self, root: s.Stmt) -> s.Stmt:
        """The statement rewritten, inner ones first."""
        return transformed(root, self.own)

    def own(self, node: s.Stmt) -> s.Stmt:
        """``node`` with its own expressions rewritten; what stands in it stays."""
        if isinstance(node, s.BlockRealize):
            block = self.own(node.block)
            values = self._each(node.iter_values, self.expr)
            predicate = self.expr(node.predicate)
            same = (block is node.block, values is node.iter_values, predicate is node.predicate)
            if all(same):
                return node
            assert isinstance(block, s.Block)
            return replace(node, block=block, iter_values=values, predicate=predicate)
        changed: dict[str, Any] = {}
        for f in fields(node):
            old = getattr(node, f.name)
            if f.name in ("min", "extent"):
                new = self.dim(old)
            elif f.name == "extents":
                new = self._dims(old)
            else:
                new = self._value(old)
            if new is not old:
                changed[f.name] = new
        return replace(node, **changed) if changed else node

    def _value(self, value: Any) -> Any:
        match value:
            case Var():
                # What a statement defines stays a variable.
                made = self.expr(value)
                return made if isinstance(made, Var) else value
            case PrimExpr():
                return self.expr(value)
            case Buffer():
                return self.buffer(value)
            case Range():
                low, extent = self.dim(value.min), self.dim(value.extent)
                if low is value.min and extent is value.extent:
                    return value
                return Range.from_min_extent(low, extent)
            case BufferRegion() | s.MatchBufferRegion() | s.IterVar():
                changed = {
                    f.name: new
                    for f in fields(value)
                    if (new := self._value(getattr(value, f.name))) is not getattr(value, f.name)
                }
                return replace(value, **changed) if changed else value
            case tuple():
                return self._each(value, self._value)
            case _:
                return value


def _changed(old: Sequence[object], new: Sequence[object]) -> bool:
    return any(a is not b for a, b in zip(old, new, strict=True))


def rebuilt(node: PrimExpr, children: Sequence[PrimExpr]) -> PrimExpr:
    """The same operation on other operands; nothing is folded."""
    match node:
        case BinaryExpr():
            return type(node)(*children)
        case Not():
            return Not(children[0])
        case Cast():
            return Cast(node.dtype, children[0])
        case Select():
            return Select(*children)
        case Call():
            return Call(node.dtype, node.op, children)
        case _:
            return node.rebuild(children)


def transformed(
    root: s.Stmt,
    leave: Callable[[s.Stmt], s.Stmt],
    enter: Callable[[s.Stmt], s.Stmt | None] | None = None,
) -> s.Stmt:
    """``root`` with ``leave`` applied to each statement, inner ones first.

    Where ``enter`` gives a statement it takes the place of the one it was given, and what stands
    in it is not looked at.
    """
    results: list[s.Stmt] = []
    stack: list[tuple[s.Stmt, bool]] = [(root, False)]
    while stack:
        node, after = stack.pop()
        if after:
            n = len(s.children(node))
            inner = results[len(results) - n :] if n else []
            del results[len(results) - n :]
            results.append(leave(s.with_children(node, inner)))
            continue
        instead = None if enter is None else enter(node)
        if instead is not None:
            results.append(instead)
            continue
        stack.append((node, True))
        stack += [(x, False) for x in reversed(s.children(node))]
    return results[0]


def ir_transform(
    stmt: s.Stmt,
    preorder: Callable[[Any], Any] | None,
    postorder: Callable[[Any], Any] | None,
    only_enable: Sequence[str] | None = None,
) -> s.Stmt:
    """Replace statements and expressions by what functions give for them; None keeps a node.

    ``preorder`` is asked first, and what it gives is not looked into; ``postorder`` is asked when
    what stands in the node is done. ``only_enable`` names the classes, such as "tir.For".
    """
    names = None if only_enable is None else {n.removeprefix("tir.") for n in only_enable}

    def wanted(node: object) -> bool:
        return names is None or type(node).__name__ in names

    def before(node: Any) -> Any:
        return preorder(node) if preorder is not None and wanted(node) else None

    def after(node: Any) -> Any:
        made = postorder(node) if postorder is not None and wanted(node) else None
        return node if made is None else made

    rewriter = _Transform(before, after)

    def leave(node: s.Stmt) -> s.Stmt:
        made = rewriter.own(node)
        if isinstance(made, s.BlockRealize) and wanted(made.block):
            block = after(made.block)
            made = made if block is made.block else replace(made, block=block)
        return after(made)

    return transformed(stmt, leave, before)


class _Transform(Rewriter):
    """Expressions by the functions of ``ir_transform``."""

    def __init__(self, before: Callable[[Any], Any], after: Callable[[Any], Any]) -> None:
        super().__init__(lambda node: None)
        self.before = before
        self.after = after

    def expr(self, root: PrimExpr) -> PrimExpr:
        done: dict[int, PrimExpr] = {}
        stack: list[tuple[PrimExpr, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if id(node) in done:
                continue
            if not ready:
                instead = self.before(node)
                if instead is not None:
                    done[id(node)] = instead
                    continue
                stack.append((node, True))
                stack += [(c, False) for c in reversed(node.children())]
                continue
            new = [done[id(c)] for c in node.children()]
            made = rebuilt(node, new) if _changed(node.children(), new) else node
            done[id(node)] = self.after(made)
        return done[id(root)]


def substitute(node: Any, vmap: Mapping[Var, Dim]) -> Any:
    """``node``, a statement or an expression, with variables replaced, all at once.

    Buffers whose sizes, strides or offsets name them become new buffers.
    """
    if not isinstance(node, s.Stmt):
        return substitute_expr(node, vmap)
    values = {v: as_prim_expr(d, v.dtype) for v, d in vmap.items()}
    return Rewriter(lambda e: values.get(e) if isinstance(e, Var) else None).stmt(node)
