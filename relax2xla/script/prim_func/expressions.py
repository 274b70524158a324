"""Expressions of a ``T.prim_func``."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from relax2xla import ir, tir
from relax2xla.errors import DiagnosticError
from relax2xla.script import tir_names
from relax2xla.script.evaluate import MISTAKES, Evaluator, ModuleAlias
from relax2xla.script.markers import Decorator, Marker, Namespace
from relax2xla.script.prim_func import active
from relax2xla.script.prim_func import values as v
from relax2xla.script.prim_func.buffers import METHODS
from relax2xla.script.source import message_of, suggestion
from relax2xla.script.tir_functions import Dtype
from relax2xla.tir.buffer import Buffer
from relax2xla.tir.op import size_var, var

# Not the user's mistake: something that is not known here.
_UNKNOWN: Final = (KeyError, AttributeError, NotImplementedError, RecursionError)
# Names of T that TVM has and that are not read.
_OTHERS: Final = frozenset(
    (
        *("Reduce", "ProducerLoad"),
        *("Shuffle", "CommReducer", "IterVar", "CallEffectKind", "Call", "call_kernel"),
        *("llvm_lookup_intrinsic_id", "let"),
        *("buffer_var", "float4_e2m1fnx2"),
    )
)


class Expressions(Evaluator):
    """An evaluator whose ``T`` is that of loop-level functions."""

    outer: Evaluator

    def _attempt(self, node: ast.expr | ast.stmt, compute: Callable[[], Any]) -> Any:
        try:
            return compute()
        except (DiagnosticError, v.Unread):
            raise
        except _UNKNOWN as e:
            raise v.Unread(node, message_of(e)) from e
        except MISTAKES as e:
            self.source.fail(node, message_of(e), e)

    def value(self, node: ast.expr) -> Any:
        handler = self._HANDLERS.get(type(node))
        if handler is None:
            raise v.Unread(node, f"`{ast.unparse(node)}` is not read in a T.prim_func")
        return handler(self, node)

    def form(self, name: str) -> Any:
        """The function of ``T`` that needs the parser, such as ``T.block``; None if it is none."""
        raise NotImplementedError

    def member(self, node: ast.Attribute, name: str) -> Any:
        """``T.name``"""
        if name.startswith("_"):
            self.source.fail(node, f"the private name {name!r} cannot be used in TVMScript")
        found = self.form(name) or v.FUNCTIONS.get(name) or v.DTYPE_NAMES.get(name)
        if found is not None:
            return found
        if name in _OTHERS:
            raise v.Unread(node, f"T.{name} is not read")
        try:
            return getattr(tir_names.tir, name)
        except AttributeError:
            known = [*v.FUNCTIONS, *v.DTYPE_NAMES, "grid", "serial", "block", "match_buffer"]
            self.source.fail(node, f"T has no {name!r}{suggestion(name, known)}")

    # -- handlers --------------------------------------------------------------------------------
    def _name(self, node: ast.Name) -> Any:
        if node.id == "range":
            return self.form("serial")
        if node.id in ("float", "int", "bool", "len"):
            try:
                return self.scope.lookup(node.id)
            except KeyError:
                pass
        return super()._name(node)

    def _attribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        name = node.attr
        if owner is tir_names.tir:
            return self.member(node, name)
        if isinstance(owner, ModuleAlias):
            return self._attempt(node, lambda: owner.get(name))
        if isinstance(owner, Buffer):
            if name in METHODS:
                return partial(METHODS[name], owner)
            if name in ("shape", "strides"):
                return tuple(v.number64(d) for d in getattr(owner, name))
            if name == "elem_offset":
                return v.number64(owner.elem_offset)
        if name.startswith("_"):
            self.source.fail(node, f"the private name {name!r} cannot be used in TVMScript")
        if isinstance(owner, tir.Var) and name == "buffer":
            return v.VALUE_BUFFER
        if isinstance(owner, tir.PrimExpr) and name == "astype":
            return partial(v.cast, owner)
        if isinstance(owner, Namespace | ir.Expr | types.ModuleType):
            return super()._attribute(node)
        try:
            return getattr(owner, name)
        except AttributeError as e:
            self.source.fail(node, f"{type(owner).__name__} has no attribute {name!r}", e)

    def operand(self, node: ast.expr) -> Any:
        """An operand or an argument; there a slice of a buffer is a vector."""
        if isinstance(node, ast.Subscript):
            return self._subscript(node, region=False)
        return self.value(node)

    def _subscript(self, node: ast.Subscript, region: bool = True) -> Any:
        owner = self.value(node.value)
        index = self.index(node.slice)
        if isinstance(owner, Buffer):
            if not region and not _bounded(index):
                region = True
            return self._attempt(node, lambda: v.load(owner, index, region=region))
        if isinstance(index, tir.IntImm):
            index = index.value
        if isinstance(owner, tir.PrimExpr | ir.Expr):
            self.source.fail(node, f"a {type(owner).__name__} has no items")
        try:
            return self._attempt(node, lambda: owner[index])
        except v.Unread as e:
            if isinstance(e.__cause__, KeyError):
                shown = ast.unparse(node.value)
                self.source.fail(node, f"`{shown}` has no item {index!r}", e.__cause__)
            raise

    def index(self, node: ast.expr) -> Any:
        """What stands between the brackets."""
        if isinstance(node, ast.Tuple):
            parts: list[Any] = []
            for e in node.elts:
                if isinstance(e, ast.Starred):
                    parts += self._unpacked(e)
                else:
                    parts.append(self.index(e))
            return tuple(parts)
        if isinstance(node, ast.Slice):
            ends = (node.lower, node.upper, node.step)
            return slice(*(None if p is None else self.value(p) for p in ends))
        return self.value(node)

    def _binary(self, node: ast.BinOp) -> Any:
        left, right = self.operand(node.left), self.operand(node.right)
        return self._attempt(node, lambda: v.binary(node.op, left, right))

    def _unary(self, node: ast.UnaryOp) -> Any:
        operand = self.operand(node.operand)
        return self._attempt(node, lambda: v.unary(node.op, operand))

    def _boolean(self, node: ast.BoolOp) -> Any:
        values = [self.operand(x) for x in node.values]
        return self._attempt(node, lambda: v.boolean(node.op, values))

    def _compare(self, node: ast.Compare) -> Any:
        result = self.operand(node.left)
        for op, other in zip(node.ops, node.comparators, strict=True):
            left, right = result, self.operand(other)
            result = self._attempt(node, lambda op=op, a=left, b=right: v.compare(op, a, b))
        return result

    def _choice(self, node: ast.IfExp) -> Any:
        condition = self.value(node.test)
        if not isinstance(condition, tir.PrimExpr):
            return self.value(node.body if condition else node.orelse)
        yes, no = self.operand(node.body), self.operand(node.orelse)
        return self._attempt(node, lambda: v.FUNCTIONS["if_then_else"](condition, yes, no))

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                raise v.Unread(value, "unpacking with ** is not read")
            made[self.value(key)] = self.value(value)
        return made

    def _sequence(self, node: ast.List | ast.Tuple) -> list[Any] | tuple[Any, ...]:
        made: list[Any] = []
        for e in node.elts:
            if isinstance(e, ast.Starred):
                made += self._unpacked(e)
            else:
                made.append(self.value(e))
        return made if isinstance(node, ast.List) else tuple(made)

    def _unpacked(self, node: ast.Starred) -> Iterable[Any]:
        """What ``*x`` gives."""
        value = self.value(node.value)
        if not isinstance(value, Iterable):
            self.source.fail(node, f"a {type(value).__name__} cannot be unpacked with *")
        return value

    def _joined(self, node: ast.JoinedStr) -> str:
        """An f-string of values of Python."""
        parts: list[str] = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                if part.conversion != -1 or part.format_spec is not None:
                    raise v.Unread(node, "an f-string with a format is not read")
                value = self.value(part.value)
                if not isinstance(value, str | int | float):
                    raise v.Unread(node, "an f-string of expressions is not read")
                parts.append(str(value))
            elif isinstance(part, ast.Constant):
                parts.append(str(part.value))
        return "".join(parts)

    def _list_of(self, node: ast.ListComp) -> list[Any]:
        (one, *more) = node.generators
        if more or one.ifs or not isinstance(one.target, ast.Name):
            raise v.Unread(node, "a comprehension such as this is not read")
        made: list[Any] = []
        items = self.value(one.iter)
        if not isinstance(items, list | tuple | range):
            raise v.Unread(node, "a comprehension over this is not read")
        with self.inner():
            for item in items:
                self.scope.names[one.target.id] = item
                made.append(self.value(node.elt))
        return made

    def _call(self, node: ast.Call) -> Any:
        func = self.value(node.func)
        keep = isinstance(node.func, ast.Attribute) and node.func.attr in _REGIONS
        args: list[Any] = []
        for a in node.args:
            if isinstance(a, ast.Starred):
                args += self._unpacked(a)
            else:
                args.append(self.value(a) if keep else self.operand(a))
        kwargs: dict[str, Any] = {}
        for k in node.keywords:
            if k.arg is None:
                raise v.Unread(k, "unpacking with ** is not read")
            kwargs[k.arg] = self.value(k.value)
        return self._attempt(node, lambda: self.call(node, func, args, kwargs))

    def call(self, node: ast.Call, func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """``func(*args, **kwargs)`` for what a loop-level function may call."""
        if isinstance(func, ir.GlobalVar):
            return tir.Call(_returned(func), f"@{func.name_hint}", [v.operand(a) for a in args])
        if isinstance(func, Decorator | Marker | ModuleAlias | Namespace):
            self.source.fail(node.func, f"{func!r} cannot be called here")
        if isinstance(func, v.Dtype | partial) or _known(func) or self.is_form(func):
            if not isinstance(func, type):
                v.bind(ast.unparse(node.func), func, args, kwargs)
            return func(*args, **kwargs)
        if isinstance(func, Dtype):
            return v.cast(args[0], func.name) if args else tir.Var("", func.name)
        if isinstance(func, types.FunctionType) and self.is_given(node.func, func):
            with active.reading(self):
                return func(*args, **kwargs)
        raise v.Unread(
            node, f"{ast.unparse(node.func)} is a function of Python, which is not run here"
        )

    def is_given(self, node: ast.expr, func: Any) -> bool:
        """Whether a name of the program around the script stands for the function.

        Text that is only parsed has no such program, and runs nothing.
        """
        return isinstance(node, ast.Name) and self.outside.get(node.id) is func

    def is_form(self, func: Any) -> bool:
        """Whether ``func`` is one of the parser's own."""
        return isinstance(func, types.MethodType) and func.__self__ is self

    _HANDLERS: Mapping[type[ast.expr], Callable[[Any, Any], Any]] = {
        **Evaluator._HANDLERS,
        ast.Name: _name,
        ast.Attribute: _attribute,
        ast.Subscript: _subscript,
        ast.BinOp: _binary,
        ast.UnaryOp: _unary,
        ast.BoolOp: _boolean,
        ast.Compare: _compare,
        ast.IfExp: _choice,
        ast.Dict: _dict,
        ast.List: _sequence,
        ast.Tuple: _sequence,
        ast.JoinedStr: _joined,
        ast.ListComp: _list_of,
        ast.Call: _call,
    }


_REGIONS: Final = ("reads", "writes", "match_buffer", "realize")
_PYTHON: Final = (float, int, len, bool, list, tuple)
_OWN: Final = {id(f) for f in v.FUNCTIONS.values()}
_TIR: Final = {
    id(f)
    for f in (
        *(tir.const, tir.all, tir.any, tir.min, tir.max, tir.floordiv, tir.floormod),
        *(tir.truncdiv, tir.truncmod, tir.ceildiv, tir.if_then_else, tir.Select),
        *(var, size_var),  # of te
    )
}


def _known(func: Any) -> bool:
    return id(func) in _OWN or id(func) in _TIR or any(func is f for f in _PYTHON)


def _bounded(index: Any) -> bool:
    """Whether every slice says where it starts and ends: TVM reads others as regions."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        i.step is not None or (i.start is not None and i.stop is not None)
        for i in parts
        if isinstance(i, slice)
    )


def _returned(func: ir.GlobalVar) -> str:
    info = func.struct_info_
    if isinstance(info, ir.FuncStructInfo) and isinstance(info.ret, ir.PrimStructInfo):
        return info.ret.dtype
    return "void"
