"""The normal form of proofs: equal integer expressions come to one form wherever that is cheap.

Products are multiplied out, remainders become quotients (``x % c`` is ``x - x // c * c``), minima
become maxima, a quotient keeps nothing that its divisor divides, factors and operands are in one
order. The result is not for reading.
"""

from __future__ import annotations

from math import gcd

from relax2xla.tir.arith.bounds import Interval
from relax2xla.tir.arith.form import Form, common_factors, divided, expandable
from relax2xla.tir.arith.linear import Linear, Term, product
from relax2xla.tir.binary import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    Add,
    BinaryExpr,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mul,
)
from relax2xla.tir.convert import const
from relax2xla.tir.node import PrimExpr

_DIVISION_STEPS = 64
"""Steps after which the division of one sum by another is given up."""


class ProofForm(Form):
    """Normal forms in which equality is the equality of sums."""

    def _write(self, form: Linear, dtype: str) -> PrimExpr:
        # Hashes give an order that is the same for both sides of a comparison in this process;
        # two factors of one hash only cost a proof.
        result: PrimExpr = const(form.const, dtype)
        for term in sorted(form, key=_rank):
            factors = product(sorted(term.factors, key=hash))
            result = Add.make(result, Mul.make(factors, const(term.coefficient, dtype)))
        return result

    def _product(self, a: Linear, b: Linear, dtype: str) -> Linear:
        if not expandable(a, b):
            result = Linear()
            result.add(1, (self.expr(a, dtype), self.expr(b, dtype)))
            return result
        result = Linear()
        for x in a:
            for y in b:
                result.add(x.coefficient * y.coefficient, x.factors + y.factors)
            if b.const:
                result.add(x.coefficient * b.const, x.factors)
        result.add_scaled(a.const, b)
        return result

    # -- division ----------------------------------------------------------------------------
    def _floordiv(self, a: Linear, b: Linear, dtype: str) -> Linear:
        if b.is_const:
            if b.const == 0:
                return self._factor(FloorDiv(self.expr(a, dtype), self.expr(b, dtype)))
            if b.const < 0:
                a, b = a.scaled(-1), b.scaled(-1)
            return self._floordiv_literal(a, b.const, dtype)
        scale, shared = common_factors(a, b)
        if scale > 1 or shared:
            return self._floordiv(divided(a, scale, shared), divided(b, scale, shared), dtype)
        quotient = _polynomial_quotient(a, b)
        if quotient is not None:
            return quotient
        quotient, rest = self.split(a, b)
        bound, by = self.interval(rest), self.interval(b)
        if not (
            bound.at_least(0) and by.lo is not None and bound.hi is not None and bound.hi < by.lo
        ):
            node = FloorDiv.make(self.expr(rest, dtype), self.expr(b, dtype))
            quotient.add_scaled(1, self._factor(node))
        return quotient

    def _floordiv_literal(self, a: Linear, c: int, dtype: str) -> Linear:
        quotient, rest = Linear(a.const // c), Linear(a.const % c)
        for t in a:
            # Every coefficient between 0 and c, so that the rest has one form.
            quotient.add(t.coefficient // c, t.factors) if t.coefficient // c else None
            if t.coefficient % c:
                rest.add(t.coefficient % c, t.factors)
        if rest.is_const:
            return quotient
        bound = self.interval(rest)
        if bound.lo is None or bound.hi is None:
            # The bound of the dividend itself can be tighter: n - n // 8 * 8 is below 8.
            whole = self.interval(a)
            if whole.lo is not None and whole.hi is not None and whole.lo // c == whole.hi // c:
                return Linear(whole.lo // c)
        elif bound.lo // c == bound.hi // c:
            quotient.const += bound.lo // c
            return quotient
        g = gcd(c, *(t.coefficient for t in rest))
        if g > 1:
            small = Linear(rest.const // g)
            for t in rest:
                small.add(t.coefficient // g, t.factors)
            quotient.add_scaled(1, self._floordiv_literal(small, c // g, dtype))
            return quotient
        if len(rest) == 1:
            (only,) = rest
            inner = only.factors[0]
            if only.coefficient == 1 and len(only.factors) == 1 and isinstance(inner, FloorDiv):
                d = self.linear(inner.b)
                if d.is_const and d.const > 0:
                    whole = self.linear(inner.a).scaled(1)
                    whole.const += d.const * rest.const
                    quotient.add_scaled(1, self._floordiv_literal(whole, c * d.const, dtype))
                    return quotient
        node = FloorDiv.make(self.expr(rest, dtype), const(c, dtype))
        quotient.add_scaled(1, self._factor(node))
        return quotient

    def _floormod(self, a: Linear, b: Linear, dtype: str) -> Linear:
        if b.is_const and b.const == 0:
            return self._factor(FloorMod(self.expr(a, dtype), self.expr(b, dtype)))
        return a.minus(self._product(self._floordiv(a, b, dtype), b, dtype))

    # -- extrema -----------------------------------------------------------------------------
    def _extremum(self, kind: type[BinaryExpr], a: Linear, b: Linear, dtype: str) -> Linear:
        if kind is Min:
            return self._maximum(a.scaled(-1), b.scaled(-1), dtype).scaled(-1)
        return self._maximum(a, b, dtype)

    def _maximum(self, a: Linear, b: Linear, dtype: str) -> Linear:
        operands: list[Linear] = []
        for operand in (*self._operands(a), *self._operands(b)):
            kept = list[Linear]()
            for other in operands:
                difference = self.interval(other.minus(operand))
                if difference.at_least(0):
                    break
                if not difference.at_most(0):
                    kept.append(other)
            else:
                operands = [*kept, operand]
        if len(operands) == 1:
            return operands[0]
        if len(operands) == 2:
            return self._maximum_of_two(operands[0], operands[1], dtype)
        written = sorted((self.expr(o, dtype) for o in operands), key=hash)
        node = written[0]
        for operand in written[1:]:
            node = Max.make(node, operand)
        return self._factor(node)

    def _maximum_of_two(self, a: Linear, b: Linear, dtype: str) -> Linear:
        """``b + max(a - b, 0)``, with the sign of ``a - b`` chosen by the order of its terms."""
        difference = a.minus(b)
        scale = gcd(difference.const, *(t.coefficient for t in difference))
        if min(difference, key=_rank).coefficient < 0:
            scale = -scale
        one = divided(difference, scale, ())
        node = self._factor(Max.make(self.expr(one, dtype), const(0, dtype)))
        # max(s * d, 0) is s * max(d, 0) for s > 0, and s * (max(d, 0) - d) ... for s < 0:
        # max(-d, 0) == max(d, 0) - d.
        result = node.scaled(abs(scale))
        if scale < 0:
            result.add_scaled(scale, one)
        result.add_scaled(1, b)
        return result

    def _operands(self, form: Linear) -> list[Linear]:
        """``x + max(y, z)`` as the operands ``x + y`` and ``x + z``; other forms as themselves."""
        found = [
            t for t in form if len(t.factors) == 1 and isinstance(t.factors[0], Max)
            and t.coefficient > 0
        ]  # fmt: skip
        if len(found) != 1:
            return [form]
        (term,) = found
        rest = form.scaled(1)
        rest.add(-term.coefficient, term.factors)
        out: list[Linear] = []
        stack = [term.factors[0]]
        while stack:
            node = stack.pop()
            if isinstance(node, Max):
                stack += (node.b, node.a)
                continue
            operand = rest.scaled(1)
            operand.add_scaled(term.coefficient, self.linear(node))
            out.append(operand)
        return out

    # -- conditions --------------------------------------------------------------------------
    def _compare(self, kind: type[BinaryExpr], a: Linear, b: Linear, dtype: str) -> Linear:
        if kind in (GT, GE):
            a, b, kind = b, a, LT if kind is GT else LE
        difference = a.minus(b)
        if kind is LE:
            difference.const -= 1  # x <= 0 is x - 1 < 0
            kind = LT
        bound = self.interval(difference)
        if kind is LT:
            if bound.at_most(-1) or bound.at_least(0):
                return Linear(int(bound.at_most(-1)))
            # Divided by the common divisor of the terms: g * x + c < 0 is x + floor(c / g) < 0
            # with the constant rounded so that no integer changes sides.
            g = gcd(*(t.coefficient for t in difference))
            small = Linear(difference.const // g)
            for t in difference:
                small.add(t.coefficient // g, t.factors)
            return self._factor(LT.make(self.expr(small, dtype), const(0, dtype)))
        same = difference.is_const and difference.const == 0
        g = gcd(*(t.coefficient for t in difference)) or 1
        if same or bound.at_least(1) or bound.at_most(-1) or difference.const % g:
            return Linear(int(same == (kind is EQ)))
        if min(difference, key=_rank).coefficient < 0:
            g = -g
        small = divided(difference, g, ())
        return self._factor(kind.make(self.expr(small, dtype), const(0, dtype)))

    # -- intervals ---------------------------------------------------------------------------
    def interval(self, form: Linear) -> Interval:
        """Bounds of a form's value, also those that quotients give when read as remainders."""
        result = super().interval(form)
        left = Interval(0, 0)
        for _ in range(len(form)):
            if result.lo is not None and result.hi is not None:
                break
            reading = self._as_remainder(form)
            if reading is None:
                break
            form, extra = reading
            left = left.plus(extra)
            result = result.intersect(super().interval(form).plus(left))
        return result

    def _as_remainder(self, form: Linear) -> tuple[Linear, Interval] | None:
        """``form`` with one ``k * c * (x // c)`` taken out as ``k * x`` and the interval of what
        that leaves, ``-k * (x % c)``; None when there is none."""
        for term in form:
            node = term.factors[0]
            if not isinstance(node, FloorDiv) or len(term.factors) != 1:
                continue
            by = self.linear(node.b)
            if not by.is_const or by.const <= 0 or term.coefficient % by.const:
                continue
            k = term.coefficient // by.const
            rest = form.scaled(1)
            rest.add(-term.coefficient, term.factors)
            rest.add_scaled(k, self.linear(node.a))
            return rest, Interval(0, by.const - 1).scaled(-k)
        return None


def _rank(term: Term) -> tuple[int, int]:
    return (len(term.factors), hash(frozenset(term.factors)) ^ sum(map(hash, term.factors)))


def _polynomial_quotient(a: Linear, b: Linear) -> Linear | None:
    """``a / b`` for sums that divide exactly, None otherwise: long division by leading terms."""
    if len(b) + (b.const != 0) < 2 or a.is_const:
        return None
    order = sorted({f for t in (*a, *b) for f in t.factors}, key=hash)

    def leading(form: Linear) -> Term:
        return max(form, key=lambda t: (len(t.factors), [t.factors.count(f) for f in order]))

    head = leading(b)
    quotient, rest = Linear(), a.scaled(1)
    for _ in range(_DIVISION_STEPS):
        if rest.is_const:
            # A constant left over is only divisible when nothing of it is left.
            return quotient if rest.const == 0 else None
        top = leading(rest)
        left = list(top.factors)
        for factor in head.factors:
            if factor not in left:
                return None
            left.remove(factor)
        if top.coefficient % head.coefficient:
            return None
        step = Linear()
        if left:
            step.add(top.coefficient // head.coefficient, tuple(left))
        else:
            step.const = top.coefficient // head.coefficient
        quotient.add_scaled(1, step)
        for x in b:
            for y in step:
                rest.add(-x.coefficient * y.coefficient, x.factors + y.factors)
            if step.const:
                rest.add(-x.coefficient * step.const, x.factors)
        rest.add_scaled(-b.const, step)
    return None
