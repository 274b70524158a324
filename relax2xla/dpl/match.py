"""The matcher: whether an expression is what a pattern describes, and which part is which.

Patterns say what they look at (``DFPattern.test``); the matcher remembers what each pattern node
has matched, takes that back where a try fails, looks through variables to what they are bound to,
and solves the symbolic dimensions of struct infos. One loop drives it all, so neither deep graphs
nor deep patterns cost Python frames. As in TVM, a choice that has matched (a side of ``|``, an
order of the operands) is not taken back because of what comes later.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Protocol, TypeAlias

from relax2xla import tir
from relax2xla.ir.expr import Call, Expr, SeqExpr, Var
from relax2xla.ir.lattice import is_base_of
from relax2xla.ir.op import Op
from relax2xla.ir.struct_info import (
    Dims,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relax2xla.tir import Dim

Values: TypeAlias = Mapping[Var, Expr]
"""What variables are bound to; those that are missing are leaves."""


class Node(Protocol):
    """What the matcher wants of a pattern."""

    def test(self, m: Matcher, value: Expr, at: Expr) -> bool | Steps:
        """Whether ``value`` matches; ``at`` is the operand that it was reached by.

        Where parts have to match, a generator: it yields each part with its operand, gets whether
        they match, and returns the answer.
        """
        ...


Steps: TypeAlias = Generator[tuple[Node, Expr], bool, bool]


def key_of(value: Expr) -> object:
    """By what patterns are indexed: the operator that ``value`` calls, else what it is."""
    if type(value) is Call:
        op = value.op
        return op if isinstance(op, Op) else (Call, type(op))
    return type(value)


_Mark: TypeAlias = tuple[int, Mapping[tir.Var, Dim], tuple[tuple[Dim, Dim], ...]]
"""How far the matcher has come: how much is found, what dimensions are, what is open of them."""


class Matcher:
    """Matches expressions; variables in them are bound to ``values``, else as they are defined.

    found: what each pattern node has matched, variables looked through; at: the operands as they
    stand; dims: what symbolic dimensions of the pattern stand for; visits: pairs that were compared
    """

    def __init__(self, values: Values | None = None) -> None:
        self._defined: dict[Var, Expr] = {}
        self.values: Values = self._defined if values is None else values
        self.visits = 0
        self._clear()

    def _clear(self) -> None:
        self.found: dict[Any, Expr] = {}
        self.at: dict[Any, Expr] = {}
        self.dims: Mapping[tir.Var, Dim] = {}
        self._open: tuple[tuple[Dim, Dim], ...] = ()

    def match(self, pattern: Node, expr: Expr) -> bool:
        """Whether ``expr`` matches; ``found`` and ``at`` are then those of this match."""
        self._clear()
        return self._drive(pattern, expr) and all(self._equal(a, b) for a, b in self._open)

    def value(self, expr: Expr) -> Expr:
        """``expr`` with variables, and sequences without bindings, looked through."""
        while type(expr) is not Call:  # as most values are
            if isinstance(expr, Var):
                bound = self.values.get(expr)
                if bound is None:
                    return expr
                expr = bound
            elif isinstance(expr, SeqExpr) and not expr.blocks:
                expr = expr.body
            else:
                return expr
        return expr

    def define(self, var: Var, value: Expr) -> None:
        """``var`` is bound to ``value``; of a copy, to what that is bound to."""
        self._defined[var] = self.value(value)

    def forget(self, var: Var) -> None:
        """``var`` is a leaf from now on."""
        self._defined.pop(var, None)

    def mark(self) -> _Mark:
        """For :meth:`undo`."""
        return len(self.found), self.dims, self._open

    def undo(self, mark: _Mark) -> None:
        """Forget what was matched since."""
        matched, self.dims, self._open = mark
        while len(self.found) > matched:
            self.at.pop(self.found.popitem()[0])

    def leaf(self, pattern: Node, at: Expr) -> bool:
        """Whether the operand ``at`` matches a pattern that has no parts to match."""
        self.visits += 1
        value = self.value(at)
        known = self.found.get(pattern)
        if known is not None:
            return known is value
        return pattern.test(self, value, at) is True and self.note(pattern, value, at)

    def _drive(self, pattern: Node, at: Expr) -> bool:
        stack: list[tuple[Steps, Node, Expr, Expr, _Mark]] = []
        while True:
            self.visits += 1
            value = self.value(at)
            known = self.found.get(pattern)
            # None starts what has just been put on the stack.
            result: bool | None = None
            if known is not None:
                result = known is value
            else:
                made = pattern.test(self, value, at)
                if isinstance(made, bool):
                    result = made and self.note(pattern, value, at)
                else:
                    stack.append((made, pattern, value, at, self.mark()))
            while stack:
                steps, outer, value, at, mark = stack[-1]
                try:
                    pattern, at = next(steps) if result is None else steps.send(result)
                except StopIteration as stop:
                    stack.pop()
                    result = bool(stop.value)
                    if result:
                        self.note(outer, value, at)
                    else:
                        self.undo(mark)
                else:
                    break
            else:
                return bool(result)

    def note(self, pattern: Node, value: Expr, at: Expr) -> bool:
        """``pattern`` has matched ``value``, reached by ``at``; True."""
        self.found[pattern], self.at[pattern] = value, at
        return True

    # -- struct infos --------------------------------------------------------------------------
    def describes(self, want: StructInfo, have: StructInfo | None) -> bool:
        """Whether ``want`` describes every value that ``have`` does.

        Symbolic dimensions of ``want`` stand for any dimension, everywhere for the same one.
        """
        match want, have:
            case _, None:
                return False
            case ObjectStructInfo(), _:
                return True
            case TensorStructInfo(), TensorStructInfo():
                if want.dtype and want.dtype != have.dtype:
                    return False
                if want.vdevice is not None and want.vdevice != have.vdevice:
                    return False
                if want.dims is not None:
                    return self._shape(want.dims, have.dims)
                if want.shape is not None:
                    return want.shape is have.shape
                return want.ndim in (-1, have.ndim)
            case ShapeStructInfo(), ShapeStructInfo():
                if want.values is not None:
                    return self._shape(want.values, have.values)
                return want.ndim in (-1, have.ndim)
            case PrimStructInfo(), PrimStructInfo():
                if want.value is None:
                    return want.dtype == have.dtype
                if have.value is None or want.dtype != have.dtype:
                    return False
                if "int" not in want.dtype:
                    return want.value == have.value
                return self._dim(tir.as_dim(want.value), tir.as_dim(have.value))
            case TupleStructInfo(), TupleStructInfo():
                return len(want.fields) == len(have.fields) and all(
                    map(self.describes, want.fields, have.fields)
                )
            case _:
                return is_base_of(want, have)

    def _shape(self, want: Dims, have: Dims | None) -> bool:
        return have is not None and len(want) == len(have) and all(map(self._dim, want, have))

    def _dim(self, want: Dim, have: Dim) -> bool:
        if isinstance(want, tir.Var) and want not in self.dims:
            self.dims = {**self.dims, want: have}
            return True
        if self._unknown(want):
            # What it stands for may yet be seen.
            self._open = (*self._open, (want, have))
            return True
        return self._equal(want, have)

    def _unknown(self, want: Dim) -> bool:
        return not isinstance(want, int) and any(v not in self.dims for v in tir.free_vars(want))

    def _equal(self, want: Dim, have: Dim) -> bool:
        if self._unknown(want):
            # A symbol that stands nowhere alone: there may be a number for it.
            return True
        if not isinstance(want, int):
            want = tir.as_dim(tir.simplify(tir.substitute(want, dict(self.dims))))
        return want == have or tir.can_prove_equal(want, have)
