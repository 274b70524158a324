"""Text of a loop-level function, as TVM's printer writes it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from relax2xla import tir
from relax2xla.script.literals import float_text, quote
from relax2xla.script.prim_func.definitions import Definitions
from relax2xla.script.prim_func.expression_text import end_of
from relax2xla.script.prim_func.implied import (
    handle_uses,
    is_implicit,
    is_pair,
    is_simple,
)
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer, BufferRegion, PointerVar
from relax2xla.tir.functor import free_vars

_KINDS = {"parallel": "parallel", "unroll": "unroll", "vectorized": "vectorized"}
_AXES = {"spatial": "spatial", "reduce": "reduce", "scan": "scan", "opaque": "opaque"}
_ITER_TYPES = {
    "thread": "ThreadIndex",
    "spatial": "DataPar",
    "reduce": "CommReduce",
    "scan": "Ordered",
    "opaque": "Opaque",
}


# What is printed as `with` or, where nothing follows its body, flat.
_OPENING = (s.Allocate, s.AllocateConst, s.BufferRealize, s.DeclBuffer, s.AttrStmt)


class PrimFuncPrinter(Definitions):
    """Writes one function.

    ``prefix`` gives the name of ``T``, ``attribute`` the text of a value of an attribute,
    ``function`` that of another function of the module. ``block`` is TVM's word for a block:
    "block", or "sblock" as in TVM 0.25.
    """

    # -- the function ----------------------------------------------------------------------------
    def lines(self, func: tir.PrimFunc, name: str) -> list[str]:
        """The lines of ``func``, its decorator first."""
        self.root = func.body
        t = self.t()
        attrs = dict(func.attrs)
        private = "global_symbol" not in attrs
        if attrs.get("global_symbol") == name:
            del attrs["global_symbol"]
        with self.names.scope(), self._frame(None) as frame:
            inlined: set[int] = set()
            counts = handle_uses(func)
            shared = Counter(b.data for b in func.buffer_map.values())
            params: list[str] = []
            for p in func.params:
                buffer = func.buffer_map.get(p)
                if (
                    self.sugar
                    and buffer is not None
                    and not counts[p]
                    and is_simple(buffer, shared)
                ):
                    shown = self._define_buffer(buffer)
                    self._own_pointer(buffer)
                    dims = self._tuple([self.expr.dim(d) for d in buffer.shape])
                    params.append(f"{shown}: {t}.Buffer({dims}, {quote(buffer.dtype)})")
                    inlined.add(id(buffer))
                else:
                    params.append(f"{self._define(p)}: {self._type(p)}")
            if attrs:
                frame.lines.append(f"{t}.func_attr({self.attribute(attrs)})")
            for p in func.params:
                buffer = func.buffer_map.get(p)
                if buffer is None or id(buffer) in inlined:
                    continue
                shown = self._define_buffer(buffer)
                call = self._buffer_call("match_buffer", buffer, [self.var(p)], own_data=True)
                frame.lines.append(f"{shown} = {call}")
            self._root(func.body)
            body = frame.lines
        ret = "" if func.ret_type is None else f" -> {t}.{func.ret_type}"
        flag = "(private=True)" if private else ""
        return [
            f"@{t}.prim_func{flag}",
            f"def {name}({', '.join(params)}){ret}:",
            *(self.step + line for line in body),
        ]

    def alone(self, node: Any, verbose: bool, ir_prefix: str = "") -> list[str]:
        """The lines of what is no function: a statement, an expression, a buffer.

        ``verbose``: above an expression stands what it mentions.
        """
        self.root = node if isinstance(node, s.Stmt) else None
        with self.names.scope(), self._frame(None) as frame:
            match node:
                case s.Block():
                    realized = s.BlockRealize((), s.TRUE, node)
                    self.root = realized
                    self._block(realized, no_realize=True)
                case s.Stmt():
                    if isinstance(node, s.BlockRealize):
                        for v in (v for e in node.iter_values for v in free_vars(e)):
                            self.var(v)
                    self._statement(node)
                case s.MatchBufferRegion():
                    self._match(node)
                case _:
                    if isinstance(node, tir.Range):
                        text = self.range(node, ir_prefix)
                    else:
                        text = self._node(node)
                    if not verbose:
                        frame.lines.clear()
                    self._line(text)
        return frame.lines

    def _match(self, node: s.MatchBufferRegion) -> None:
        source = self._region(node.source)
        shown = self._define_buffer(node.buffer)
        call = self._buffer_call("match_buffer", node.buffer, [source], own_data=True)
        self._line(f"{shown} = {call}")

    def _root(self, body: s.Stmt) -> None:
        """The body; a root block that the parser puts around it is a comment."""
        if not (self.sugar and isinstance(body, s.BlockRealize) and is_implicit(body)):
            self._body(body)
            return
        block = body.block
        with self._shown(body):
            self._line(f'# with {self.t()}.{self.block_word}("root"):')
            for buffer in block.alloc_buffers:
                self._alloc(buffer)
            self._body(block.body)

    def attribute(self, value: Any) -> str:
        """A value of an attribute; dictionaries by their keys, as TVM sorts them."""
        match value:
            case Mapping():
                items = (f"{quote(k)}: {self.attribute(v)}" for k, v in sorted(value.items()))
                return f"{{{', '.join(items)}}}"
            case list() | tuple():
                return f"[{', '.join(map(self.attribute, value))}]"
            case Buffer():
                return self.buffer(value)
            case tir.PrimExpr():
                return self.expr.of(value)
            case _:
                return self._attribute(value)

    # -- bodies ----------------------------------------------------------------------------------
    def _body(self, node: s.Stmt) -> None:
        """The statements of a frame. What holds the rest of them stands flat."""
        while True:
            if isinstance(node, s.SeqStmt):
                with self._shown(node):
                    *before, last = node.seq
                    for x in before:
                        self._statement(x)
                    following = self._last(last)
            else:
                following = self._last(node)
            if following is None:
                return
            node = following

    def _last(self, node: s.Stmt) -> s.Stmt | None:
        """The last statement of a frame; one with a note stands with its body, not flat."""
        if self.marks and id(node) in self.marks.notes:
            self._statement(node)
            return None
        with self._shown(node):
            return self._flat(node)

    @contextmanager
    def _shown(self, node: s.Stmt) -> Generator[None]:
        """The lines written inside are the text of ``node``."""
        lines = self.frames[-1].lines
        start = len(lines)
        yield
        if self.marks:
            self.marks.lines(node, lines, start)
            if isinstance(node, s.BlockRealize):
                self.marks.lines(node.block, lines, start)

    def _flat(self, node: s.Stmt) -> s.Stmt | None:
        """Write the last statement of a frame; what is still to be written after it."""
        match node:
            case s.LetStmt() if not self._known(node.var):
                value = self.expr.of(node.value)
                self._line(f"{self._define(node.var)}: {self._type(node.var)} = {value}")
                return node.body
            case s.AssertStmt():
                message = self.expr.literal(node.message)
                self._line(f"assert {self.expr.of(node.condition)}, {message}")
                return node.body
            case _ if isinstance(node, _OPENING):
                head, name, body = self._opening(node)
                self._line(head if name is None else f"{name()} = {head}")
                return body
            case _:
                self._written(node)
                return None

    # -- statements ------------------------------------------------------------------------------
    def _statement(self, node: s.Stmt) -> None:
        """A statement that others follow."""
        with self._shown(node):
            self._written(node)

    def _written(self, node: s.Stmt) -> None:
        match node:
            case s.SeqStmt():
                for x in node.seq:
                    self._statement(x)
            case s.BufferStore() if node.predicate is not None:
                value, mask = self.expr.of(node.value), self.expr.of(node.predicate)
                at = ", ".join(map(self.expr.of, node.indices))
                name = self.buffer(node.buffer)
                self._line(f"{name}.vstore([{at}], {value}, predicate={mask})")
            case s.BufferStore():
                value = self.expr.of(node.value)
                self._line(f"{self.expr.at(node.buffer, node.indices)} = {value}")
            case s.Evaluate():
                self._evaluate(node.value)
            case s.For():
                self._for(node)
            case s.BlockRealize():
                self._block(node)
            case s.IfThenElse():
                self._if(node)
            case s.While():
                head = f"while {self.expr.of(node.condition)}:"
                inside = self._inner(node, lambda: self._body(node.body))
                self._nested(head, inside)
            case s.Prefetch():
                bounds = ", ".join(map(self.range, node.bounds))
                self._line(f"{self.t()}.prefetch({self.buffer(node.buffer)}, [{bounds}])")
            case s.Text():
                for line in node.text.split("\n"):
                    self._line(line)
            case s.LetStmt():
                self._let(node)
            case s.AssertStmt():
                message = self.expr.literal(node.message)
                head = f"with {self.t()}.Assert({self.expr.of(node.condition)}, {message}):"
                self._nested(head, self._inner(node, lambda: self._body(node.body)))
            case _ if isinstance(node, _OPENING):
                # What the call needs is defined in the frame around it.
                head, name, body = self._opening(node)
                with self.names.scope():
                    shown = "" if name is None else f" as {name()}"
                    inside = self._inner(node, lambda: self._body(body))
                self._nested(f"with {head}{shown}:", inside)
            case _:
                raise TypeError(f"a {type(node).__name__} has no text of its own")

    def _nested(self, head: str, inside: list[str]) -> None:
        self._line(head)
        self.frames[-1].lines += inside or [f"{self.step}pass"]

    def _evaluate(self, value: tir.PrimExpr) -> None:
        if isinstance(value, tir.Call) and value.op == "tir.ret" and self.sugar:
            self._line(f"return {self.expr.of(value.args[0])}")
        elif isinstance(value, tir.Call):
            self._line(self.expr.of(value))
        else:
            self._line(f"{self.t()}.evaluate({self.expr.of(value)})")

    def _let(self, node: s.LetStmt) -> None:
        value = self.expr.of(node.value)
        if self._known(node.var):
            head = f"with {self.t()}.LetStmt({value}, var={self.var(node.var)}):"
            self._nested(head, self._inner(node, lambda: self._body(node.body)))
            return
        kind = f", {self._type(node.var)}" if isinstance(node.var, PointerVar) else ""
        with self.names.scope():
            name = self._define(node.var)
            inside = self._inner(node, lambda: self._body(node.body))
        self._nested(f"with {self.t()}.LetStmt({value}{kind}) as {name}:", inside)

    def _if(self, node: s.IfThenElse) -> None:
        head = f"if {self.expr.of(node.condition)}:"
        self._nested(head, self._inner(node.then_case, lambda: self._body(node.then_case)))
        other = node.else_case
        if other is not None:
            self._nested("else:", self._inner(other, lambda: self._body(other)))

    def _for(self, node: s.For) -> None:
        grid = self._grid(node) if self.sugar else []
        if len(grid) > 1:
            with self.names.scope():
                names = [self._define(loop.loop_var) for loop in grid]
                extents = ", ".join(self.expr.dim(loop.extent) for loop in grid)
                head = f"for {', '.join(names)} in {self.t()}.grid({extents}):"
                inside = self._loop(node, grid, grid[-1].body)
            self._nested(head, inside)
            return
        with self.names.scope():
            name = self._define(node.loop_var)
            if node.min == 0:
                args = [self.expr.dim(node.extent)]
            else:
                end = end_of(tir.Range.from_min_extent(node.min, node.extent))
                args = [self.expr.dim(node.min), self.expr.dim(end)]
            if node.thread_binding is not None:
                args.append(f"thread={quote(node.thread_binding.thread_tag)}")
            if node.annotations:
                args.append(f"annotations={self.attribute(node.annotations)}")
            if node.kind == "serial" and not node.annotations:
                call = "range"
            else:
                call = f"{self.t()}.{_KINDS.get(node.kind, node.kind)}"
            head = f"for {name} in {call}({', '.join(args)}):"
            inside = self._loop(node, [node], node.body)
        self._nested(head, inside)

    def _loop(self, node: s.For, loops: Sequence[s.For], body: s.Stmt) -> list[str]:
        self.loops.update((loop.loop_var, loop) for loop in loops)
        inside = self._inner(node, lambda: self._body(body))
        for loop in loops:
            del self.loops[loop.loop_var]
        return inside

    def _grid(self, node: s.For) -> list[s.For]:
        """Serial loops from 0, each alone in the one before, whose extents do not depend on it."""
        found: list[s.For] = []
        variables: set[tir.Var] = set()
        loop: s.Stmt = node
        while isinstance(loop, s.For):
            plain = loop.kind == "serial" and loop.min == 0 and not loop.annotations
            if not plain or any(v in variables for v in free_vars(loop.extent)):
                break
            found.append(loop)
            variables.add(loop.loop_var)
            loop = loop.body
            if self.marks and self.marks.names(loop):
                break
        return found

    # -- blocks ----------------------------------------------------------------------------------
    def _block(self, node: s.BlockRealize, no_realize: bool = False) -> None:
        block, t = node.block, self.t()
        inside = self._inner(block, lambda: self._block_body(node))
        flag = ", no_realize=True" if no_realize else ""
        self._nested(f"with {t}.{self.block_word}({quote(block.name_hint)}{flag}):", inside)

    def _block_body(self, node: s.BlockRealize) -> None:
        block, t = node.block, self.t()
        run: list[int] = []
        bare = len(node.iter_values) < len(block.iter_vars)
        for i in range(len(block.iter_vars)):
            if bare:
                self._axis(node, i)
            elif self._is_remap(block.iter_vars[i], node.iter_values[i]):
                run.append(i)
            else:
                self._remap(node, run)
                run = []
                self._axis(node, i)
        self._remap(node, run)
        if node.predicate != s.TRUE:
            self._line(f"{t}.where({self.expr.of(node.predicate)})")
        for word, regions in (("reads", block.reads), ("writes", block.writes)):
            self._line(f"{t}.{word}({', '.join(map(self._region, regions))})")
        if block.annotations:
            word = "sblock_attr" if self.block_word == "sblock" else "block_attr"
            self._line(f"{t}.{word}({self.attribute(block.annotations)})")
        for buffer in block.alloc_buffers:
            self._alloc(buffer)
        for m in block.match_buffers:
            self._match(m)
        if block.init is not None:
            init = block.init
            self._nested(f"with {t}.init():", self._inner(init, lambda: self._body(init)))
        self._body(block.body)

    def _region(self, region: BufferRegion) -> str:
        return f"{self.buffer(region.buffer)}[{self.expr.region(region.region)}]"

    def range(self, value: tir.Range, prefix: str = "") -> str:
        """``T.Range(0, 4)``"""
        low, end = self.expr.dim(value.min), self.expr.dim(end_of(value))
        return f"{prefix or self.t()}.Range({low}, {end})"

    def _is_remap(self, axis: s.IterVar, value: tir.PrimExpr) -> bool:
        if not self.sugar or axis.iter_type not in ("spatial", "reduce") or axis.dom is None:
            return False
        loop = self.loops.get(value) if isinstance(value, tir.Var) else None
        return (
            loop is not None
            and tir.structural_equal(loop.min, axis.dom.min)
            and tir.structural_equal(loop.extent, axis.dom.extent)
        )

    def _remap(self, node: s.BlockRealize, run: Sequence[int]) -> None:
        if len(run) < 2:
            for i in run:
                self._axis(node, i)
            return
        axes = [node.block.iter_vars[i] for i in run]
        names = [self._define(axis.var) for axis in axes]
        kinds = "".join("S" if axis.iter_type == "spatial" else "R" for axis in axes)
        values = ", ".join(self.expr.of(node.iter_values[i]) for i in run)
        self._line(f'{", ".join(names)} = {self.t()}.axis.remap("{kinds}", [{values}])')

    def _axis(self, node: s.BlockRealize, i: int) -> None:
        axis = node.block.iter_vars[i]
        dom = axis.dom
        assert dom is not None
        shown = self.expr.dim(dom.extent)
        if dom.min != 0:
            shown = f"({self.expr.dim(dom.min)}, {self.expr.dim(end_of(dom))})"
        value = f", {self.expr.of(node.iter_values[i])}" if node.iter_values else ""
        call = f"{self.t()}.axis.{_AXES[axis.iter_type]}({shown}{value})"
        self._line(f"{self._define(axis.var)} = {call}")

    # -- what opens a scope ----------------------------------------------------------------------
    def _opening(self, node: s.Stmt) -> tuple[str, Callable[[], str] | None, s.Stmt]:
        """The call, what defines the name that it is given, and the body."""
        match node:
            case s.Allocate():
                inner = node.body
                if self.sugar and isinstance(inner, s.DeclBuffer) and is_pair(node, inner.buffer):
                    buffer = inner.buffer
                    call = self._buffer_call("decl_buffer", buffer, [], own_data=True)
                    return call, lambda: self._named_buffer(buffer), inner.body
                extents = self._tuple([self.expr.dim(e) for e in node.extents], brackets=True)
                args = [extents, quote(node.dtype), quote(node.scope)]
                if node.condition != s.TRUE:
                    args.append(self.expr.of(node.condition))
                if node.annotations:
                    args.append(f"annotations={self.attribute(node.annotations)}")
                call = f"{self.t()}.allocate({', '.join(args)})"
                return call, lambda: self._define(node.buffer_var), node.body
            case s.AllocateConst():
                data = ", ".join(number_text(x) for x in node.data.reshape(-1).tolist())
                extents = self._tuple([self.expr.dim(e) for e in node.extents], brackets=True)
                args = [f"[{data}]", quote(node.dtype), extents]
                if node.annotations:
                    args.append(f"annotations={self.attribute(node.annotations)}")
                call = f"{self.t()}.allocate_const({', '.join(args)})"
                return call, lambda: self._define(node.buffer_var), node.body
            case s.BufferRealize():
                return self._realize(node, "")
            case s.DeclBuffer():
                buffer = node.buffer
                call = self._buffer_call("decl_buffer", buffer, [], own_data=False)
                return call, lambda: self._define_buffer(buffer), node.body
            case s.AttrStmt():
                inner = node.body
                if (
                    node.attr_key == "realize_scope"
                    and isinstance(inner, s.BufferRealize)
                    and isinstance(node.value, tir.StringImm)
                    and inner.buffer is node.node
                ):
                    return self._realize(inner, node.value.value)
                return self._attr(node)
            case _:
                raise TypeError(f"a {type(node).__name__} opens nothing")

    def _realize(
        self, node: s.BufferRealize, scope: str
    ) -> tuple[str, Callable[[], str] | None, s.Stmt]:
        args = [self._region(BufferRegion(node.buffer, node.bounds)), quote(scope)]
        if node.condition != s.TRUE:
            args.append(self.expr.of(node.condition))
        return f"{self.t()}.realize({', '.join(args)})", None, node.body

    def _named_buffer(self, buffer: Buffer) -> str:
        name = self._define_buffer(buffer)
        self._own_pointer(buffer)
        return name

    def _attr(self, node: s.AttrStmt) -> tuple[str, Callable[[], str] | None, s.Stmt]:
        t, value = self.t(), self.expr.of(node.value)
        var: tir.Var | None = None
        if node.attr_key in ("thread_extent", "virtual_thread") and isinstance(
            node.node, s.IterVar
        ):
            axis = node.node
            if self._known(axis.var):
                thread = self.var(axis.var)
            elif self._holds_all(node, axis.var):
                thread, var = quote(axis.thread_tag), axis.var
            else:
                where = self._lowest(axis.var)
                thread = self._define(axis.var, where)
                where.lines.append(f"{thread} = {t}.env_thread({quote(axis.thread_tag)})")
            name = None if var is None else partial(self._define, var)
            return f"{t}.launch_thread({thread}, {value})", name, node.body
        return (
            f"{t}.attr({self._node(node.node)}, {quote(node.attr_key)}, {value})",
            None,
            node.body,
        )

    def _node(self, value: object) -> str:
        match value:
            case Buffer():
                return self.buffer(value)
            case s.IterVar():
                kind = _ITER_TYPES[value.iter_type]
                dom = "None"
                if value.dom is not None:
                    dom = self.range(value.dom)
                tag = quote(value.thread_tag)
                return f'{self.t()}.iter_var({self.var(value.var)}, {dom}, "{kind}", {tag})'
            case BufferRegion():
                return self._region(value)
            case tir.CommReducer():
                names = ", ".join([self._define(v) for v in (*value.lhs, *value.rhs)])
                result = ", ".join(map(self.expr.of, value.result))
                if len(value.result) > 1:
                    result = f"({result})"
                neutral = ", ".join(map(self.expr.of, value.identity_element))
                return f"{self.t()}.comm_reducer(lambda {names}: {result}, [{neutral}])"
            case tir.PrimExpr():
                return self.expr.of(value)
            case list() | tuple():
                return self.attribute(value)
            case _:
                return str(value)


def number_text(value: float) -> str:
    """A number of an array, as a literal of Python."""
    if not isinstance(value, float):
        return str(value)
    return float_text(value) if math.isfinite(value) else f'float("{value}")'
