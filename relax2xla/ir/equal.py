"""Structural equality of IR, up to renaming of what a function defines itself.

Variables and symbolic variables are paired at their definitions, one to one; names, spans and
sharing do not count. GlobalVars are equal by name. The walk is iterative over bindings and plain
expressions; nested functions, branches and struct infos cost a few Python frames a level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from relax2xla import tir
from relax2xla.errors import StructuralEqualError
from relax2xla.ir import expr as e
from relax2xla.ir import late
from relax2xla.ir.arrays import arrays_equal
from relax2xla.ir.deep import nests
from relax2xla.ir.hash import structural_hash as structural_hash
from relax2xla.ir.module import IRModule
from relax2xla.ir.op import Op, call_attrs
from relax2xla.ir.rewrite import LEAF_TYPES, children
from relax2xla.ir.struct_info import (
    DTensorStructInfo,
    FuncStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    seen_dims,
)
from relax2xla.tir import Dim
from relax2xla.tir.kernel.structural import Comparison, Different

_KERNEL_PARTS = (tir.Stmt, tir.Buffer, tir.BufferRegion, tir.IterVar, tir.Range)


class _Different(Exception):
    """The first difference: both sides, the reason, and the path to it (innermost first)."""

    def __init__(self, lhs: Any, rhs: Any, why: str) -> None:
        self.lhs, self.rhs, self.why = lhs, rhs, why
        self.path: list[str] = []

    def at(self, part: str) -> _Different:
        """The same difference, seen from one level further out."""
        self.path.append(part)
        return self


@late.structural_equal.given
def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Whether two modules, functions, expressions, bindings, struct infos or attributes are equal.

    A free variable equals itself only, unless ``map_free_vars``: then it equals whichever it
    meets first, one to one, if their struct infos (dtypes) are equal.
    """
    try:
        _Comparer(map_free_vars).anything(lhs, rhs)
    except _Different:
        return False
    return True


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raise ``StructuralEqualError`` with the path of the first difference and both sides."""
    try:
        _Comparer(map_free_vars).anything(lhs, rhs)
    except _Different as d:
        root = "" if isinstance(lhs, IRModule) else "<root>"
        path = "".join([root, *reversed(d.path)]).removeprefix(".") or "the root"
        raise StructuralEqualError(
            f"{d.why} at {path}\n  lhs: {_text(d.lhs)}\n  rhs: {_text(d.rhs)}"
        ) from None


def _text(side: Any) -> str:
    text = side.name_hint if isinstance(side, e.Var | e.GlobalVar) else str(side)
    return text if len(text) <= 400 else f"{text[:400]} ..."


class _Comparer:
    def __init__(self, map_free_vars: bool) -> None:
        self.map_free = map_free_vars
        self.vars: dict[e.Var, e.Var] = {}
        self.taken: set[e.Var] = set()
        self.symbols: dict[tir.Var, tir.Var] = {}
        self.symbols_taken: set[tir.Var] = set()

    def anything(self, a: Any, b: Any) -> None:
        """Modules, IR nodes and attribute values."""
        match a, b:
            case IRModule(), IRModule():
                self.module(a, b)
            case e.Expr(), e.Expr():
                self.expr(a, b)
            case e.Binding(), e.Binding():
                self.binding(a, b)
            case e.BindingBlock(), e.BindingBlock():
                self.block(a, b)
            case _ if isinstance(a, _KERNEL_PARTS) and isinstance(b, tir.Node):
                self.kernel_part(a, b)
            case (tuple() | list(), tuple() | list()):
                self.each(a, b, "", self.anything)
            case _:
                self.value(a, b)

    # -- variables ---------------------------------------------------------------------------
    def define(self, a: e.Var, b: e.Var) -> None:
        if type(a) is not type(b):
            raise _Different(a, b, f"{type(a).__name__} and {type(b).__name__} are defined")
        x, y = a.struct_info_, b.struct_info_
        if x is not y or x is not None:
            try:
                self.value(x, y)
            except _Different as d:
                raise d.at(".struct_info") from None
        self.vars[a] = b
        self.taken.add(b)

    def use(self, a: e.Var, b: e.Var) -> None:
        known = self.vars.get(a)
        if known is b:
            return
        if known is None and b not in self.taken:
            if self.map_free:
                self.define(a, b)
                return
            if a is b:
                return
        raise _Different(a, b, "different variables")

    def symbol(self, a: tir.Var, b: tir.Var, define: bool) -> None:
        known = self.symbols.get(a)
        if known is b:
            return
        if known is None and b not in self.symbols_taken and a.dtype == b.dtype:
            if define or self.map_free:
                self.symbols[a] = b
                self.symbols_taken.add(b)
                return
            if a is b:
                return
        raise _Different(a, b, "different symbolic variables")

    def prim(self, a: Dim, b: Dim, define: bool = False) -> None:
        """Symbolic integers, node by node."""
        if isinstance(a, int) or isinstance(b, int):
            if a == b:
                return
            raise _Different(a, b, "different values")
        stack: list[tuple[tir.PrimExpr, tir.PrimExpr]] = [(a, b)]
        seen: set[tuple[int, int]] = set()
        while stack:
            x, y = stack.pop()
            if isinstance(x, tir.Var) and isinstance(y, tir.Var):
                self.symbol(x, y, define)
                continue
            xs, ys = x.children(), y.children()
            if (
                type(x) is not type(y)
                or x.dtype != y.dtype
                or len(xs) != len(ys)
                or not _same_payload(x.payload(), y.payload())
            ):
                raise _Different(a, b, "different values")
            if xs and (id(x), id(y)) not in seen:
                seen.add((id(x), id(y)))
                stack.extend(reversed(list(zip(xs, ys, strict=True))))

    # -- struct infos and attributes ---------------------------------------------------------
    def each(self, a: Sequence[Any], b: Sequence[Any], part: str, fn: Callable[..., None]) -> None:
        """Two sequences element by element, so that a difference in length comes last."""
        i = 0
        try:
            for x, y in zip(a, b, strict=False):
                fn(x, y)
                i += 1
            if len(a) != len(b):
                x, y = (s[i] if i < len(s) else "nothing" for s in (a, b))
                raise _Different(x, y, f"{len(a)} against {len(b)} items")
        except _Different as d:
            raise d.at(f"{part}[{i}]") from None

    def dims(self, a: Any, b: Any, define: bool) -> None:
        if a is None or b is None:
            if a is not b:
                raise _Different(a, b, "a known against an unknown shape").at(".shape")
            return
        if a is b and not define and not self.symbols:
            return
        self.each(a, b, ".shape", lambda x, y: self.prim(x, y, define))

    def info(self, a: StructInfo, b: StructInfo, define: bool = False) -> None:
        """Struct infos; ``define``: symbolic variables met for the first time are paired."""
        match a, b:
            case TensorStructInfo(), TensorStructInfo():
                if (a.dtype, a.ndim, a.vdevice) != (b.dtype, b.ndim, b.vdevice):
                    raise _Different(a, b, "different struct info")
                # A shape is the same whether it is written out or held by a variable.
                x, y = seen_dims(a), seen_dims(b)
                if x is None and y is None and (a.shape is not None or b.shape is not None):
                    self.value(a.shape, b.shape)
                else:
                    self.dims(x, y, define)
            case DTensorStructInfo(), DTensorStructInfo():
                self.value(a.device_mesh, b.device_mesh)
                self.value(a.placement, b.placement)
                self.info(a.tensor_sinfo, b.tensor_sinfo, define)
            case ShapeStructInfo(), ShapeStructInfo():
                if a.ndim != b.ndim:
                    raise _Different(a, b, "different ranks")
                self.dims(a.values, b.values, define)
            case PrimStructInfo(), PrimStructInfo():
                if a.dtype != b.dtype or (a.value is None) != (b.value is None):
                    raise _Different(a, b, "different struct info")
                if a.value is not None and b.value is not None:
                    self.prim(a.value, b.value, define)
            case TupleStructInfo(), TupleStructInfo():
                self.each(a.fields, b.fields, ".fields", lambda x, y: self.info(x, y, define))
            case FuncStructInfo(), FuncStructInfo():
                if (a.purity, a.derive_func) != (b.purity, b.derive_func):
                    raise _Different(a, b, "different struct info")
                if a.params is None or b.params is None:
                    if a.params is not b.params:
                        raise _Different(a, b, "different struct info")
                else:
                    self.each(a.params, b.params, ".params", lambda x, y: self.info(x, y, True))
                try:
                    self.info(a.ret, b.ret, define)
                except _Different as d:
                    raise d.at(".ret") from None
            case _:
                if type(a) is not type(b):
                    raise _Different(a, b, "different kinds of struct info")

    def value(self, a: Any, b: Any) -> None:
        """Attribute values: plain Python, arrays, symbolic integers, struct infos, expressions."""
        a = a.item() if isinstance(a, np.generic) else a
        b = b.item() if isinstance(b, np.generic) else b
        match a, b:
            case StructInfo(), StructInfo():
                self.info(a, b)
            case (tir.PrimExpr(), tir.PrimExpr() | int()) | (int(), tir.PrimExpr()):
                self.prim(a, b)
            case Mapping(), Mapping():
                if a.keys() != b.keys():
                    only = sorted(map(str, a.keys() ^ b.keys()))
                    raise _Different(dict(a), dict(b), f"only one side has {', '.join(only)}")
                for key in a:
                    try:
                        self.value(a[key], b[key])
                    except _Different as d:
                        raise d.at(f"[{key!r}]") from None
            case tir.Range(), tir.Range():
                self.each((a.min, a.extent), (b.min, b.extent), "", self.value)
            case (tuple() | list(), tuple() | list()):
                self.each(a, b, "", self.value)
            case np.ndarray(), np.ndarray():
                if not arrays_equal(a, b):
                    raise _Different(_array(a), _array(b), "different arrays")
            case e.Expr(), e.Expr():
                self.expr(a, b)
            case float(), float():
                if a != b and not (math.isnan(a) and math.isnan(b)):
                    raise _Different(a, b, "different values")
            case tir.PrimFunc(), tir.PrimFunc():
                self.prim_func(a, b)
            case _:
                # bool is not int, int is not float.
                if type(a) is not type(b) or a != b:
                    raise _Different(a, b, "different values")

    # -- expressions -------------------------------------------------------------------------
    def expr(self, a: e.Expr, b: e.Expr) -> None:
        """Expressions; iterative, each pair of shared nodes once."""
        if type(a) in LEAF_TYPES:
            self.node(a, b)
            return
        stack: list[tuple[e.Expr, e.Expr, Any]] = [(a, b, None)]
        seen: set[tuple[int, int]] = set()
        while stack:
            x, y, path = stack.pop()
            if (id(x), id(y)) in seen:
                continue
            if not isinstance(x, e.Var):
                seen.add((id(x), id(y)))
            try:
                self.node(x, y)
            except _Different as d:
                while path is not None:
                    part, path = path
                    d.at(part)
                raise
            if isinstance(x, _INSIDE_DONE):
                continue
            xs, ys = children(x), children(y)
            if len(xs) != len(ys):
                raise _Different(x, y, f"{len(xs)} against {len(ys)} operands")
            if xs and not self.paired(xs, ys):
                parts = _parts(x)
                stack.extend((p, q, (parts(i), path)) for i, (p, q) in _backwards(xs, ys))

    def paired(self, xs: Sequence[e.Expr], ys: Sequence[e.Expr], deep: bool = True) -> bool:
        """Whether these are variables that are paired already, as most operands are.

        Names of functions, too, and tuples of such.
        """
        for x, y in zip(xs, ys, strict=True):
            if isinstance(x, e.Var):
                same = self.vars.get(x) is y
            elif isinstance(x, e.GlobalVar):
                same = isinstance(y, e.GlobalVar) and x.name_hint == y.name_hint
            elif deep and isinstance(x, e.Tuple) and isinstance(y, e.Tuple):
                same = len(x.fields) == len(y.fields)
                same = same and self.paired(x.fields, y.fields, deep=False)
            else:
                same = False
            if not same:
                return False
        return True

    def node(self, a: e.Expr, b: e.Expr) -> None:
        """Two nodes without their children."""
        if type(a) is not type(b):
            raise _Different(a, b, f"{type(a).__name__} against {type(b).__name__}")
        match a, b:
            case e.Var(), e.Var():
                self.use(a, b)
            case Op(), Op():
                if a is not b:
                    raise _Different(a, b, "different operators")
            case e.Call(), e.Call():
                self.call(a, b)
            case e.Constant(), e.Constant():
                if not arrays_equal(a.data, b.data):
                    raise _Different(_array(a.data), _array(b.data), "different constants")
                self.value(a.struct_info_, b.struct_info_)
            case e.GlobalVar(), e.GlobalVar():
                if a.name_hint != b.name_hint:
                    raise _Different(a, b, "different functions")
            case e.ShapeExpr(), e.ShapeExpr():
                self.each(a.values, b.values, ".values", self.prim)
            case e.PrimValue(), e.PrimValue():
                self.prim(a.value, b.value)
            case (e.StringImm(), e.StringImm()) | (e.DataTypeImm(), e.DataTypeImm()):
                if a.value != b.value:
                    raise _Different(a, b, "different values")
            case e.ExternFunc(), e.ExternFunc():
                if a.global_symbol != b.global_symbol:
                    raise _Different(a, b, "different packed functions")
                self.value(a.struct_info_, b.struct_info_)
            case e.TupleGetItem(), e.TupleGetItem():
                if a.index != b.index:
                    raise _Different(a.index, b.index, "different indices").at(".index")
            case e.If(), e.If():
                self.expr(a.cond, b.cond)
                for name in ("true_branch", "false_branch"):
                    try:
                        self.seq(getattr(a, name), getattr(b, name))
                    except _Different as d:
                        raise d.at(f".{name}") from None
            case e.SeqExpr(), e.SeqExpr():
                self.seq(a, b)
            case e.Function(), e.Function():
                self.function(a, b)
            case _:
                pass

    def call(self, a: e.Call, b: e.Call) -> None:
        if isinstance(a.op, Op) or isinstance(b.op, Op):
            if a.op is not b.op:
                raise _Different(a, b, "different operators").at(".op")
        if len(a.args) != len(b.args):
            raise _Different(a, b, f"{len(a.args)} against {len(b.args)} arguments").at(".args")
        if a.attrs is not b.attrs and (a.attrs or b.attrs):
            x, y = a.attrs, b.attrs
            if x.keys() != y.keys():  # one may leave defaults out
                x, y = call_attrs(a), call_attrs(b)
            try:
                self.value(x, y)
            except _Different as d:
                raise d.at(".attrs") from None
        if a.sinfo_args or b.sinfo_args:
            self.each(a.sinfo_args, b.sinfo_args, ".sinfo_args", self.info)

    @nests
    def seq(self, a: e.SeqExpr, b: e.SeqExpr) -> None:
        self.each(a.blocks, b.blocks, ".blocks", self.block)
        try:
            self.expr(a.body, b.body)
        except _Different as d:
            raise d.at(".body") from None

    def block(self, a: e.BindingBlock, b: e.BindingBlock) -> None:
        if type(a) is not type(b):
            raise _Different(type(a).__name__, type(b).__name__, "different kinds of blocks")
        self.each(a.bindings, b.bindings, ".bindings", self.binding)

    def binding(self, a: e.Binding, b: e.Binding) -> None:
        if type(a) is not type(b):
            raise _Different(a.value, b.value, f"{type(a).__name__} against {type(b).__name__}")
        recursive = isinstance(a.value, e.Function)
        part = ".value"
        try:
            if recursive:  # a local function may call itself
                part = ".var"
                self.define(a.var, b.var)
                part = ".value"
            self.expr(a.value, b.value)
            if isinstance(a, e.MatchCast) and isinstance(b, e.MatchCast):
                part = ".struct_info"
                self.info(a.struct_info, b.struct_info, define=True)
            if not recursive:
                part = ".var"
                self.define(a.var, b.var)
        except _Different as d:
            raise d.at(part) from None

    @nests
    def function(self, a: e.Function, b: e.Function) -> None:
        part = ".params"
        try:
            self.each(a.params, b.params, "", self.param)
            part = ".is_pure"
            self.value(a.is_pure, b.is_pure)
            part = ".attrs"
            self.value(a.attrs, b.attrs)
            part = ".body"
            self.seq(a.body, b.body)
            part = ".ret_struct_info"
            self.info(a.ret_struct_info, b.ret_struct_info)
        except _Different as d:
            raise d.at(part) from None

    def param(self, a: e.Var, b: e.Var) -> None:
        x, y = a.struct_info_, b.struct_info_
        if x is not None and y is not None:
            self.info(x, y, define=True)
        self.define(a, b)

    def prim_func(self, a: tir.PrimFunc, b: tir.PrimFunc) -> None:
        try:
            Comparison(self._same_value, self.map_free).functions(a, b)
        except Different as d:
            raise _Different(d.left, d.right, d.why).at(d.path) from None

    def kernel_part(self, a: tir.Node, b: tir.Node) -> None:
        """Statements, buffers and regions of loop-level functions."""
        try:
            Comparison(self._same_value, self.map_free).nodes(a, b)
        except Different as d:
            raise _Different(d.left, d.right, d.why).at(d.path) from None

    def _same_value(self, a: object, b: object) -> bool:
        try:
            self.value(a, b)
        except _Different:
            return False
        return True

    def module(self, a: IRModule, b: IRModule) -> None:
        names = [{g.name_hint: f for g, f in m.items()} for m in (a, b)]
        if names[0].keys() != names[1].keys():
            raise _Different(sorted(names[0]), sorted(names[1]), "different functions")
        for name, func in names[0].items():
            # What one function defines does not reach into another.
            inside = _Comparer(self.map_free)
            try:
                inside.anything(func, names[1][name])
            except _Different as d:
                raise d.at(f".{name}") from None
        for part, x, y in (
            (".attrs", a.meaning, b.meaning),
            (".global_infos", a.global_infos, b.global_infos),
        ):
            try:
                self.value(x, y)
            except _Different as d:
                raise d.at(part) from None


_INSIDE_DONE = (e.Var, e.Constant, e.If, e.SeqExpr, e.Function)


def _same_payload(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    return a == b or (
        len(a) == len(b) and all(x == y or (x != x and y != y) for x, y in zip(a, b, strict=True))
    )


def _backwards(xs: Sequence[e.Expr], ys: Sequence[e.Expr]) -> Any:
    return reversed(list(enumerate(zip(xs, ys, strict=True))))


def _parts(node: e.Expr) -> Callable[[int], str]:
    """How the i-th child of ``node`` is called in a path."""
    if isinstance(node, e.Call):
        if isinstance(node.op, Op):
            return lambda i: f".args[{i}]"
        return lambda i: f".args[{i - 1}]" if i else ".op"
    return (lambda i: f".fields[{i}]") if isinstance(node, e.Tuple) else lambda i: ".tuple_value"


def _array(a: Any) -> str:
    values = f" {a}" if a.size <= 8 else ""
    return f"{a.dtype} array of shape {a.shape}{values}"
