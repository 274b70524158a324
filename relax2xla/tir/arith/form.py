"""What the two normal forms share: the walk, sums, products, exact division and intervals.

``TextForm`` (text_form.py) writes expressions as TVM does; ``ProofForm`` (proof_form.py) brings
equal expressions to one form at any price in readability. Both map each integer node to a
``Linear``; nodes of other dtypes are one opaque factor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from math import gcd

from relax2xla.tir.arith.bounds import ANY, BOOL, Interval
from relax2xla.tir.arith.linear import Linear, Term
from relax2xla.tir.binary import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryExpr,
    CmpExpr,
    Div,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mod,
    Mul,
    Or,
    Sub,
)
from relax2xla.tir.call import Call
from relax2xla.tir.convert import Cast
from relax2xla.tir.expr import Not, Select
from relax2xla.tir.node import IntImm, PrimExpr, SizeVar, Var, int_range, is_int

_EXPAND_LIMIT = 4096
"""A product whose expansion would have more terms than this stays a product."""


class Form(ABC):
    """Normal forms of the nodes of expressions, kept for the life of this object."""

    def __init__(self, bounds: Mapping[Var, Interval]) -> None:
        self._bounds = bounds
        # The node is kept beside its form so that its id cannot be used again.
        self._memo: dict[int, tuple[PrimExpr, Linear]] = {}
        self._intervals: dict[PrimExpr, Interval] = {}

    # -- the walk ----------------------------------------------------------------------------
    def linear(self, root: PrimExpr) -> Linear:
        """The normal form of ``root``."""
        stack = [root]
        while stack:
            node = stack[-1]
            if id(node) in self._memo:
                stack.pop()
                continue
            needs = [n for _, n in summands(node)] if is_sum(node) else node.children()
            missing = [n for n in needs if id(n) not in self._memo]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            self._memo[id(node)] = (node, self._reduce(node))
        return self._memo[id(root)][1]

    def expr(self, form: Linear, dtype: str) -> PrimExpr:
        """The expression of a form."""
        result = self._write(form, dtype)
        self._memo.setdefault(id(result), (result, form))
        return result

    @abstractmethod
    def _write(self, form: Linear, dtype: str) -> PrimExpr: ...

    def _of(self, node: PrimExpr) -> Linear:
        return self._memo[id(node)][1]

    def _reduce(self, node: PrimExpr) -> Linear:
        """The form of a node whose operands (or summands) have theirs."""
        if isinstance(node, IntImm):
            return Linear(node.value)
        if is_sum(node):
            result = Linear()
            for scale, summand in summands(node):
                result.add_scaled(scale, self._of(summand))
            return self._merged(result, node.dtype)
        if isinstance(node, BinaryExpr):
            a, b = self._of(node.a), self._of(node.b)
            dtype = node.a.dtype
            if is_arithmetic(dtype):
                if isinstance(node, Mul):
                    return self._product(a, b, dtype)
                if isinstance(node, FloorDiv):
                    return self._floordiv(a, b, dtype)
                if isinstance(node, FloorMod):
                    return self._floormod(a, b, dtype)
                if isinstance(node, Div | Mod):
                    return self._truncated(node, a, b)
                if isinstance(node, Min | Max):
                    return self._extremum(type(node), a, b, dtype)
                if isinstance(node, CmpExpr):
                    return self._compare(type(node), a, b, dtype)
            if isinstance(node, And | Or):
                return self._logical(type(node), a, b)
        if isinstance(node, Select) or (isinstance(node, Call) and node.op == "tir.if_then_else"):
            condition, yes, no = node.children()
            c = self._of(condition)
            if c.is_const:
                return self._of(yes if c.const else no)
            if self._of(yes).equals(self._of(no)):
                return self._of(yes)
        if isinstance(node, Not):
            return self._not(self._of(node.a))
        return self._opaque(node)

    def _opaque(self, node: PrimExpr) -> Linear:
        """A node the form does not look into, with its operands simplified."""
        children = node.children()
        if not children:
            return self._factor(node)
        new = [self.expr(self._of(c), c.dtype) for c in children]
        if all(x is y for x, y in zip(new, children, strict=True)):
            return self._factor(node)
        return self._factor(node.rebuild(new))

    def _factor(self, node: PrimExpr) -> Linear:
        """The form of one factor; its interval is computed here, from those of its operands."""
        if isinstance(node, IntImm):
            return Linear(node.value)
        if node not in self._intervals:
            self._intervals[node] = self._interval_of(node)
        return Linear.of(node)

    # -- hooks: what the two forms do differently ------------------------------------------------
    def _merged(self, form: Linear, dtype: str) -> Linear:
        return form

    @abstractmethod
    def _product(self, a: Linear, b: Linear, dtype: str) -> Linear: ...

    @abstractmethod
    def _floordiv(self, a: Linear, b: Linear, dtype: str) -> Linear: ...

    @abstractmethod
    def _floormod(self, a: Linear, b: Linear, dtype: str) -> Linear: ...

    @abstractmethod
    def _extremum(self, kind: type[BinaryExpr], a: Linear, b: Linear, dtype: str) -> Linear: ...

    @abstractmethod
    def _compare(self, kind: type[BinaryExpr], a: Linear, b: Linear, dtype: str) -> Linear: ...

    def _logical(self, kind: type[BinaryExpr], a: Linear, b: Linear) -> Linear:
        return self._factor(kind.make(self.expr(a, "bool"), self.expr(b, "bool")))

    def _not(self, a: Linear) -> Linear:
        return self._factor(negated(self.expr(a, "bool")))

    def _truncated(self, node: BinaryExpr, a: Linear, b: Linear) -> Linear:
        """C's division and remainder: the floor kinds where both operands are not negative."""
        floor = self._floordiv if isinstance(node, Div) else self._floormod
        if self.interval(a).at_least(0) and self.interval(b).at_least(0):
            return floor(a, b, node.dtype)
        if b.is_const and b.const and divisible(a, b.const):
            return floor(a, b, node.dtype)
        return self._opaque(node)

    # -- intervals ---------------------------------------------------------------------------
    def interval(self, form: Linear) -> Interval:
        """Bounds of a form's value."""
        result = Interval(form.const, form.const)
        for term in form:
            result = result.plus(self._term_interval(term).scaled(term.coefficient))
        return result

    def _term_interval(self, term: Term) -> Interval:
        result = Interval(1, 1)
        for factor, power in Counter(term.factors).items():
            one = self._factor_interval(factor)
            for _ in range(power):
                result = result.times(one)
            if power % 2 == 0:
                result = (
                    result.intersect(Interval(0, None)) if len(term.factors) == power else result
                )
        return result

    def _factor_interval(self, factor: PrimExpr) -> Interval:
        found = self._intervals.get(factor)
        if found is None:
            found = self._intervals[factor] = self._interval_of(factor)
        return found

    def _interval_of(self, node: PrimExpr) -> Interval:
        if isinstance(node, Var):
            known = self._bounds.get(node, ANY)
            unsigned = isinstance(node, SizeVar) or node.dtype.startswith("uint")
            return known.intersect(Interval(0, None)) if unsigned else known
        if node.dtype == "bool":
            return BOOL
        if not is_int(node.dtype):
            return ANY
        if isinstance(node, BinaryExpr):
            a, b = self._known(node.a), self._known(node.b)
            if isinstance(node, Max):
                return a.maximum(b)
            if isinstance(node, Min):
                return a.minimum(b)
            if isinstance(node, FloorDiv):
                if isinstance(node.b, IntImm):
                    return a.floordiv(node.b.value) if node.b.value else ANY
                return a.union(Interval(0, 0)) if a.at_least(0) and b.at_least(0) else ANY
            if isinstance(node, FloorMod) and b.at_least(0):
                return Interval(0, None if b.hi is None else max(b.hi - 1, 0))
        if isinstance(node, Select):
            return self._known(node.true_value).union(self._known(node.false_value))
        if isinstance(node, Call) and node.op == "tir.if_then_else":
            return self._known(node.args[1]).union(self._known(node.args[2]))
        if isinstance(node, Cast) and is_int(node.value.dtype):
            inner, (low, high) = self._known(node.value), int_range(node.dtype)
            if inner.at_least(low) and inner.at_most(high):
                return inner
        return Interval(0, None) if node.dtype.startswith("uint") else ANY

    def _known(self, node: PrimExpr) -> Interval:
        if isinstance(node, IntImm):
            return Interval(node.value, node.value)
        return self.interval(self.linear(node))

    # -- division, shared --------------------------------------------------------------------
    def split(self, a: Linear, b: Linear) -> tuple[Linear, Linear]:
        """``(q, r)`` with ``a == q * b + r``: the terms that ``b`` divides, and the rest."""
        quotient, rest = Linear(), Linear()
        divisor = b.single()
        if b.is_const:
            if a.const % b.const == 0:
                quotient.const = a.const // b.const
            else:
                rest.const = a.const
            for t in a:
                if t.coefficient % b.const == 0:
                    quotient.add(t.coefficient // b.const, t.factors)
                else:
                    rest.add(t.coefficient, t.factors)
        elif divisor is not None:
            rest.const = a.const
            for t in a:
                left = without(t.factors, divisor.factors)
                if left is None or t.coefficient % divisor.coefficient:
                    rest.add(t.coefficient, t.factors)
                elif left:
                    quotient.add(t.coefficient // divisor.coefficient, left)
                else:
                    quotient.const += t.coefficient // divisor.coefficient
        else:
            rest = a
        return quotient, rest


def common_factors(a: Linear, b: Linear) -> tuple[int, tuple[PrimExpr, ...]]:
    """The greatest common divisor of all coefficients and constants, and the factors that every
    term of both has; no factors where there is a constant."""
    terms = [*a, *b]
    scale = gcd(a.const, b.const, *(t.coefficient for t in terms))
    if a.const or b.const or not terms:
        return scale, ()
    shared = Counter(terms[0].factors)
    for t in terms[1:]:
        shared &= Counter(t.factors)
    return scale, tuple(shared.elements())


def divided(a: Linear, scale: int, factors: tuple[PrimExpr, ...]) -> Linear:
    """``a / (scale * factors)`` where that divides every term."""
    result = Linear(a.const // scale)
    for t in a:
        left = without(t.factors, factors)
        if left:
            result.add(t.coefficient // scale, left)
        else:
            result.const += t.coefficient // scale
    return result


def multiplied(a: Linear, factors: tuple[PrimExpr, ...]) -> Linear:
    """``a * factors``"""
    if not factors:
        return a
    result = Linear()
    for t in a:
        result.add(t.coefficient, t.factors + factors)
    if a.const:
        result.add(a.const, factors)
    return result


def expandable(a: Linear, b: Linear) -> bool:
    """Whether the product of two sums is small enough to be written out."""
    return (len(a) + 1) * (len(b) + 1) <= _EXPAND_LIMIT


def divisible(a: Linear, divisor: int) -> bool:
    """Whether every coefficient and the constant are multiples of ``divisor``."""
    return a.const % divisor == 0 and all(t.coefficient % divisor == 0 for t in a)


def without(
    factors: tuple[PrimExpr, ...], taken: tuple[PrimExpr, ...]
) -> tuple[PrimExpr, ...] | None:
    """``factors`` less ``taken``, in order; None when ``taken`` is not among them."""
    left = list(factors)
    for factor in taken:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def is_arithmetic(dtype: str) -> bool:
    """Whether the dtype is treated as the whole numbers: signed integers (unsigned ones wrap)."""
    return dtype.startswith("int")


def is_sum(node: PrimExpr) -> bool:
    """Whether a node is a sum, a difference or a literal multiple of whole numbers."""
    if not is_arithmetic(node.dtype):
        return False
    if isinstance(node, Add | Sub):
        return True
    return isinstance(node, Mul) and (isinstance(node.a, IntImm) or isinstance(node.b, IntImm))


def summands(root: PrimExpr) -> list[tuple[int, PrimExpr]]:
    """The summands of nested sums and literal multiples, left to right, with their scales.

    Each distinct node once: ``x + x`` nested 200 times has one summand, not 2 to the 200th.
    """
    order: list[PrimExpr] = []
    seen: set[int] = set()
    stack: list[tuple[PrimExpr, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            if is_sum(node):
                stack += [(child, False) for child in reversed(node.children())]
    scales = dict.fromkeys(seen, 0)
    scales[id(root)] = 1
    for node in reversed(order):
        scale = scales[id(node)]
        if isinstance(node, BinaryExpr) and is_sum(node):
            a, b = node.a, node.b
            if isinstance(node, Add | Sub):
                scales[id(a)] += scale
                scales[id(b)] += scale if isinstance(node, Add) else -scale
            elif isinstance(b, IntImm):
                scales[id(a)] += scale * b.value
            elif isinstance(a, IntImm):
                scales[id(b)] += scale * a.value
    return [(scales[id(node)], node) for node in order if not is_sum(node)]


_NEGATION: dict[type[PrimExpr], tuple[type[CmpExpr], bool]] = {
    # comparison: (its negation, whether the operands are swapped); > and >= are not printed
    LT: (LE, True),
    LE: (LT, True),
    GT: (LE, False),
    GE: (LT, False),
    EQ: (NE, False),
    NE: (EQ, False),
}


def negated(condition: PrimExpr) -> PrimExpr:
    """``not condition``, with a comparison turned round (comparisons of floats stay: nan)."""
    if isinstance(condition, Not):
        return condition.a
    if isinstance(condition, IntImm):
        return IntImm("bool", not condition.value)
    if isinstance(condition, CmpExpr) and is_int(condition.a.dtype):
        kind, swap = _NEGATION[type(condition)]
        return kind.make(condition.b, condition.a) if swap else kind.make(condition.a, condition.b)
    return Not(condition)
