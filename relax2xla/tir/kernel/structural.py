"""Comparison and hashing of loop-level functions, up to the names of variables and buffers.

As in TVM the names of buffers and blocks, and the lines of statements, count for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from relax2xla.tir import stmt as s
from relax2xla.tir.arith.bounds import Range
from relax2xla.tir.buffer import Buffer, BufferLoad, BufferRegion, Let, PointerVar
from relax2xla.tir.convert import as_prim_expr
from relax2xla.tir.function import PrimFunc
from relax2xla.tir.functor import post_order
from relax2xla.tir.kernel.use import buffer_expressions, expressions
from relax2xla.tir.node import Dim, Node, PrimExpr, Var
from relax2xla.tir.reduce import CommReducer

Compare: TypeAlias = Callable[[object, object], bool]
"""Whether two values of attributes are the same."""


class Different(Exception):
    """Where two functions differ: ``path``, and what stands there on either side."""

    def __init__(self, path: str, left: object, right: object, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.left = left
        self.right = right
        self.why = why


class Comparison:
    """Compares functions; ``value`` compares attributes, ``map_free`` pairs free variables."""

    def __init__(self, value: Compare, map_free: bool = False) -> None:
        self.value = value
        self.map_free = map_free
        self.vars: dict[Var, Var] = {}
        self.taken: set[Var] = set()
        self.buffers: dict[int, Buffer] = {}
        self.buffers_back: dict[int, Buffer] = {}

    def functions(self, a: PrimFunc, b: PrimFunc) -> None:
        """Raise ``Different`` at the first difference."""
        self._same(".params", len(a.params), len(b.params), "different numbers of parameters")
        if a.ret_type != b.ret_type:
            raise Different(".ret_type", a.ret_type, b.ret_type, "different results")
        for i, (p, q) in enumerate(zip(a.params, b.params, strict=True)):
            self._define(p, q, f".params[{i}]")
        for i, (p, q) in enumerate(zip(a.params, b.params, strict=True)):
            x, y = a.buffer_map.get(p), b.buffer_map.get(q)
            path = f".buffer_map[{p.name}]"
            if x is None or y is None:
                if x is not y:
                    raise Different(path, x, y, f"only one has a buffer for parameter {i}")
            else:
                self._buffer(x, y, path, defines=True)
        self.statements(a.body, b.body)
        self._attributes(a.attrs, b.attrs, ".attrs")

    def nodes(self, a: Node, b: Node) -> None:
        """Two parts of functions: statements, buffers, regions, ranges, axes."""
        match a, b:
            case s.Block(), s.Block():
                self.statements(
                    s.BlockRealize((), s.TRUE, a), s.BlockRealize((), s.TRUE, b), "<root>"
                )
            case s.Stmt(), s.Stmt():
                self.statements(a, b, "")
            case PrimFunc(), PrimFunc():
                self.functions(a, b)
            case s.MatchBufferRegion(), s.MatchBufferRegion():
                self._region(a.source, b.source, ".source")
                self._buffer(a.buffer, b.buffer, ".buffer", defines=True)
            case Range(), Range():
                self._range(a, b, "")
            case BufferRegion(), BufferRegion():
                self._region(a, b, "")
            case ((Buffer() | s.IterVar() | PrimExpr()), (Buffer() | s.IterVar() | PrimExpr())):
                self._node(a, b, "")
            case _:
                raise Different("", a, b, f"{type(a).__name__} and {type(b).__name__}")

    def statements(self, a: s.Stmt, b: s.Stmt, path: str = ".body") -> None:
        """Raise ``Different`` at the first difference."""
        stack = [(a, b, path)]
        while stack:
            x, y, at = stack.pop()
            if type(x) is not type(y):
                raise Different(at, x, y, f"{type(x).__name__} and {type(y).__name__}")
            xs, ys = s.children(x), s.children(y)
            self._statement(x, y, at)
            self._same(at, len(xs), len(ys), "different numbers of statements")
            names = _names(x, len(xs))
            stack += reversed([(u, w, at + n) for u, w, n in zip(xs, ys, names, strict=True)])

    def _statement(self, a: Any, b: Any, at: str) -> None:
        match a:
            case s.BufferStore():
                self._buffer(a.buffer, b.buffer, f"{at}.buffer")
                self._all(a.indices, b.indices, f"{at}.indices")
                self.expr(a.value, b.value, f"{at}.value")
                mask, other = a.predicate, b.predicate
                if mask is None or other is None:
                    self._same(f"{at}.predicate", mask, other, "only one has a predicate")
                else:
                    self.expr(mask, other, f"{at}.predicate")
            case s.For():
                self.expr(a.min, b.min, f"{at}.min")
                self.expr(a.extent, b.extent, f"{at}.extent")
                self._same(f"{at}.kind", a.kind, b.kind, "different kinds of loops")
                tags = [x.thread_binding and x.thread_binding.thread_tag for x in (a, b)]
                self._same(f"{at}.thread_binding", tags[0], tags[1], "different threads")
                self._attributes(a.annotations, b.annotations, f"{at}.annotations")
                self._define(a.loop_var, b.loop_var, f"{at}.loop_var")
            case s.BlockRealize():
                self._block(a, b, at)
            case s.IfThenElse() | s.While():
                self.expr(a.condition, b.condition, f"{at}.condition")
            case s.LetStmt():
                self.expr(a.value, b.value, f"{at}.value")
                self._define(a.var, b.var, f"{at}.var")
            case s.AssertStmt():
                self.expr(a.condition, b.condition, f"{at}.condition")
                self.expr(a.message, b.message, f"{at}.message")
            case s.AttrStmt():
                self._same(f"{at}.attr_key", a.attr_key, b.attr_key, "different attributes")
                self.expr(a.value, b.value, f"{at}.value")
                self._node(a.node, b.node, f"{at}.node")
            case s.Evaluate():
                self.expr(a.value, b.value, f"{at}.value")
            case s.Allocate():
                self._same(f"{at}.dtype", a.dtype, b.dtype, "different dtypes")
                self._same(f"{at}.scope", a.scope, b.scope, "different scopes")
                self._all(a.extents, b.extents, f"{at}.extents")
                self.expr(a.condition, b.condition, f"{at}.condition")
                self._attributes(a.annotations, b.annotations, f"{at}.annotations")
                self._define(a.buffer_var, b.buffer_var, f"{at}.buffer_var")
            case s.AllocateConst():
                self._same(f"{at}.dtype", a.dtype, b.dtype, "different dtypes")
                self._all(a.extents, b.extents, f"{at}.extents")
                if not np.array_equal(a.data, b.data, equal_nan=a.data.dtype.kind in "fc"):
                    raise Different(f"{at}.data", a.data, b.data, "different data")
                self._attributes(a.annotations, b.annotations, f"{at}.annotations")
                self._define(a.buffer_var, b.buffer_var, f"{at}.buffer_var")
            case s.BufferRealize() | s.Prefetch():
                self._region(BufferRegion(a.buffer, a.bounds), BufferRegion(b.buffer, b.bounds), at)
                if isinstance(a, s.BufferRealize):
                    self.expr(a.condition, b.condition, f"{at}.condition")
            case s.DeclBuffer():
                self._buffer(a.buffer, b.buffer, f"{at}.buffer", defines=True)
            case s.Text():
                self._same(f"{at}.text", a.text, b.text, "different texts")
            case _:
                pass

    def _block(self, a: s.BlockRealize, b: s.BlockRealize, at: str) -> None:
        self._all(a.iter_values, b.iter_values, f"{at}.iter_values")
        self.expr(a.predicate, b.predicate, f"{at}.predicate")
        x, y, at = a.block, b.block, f"{at}.block"
        self._same(f"{at}.iter_vars", len(x.iter_vars), len(y.iter_vars), "different axes")
        for i, (p, q) in enumerate(zip(x.iter_vars, y.iter_vars, strict=True)):
            self._axis(p, q, f"{at}.iter_vars[{i}]")
        pairs = (x.alloc_buffers, y.alloc_buffers)
        self._same(
            f"{at}.alloc_buffers", len(pairs[0]), len(pairs[1]), "different numbers of buffers"
        )
        for i, (p, q) in enumerate(zip(*pairs, strict=True)):
            self._buffer(p, q, f"{at}.alloc_buffers[{i}]", defines=True)
        matches = (x.match_buffers, y.match_buffers)
        self._same(
            f"{at}.match_buffers", len(matches[0]), len(matches[1]), "different numbers of buffers"
        )
        for i, (p, q) in enumerate(zip(*matches, strict=True)):
            self._region(p.source, q.source, f"{at}.match_buffers[{i}].source")
            self._buffer(p.buffer, q.buffer, f"{at}.match_buffers[{i}].buffer", defines=True)
        for name in ("reads", "writes"):
            us, ws = getattr(x, name), getattr(y, name)
            self._same(f"{at}.{name}", len(us), len(ws), "different numbers of regions")
            for i, (u, w) in enumerate(zip(us, ws, strict=True)):
                self._region(u, w, f"{at}.{name}[{i}]")
        self._attributes(x.annotations, y.annotations, f"{at}.annotations")
        inits = [z.init is not None for z in (x, y)]
        self._same(f"{at}.init", inits[0], inits[1], "only one has an init")

    def _axis(self, a: s.IterVar, b: s.IterVar, at: str) -> None:
        self._same(f"{at}.iter_type", a.iter_type, b.iter_type, "different kinds of axes")
        self._same(f"{at}.thread_tag", a.thread_tag, b.thread_tag, "different threads")
        if a.dom is None or b.dom is None:
            self._same(f"{at}.dom", a.dom is None, b.dom is None, "only one has a domain")
        else:
            self._range(a.dom, b.dom, f"{at}.dom")
        if a.var not in self.vars:
            self._define(a.var, b.var, f"{at}.var")
        else:
            self.expr(a.var, b.var, f"{at}.var")

    def _node(self, a: object, b: object, at: str) -> None:
        if isinstance(a, s.IterVar) and isinstance(b, s.IterVar):
            self._axis(a, b, at)
        elif isinstance(a, Buffer) and isinstance(b, Buffer):
            self._buffer(a, b, at)
        elif isinstance(a, PrimExpr) and isinstance(b, PrimExpr):
            self.expr(a, b, at)
        elif isinstance(a, CommReducer) and isinstance(b, CommReducer):
            self._reducer(a, b, at)
        else:
            self._attribute(a, b, at)

    def _reducer(self, a: CommReducer, b: CommReducer, at: str) -> None:
        self._same(at, len(a.lhs), len(b.lhs), "different numbers of values")
        for x, y in zip((*a.lhs, *a.rhs), (*b.lhs, *b.rhs), strict=True):
            self._define(x, y, at)
        self._all(a.result, b.result, f"{at}.result")
        self._all(a.identity_element, b.identity_element, f"{at}.identity_element")

    def _region(self, a: BufferRegion, b: BufferRegion, at: str) -> None:
        self._buffer(a.buffer, b.buffer, f"{at}.buffer")
        self._same(f"{at}.region", len(a.region), len(b.region), "different ranks")
        for i, (x, y) in enumerate(zip(a.region, b.region, strict=True)):
            self._range(x, y, f"{at}.region[{i}]")

    def _range(self, a: Range, b: Range, at: str) -> None:
        self.expr(a.min, b.min, f"{at}.min")
        self.expr(a.extent, b.extent, f"{at}.extent")

    def _attributes(self, a: Mapping[str, Any], b: Mapping[str, Any], at: str) -> None:
        if a.keys() != b.keys():
            raise Different(at, sorted(a), sorted(b), "different keys")
        for key, x in a.items():
            self._attribute(x, b[key], f"{at}[{key!r}]")

    def _attribute(self, a: object, b: object, at: str) -> None:
        if isinstance(a, Buffer) and isinstance(b, Buffer):
            self._buffer(a, b, at)
        elif isinstance(a, PrimExpr) and isinstance(b, PrimExpr):
            self.expr(a, b, at)
        elif isinstance(a, list | tuple) and isinstance(b, list | tuple):
            xs, ys = cast("Sequence[object]", a), cast("Sequence[object]", b)
            self._same(at, len(xs), len(ys), "different lengths")
            for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
                self._attribute(x, y, f"{at}[{i}]")
        elif not self.value(a, b):
            raise Different(at, a, b, "different values")

    @staticmethod
    def _same(at: str, a: object, b: object, why: str) -> None:
        if a != b:
            raise Different(at, a, b, why)

    # -- variables and buffers -------------------------------------------------------------------
    def _define(self, a: Var, b: Var, at: str) -> None:
        kinds = [(type(v), v.dtype, *_pointed(v)) for v in (a, b)]
        if kinds[0] != kinds[1]:
            raise Different(at, a, b, f"{a.dtype} and {b.dtype}")
        self.vars[a] = b
        self.taken.add(b)

    def _free(self, a: Var, b: Var, defines: bool) -> bool:
        """Whether a variable that is not defined yet may stand for ``b``."""
        if a is b and not defines:
            return True
        if not (defines or self.map_free) or b in self.taken:
            return False
        if type(a) is not type(b) or a.dtype != b.dtype or _pointed(a) != _pointed(b):
            return False
        self.vars[a] = b
        self.taken.add(b)
        return True

    def _buffer(self, a: Buffer, b: Buffer, at: str, defines: bool = False) -> None:
        known = self.buffers.get(id(a))
        if known is not None:
            if known is not b:
                raise Different(at, a, b, "different buffers")
            return
        if id(b) in self.buffers_back:
            raise Different(at, a, b, "different buffers")
        for name in ("dtype", "scope", "data_alignment", "offset_factor", "buffer_type"):
            self._same(f"{at}.{name}", getattr(a, name), getattr(b, name), f"different {name}")
        self._same(f"{at}.axis_separators", a.axis_separators, b.axis_separators, "different")
        self.expr(a.data, b.data, f"{at}.data", True)
        for name in ("shape", "strides"):
            self._all(getattr(a, name), getattr(b, name), f"{at}.{name}", defines)
        self.expr(a.elem_offset, b.elem_offset, f"{at}.elem_offset", defines)
        self.buffers[id(a)] = b
        self.buffers_back[id(b)] = a

    # -- expressions -----------------------------------------------------------------------------
    def _all(self, a: Sequence[Dim], b: Sequence[Dim], at: str, defines: bool = False) -> None:
        self._same(at, len(a), len(b), "different lengths")
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            self.expr(x, y, f"{at}[{i}]", defines)

    def expr(self, a: Dim, b: Dim, at: str, defines: bool = False) -> None:
        """Raise ``Different`` unless both are the same; ``defines``: new variables are paired."""
        first, second = as_prim_expr(a), as_prim_expr(b)
        stack: list[tuple[PrimExpr, PrimExpr, bool]] = [(first, second, False)]
        seen: set[tuple[int, int]] = set()
        while stack:
            x, y, bind = stack.pop()
            if bind:
                assert isinstance(x, Var)
                assert isinstance(y, Var)
                self._define(x, y, at)
                continue
            if (id(x), id(y)) in seen:
                continue
            if type(x) is not type(y) or x.dtype != y.dtype:
                raise Different(at, first, second, f"`{x}` and `{y}`")
            if isinstance(x, Var) and isinstance(y, Var):
                known = self.vars.get(x)
                if known is not y if known is not None else not self._free(x, y, defines):
                    raise Different(at, first, second, f"different variables {x} and {y}")
                continue
            seen.add((id(x), id(y)))
            if isinstance(x, BufferLoad) and isinstance(y, BufferLoad):
                self._buffer(x.buffer, y.buffer, at)
            elif isinstance(x, Let) and isinstance(y, Let):
                stack += [(x.body, y.body, False), (x.var, y.var, True), (x.value, y.value, False)]
                continue
            elif x.payload() != y.payload():
                raise Different(at, first, second, f"`{x}` and `{y}`")
            xs, ys = x.children(), y.children()
            if len(xs) != len(ys):
                raise Different(at, first, second, f"`{x}` and `{y}`")
            stack += reversed([(u, w, False) for u, w in zip(xs, ys, strict=True)])


def _pointed(v: Var) -> tuple[str, ...]:
    return (v.element, v.scope) if isinstance(v, PointerVar) else ()


def _names(node: s.Stmt, count: int) -> list[str]:
    match node:
        case s.SeqStmt():
            return [f".seq[{i}]" for i in range(count)]
        case s.BlockRealize():
            return [".block.init", ".block.body"] if count == 2 else [".block.body"]
        case s.IfThenElse():
            return [".then_case", ".else_case"][:count]
        case _:
            return [".body"] * count


def hash_of(func: PrimFunc, value: Callable[[object], int]) -> int:
    """A hash that is the same for functions that compare equal; ``value`` is that of attributes."""
    numbers: dict[Var, int] = {}
    buffers: dict[int, int] = {}

    def number(v: Var) -> int:
        return numbers.setdefault(v, len(numbers))

    def of(e: PrimExpr) -> int:
        done: dict[int, int] = {}
        for node in post_order(e):
            kids = tuple(done[id(c)] for c in node.children())
            if isinstance(node, Var):
                done[id(node)] = hash(("Var", node.dtype, number(node)))
            elif isinstance(node, BufferLoad):
                done[id(node)] = hash(("BufferLoad", buffer(node.buffer), kids))
            elif isinstance(node, Let):
                done[id(node)] = hash(("Let", kids))
            else:
                done[id(node)] = hash((type(node).__name__, node.dtype, node.payload(), kids))
        return done[id(e)]

    def buffer(b: Buffer) -> int:
        if id(b) not in buffers:
            buffers[id(b)] = hash((b.dtype, b.scope, *map(of, buffer_expressions(b))))
        return buffers[id(b)]

    parts: list[object] = [func.ret_type, len(func.params)]
    for p in func.params:
        parts.append(number(p))
        if p in func.buffer_map:
            parts.append(buffer(func.buffer_map[p]))
    for node in s.walk(func.body):
        parts.append(type(node).__name__)
        if isinstance(node, s.BufferStore):
            parts.append(buffer(node.buffer))
        if isinstance(node, s.Text):
            parts.append(node.text)
        parts += [of(e) for e in expressions(node)]
    parts.append(value(func.attrs))
    return hash(tuple(parts))
