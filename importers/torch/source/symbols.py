"""Symbolic integers of torch.export (sympy expressions) as symbolic integers of Relax."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any

import sympy
import torch

from relax2xla import tir
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.source.torch_internals import free_unbacked_symbols
from relax2xla.ir import Expr

Dim = tir.Dim


def _power(base: Any, exponent: Any) -> Any:
    if not isinstance(exponent, int) or exponent < 0:
        raise Unsupported(f"the symbolic power {base}**{exponent} has no integer form")
    return reduce(lambda a, b: a * b, [base] * exponent, 1)


def _floordiv(a: Any, b: Any) -> Any:
    return a // b


def _truncdiv(a: Any, b: Any) -> Any:
    return tir.truncdiv(a, b)


def _otherwise(rest: Any, pair: tuple[Any, Any]) -> Any:
    value, condition = pair
    return tir.if_then_else(condition, value, rest)


def _nearest(top: Any, down: int) -> Any:
    """The whole number next to a fraction, of two the even one."""
    doubled = 2 * top + down
    above = doubled // (2 * down)
    tie = tir.all(tir.EQ.make(doubled % (2 * down), 0), tir.EQ.make(above % 2, 1))
    return tir.if_then_else(tie, above - 1, above)


def _relation(kind: Any, compute: Callable[[int, int], bool]) -> Callable[[Any, Any], Any]:
    """A comparison; of a symbol with a number that is no int64 (torch's bounds) it is settled."""

    def convert(a: Any, b: Any) -> Any:
        if all(not isinstance(x, int) or -(2**63) <= x < 2**63 for x in (a, b)):
            return kind.make(a, b)
        return compute(*(x if isinstance(x, int) else 0 for x in (a, b)))

    return convert


# sympy class name to a function of converted arguments; sizes are never negative, so the
# remainders of C and of Python agree on them.
RULES: dict[str, Callable[..., Any]] = {
    "Add": lambda *a: reduce(lambda x, y: x + y, a),
    "Mul": lambda *a: reduce(lambda x, y: x * y, a),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": _floordiv,
    "CleanDiv": _floordiv,
    "IntTrueDiv": _truncdiv,
    "CeilDiv": lambda a, b: (a + b - 1) // b,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "ModularIndexing": lambda a, b, c: (a // b) % c,
    "Max": lambda *a: reduce(tir.max, a),
    "Min": lambda *a: reduce(tir.min, a),
    "Abs": lambda a: tir.max(a, 0 - a),
    "Identity": lambda a: a,
    "Equality": _relation(tir.EQ, operator.eq),
    "Unequality": _relation(tir.NE, operator.ne),
    "StrictLessThan": _relation(tir.LT, operator.lt),
    "LessThan": _relation(tir.LE, operator.le),
    "StrictGreaterThan": _relation(tir.GT, operator.gt),
    "GreaterThan": _relation(tir.GE, operator.ge),
    "And": tir.all,
    "Or": tir.any,
    "Not": tir.Not,
    "Where": tir.if_then_else,
    "ExprCondPair": lambda value, condition: (value, condition),
    "Piecewise": lambda *pairs: reduce(_otherwise, reversed(pairs[:-1]), pairs[-1][0]),
}

# Whole numbers of symbolic floats, and whether they are the ones below.
WHOLE = {"TruncToInt": True, "FloorToInt": True, "CeilToInt": False}
# The largest denominator of a symbolic float: products with sizes are not rounded then.
EXACT = 1 << 20
_ROUNDED = "the symbolic number {} is rounded, and has no integer form"


def _odd(number: int) -> int:
    """The largest odd divisor: 1 for the powers of two, by which floats are divided exactly."""
    return number // (number & -number)


def _identifier(expr: Any) -> str:
    return re.sub(r"\W+", "_", str(expr).replace("//", "_floordiv_")).strip("_")


class Symbols:
    """The symbolic variables of one program, shared by all shapes in it."""

    def __init__(self, variables: Mapping[str, tir.Var] | None = None) -> None:
        self.variables: dict[str, tir.Var] = {}
        # The user's own variables, by the names of the dimensions.
        self._own = dict(variables or {})
        # Integers among the inputs that may be negative, as no size is.
        self.signed: set[tir.Var] = set()
        # Symbolic floats that are values of the program.
        self.numbers: dict[str, Expr] = {}
        self._memo: dict[Any, Any] = {}
        # By symbol or expression: the variable, factor and offset of the dimension that tells it.
        self.derived: dict[Any, tuple[tir.Var, int, int]] = {}

    def name(self, expr: Any, name: str) -> None:
        """Use the user's name of a dimension for a symbol."""
        taken = {v.name for v in self.variables.values()}
        if str(expr) not in self.variables and name.isidentifier() and name not in taken:
            own = self._own.get(name)
            self.variables[str(expr)] = tir.Var(name, "int64") if own is None else own

    def define(self, expr: Any, value: Dim) -> None:
        """Let a symbol stand for an expression in others."""
        self._memo[expr] = value

    def fresh(self, value: Any) -> Any:
        """The symbol of a size that only data tell, and that nothing has told yet; else None."""
        if not isinstance(value, torch.SymInt) or not free_unbacked_symbols(value):
            return None
        expr = value.node.expr
        known = not expr.is_Symbol or expr in self._memo or str(expr) in self.variables
        return None if known else expr

    def integer(self, value: torch.SymInt) -> Any:
        """An integer among the inputs, which may be negative unless torch knows better."""
        made = self.value(value)
        if isinstance(made, tir.Var):
            lower: Any = value.node.shape_env.bound_sympy(value.node.expr).lower
            if lower < 0:
                self.signed.add(made)
        return made

    def never_negative(self, value: tir.PrimExpr) -> bool:
        """Whether that follows from sizes; numbers that are inputs may be negative."""
        sizes = tir.Analyzer(v for v in tir.free_vars(value) if v not in self.signed)
        return sizes.can_prove_greater_equal(value, 0)

    def derive(self, symbol: Any, factor: int, offset: int) -> tir.PrimExpr | None:
        """Let the dimension ``factor * symbol + offset`` be a variable, and compute ``symbol``.

        ``symbol`` may be an expression that cannot be solved for what is in it, such as ``n // 2``.
        The condition on the variable under which this is exact; None where the symbol is the
        user's own variable.
        """
        known = self.variables.get(str(symbol))
        if known is not None and known in self._own.values():
            return None
        root = _identifier(symbol) if known is None else known.name
        name = root + f"_times_{factor}" * (factor != 1) + f"_plus_{offset}" * bool(offset)
        variable = tir.Var(name.replace("-", "minus_"), "int64")
        self.derived[symbol] = variable, factor, offset
        self.define(symbol, tir.simplify((variable - offset) // factor))
        return tir.EQ.make((variable - offset) % factor, 0)

    def convert(self, expr: Any) -> Any:
        """A sympy expression as an int, a bool or a symbolic expression in normal form."""
        found = self._memo.get(expr)
        if found is None:
            found = self._memo[expr] = self._convert(expr)
        return found

    def _convert(self, expr: Any) -> Any:
        if isinstance(expr, bool | int):
            return expr
        if expr is sympy.true or expr is sympy.false:
            return bool(expr)
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            name = str(expr)
            if expr.is_integer is False:
                raise Unsupported(f"the symbolic number {name} where an integer is needed")
            if name not in self.variables:
                self.variables[name] = tir.Var(name, "int64")
            return self.variables[name]
        kind = type(expr).__name__
        if kind in WHOLE:
            top, down = self._fraction(expr.args[0])
            if kind == "TruncToInt" and not self.never_negative(top):
                made = tir.truncdiv(top, down)
            else:
                made = (top if WHOLE[kind] else top + down - 1) // down
        elif kind == "RoundToInt":
            made = _nearest(*self._fraction(expr.args[0]))
        elif kind == "Mul" and (whole := self._multiple(expr)) is not None:
            made = whole
        elif kind in RULES:
            made = RULES[kind](*(self.convert(a) for a in expr.args))
        else:
            raise Unsupported(f"the symbolic expression {expr} has no Relax counterpart")
        return tir.simplify(made) if isinstance(made, tir.PrimExpr) else made

    def _multiple(self, product: Any) -> Any:
        """A product in which a derived symbol has (a multiple of) its factor."""
        number, rest = product.as_coeff_Mul()
        for symbol in sympy.Mul.make_args(rest):
            variable, factor, offset = self.derived.get(symbol, (None, 1, 0))
            if variable is not None and number % factor == 0:
                return (variable - offset) * self.convert(number // factor * (rest / symbol))
        return None

    def _fraction(self, number: Any) -> tuple[Any, int]:
        """``1.5 * n`` and ``n / 2 + 1`` as whole numbers, above and below, where floats are exact.

        A quotient by anything but a power of two is rounded, but still on its side of each whole
        number, and stays there when numbers that are not rounded are added; a factor must not make
        a whole number of it.
        """
        kind = type(number).__name__
        if number.is_integer and not number.atoms(sympy.Float):
            top, down = self.convert(number), 1
        elif kind == "ToFloat":
            top, down = self.convert(number.args[0]), 1
        elif number.is_Float or number.is_Rational:
            top, down = float(number).as_integer_ratio()
        elif kind == "Add":
            terms = [self._fraction(term) for term in number.args]
            if sum(_odd(d) > 1 for _, d in terms) > 1:
                raise Unsupported(_ROUNDED.format(number))
            down = math.lcm(*(d for _, d in terms))
            top = sum(t * (down // d) for t, d in terms)
        elif kind == "Mul":
            top, down = 1, 1
            for factor in number.args:
                up, under = self._fraction(factor)
                if any(
                    _odd(d) > 1 and not (isinstance(t, int) and math.gcd(t, _odd(d)) == 1)
                    for t, d in ((top, under), (up, down))
                ):
                    raise Unsupported(_ROUNDED.format(number))
                top, down = top * up, down * under
        elif kind in ("IntTrueDiv", "FloatTrueDiv") and number.args[1].is_number:
            top, down = self._fraction(number.args[0])
            up, under = float(number.args[1]).as_integer_ratio()
            top, down = top * under, down * up
        else:
            raise Unsupported(f"the symbolic number {number} has no integer form")
        if down < 0:
            top, down = -top, -down
        if not 0 < down <= EXACT:
            raise Unsupported(_ROUNDED.format(number))
        return top, down

    def value(self, value: Any) -> Any:
        """A SymInt, SymBool or number as a number or a symbolic expression."""
        if isinstance(value, torch.SymInt | torch.SymBool):
            return self.convert(value.node.expr)
        if isinstance(value, torch.SymFloat):
            raise Unsupported(f"the symbolic float {value} has no Relax counterpart")
        return value

    def dims(self, shape: Iterable[Any]) -> tuple[Dim, ...]:
        """A torch shape as dimensions."""
        return tuple(d if type(d) is int else self.value(d) for d in shape)
