"""Relax expressions, bindings and functions: pure data with identity equality.

Nodes are immutable by convention: passes build new ones. Struct info is known as soon as a node is
built, because building a Call infers it (``relax2xla.ir.op``); only Var, GlobalVar and ExternFunc
carry what their maker says. ``expr.struct_info`` raises where nothing is known,
``expr.struct_info_`` gives None instead.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from relax2xla import tir
from relax2xla.dtypes import dtype_name
from relax2xla.errors import StructInfoError, TVMError
from relax2xla.ir import late
from relax2xla.ir.base import EMPTY_ATTRS, Attrs, Node, Scriptable, Span
from relax2xla.ir.struct_info import (
    Dims,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    as_dims,
)
from relax2xla.ir.tensor_fields import TensorFields
from relax2xla.ir.types import Type, type_of
from relax2xla.tir import Dim


class Id(Node):
    """Identity of a variable, stable over all passes; two Ids may share their name hint."""

    __slots__ = ("name_hint",)
    name_hint: str

    def __init__(self, name_hint: str) -> None:
        self.name_hint = name_hint


class Expr(Node, TensorFields, Scriptable):
    """Base class of all Relax expressions."""

    __slots__ = ("span", "struct_info_")
    span: Span | None
    struct_info_: StructInfo | None

    @property
    def struct_info(self) -> StructInfo:
        """What is known of the value; raises where nothing has been inferred or declared."""
        if self.struct_info_ is None:
            raise StructInfoError(
                f"{type(self).__name__} {self!r} has no struct info yet; "
                "give one when you make it, or normalise it with a BlockBuilder"
            )
        return self.struct_info_

    @property
    def checked_type(self) -> Type:
        """The type that the struct info says: kind of value, dtype and rank, without shapes."""
        return type_of(self.struct_info)

    @property
    def _checked_type_(self) -> Type | None:
        """:attr:`checked_type`, None where nothing is known (TVM's name)."""
        return None if self.struct_info_ is None else self.checked_type

    def same_as(self, other: object) -> bool:
        """Whether both are the same object."""
        return self is other

    def __repr__(self) -> str:
        return late.brief.call(self)

    # Operators build calls through the operator registry, so that ``ir`` never imports ``op``.
    def __add__(self, other: Any) -> Call:
        return _operator("relax.add", self, other)

    def __radd__(self, other: Any) -> Call:
        return _operator("relax.add", other, self)

    def __sub__(self, other: Any) -> Call:
        return _operator("relax.subtract", self, other)

    def __rsub__(self, other: Any) -> Call:
        return _operator("relax.subtract", other, self)

    def __mul__(self, other: Any) -> Call:
        return _operator("relax.multiply", self, other)

    def __rmul__(self, other: Any) -> Call:
        return _operator("relax.multiply", other, self)

    def __truediv__(self, other: Any) -> Call:
        return _operator("relax.divide", self, other)

    def __rtruediv__(self, other: Any) -> Call:
        return _operator("relax.divide", other, self)

    def __floordiv__(self, other: Any) -> Call:
        return _operator("relax.floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Call:
        return _operator("relax.floor_divide", other, self)

    def __mod__(self, other: Any) -> Call:
        return _operator("relax.mod", self, other)

    def __pow__(self, other: Any) -> Call:
        return _operator("relax.power", self, other)

    def __neg__(self) -> Call:
        return _operator("relax.negative", self)

    def __matmul__(self, other: Any) -> Call:
        return _operator("relax.matmul", self, other)

    def __lt__(self, other: Any) -> Call:
        return _operator("relax.less", self, other)

    def __le__(self, other: Any) -> Call:
        return _operator("relax.less_equal", self, other)

    def __gt__(self, other: Any) -> Call:
        return _operator("relax.greater", self, other)

    def __ge__(self, other: Any) -> Call:
        return _operator("relax.greater_equal", self, other)

    def __call__(self, *args: Any, attrs: Mapping[str, Any] | None = None) -> Call:
        return Call(self, [convert_to_expr(a) for a in args], attrs)

    def __getitem__(self, index: int) -> Expr:
        info = self.struct_info_
        if isinstance(info, TupleStructInfo):
            if not -len(info.fields) <= index < len(info.fields):
                # Python's iteration protocol ends on IndexError.
                raise IndexError(f"Tuple index out of range: {index} of {info}")
            index %= len(info.fields)
        elif info is not None and not isinstance(info, ObjectStructInfo):
            raise TypeError(
                f"only tuples can be indexed; {self!r} is {info}. Use R.take or R.strided_slice"
            )
        if isinstance(self, Tuple):
            if not -len(self.fields) <= index < len(self.fields):
                raise IndexError(f"Tuple index out of range: {index} of {len(self.fields)} fields")
            return self.fields[index]
        return TupleGetItem(self, index)

    def __iter__(self) -> Iterator[Expr]:
        info = self.struct_info_
        if not isinstance(info, TupleStructInfo):
            raise TypeError(f"only tuples of known length can be unpacked; {self!r} is {info}")
        return (self[i] for i in range(len(info.fields)))

    def astype(self, dtype: Any) -> Call:
        """``R.astype(self, dtype)``."""
        return _operator("relax.astype", self, dtype)


def _text(value: str, what: str) -> str:
    """``value`` if it is a string."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string; got an object of type {type(value).__name__}")
    return value


def _operator(name: str, *args: Any) -> Call:
    return late.operator.call(name)(*args)


class Var(Expr):
    """A variable of a Relax function, bound once. Identity is the object, not the name."""

    # The identity is made when it is asked for: of most variables it never is.
    __slots__ = ("_vid",)
    _vid: str | Id

    def __init__(
        self,
        name_hint: str | Id,
        struct_info: StructInfo | None = None,
        span: Span | None = None,
    ) -> None:
        self._vid = name_hint
        self.struct_info_ = struct_info
        self.span = span

    @property
    def vid(self) -> Id:
        """The identity of the variable, which passes keep where they make it anew."""
        known = self._vid
        if isinstance(known, Id):
            return known
        made = self._vid = Id(known)
        return made

    @vid.setter
    def vid(self, vid: Id) -> None:
        self._vid = vid

    @property
    def name_hint(self) -> str:
        """The name shown to people; need not be unique."""
        known = self._vid
        return known if isinstance(known, str) else known.name_hint


class DataflowVar(Var):
    """A variable that is visible only inside the dataflow block that binds it."""

    __slots__ = ()


class GlobalVar(Expr):
    """The name of a function of an IRModule."""

    __slots__ = ("name_hint",)
    name_hint: str

    def __init__(
        self, name_hint: str, struct_info: StructInfo | None = None, span: Span | None = None
    ) -> None:
        self.name_hint = _text(name_hint, "the name of a function")
        self.struct_info_ = struct_info
        self.span = span


class Constant(Expr):
    """A constant tensor. ``data`` is a numpy array (stride 0 where a splat saves memory).

    Torch, jax and Python values are accepted and viewed as numpy. Scalars are 0-dimensional.
    ``struct_info`` may be given for dtypes that numpy spells differently.
    """

    __slots__ = ("data",)
    data: npt.NDArray[Any]

    def __init__(
        self, data: Any, struct_info: StructInfo | None = None, span: Span | None = None
    ) -> None:
        self.data = data if isinstance(data, np.ndarray) else np.asarray(data)
        if not self.data.dtype.isnative:
            self.data = self.data.astype(self.data.dtype.newbyteorder("="))
        if struct_info is None:
            struct_info = TensorStructInfo.make(self.data.shape, dtype_name(self.data.dtype))
        self.struct_info_ = struct_info
        self.span = span


class Tuple(Expr):
    """Several values as one."""

    __slots__ = ("fields",)
    fields: tuple[Expr, ...]

    def __init__(self, fields: Iterable[Any], span: Span | None = None) -> None:
        self.fields = tuple([f if isinstance(f, Expr) else convert_to_expr(f) for f in fields])
        infos = [f.struct_info_ for f in self.fields]
        known = [i for i in infos if i is not None]
        self.struct_info_ = TupleStructInfo(known) if len(known) == len(infos) else None
        self.span = span

    def __len__(self) -> int:
        return len(self.fields)


class TupleGetItem(Expr):
    """Field ``index`` of a tuple."""

    __slots__ = ("index", "tuple_value")
    tuple_value: Expr
    index: int

    def __init__(self, tuple_value: Expr, index: int, span: Span | None = None) -> None:
        self.tuple_value, self.index, self.span = tuple_value, index, span
        info = tuple_value.struct_info_
        if isinstance(info, TupleStructInfo):
            if not 0 <= index < len(info.fields):
                raise StructInfoError(f"tuple index {index} is out of range for {info}")
            self.struct_info_ = info.fields[index]
        elif info is None or isinstance(info, ObjectStructInfo):
            self.struct_info_ = None if info is None else ObjectStructInfo()
        else:
            raise StructInfoError(f"cannot take field {index} of {tuple_value!r}, which is {info}")


class ShapeExpr(Expr):
    """A shape value: dimensions, each an int or a symbolic integer."""

    __slots__ = ("values",)
    values: Dims

    def __init__(self, values: Iterable[Any], span: Span | None = None) -> None:
        self.values = as_dims(values)
        self.struct_info_ = ShapeStructInfo(self.values)
        self.span = span

    def __len__(self) -> int:
        return len(self.values)

    def dims(self) -> Iterator[Dim]:
        """The dimensions in order."""
        return iter(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __getitem__(self, index: Any) -> Any:
        try:
            return self.values[index]
        except IndexError:
            raise IndexError(
                f"ShapeExpr index out of range: {index} of {len(self.values)} dimensions"
            ) from None

    def __eq__(self, other: object) -> bool:
        """Shapes compare by their dimensions, with each other and with tuples and lists."""
        if isinstance(other, ShapeExpr):
            return self.values == other.values
        return isinstance(other, tuple | list) and self.values == tuple(other)

    def __hash__(self) -> int:
        return hash(self.values)


class PrimValue(Expr):
    """A scalar known to the compiler: a symbolic expression or a literal."""

    __slots__ = ("value",)
    value: tir.PrimExpr

    def __init__(self, value: int | float | tir.PrimExpr, span: Span | None = None) -> None:
        self.struct_info_ = PrimStructInfo(value=value)
        known = self.struct_info_.value
        if known is None:
            raise StructInfoError("PrimValue needs a value")
        self.value = known
        self.span = span


class StringImm(Expr):
    """A string literal."""

    __slots__ = ("value",)
    value: str

    def __init__(self, value: str, span: Span | None = None) -> None:
        self.value = _text(value, "the value of a StringImm")
        self.struct_info_, self.span = ObjectStructInfo(), span


class DataTypeImm(Expr):
    """A dtype as a value."""

    __slots__ = ("value",)
    value: str

    def __init__(self, value: Any, span: Span | None = None) -> None:
        self.value, self.struct_info_, self.span = dtype_name(value), ObjectStructInfo(), span


class ExternFunc(Expr):
    """A packed function by its registered name."""

    __slots__ = ("global_symbol",)
    global_symbol: str

    def __init__(
        self, global_symbol: str, struct_info: StructInfo | None = None, span: Span | None = None
    ) -> None:
        self.global_symbol = _text(global_symbol, "the name of a packed function")
        self.struct_info_ = FuncStructInfo.opaque_func() if struct_info is None else struct_info
        self.span = span


class Call(Expr):
    """A call of an operator or of a function value.

    Struct info is inferred here: from the operator's rule, or from the callee's FuncStructInfo.
    ``sinfo_args`` states result struct infos for intrinsics whose result cannot be inferred.
    ``struct_info`` skips inference: for code (such as a reader) that already knows the result.
    """

    __slots__ = ("args", "attrs", "op", "sinfo_args")
    op: Expr
    args: tuple[Expr, ...]
    attrs: Attrs
    sinfo_args: tuple[StructInfo, ...]

    def __init__(
        self,
        op: Expr,
        args: Sequence[Expr],
        attrs: Mapping[str, Any] | None = None,
        sinfo_args: Sequence[StructInfo] | None = None,
        span: Span | None = None,
        *,
        struct_info: StructInfo | None = None,
    ) -> None:
        self.op = op
        self.args = tuple(args)
        self.attrs = attrs if isinstance(attrs, Attrs) else Attrs(attrs) if attrs else EMPTY_ATTRS
        self.sinfo_args = tuple(sinfo_args) if sinfo_args else ()
        self.span = span
        if struct_info is None:
            struct_info = late.infer_call.call(self)
        self.struct_info_ = struct_info

    @staticmethod
    def make(like: Call, args: Sequence[Expr], span: Span | None = None) -> Call:
        """The fast road to ``like`` with other operands, of which it says what it said of its own.

        ``like.op`` is an operator, or a callee that stays.
        """
        made = Call.__new__(Call)
        made.op, made.args, made.attrs = like.op, tuple(args), like.attrs
        made.sinfo_args, made.struct_info_, made.span = like.sinfo_args, like.struct_info_, span
        return made


class If(Expr):
    """``true_branch`` if the 0-d bool ``cond`` holds, else ``false_branch``; only one runs."""

    __slots__ = ("cond", "false_branch", "true_branch")
    cond: Expr
    true_branch: SeqExpr
    false_branch: SeqExpr

    def __init__(
        self, cond: Expr, true_branch: Expr, false_branch: Expr, span: Span | None = None
    ) -> None:
        self.cond = cond
        self.true_branch = as_seq(true_branch)
        self.false_branch = as_seq(false_branch)
        self.span = span
        a, b = self.true_branch.struct_info_, self.false_branch.struct_info_
        self.struct_info_ = None
        if a is not None and b is not None:
            self.struct_info_ = late.struct_info_lca.call(a, b)


class Binding(Node, Scriptable):
    """Base class of bindings."""

    __slots__ = ("span", "value", "var")
    var: Var
    value: Expr
    span: Span | None

    def __repr__(self) -> str:
        return f"{self.var!r} = {self.value!r}"


class VarBinding(Binding):
    """``var = value``."""

    __slots__ = ()

    def __init__(self, var: Var, value: Expr, span: Span | None = None) -> None:
        self.var, self.value, self.span = var, value, span


class MatchCast(Binding):
    """``var`` is ``value`` checked at run time against ``struct_info``.

    A symbolic variable that is not yet defined is bound at its first occurrence; every other
    occurrence is an equality that the run-time check enforces.
    """

    __slots__ = ("struct_info",)
    struct_info: StructInfo

    def __init__(
        self, var: Var, value: Expr, struct_info: StructInfo, span: Span | None = None
    ) -> None:
        self.var, self.value, self.struct_info, self.span = var, value, struct_info, span

    def __repr__(self) -> str:
        return f"{self.var!r} = match_cast({self.value!r}, {self.struct_info})"


class BindingBlock(Node, Scriptable):
    """Bindings in order; they may have side effects."""

    __slots__ = ("bindings", "span")
    bindings: tuple[Binding, ...]
    span: Span | None

    def __init__(self, bindings: Sequence[Binding], span: Span | None = None) -> None:
        self.bindings = tuple(bindings)
        self.span = span

    def __repr__(self) -> str:
        count = len(self.bindings)
        return f"<{type(self).__name__} of {count} binding{'s' * (count != 1)}>"

    def __str__(self) -> str:
        return self.script()


class DataflowBlock(BindingBlock):
    """Bindings without side effects and control flow."""

    __slots__ = ()


class SeqExpr(Expr):
    """Blocks of bindings, then a result."""

    __slots__ = ("blocks", "body")
    blocks: tuple[BindingBlock, ...]
    body: Expr

    def __init__(
        self, blocks: Sequence[BindingBlock], body: Expr, span: Span | None = None
    ) -> None:
        self.blocks, self.body, self.span = tuple(blocks), body, span
        self.struct_info_ = body.struct_info_

    def __str__(self) -> str:
        return self.script()


def as_seq(body: Expr) -> SeqExpr:
    """``body`` as a SeqExpr, which every function and branch has."""
    return body if isinstance(body, SeqExpr) else SeqExpr((), body)


class Function(Expr):
    """A Relax function. ``ret_struct_info`` None takes the body's."""

    __slots__ = ("attrs", "body", "is_pure", "params", "ret_struct_info")
    params: tuple[Var, ...]
    body: SeqExpr
    ret_struct_info: StructInfo
    is_pure: bool
    attrs: Attrs

    def __init__(
        self,
        params: Sequence[Var],
        body: Expr,
        ret_struct_info: StructInfo | None = None,
        is_pure: bool = True,
        attrs: Mapping[str, Any] | None = None,
        span: Span | None = None,
    ) -> None:
        self.params = tuple(params)
        self.body = as_seq(body)
        if ret_struct_info is None:
            ret_struct_info = self.body.struct_info_ or ObjectStructInfo()
        self.ret_struct_info = ret_struct_info
        self.is_pure = is_pure
        self.attrs = attrs if isinstance(attrs, Attrs) else Attrs(attrs) if attrs else EMPTY_ATTRS
        self.span = span
        self.struct_info_ = late.signature_info.call(self.params, ret_struct_info, is_pure)

    @staticmethod
    def create_empty(
        params: Sequence[Var],
        ret_struct_info: StructInfo,
        is_pure: bool = True,
        attrs: Mapping[str, Any] | None = None,
        span: Span | None = None,
    ) -> Function:
        """A function whose body is still to come (an empty tuple stands for it)."""
        return Function(params, Tuple(()), ret_struct_info, is_pure, attrs, span)

    def __str__(self) -> str:
        return self.script()

    def _repr_html_(self) -> str:
        """What a notebook shows: the text under the signature."""
        html = importlib.import_module("relax2xla.script.html")
        name = global_symbol(self) or "function"
        return html.program(html.signature(name, self), self.script())

    def with_attr(self, key: str | Mapping[str, Any], value: Any = None) -> Function:
        """A copy with one attribute (or a mapping of them) set."""
        new = {key: value} if isinstance(key, str) else key
        return self.replace(attrs={**self.attrs, **new})

    def with_attrs(self, attrs: Mapping[str, Any]) -> Function:
        """A copy with these attributes set."""
        return self.with_attr(attrs)

    def without_attr(self, key: str) -> Function:
        """A copy without the attribute ``key``."""
        return self.replace(attrs={k: v for k, v in self.attrs.items() if k != key})

    def replace(self, **fields: Any) -> Function:
        """A copy with some constructor arguments changed."""
        old: dict[str, Any] = {
            "params": self.params,
            "body": self.body,
            "ret_struct_info": self.ret_struct_info,
            "is_pure": self.is_pure,
            "attrs": self.attrs,
            "span": self.span,
        }
        return Function(**{**old, **fields})

    def bind_symbolic_vars(self, binding_map: Mapping[tir.Var | str, Dim]) -> Function:
        """A copy with symbolic variables replaced; a name must fit exactly one variable."""
        return late.bind_symbolic_vars.call(self, binding_map)

    def bind_params(self, binding_map: Mapping[Var | str, Any]) -> Function:
        """A copy with parameters replaced by values, which must fit the parameters' struct info."""
        return late.bind_params.call(self, binding_map)

    def inline_functions(
        self,
        function_map: Mapping[GlobalVar, Function]
        | Mapping[str, Function]
        | Mapping[GlobalVar | str, Function],
    ) -> Function:
        """A copy with the calls of these functions, by name or GlobalVar, replaced by their bodies.

        Calls that the bodies bring in are inlined, too. Raises ValueError where a name and a
        GlobalVar say the same, TransformError where a function that is called reaches itself.
        """
        home = importlib.import_module("relax2xla.transform.normal.inline_private")
        return home.inline_functions(self, function_map)


def convert_to_expr(value: Any) -> Expr:
    """``value`` as an expression.

    Expr stays; int, float and PrimExpr become PrimValue, str StringImm, tuple and list Tuple.
    ``tir.StringImm`` is refused (it could be a StringImm or a PrimValue), and so is everything
    else: TypeError.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, tir.StringImm):
        raise TypeError("tir.StringImm is ambiguous here; use a str or relax.PrimValue")
    if isinstance(value, tir.PrimExpr | int):
        return PrimValue(value)
    if isinstance(value, float):
        return PrimValue(tir.FloatImm("float64", value))
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, tuple | list):
        return Tuple(value)
    raise TypeError(
        f"cannot convert {type(value).__name__} {value!r} to a Relax expression; "
        "use relax.const(...) for tensors and relax.PrimValue(...) for scalars"
    )


def global_symbol(func: Function) -> str | None:
    """The public name of a function; None for a private one."""
    symbol = func.attrs.get("global_symbol")
    if symbol is not None and not isinstance(symbol, str):
        raise TVMError(f"the attribute global_symbol must be a string; got {symbol!r}")
    return symbol
