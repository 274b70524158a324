"""The normal form that is shown: the one TVM's analyzer prints.

Sources: the observed results of ``tvm.arith.Analyzer.simplify`` (TVM 0.25), which
``tests/tir/cases_tvm.tsv`` holds. What is peculiar to it:

- terms by falling coefficient, then quotients before variables before remainders, otherwise in
  order of appearance; the constant behind the positive terms, then what is subtracted;
- ``(n + 6) // 4`` keeps its constant (only multiples of the divisor leave a quotient), but
  ``(n + 6) % 4`` is ``(n + 2) % 4``;
- ``n * m + n * k`` is ``(m + k) * n``; a product of sums is not multiplied out;
- comparisons are written with ``<`` and ``<=`` only.
"""

from __future__ import annotations

from collections import Counter
from math import gcd
from types import UnionType

from relax2xla.tir.arith.form import Form, common_factors, divided, multiplied, without
from relax2xla.tir.arith.linear import Linear, Term, product
from relax2xla.tir.binary import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    BinaryExpr,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mul,
    Sub,
)
from relax2xla.tir.convert import const
from relax2xla.tir.node import IntImm, PrimExpr

_INFINITE = 1 << 200
"""The upper factor of a term that is not a remainder."""


class TextForm(Form):
    """Normal forms in TVM's wording."""

    # -- writing -----------------------------------------------------------------------------
    def _write(self, form: Linear, dtype: str) -> PrimExpr:
        if form.is_const:
            return const(form.const, dtype)
        ordered = sorted(form, key=_order)
        only = form.single()
        if only is not None and only.coefficient != -1:
            return Mul.make(product(only.factors), const(only.coefficient, dtype))
        positive = [t for t in ordered if t.coefficient > 0]
        negative = [t for t in ordered if t.coefficient < 0]
        result, used = self._factored(positive, negative, dtype)
        for term in positive:
            if term not in used:
                scale = const(term.coefficient, dtype)
                result = Add.make(result, Mul.make(product(term.factors), scale))
        if form.const > 0:
            result = Add.make(result, const(form.const, dtype))
        for term in negative:
            if term not in used:
                scale = const(-term.coefficient, dtype)
                result = Sub.make(result, Mul.make(product(term.factors), scale))
        if form.const < 0:
            result = Sub.make(result, const(-form.const, dtype))
        return result

    def _factored(
        self, positive: list[Term], negative: list[Term], dtype: str
    ) -> tuple[PrimExpr, list[Term]]:
        """The leading terms that share symbolic factors as one product ``(y + z) * x``."""
        zero = const(0, dtype)
        terms = positive + negative
        if not positive or len(terms) < 2:
            return zero, []
        first, second = terms[0], terms[1]
        shared = _shared(first, second)
        if not shared:
            return zero, []
        if abs(first.coefficient) == abs(second.coefficient):
            scale = first.coefficient
        elif second.coefficient == 1 and len(first.factors) == len(shared):
            # n * 4 and n * m: TVM takes the literal for the other factor of n.
            scale = 1
        else:
            return zero, []
        inner = Linear()
        used: list[Term] = []
        for term in terms:
            left = without(term.factors, shared)
            if left is None or (used and scale != 1 and abs(term.coefficient) != scale):
                break
            if scale == 1 and abs(term.coefficient) != 1 and left:
                break
            if left:
                # A factor can itself be a sum: (n - 1) * m + m is n * m.
                inner.add_scaled(term.coefficient // scale, self._inside(left))
            else:
                inner.const += term.coefficient // scale
            used.append(term)
        if len(used) < 2 or inner.is_const:
            return zero, []
        factor = self.expr(inner, dtype)
        return Mul.make(product((factor, *shared)), const(scale, dtype)), used

    def _inside(self, factors: tuple[PrimExpr, ...]) -> Linear:
        if len(factors) == 1:
            return self.linear(factors[0])
        result = Linear()
        result.add(1, factors)
        return result

    # -- sums and products -------------------------------------------------------------------
    def _merged(self, form: Linear, dtype: str) -> Linear:
        """Quotients joined with remainders, ``max(x - c, y) + c`` moved inside."""
        form = self._joined(form, dtype)
        return self._extremum_shift(self._extremum_pair(form, dtype), dtype)

    def _joined(self, form: Linear, dtype: str) -> Linear:
        """``x // c * c`` written as ``x - x % c`` wherever that makes the sum shorter:
        ``x // c * c + x % c`` is ``x``, ``x - x // c * c`` is ``x % c``."""
        if len(form) < 2:
            return form
        for term in form:
            node = term.factors[0]
            if not isinstance(node, FloorDiv):
                continue
            by = self.linear(node.b)
            if by.is_const:
                k, left = divmod(term.coefficient, by.const) if by.const else (0, 1)
                fits = left == 0 and len(term.factors) == 1
            else:
                k, fits = term.coefficient, term.factors[1:] == (node.b,)
            if not fits:
                continue
            dividend = self.linear(node.a)
            remainder = self._floormod(dividend, by, dtype)
            shorter = self._replaced(form, term, dividend.scaled(k), remainder.scaled(-k))
            if len(shorter) < len(form):
                return self._joined(shorter, dtype)
        return form

    @staticmethod
    def _replaced(form: Linear, term: Term, dividend: Linear, remainder: Linear) -> Linear:
        """``form`` with ``dividend + remainder`` for ``term``, where the first of the term and the
        terms of the remainder stood."""
        result = Linear(form.const)
        pending = True
        for other in form:
            if pending and (other is term or other.factors in [t.factors for t in remainder]):
                result.add_scaled(1, dividend)
                result.add_scaled(1, remainder)
                pending = False
            if other is not term:
                result.add(other.coefficient, other.factors)
        return result

    def _extremum_pair(self, form: Linear, dtype: str) -> Linear:
        """``max(a, b) + min(a, b)`` as ``a + b``; ``max(a, b) - max(b, a)`` as 0."""
        found = [t for t in form if _is_factor(t, Max | Min)]
        for i, x in enumerate(found):
            for y in found[i + 1 :]:
                p, q = x.factors[0], y.factors[0]
                if not isinstance(p, Max | Min) or not isinstance(q, Max | Min):
                    continue
                if {p.a, p.b} != {q.a, q.b}:
                    continue
                if type(p) is type(q) or x.coefficient == y.coefficient:
                    form.add(-y.coefficient, y.factors)
                    form.add(y.coefficient, x.factors)
                if type(p) is not type(q) and x.coefficient == y.coefficient:
                    form.add(-2 * x.coefficient, x.factors)
                    form.add_scaled(x.coefficient, self.linear(p.a))
                    form.add_scaled(x.coefficient, self.linear(p.b))
                return form
        return form

    def _extremum_shift(self, form: Linear, dtype: str) -> Linear:
        """``max(x - z, y) + z`` as ``max(x, y + z)``, for a literal or a variable ``z``."""
        for term in form:
            node = term.factors[0]
            if term.coefficient != 1 or len(term.factors) != 1 or not isinstance(node, Max | Min):
                continue
            rest = form.minus(Linear.of(node))
            if rest.is_const and rest.const == 0:
                return form
            for side, other in ((node.a, node.b), (node.b, node.a)):
                inner, outer = self.linear(side), self.linear(other)
                if rest.is_const:
                    fits = (inner.const == -rest.const and bool(inner.terms)) or (
                        outer.is_const and inner.const == -rest.const
                    )
                elif rest.single() is not None:
                    (z,) = rest
                    fits = any(
                        t.factors == z.factors and t.coefficient == -z.coefficient for t in inner
                    )
                else:
                    fits = False
                if fits:
                    pair = [inner.minus(rest.scaled(-1)), outer.minus(rest.scaled(-1))]
                    if side is node.b:
                        pair.reverse()
                    return self._extremum(type(node), pair[0], pair[1], dtype)
        return form

    def _product(self, a: Linear, b: Linear, dtype: str) -> Linear:
        if a.is_const:
            return b.scaled(a.const)
        if b.is_const:
            return a.scaled(b.const)
        coefficient = 1
        factors: tuple[PrimExpr, ...] = ()
        for side in (a, b):
            term = side.single()
            if term is None:
                written = self.expr(side, dtype)
                if not isinstance(written, Mul):
                    factors += (written,)
                    continue
                # A factored sum, such as (m + 1) * n * 2.
                scale, parts = _factors(written)
                coefficient *= scale
                factors += parts
            else:
                coefficient *= term.coefficient
                factors += term.factors
        for factor in factors:
            self._factor_interval(factor)
        result = Linear()
        result.add(coefficient, factors)
        return result

    # -- division ----------------------------------------------------------------------------
    def _floordiv(self, a: Linear, b: Linear, dtype: str) -> Linear:
        if b.is_const and b.const == 0:
            return self._factor(FloorDiv(self.expr(a, dtype), self.expr(b, dtype)))
        a, b = self._reduced(a, b, dtype)
        quotient, rest = self.split(a, b)
        if rest.is_const and b.is_const and b.const:
            quotient.const += rest.const // b.const
            return quotient
        if rest.is_const and rest.const == 0:
            return quotient
        if b.is_const and b.const > 0:
            small = self._floordiv_literal(rest, b.const, dtype)
        else:
            small = self._floordiv_symbol(rest, b, dtype)
        small.add_scaled(1, quotient)
        return self._merged(small, dtype)

    def _reduced(self, a: Linear, b: Linear, dtype: str) -> tuple[Linear, Linear]:
        """Both sides of a quotient without their common factors. A sum that is a factor of every
        term of the other side counts as one factor."""
        if b.is_const:
            return a, b
        if b.single() is None:
            b = Linear.of(self.expr(b, dtype))
        scale, shared = common_factors(a, b)
        if scale > 1 or shared:
            return divided(a, scale, shared), divided(b, scale, shared)
        whole = b.single()
        written = self.expr(a, dtype)
        if whole is not None and isinstance(written, Mul):
            # (m + 1) * n // (m + 1), where the dividend was given as a sum.
            factor_scale, parts = _factors(written)
            if without(parts, whole.factors) is not None:
                one = Linear()
                one.add(factor_scale, parts)
                return one, b
        return a, b

    def _floordiv_literal(self, rest: Linear, c: int, dtype: str) -> Linear:
        bound = self.interval(rest)
        if bound.lo is not None and bound.hi is not None and bound.lo // c == bound.hi // c:
            return Linear(bound.lo // c)
        scales = {abs(t.coefficient) for t in rest}
        g = next(iter(scales)) if len(scales) == 1 else 1
        if g > 1 and c % g == 0 and (rest.const % g == 0 or 0 <= rest.const < g):
            return self._floordiv(divided(rest, g, ()), Linear(c // g), dtype)
        only = next(iter(rest)) if len(rest) == 1 else None
        if only is not None and only.coefficient == 1 and len(only.factors) == 1:
            inner = only.factors[0]
            if isinstance(inner, FloorDiv) and isinstance(inner.b, IntImm) and inner.b.value > 0:
                d = inner.b.value
                x = self.linear(inner.a).scaled(1)
                x.const += d * rest.const
                return self._floordiv(x, Linear(c * d), dtype)
        for t in rest:
            node = t.factors[0]
            if t.coefficient == -1 and _is_factor(t, FloorMod) and isinstance(node, FloorMod):
                # x - x % d is x // d * d
                d = self.linear(node.b)
                x = self.linear(node.a)
                if (
                    d.is_const
                    and d.const % c == 0
                    and rest.minus(x).equals(Linear.of(node).scaled(-1))
                ):
                    return self._floordiv(x, d, dtype).scaled(d.const // c)
        # What remains below the divisor and is smaller than the steps of the others drops out.
        steps = [t for t in rest if abs(t.coefficient) > 1]
        if steps and len(steps) < len(rest):
            step = gcd(*(t.coefficient for t in steps))
            small = Linear(rest.const)
            for t in rest:
                if t not in steps:
                    small.add(t.coefficient, t.factors)
            inside = self.interval(small)
            if step > 1 and c % step == 0 and inside.at_least(0) and inside.at_most(step - 1):
                return self._floordiv(rest.minus(small), Linear(c), dtype)
        return self._factor(FloorDiv.make(self.expr(rest, dtype), const(c, dtype)))

    def _floordiv_symbol(self, a: Linear, b: Linear, dtype: str) -> Linear:
        x, y = self.interval(a), self.interval(b)
        if x.at_least(0) and y.lo is not None and x.hi is not None and x.hi < y.lo:
            return Linear(0)
        return self._factor(FloorDiv.make(self.expr(a, dtype), self.expr(b, dtype)))

    def _floormod(self, a: Linear, b: Linear, dtype: str) -> Linear:
        if b.is_const and b.const > 0:
            return self._floormod_literal(a, b.const, dtype)
        if b.is_const and b.const == 0:
            return self._factor(FloorMod(self.expr(a, dtype), self.expr(b, dtype)))
        if not b.is_const:
            small_a, small_b = self._reduced(a, b, dtype)
            if small_a is not a and small_b is not b:
                scale, shared = common_factors(a, b)
                inner = self._floormod(small_a, small_b, dtype)
                return multiplied(inner.scaled(scale), shared)
            a = small_a
        _, rest = self.split(a, b)
        if rest.is_const and rest.const == 0:
            return Linear(0)
        x, y = self.interval(rest), self.interval(b)
        if x.at_least(0) and y.lo is not None and x.hi is not None and x.hi < y.lo:
            return rest
        return self._factor(FloorMod.make(self.expr(rest, dtype), self.expr(b, dtype)))

    def _floormod_literal(self, a: Linear, c: int, dtype: str) -> Linear:
        rest = Linear(a.const % c)
        plain = all(t.coefficient <= 1 for t in a)
        for t in a:
            size = abs(t.coefficient) % c
            if plain and size > 1 and t.coefficient < 0:
                # n - m * 2 becomes n + m * (c - 2); n * 4 - m * 2 and n - m stay.
                rest.add(c - size, t.factors)
            else:
                rest.add(size if t.coefficient > 0 else -size, t.factors)
        if rest.is_const:
            return rest
        bound = self.interval(rest)
        if bound.at_least(0) and bound.at_most(c - 1):
            return rest
        if len(rest) == 1:
            (only,) = rest
            g = abs(only.coefficient)
            if g > 1 and c % g == 0 and 0 <= rest.const < g:
                whole = divided(rest.minus(Linear(rest.const)), g, ())
                inner = self._floormod(whole, Linear(c // g), dtype).scaled(g)
                inner.const += rest.const
                return inner
            node = only.factors[0]
            if only.coefficient == 1 and len(only.factors) == 1:
                if isinstance(node, FloorMod) and isinstance(node.b, IntImm):
                    if node.b.value % c == 0:
                        inner = self.linear(node.a).scaled(1)
                        inner.const += rest.const
                        return self._floormod(inner, Linear(c), dtype)
                if isinstance(node, FloorDiv) and isinstance(node.b, IntImm) and not rest.const:
                    d = node.b.value
                    if d > 0 and not isinstance(node.a, FloorMod):
                        whole = self._floormod(self.linear(node.a), Linear(c * d), dtype)
                        return self._floordiv(whole, Linear(d), dtype)
        return self._factor(FloorMod.make(self.expr(rest, dtype), const(c, dtype)))

    # -- extrema -----------------------------------------------------------------------------
    def _extremum(self, kind: type[BinaryExpr], a: Linear, b: Linear, dtype: str) -> Linear:
        difference = self.interval(a.minus(b))
        if difference.at_least(0):
            return a if kind is Max else b
        if difference.at_most(0):
            return b if kind is Max else a
        x, y = self.expr(a, dtype), self.expr(b, dtype)
        nested = self._nested(kind, x, y, dtype)
        if nested is not None:
            return nested
        scale = gcd(a.const, b.const, *(t.coefficient for t in (*a, *b)))
        signs = {t.coefficient < 0 for t in (*a, *b)}
        flip = signs == {True} and a.const <= 0 and b.const <= 0
        scaled = {abs(t.coefficient) for t in (*a, *b)} == {scale} and scale > 1
        if scaled or (flip and a.single() is not None and (b.single() or b.const)):
            scale = (scale if scaled else 1) * (-1 if flip else 1)
            inner = self._extremum(
                (Min if kind is Max else Max) if flip else kind,
                divided(a, scale, ()),
                divided(b, scale, ()),
                dtype,
            )
            return inner.scaled(scale)
        shared = Linear()
        if a.terms and b.terms and a.const == b.const:
            shared.const = a.const
        if len(a) + bool(a.const) > 1 and len(b) + bool(b.const) > 1:
            for key, t in a.terms.items():
                other = b.terms.get(key)
                if other is not None and other.coefficient == t.coefficient:
                    shared.add(t.coefficient, t.factors)
        if shared.const or shared.terms:
            inner = self._extremum(kind, a.minus(shared), b.minus(shared), dtype).scaled(1)
            inner.add_scaled(1, shared)
            return inner
        return self._factor(kind.make(x, y))

    def _nested(
        self, kind: type[BinaryExpr], x: PrimExpr, y: PrimExpr, dtype: str
    ) -> Linear | None:
        """``max(max(n, 1), 2)``, ``max(n, min(n, m))``, ``max(max(n, m), n)``."""
        dual = Min if kind is Max else Max
        if isinstance(y, IntImm) and type(x) is kind and isinstance(x, Max | Min):
            if isinstance(x.b, IntImm):
                literal = kind.make(x.b, y)
                return self._extremum(kind, self.linear(x.a), self.linear(literal), dtype)
        for p, q in ((x, y), (y, x)):
            if isinstance(p, Max | Min) and (p.a == q or p.b == q):
                return self.linear(p if type(p) is kind else q)
        if type(x) is dual and type(y) is dual and isinstance(x, Max | Min):
            p, q = x.children(), y.children()
            for i in (0, 1):
                for j in (0, 1):
                    if p[i] == q[j]:
                        other = self._extremum(
                            kind, self.linear(p[1 - i]), self.linear(q[1 - j]), dtype
                        )
                        return self._extremum(dual, other, self.linear(p[i]), dtype)
        return None

    # -- conditions --------------------------------------------------------------------------
    def _compare(self, kind: type[BinaryExpr], a: Linear, b: Linear, dtype: str) -> Linear:
        if kind in (GT, GE):
            return self._compare(LT if kind is GT else LE, b, a, dtype)
        difference = a.minus(b)
        bound = self.interval(difference)
        if kind in (EQ, NE):
            same = difference.is_const and difference.const == 0
            if same or bound.at_least(1) or bound.at_most(-1):
                return Linear(int(same == (kind is EQ)))
            if a.is_const:
                a, b = b, a
            if b.is_const:  # the number stands on the right, alone
                a, b = a.scaled(1), Linear(b.const - a.const)
                a.const = 0
            return self._factor(kind.make(self.expr(a, dtype), self.expr(b, dtype)))
        limit = -1 if kind is LT else 0
        if bound.at_most(limit):
            return Linear(1)
        if bound.at_least(limit + 1):
            return Linear(0)
        return self._factor(self._less(kind, difference, dtype))

    def _less(self, kind: type[BinaryExpr], difference: Linear, dtype: str) -> PrimExpr:
        """``difference < 0`` (or ``<= 0``) with what is added on the left and the rest right."""
        left, right = Linear(), Linear()
        g = gcd(*(t.coefficient for t in difference))
        # g * x + c < 0 is x < ceil(-c / g); g * x + c <= 0 is x <= floor(-c / g).
        bound = -(difference.const // g) if kind is LT else -difference.const // g
        if kind is LE:
            bound = (-difference.const) // g
        for t in difference:
            side = left if t.coefficient > 0 else right
            side.add(abs(t.coefficient) // g, t.factors)
        if not (left.terms and right.terms):
            return self._limit(kind, left, right, bound, dtype)
        if bound == 1 and kind is LT:
            kind, bound = LE, 0
        elif bound == -1 and kind is LE and left.terms:
            kind, bound = LT, 0
        if bound >= 0:
            right.const += bound
        else:
            left.const -= bound
        return kind.make(self.expr(left, dtype), self.expr(right, dtype))

    def _limit(
        self, kind: type[BinaryExpr], left: Linear, right: Linear, bound: int, dtype: str
    ) -> PrimExpr:
        """``left < bound`` or ``-bound < right``; ``n // 2 < 4`` becomes ``n < 8``."""
        term = (left if left.terms else right).single()
        if term is not None and term.coefficient == 1 and len(term.factors) == 1:
            node = term.factors[0]
            if isinstance(node, FloorDiv) and isinstance(node.b, IntImm) and node.b.value > 0:
                c = node.b.value
                difference = self.linear(node.a).scaled(1 if left.terms else -1)
                if left.terms:
                    difference.const -= bound * c if kind is LT else bound * c + c - 1
                else:
                    difference.const += -bound * c if kind is LE else -bound * c + c - 1
                return self._less(kind, difference, dtype)
        if left.terms:
            return kind.make(self.expr(left, dtype), const(bound, dtype))
        return kind.make(const(-bound, dtype), self.expr(right, dtype))


def _order(term: Term) -> tuple[int, int, bool, int]:
    """Falling coefficient; quotients by falling divisor, extrema, the others; remainders last."""
    lower, upper, extremum = 1, _INFINITE, False
    if len(term.factors) == 1:
        node = term.factors[0]
        extremum = isinstance(node, Max | Min)
        if isinstance(node, FloorDiv) and isinstance(node.b, IntImm):
            lower = node.b.value
            node = node.a
        if isinstance(node, FloorMod) and isinstance(node.b, IntImm):
            upper = node.b.value
    return (-term.coefficient, -lower, not extremum, -upper)


def _is_factor(term: Term, kind: type[PrimExpr] | UnionType) -> bool:
    return len(term.factors) == 1 and isinstance(term.factors[0], kind)


def _shared(a: Term, b: Term) -> tuple[PrimExpr, ...]:
    """The common factors of two products ``(x * y) * z``, if they are one side of each."""
    both = Counter(a.factors) & Counter(b.factors)
    shared = tuple(both.elements())
    for term in (a, b):
        sides = (term.factors, term.factors[:-1], term.factors[-1:])
        if not any(Counter(side) == both for side in sides):
            return ()
    return shared


def _factors(node: PrimExpr) -> tuple[int, tuple[PrimExpr, ...]]:
    """A product as its literal scale and its other factors, left to right."""
    scale, out, stack = 1, list[PrimExpr](), [node]
    while stack:
        top = stack.pop()
        if isinstance(top, Mul):
            stack += (top.b, top.a)
        elif isinstance(top, IntImm):
            scale *= top.value
        else:
            out.append(top)
    return scale, tuple(out)
