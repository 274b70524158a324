"""The pattern language: what expressions look like, written as expressions of patterns.

::

    x, w = wildcard(), wildcard()
    pattern = is_op("relax.matmul")(x, is_op("relax.permute_dims")(w))

A pattern node is one value of the program: where the same node stands twice, both must be the same
value. Source of names and semantics: ``tvm.relax.dpl``, version 0.20.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from relax2xla import tir
from relax2xla.dpl.match import Matcher, Steps, Values, key_of
from relax2xla.dpl.relations import PatternSeq, SameShapeConstraint
from relax2xla.dtypes import dtype_name
from relax2xla.ir.base import Attrs, freeze
from relax2xla.ir.equal import structural_equal
from relax2xla.ir.expr import (
    Call,
    Constant,
    DataflowVar,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    PrimValue,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
)
from relax2xla.ir.lattice import dims_equal
from relax2xla.ir.op import Op, call_attrs
from relax2xla.ir.struct_info import Dims, StructInfo, TensorStructInfo, as_dims
from relax2xla.ir.types import Type, type_of
from relax2xla.tir import Dim


class DFPattern:
    """Base class of all patterns; each is itself only, whatever it looks like."""

    parts: ClassVar[tuple[str, ...]] = ()
    """The fields that tell one pattern of a class from another, in order of the constructor."""
    is_leaf: ClassVar[bool] = False
    """Whether :meth:`test` answers at once: there are no parts to match."""

    def test(self, m: Matcher, value: Expr, at: Expr) -> bool | Steps:
        """Whether ``value`` matches; see :class:`relax2xla.dpl.match.Node`."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it matches")

    def keys(self) -> frozenset[object] | None:
        """Keys (:func:`relax2xla.dpl.match.key_of`) of what may match; None: of any value."""
        return None

    # -- asking --------------------------------------------------------------------------------
    def match(self, expr: Expr, var2val: Values | None = None) -> bool:
        """Whether ``expr`` matches.

        ``var2val`` says what variables are bound to (``relax2xla.analysis.get_var2val``), so that
        the pattern can look through them; without it, variables are leaves.
        """
        return Matcher(var2val).match(self, expr)

    def extract_matched_expr(
        self, expr: Expr, var2val: Values | None = None
    ) -> dict[DFPattern, Expr] | None:
        """What each node of the pattern has matched; None where ``expr`` does not match.

        Of a variable that ``var2val`` has, it is the value that it is bound to.
        """
        m = Matcher(var2val)
        return m.found if m.match(self, expr) else None

    # -- writing -------------------------------------------------------------------------------
    def __call__(
        self, *args: DFPattern, varg_default_wildcard: bool = False, add_constraint: bool = True
    ) -> CallPattern:
        """A call of this pattern; see :class:`CallPattern`."""
        return CallPattern(self, args, varg_default_wildcard, add_constraint)

    def __or__(self, other: DFPattern) -> OrPattern:
        return OrPattern(self, other)

    def __and__(self, other: DFPattern) -> AndPattern:
        return AndPattern(self, other)

    def __invert__(self) -> NotPattern:
        return NotPattern(self)

    def has_attr(self, attrs: Mapping[str, Any]) -> AttrPattern:
        """This pattern, of a call or function with these attributes."""
        return AttrPattern(self, attrs)

    def has_struct_info(self, struct_info: Any) -> StructInfoPattern:
        """This pattern, of a value that ``struct_info`` describes."""
        return StructInfoPattern(self, struct_info)

    def has_type(self, ttype: Type) -> TypePattern:
        """This pattern, of a value of just this type."""
        return TypePattern(self, ttype)

    def has_dtype(self, dtype: str) -> DataTypePattern:
        """This pattern, of a tensor of this dtype."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[Dim]) -> ShapePattern:
        """This pattern, of a tensor of this shape; ValueError if ``shape`` is no sequence."""
        if not isinstance(shape, list | tuple | ShapeExpr):
            raise ValueError("has_shape takes a list or tuple of dimensions")
        return ShapePattern(self, shape)

    # -- relations between patterns, for PatternContext ----------------------------------------
    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """This pattern, then ``other`` that uses it (as argument ``index``; -1: any)."""
        return PatternSeq([self]).used_by(other, index)

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """As :meth:`used_by`, where nothing else of the block uses this one."""
        return PatternSeq([self]).only_used_by(other, index)

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other)

    def fork_to(self, *args: DFPattern | PatternSeq) -> None:
        """This pattern is used by each of the others."""
        for other in args:
            self.used_by(other)

    def same_shape_as(self, *args: DFPattern) -> SameShapeConstraint:
        """This pattern and the others have the same shape."""
        return SameShapeConstraint(self, *args)

    def dup(self) -> DFPattern:
        """Another node that matches the same; what is below it is shared."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        return new

    def __repr__(self) -> str:
        fields = (getattr(self, name) for name in self.parts)
        return f"{type(self).__name__}({', '.join(map(repr, fields))})"


class ExprPattern(DFPattern):
    """An expression that is structurally equal to ``expr``."""

    parts = ("expr",)
    is_leaf = True

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def test(self, m: Matcher, value: Expr, at: Expr) -> bool:
        if isinstance(self.expr, Op):
            return value is self.expr
        return structural_equal(self.expr, value)

    def keys(self) -> frozenset[object] | None:
        # A callee is asked for its own key: of an operator it is the operator.
        return frozenset([self.expr if isinstance(self.expr, Op) else key_of(self.expr)])


class _Named(DFPattern):
    """A leaf of one kind with a name; the name "" is any."""

    parts = ("name",)
    is_leaf = True
    kind: ClassVar[type[Expr]]

    def __init__(self, name_hint: str = "") -> None:
        self.name = name_hint

    def test(self, m: Matcher, value: Expr, at: Expr) -> bool:
        return isinstance(value, self.kind) and self.named(value)

    def named(self, value: Any) -> bool:
        """Whether the name of ``value`` is right."""
        return self.name in ("", value.name_hint)


class VarPattern(_Named):
    """A variable that is bound to nothing known, such as a parameter."""

    kind = Var

    def keys(self) -> frozenset[object] | None:
        return frozenset([Var, DataflowVar])


class DataflowVarPattern(_Named):
    """A DataflowVar that is bound to nothing known."""

    kind = DataflowVar

    def keys(self) -> frozenset[object] | None:
        return frozenset([DataflowVar])


class GlobalVarPattern(_Named):
    """A GlobalVar whose name holds ``name``."""

    kind = GlobalVar

    def named(self, value: Any) -> bool:
        return self.name in value.name_hint

    def keys(self) -> frozenset[object] | None:
        return frozenset([GlobalVar])


class ExternFuncPattern(DFPattern):
    """The packed function of this name; "" is any."""

    parts = ("global_symbol",)
    is_leaf = True

    def __init__(self, global_symbol: str = "") -> None:
        self.global_symbol = global_symbol

    def test(self, m: Matcher, value: Expr, at: Expr) -> bool:
        return isinstance(value, ExternFunc) and self.global_symbol in ("", value.global_symbol)

    def keys(self) -> frozenset[object] | None:
        return frozenset([ExternFunc])


class ConstantPattern(DFPattern):
    """A Constant."""

    is_leaf = True

    def test(self, m: Matcher, value: Expr, at: Expr) -> bool:
        return isinstance(value, Constant)

    def keys(self) -> frozenset[object] | None:
        return frozenset([Constant])


class WildcardPattern(DFPattern):
    """Anything."""

    is_leaf = True

    def test(self, m: Matcher, value: Expr, at: Expr) -> bool:
        return True


class CallPattern(DFPattern):
    """A call of ``op`` on ``args``.

    ``varg_default_wildcard``: calls with more arguments match, too. ``add_constraint``: inside a
    PatternContext, each argument is also noted as used by the call. Operands of ``relax.add`` and
    ``relax.multiply`` match in either order, and ``a * b / c`` and ``a * (b / c)`` match each other
    where the program nests them.
    """

    parts = ("op", "args", "varg_default_wildcard")

    def __init__(
        self,
        op: DFPattern,
        args: Iterable[DFPattern],
        varg_default_wildcard: bool = False,
        add_constraint: bool = True,
    ) -> None:
        self.op, self.args = op, tuple(args)
        self.varg_default_wildcard = varg_default_wildcard
        for arg in self.args:
            if not isinstance(arg, DFPattern):
                raise TypeError(
                    f"an argument of a call pattern must be a pattern; got {type(arg).__name__}"
                )
        if add_constraint:
            for i, arg in enumerate(self.args):
                arg.used_by(self, i)
        # The operator that has to be called, where the pattern names one.
        named = op.expr if isinstance(op, ExprPattern) else None
        self._named = named if isinstance(named, Op) else None
        self._flips = self._named is not None and self._named.name in COMMUTATIVE
        # Operators that operands have to call, whatever else they are.
        self._needed = [
            (i, a._named)
            for i, a in enumerate(self.args)
            if isinstance(a, CallPattern) and a._named and a._named.name not in _ASSOCIATED
        ]

    def test(self, m: Matcher, value: Expr, at: Expr) -> bool | Steps:
        if not isinstance(value, Call):
            return False
        named = self._named
        # Most patterns name an operator, and most calls are of another one.
        if named is not None and value.op is not named:
            if named.name not in _ASSOCIATED or op_name(value.op) not in _ASSOCIATED:
                return False
        elif named is not None and self._needed and not self._may_match(m, value):
            return False
        return self._steps(m, value)

    def _may_match(self, m: Matcher, call: Call) -> bool:
        """Whether operands call what they have to, in some order; most that fail, fail here."""
        args = call.args
        for i, op in self._needed:
            for arg in args if self._flips else args[i : i + 1]:
                value = m.value(arg)
                if type(value) is Call and value.op is op:
                    break
            else:
                return False
        return True

    def _steps(self, m: Matcher, call: Call) -> Steps:
        if call.op is self._named:
            # An operator matches itself; nothing has to be asked.
            m.visits += 1
            m.note(self.op, call.op, call.op)
        elif not (yield self.op, call.op):
            for other in self._associated(call):
                if (yield other, call):
                    return True
            return False
        given, wanted = len(call.args), len(self.args)
        if given < wanted if self.varg_default_wildcard else given != wanted:
            return False
        flips = isinstance(call.op, Op) and call.op.name in COMMUTATIVE
        mark = m.mark()
        for args in (call.args, call.args[::-1]) if flips else (call.args,):
            for pattern, arg in zip(self.args, args, strict=False):
                if not (m.leaf(pattern, arg) if pattern.is_leaf else (yield pattern, arg)):
                    m.undo(mark)
                    break
            else:
                return True
        return False

    def _associated(self, call: Call) -> Iterator[CallPattern]:
        """``a * b / c`` as ``a * (b / c)``, and back, where ``call`` is nested in that way."""
        name, root = op_name(call.op), op_name(self.op)
        if (root, name) == (DIVIDE, MULTIPLY) and _holds(call, DIVIDE):
            inner = self.args[0]
            if isinstance(inner, CallPattern) and op_name(inner.op) == MULTIPLY:
                for a, b in (inner.args, inner.args[::-1]):
                    quotient = CallPattern(self.op, (a, self.args[1]), False, False)
                    yield CallPattern(inner.op, (b, quotient), False, False)
        if (root, name) == (MULTIPLY, DIVIDE) and _holds(call, MULTIPLY):
            for inner, other in (self.args, self.args[::-1]):
                if isinstance(inner, CallPattern) and op_name(inner.op) == DIVIDE:
                    product = CallPattern(self.op, (inner.args[0], other), False, False)
                    yield CallPattern(inner.op, (product, inner.args[1]), False, False)
                    return

    def keys(self) -> frozenset[object] | None:
        called = self.op.keys()
        if called is None:
            return None
        found = {k if isinstance(k, Op) else (Call, k) for k in called}
        if any(not isinstance(k, Op) for k in called):
            # A variable may be bound to the function.
            found.update(((Call, Var), (Call, DataflowVar)))
        if any(isinstance(a, CallPattern) for a in self.args):
            # See _associated.
            for a, b in ((DIVIDE, MULTIPLY), (MULTIPLY, DIVIDE)):
                if Op.get(a) in found:
                    found.add(Op.get(b))
        return frozenset(found)


COMMUTATIVE = ("relax.add", "relax.multiply")
DIVIDE, MULTIPLY = "relax.divide", "relax.multiply"
_ASSOCIATED = (DIVIDE, MULTIPLY)


def op_name(callee: DFPattern | Expr) -> str:
    """The name of the operator that a callee, or a pattern of one, is; else ""."""
    if isinstance(callee, ExprPattern):
        callee = callee.expr
    return callee.name if isinstance(callee, Op) else ""


def _holds(call: Call, name: str) -> bool:
    return any(isinstance(a, Call) and op_name(a.op) == name for a in call.args)


class FunctionPattern(DFPattern):
    """A function with these parameters and this body."""

    parts = ("params", "body")

    def __init__(self, params: Iterable[DFPattern], body: DFPattern) -> None:
        self.params, self.body = tuple(params), body

    def test(self, m: Matcher, value: Expr, at: Expr) -> bool | Steps:
        if not isinstance(value, Function) or len(value.params) != len(self.params):
            return False
        return _each((*self.params, self.body), (*value.params, value.body))

    def keys(self) -> frozenset[object] | None:
        return frozenset([Function])


def _each(patterns: Iterable[DFPattern], values: Iterable[Expr]) -> Steps:
    for pattern, value in zip(patterns, values, strict=True):
        if not (yield pattern, value):
            return False
    return True


class TuplePattern(DFPattern):
    """A tuple of these fields, in order."""

    parts = ("fields",)

    def __init__(self, fields: Iterable[DFPattern]) -> None:
        self.fields = tuple(fields)

    def test(self, m: Matcher, value: Expr, at: Expr) -> bool | Steps:
        if not isinstance(value, Tuple) or len(value.fields) != len(self.fields):
            return False
        return _each(self.fields, value.fields)

    def keys(self) -> frozenset[object] | None:
        return frozenset([Tuple])

    def __getitem__(self, index: int | None) -> TupleGetItemPattern:
        """A field of this tuple; None: any."""
        if index is not None:
            index = index + len(self) if index < 0 else index
            if not 0 <= index < len(self):
                raise IndexError(f"the tuple pattern has {len(self)} fields; there is no {index}")
        return TupleGetItemPattern(self, index)

    def __len__(self) -> int:
        return len(self.fields)


class UnorderedTuplePattern(DFPattern):
    """A tuple of these fields in any order."""

    parts = ("fields",)

    def __init__(self, fields: Iterable[DFPattern]) -> None:
        self.fields = tuple(fields)

    def __len__(self) -> int:
        return len(self.fields)

    def test(self, m: Matcher, value: Expr, at: Expr) -> bool | Steps:
        if not isinstance(value, Tuple) or len(value.fields) != len(self.fields):
            return False
        return self._steps(m, value.fields)

    def _steps(self, m: Matcher, fields: Sequence[Expr]) -> Steps:
        """Field by field, the first that is free and matches; back where the next finds none."""
        taken: list[int] = []
        marks: list[Any] = []
        at = 0
        while len(taken) < len(fields):
            mark = m.mark()
            found = None
            for i in range(at, len(fields)):
                if i not in taken and (yield self.fields[len(taken)], fields[i]):
                    found = i
                    break
            if found is not None:
                taken.append(found)
                marks.append(mark)
                at = 0
            elif taken:
                at = taken.pop() + 1
                m.undo(marks.pop())
            else:
                return False
        return True

    def keys(self) -> frozenset[object] | None:
        return frozenset([Tuple])


class TupleGetItemPattern(DFPattern):
    """A field of a tuple; ``index`` None is any, and reads as -1."""

    parts = ("tuple", "index")

    def __init__(self, tuple_value: DFPattern, index: int | None = None) -> None:
        self.tuple, self.index = tuple_value, -1 if index is None else index

    def test(self, m: Matcher, value: Expr, at: Expr) -> bool | Steps:
        if not isinstance(value, TupleGetItem) or self.index not in (-1, value.index):
            return False
        return _each((self.tuple,), (value.tuple_value,))

    def keys(self) -> frozenset[object] | None:
        return frozenset([TupleGetItem])


class OrPattern(DFPattern):
    """What one of two patterns matches; the left one is tried first."""

    parts = ("left", "right")

    def __init__(self, left: DFPattern, right: DFPattern) -> None:
        self.left, self.right = left, right

    def test(self, m: Matcher, value: Expr, at: Expr) -> Steps:
        return (yield self.left, at) or (yield self.right, at)

    def keys(self) -> frozenset[object] | None:
        left, right = self.left.keys(), self.right.keys()
        return None if left is None or right is None else left | right


class AndPattern(DFPattern):
    """What two patterns match."""

    parts = ("left", "right")

    def __init__(self, left: DFPattern, right: DFPattern) -> None:
        self.left, self.right = left, right

    def test(self, m: Matcher, value: Expr, at: Expr) -> Steps:
        return (yield self.left, at) and (yield self.right, at)

    def keys(self) -> frozenset[object] | None:
        left, right = self.left.keys(), self.right.keys()
        if left is None or right is None:
            return left if right is None else right
        return left & right


class NotPattern(DFPattern):
    """What a pattern does not match."""

    parts = ("reject",)

    def __init__(self, to_reject: DFPattern) -> None:
        self.reject = to_reject

    def test(self, m: Matcher, value: Expr, at: Expr) -> Steps:
        return not (yield self.reject, at)


class _Narrowed(DFPattern):
    """What another pattern matches, if one more thing holds of it."""

    def __init__(self, pattern: DFPattern) -> None:
        self.pattern = pattern

    def test(self, m: Matcher, value: Expr, at: Expr) -> bool | Steps:
        return self._steps(m, value, at)

    def _steps(self, m: Matcher, value: Expr, at: Expr) -> Steps:
        return (yield self.pattern, at) and self.holds(m, value)

    def holds(self, m: Matcher, value: Expr) -> bool:
        """Whether it holds of ``value``."""
        raise NotImplementedError

    def keys(self) -> frozenset[object] | None:
        return self.pattern.keys()


class StructInfoPattern(_Narrowed):
    """A value that ``struct_info`` describes.

    Symbolic dimensions stand for any dimension, and wherever they stand in the pattern for the
    same one.
    """

    parts = ("pattern", "struct_info")

    def __init__(self, pattern: DFPattern, struct_info: Any) -> None:
        super().__init__(pattern)
        if callable(struct_info) and not isinstance(struct_info, StructInfo):
            struct_info = struct_info()  # R.Tensor without parentheses
        if not isinstance(struct_info, StructInfo):
            raise TypeError(
                f"has_struct_info takes a StructInfo, such as R.Tensor((2, 3), 'float32'); got "
                f"{type(struct_info).__name__}"
            )
        self.struct_info = struct_info

    def holds(self, m: Matcher, value: Expr) -> bool:
        return m.describes(self.struct_info, value.struct_info_)


class TypePattern(_Narrowed):
    """A value of just this type."""

    parts = ("pattern", "type")

    def __init__(self, pattern: DFPattern, ttype: Type) -> None:
        super().__init__(pattern)
        self.type = ttype

    def holds(self, m: Matcher, value: Expr) -> bool:
        return value.struct_info_ is not None and type_of(value.struct_info_) == self.type


class DataTypePattern(_Narrowed):
    """A tensor of this dtype."""

    parts = ("pattern", "dtype")

    def __init__(self, pattern: DFPattern, dtype: str) -> None:
        super().__init__(pattern)
        self.dtype = dtype_name(dtype)

    def holds(self, m: Matcher, value: Expr) -> bool:
        info = value.struct_info_
        return isinstance(info, TensorStructInfo) and info.dtype == self.dtype


class ShapePattern(_Narrowed):
    """A tensor whose shape is provably this."""

    parts = ("pattern", "shape")

    def __init__(self, pattern: DFPattern, shape: Iterable[Dim]) -> None:
        super().__init__(pattern)
        self.shape: Dims = as_dims(shape)

    def holds(self, m: Matcher, value: Expr) -> bool:
        info = value.struct_info_
        return isinstance(info, TensorStructInfo) and dims_equal(self.shape, info.dims)


class AttrPattern(_Narrowed):
    """A call or a function with these attributes, whatever others it has.

    Attributes that a call leaves out have the operator's defaults.
    """

    parts = ("pattern", "attrs")

    def __init__(self, pattern: DFPattern, attrs: Mapping[str, Any]) -> None:
        super().__init__(pattern)
        self.attrs = Attrs(attrs)

    def holds(self, m: Matcher, value: Expr) -> bool:
        if isinstance(value, Call):
            have = call_attrs(value)
        elif isinstance(value, Function):
            have = value.attrs
        else:
            return False
        return all(k in have and same_attr(v, have[k]) for k, v in self.attrs.items())


def same_attr(want: Any, have: Any) -> bool:
    """Whether two attributes are equal, however their numbers and strings are written."""
    return structural_equal(_plain(want), _plain(have))


def _plain(value: Any) -> Any:
    value = freeze(value)
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, PrimValue | StringImm):
        value = value.value
    if isinstance(value, tir.IntImm | tir.FloatImm | tir.StringImm):
        return value.value
    return value


class PrimArrPattern(DFPattern):
    """A shape, as an operand, whose dimensions are provably these."""

    parts = ("fields",)

    def __init__(self, shape: Iterable[Dim]) -> None:
        self.fields: Dims = as_dims(shape)

    def test(self, m: Matcher, value: Expr, at: Expr) -> bool:
        return isinstance(value, ShapeExpr) and dims_equal(self.fields, value.values)

    def keys(self) -> frozenset[object] | None:
        return frozenset([ShapeExpr])

    def __getitem__(self, index: int) -> Dim:
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)
