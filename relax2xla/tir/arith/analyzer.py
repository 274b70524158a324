"""The analyzer: simplification to TVM's normal form, and proofs.

A proof looks only at what is known: bounds of variables, bindings, constraints. ``False`` from
``can_prove`` means "not proved", never "disproved".
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from relax2xla.tir.arith.bounds import ANY, ConstIntBound, Interval, Range
from relax2xla.tir.arith.form import is_arithmetic, negated
from relax2xla.tir.arith.linear import Linear
from relax2xla.tir.arith.proof_form import ProofForm
from relax2xla.tir.arith.text_form import TextForm
from relax2xla.tir.binary import EQ, GE, GT, LE, LT, NE, And, BinaryExpr, CmpExpr, FloorDiv, Max, Or
from relax2xla.tir.convert import as_prim_expr
from relax2xla.tir.expr import Not
from relax2xla.tir.functor import substitute
from relax2xla.tir.node import Dim, IntImm, PrimExpr, Var

_PROOF_STEPS = 64
"""Sums that one proof of a sign may look at."""


class Analyzer:
    """What is known of the variables, and simplification and proofs under it.

    ``shape_vars`` are variables known to be zero or more (a ``SizeVar`` always is).
    """

    def __init__(self, shape_vars: Iterable[Var] = ()) -> None:
        self._bounds: dict[Var, Interval] = {}
        self._values: dict[Var, Dim] = {}
        self._constraints: list[PrimExpr] = []
        self.mark_shape_vars(*shape_vars)
        self._forget()

    # -- knowledge ---------------------------------------------------------------------------
    def bind(self, var: Var, value: Dim | Range | range, allow_override: bool = False) -> None:
        """Say what a variable is: a value, or the range it lies in.

        ``ValueError`` when it is bound already, to something else, without ``allow_override``.
        """
        if isinstance(value, Range | range):
            if isinstance(value, range):
                if value.step != 1:
                    raise ValueError(f"bind: {value} has a step; expected a range of step 1")
                value = Range(value.start, value.stop)
            low = self.const_int_bound(value.min)
            high = self.const_int_bound(value.min + value.extent - 1)
            known = Interval(
                None if low.min_value <= ConstIntBound.NEG_INF else low.min_value,
                None if high.max_value >= ConstIntBound.POS_INF else high.max_value,
            )
            old = self._bounds.get(var)
            if old is not None and not allow_override:
                known = old.intersect(known)
            self._bounds[var] = known
        else:
            old_value = self._values.get(var)
            if old_value is not None and old_value != value and not allow_override:
                raise ValueError(
                    f"bind: `{var}` is bound to `{old_value}` already, cannot bind it to `{value}`;"
                    " pass allow_override=True to replace that"
                )
            self._values[var] = self.simplify(value)
        self._forget()

    def mark_shape_vars(self, *variables: Var) -> None:
        """Say that variables are sizes: zero or more."""
        for var in variables:
            self._bounds[var] = self._bounds.get(var, ANY).intersect(Interval(0, None))
        self._forget()

    def mark_global_non_neg_value(self, value: Dim) -> None:
        """Say that an expression is zero or more, for good (TVM's name)."""
        if isinstance(value, Var):
            self.mark_shape_vars(value)
        elif isinstance(value, PrimExpr):
            self._constraints.append(GE(value, 0))
            self._forget()

    @contextmanager
    def constraint_scope(self, condition: PrimExpr) -> Generator[None]:
        """Inside the ``with`` block ``condition`` is known to hold."""
        count, bounds = len(self._constraints), dict(self._bounds)
        self._constraints.append(condition)
        for form in self._nonnegative([condition]):
            self._tighten(form)
        self._forget()
        try:
            yield
        finally:
            del self._constraints[count:]
            self._bounds = bounds
            self._forget()

    def _forget(self) -> None:
        """Start with empty memos: they hold what was true under the old knowledge."""
        self._text = TextForm(self._bounds)
        self._proof = ProofForm(self._bounds)
        self._known: list[Linear] | None = None

    def _tighten(self, form: Linear) -> None:
        """Use ``form >= 0`` as a bound of the variable, if it has only one."""
        if len(form) != 1:
            return
        (term,) = form
        var = term.factors[0]
        if len(term.factors) != 1 or not isinstance(var, Var):
            return
        if term.coefficient > 0:
            limit = Interval(-(form.const // term.coefficient), None)
        else:
            limit = Interval(None, form.const // -term.coefficient)
        self._bounds[var] = self._bounds.get(var, ANY).intersect(limit)

    def _resolve(self, expr: Dim) -> PrimExpr:
        """``expr`` with bound variables replaced; bindings may refer to bound variables."""
        for _ in range(len(self._values) + 1 if self._values else 0):
            new = substitute(expr, self._values)
            if new is expr:
                break
            expr = new
        return as_prim_expr(expr)

    # -- simplification ----------------------------------------------------------------------
    def simplify(self, expr: Dim) -> Dim:
        """The expression in normal form; an int64 literal comes back as an int."""
        if isinstance(expr, int):
            return expr
        node = self._resolve(expr)
        if node.dtype == "bool" and not isinstance(node, IntImm):
            if self.can_prove(node):
                return IntImm("bool", 1)
            if self.can_prove(negated(node)):
                return IntImm("bool", 0)
        return _as_dim(_simplify(node, self._text, self._proof))

    rewrite_simplify = simplify
    canonical_simplify = simplify

    def const_int_bound(self, expr: Dim) -> ConstIntBound:
        """Smallest and largest value the expression can have, as far as known."""
        node = self._resolve(expr)
        bound = ANY
        if is_arithmetic(node.dtype) or node.dtype == "bool":
            text, proof = self._text, self._proof
            bound = text.interval(text.linear(node)).intersect(proof.interval(proof.linear(node)))
        return ConstIntBound(
            ConstIntBound.NEG_INF if bound.lo is None else bound.lo,
            ConstIntBound.POS_INF if bound.hi is None else bound.hi,
        )

    # -- proofs ------------------------------------------------------------------------------
    def can_prove_equal(self, a: Dim, b: Dim) -> bool:
        """Whether both are equal for all values that the variables can have."""
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        if a is b:
            return True
        return _equal(self._resolve(a), self._resolve(b), self._proof) or (
            bool(self._assumptions()) and self.can_prove(EQ.make(a, b))
        )

    def can_prove_less(self, a: Dim, b: Dim) -> bool:
        """Whether ``a < b`` always holds."""
        return self.can_prove(LT.make(a, b))

    def can_prove_greater_equal(self, a: Dim, b: Dim) -> bool:
        """Whether ``a >= b`` always holds."""
        return self.can_prove(GE.make(a, b))

    def can_prove(self, condition: PrimExpr | bool) -> bool:
        """Whether a condition holds for all values that the variables can have."""
        if isinstance(condition, bool):
            return condition
        if condition.dtype != "bool":
            raise TypeError(f"can_prove: expected a condition, got `{condition}`")
        # Iterative over conjunctions; a disjunction holds if one side does, or as a tautology.
        stack = [self._resolve(condition)]
        while stack:
            node = stack.pop()
            if isinstance(node, And):
                stack += (node.a, node.b)
            elif not self._holds(node):
                return False
        return True

    def _holds(self, node: PrimExpr) -> bool:
        if node in self._constraints:
            return True
        if isinstance(node, Or):
            return self._one_holds(_parts(node, Or))
        if isinstance(node, Not):
            if isinstance(node.a, And):
                return self._one_holds([negated(part) for part in _parts(node.a, And)])
            turned = negated(node.a)
            return not isinstance(turned, Not) and self.can_prove(turned)
        if isinstance(node, CmpExpr) and is_arithmetic(node.a.dtype):
            return self._holds_comparison(node)
        form = self._text.linear(node)
        return form.is_const and form.const != 0

    def _one_holds(self, parts: list[PrimExpr]) -> bool:
        """Whether a disjunction holds: by one part, or because not all can fail at once."""
        if any(self.can_prove(part) for part in parts):
            return True
        return self._contradiction([negated(part) for part in parts])

    def _holds_comparison(self, node: BinaryExpr) -> bool:
        difference = self._proof.linear(node.a - node.b)
        if isinstance(node, EQ):
            return (difference.is_const and difference.const == 0) or (
                bool(self._assumptions())
                and self._at_least_zero(difference)
                and self._at_least_zero(difference.scaled(-1))
            )
        if isinstance(node, NE):
            form = self._proof.linear(node)
            if form.is_const:
                return form.const != 0
            return self._at_least_zero(_plus(difference, -1)) or self._at_least_zero(
                _plus(difference.scaled(-1), -1)
            )
        if isinstance(node, LT | LE):
            difference = difference.scaled(-1)
        return self._at_least_zero(_plus(difference, -1 if isinstance(node, LT | GT) else 0))

    def _assumptions(self) -> list[Linear]:
        """Forms known to be zero or more, from the constraints."""
        if self._known is None:
            self._known = self._nonnegative(self._constraints)
        return self._known

    def _nonnegative(self, conditions: Iterable[PrimExpr]) -> list[Linear]:
        """Conditions as forms that are zero or more; those that are not comparisons drop out."""
        out: list[Linear] = []
        stack = list(conditions)
        while stack:
            node = self._resolve(stack.pop())
            if isinstance(node, And):
                stack += (node.a, node.b)
                continue
            if isinstance(node, Not):
                node = negated(node.a)
            if not isinstance(node, CmpExpr) or not is_arithmetic(node.a.dtype):
                continue
            form = self._proof.linear(node.a - node.b)
            if isinstance(node, GE | EQ):
                out.append(form)
            if isinstance(node, LE | EQ):
                out.append(form.scaled(-1))
            if isinstance(node, GT):
                out.append(_plus(form, -1))
            if isinstance(node, LT):
                out.append(_plus(form.scaled(-1), -1))
        return out

    def _contradiction(self, conditions: list[PrimExpr]) -> bool:
        """Whether the conditions cannot hold together: their sum would be below zero."""
        forms = self._nonnegative(conditions)
        if len(forms) != len(conditions):
            return False
        total = Linear()
        for form in forms:
            total.add_scaled(1, form)
        return self._at_least_zero(_plus(total.scaled(-1), -1))

    def _at_least_zero(self, form: Linear) -> bool:
        """Whether a form is never negative.

        Tries, in turn: its interval; reading a quotient as ``(x - x % c) / c``; both operands of a
        maximum (one is enough where it is added); less what the constraints say.
        """
        steps = _PROOF_STEPS
        # A conjunction of disjunctions, flattened: each entry is a form with what is left to try.
        goals = [form]
        while goals:
            steps -= 1
            if steps < 0:
                return False
            goal = goals.pop()
            if self._proof.interval(goal).at_least(0) or self._follows(goal):
                continue
            weaker = self._without_quotient(goal)
            if weaker is not None and (
                self._proof.interval(weaker).at_least(0) or self._follows(weaker)
            ):
                continue
            split = self._without_maximum(goal if weaker is None else weaker)
            if split is None:
                return False
            goals += split
        return True

    def _follows(self, goal: Linear) -> bool:
        known = self._assumptions()
        for i, first in enumerate(known):
            rest = goal.minus(first)
            if self._proof.interval(rest).at_least(0):
                return True
            for second in known[i:]:
                if self._proof.interval(rest.minus(second)).at_least(0):
                    return True
        return False

    def _without_quotient(self, form: Linear) -> Linear | None:
        """A positive multiple of a form below ``form``'s, in which no literal quotient is left:
        ``x // c`` lies between ``(x - c + 1) / c`` and ``x / c``."""
        changed = False
        for _ in range(len(form)):
            for term in form:
                node = term.factors[0]
                if len(term.factors) != 1 or not isinstance(node, FloorDiv):
                    continue
                by = self._proof.linear(node.b)
                if not by.is_const or by.const <= 0:
                    continue
                k = term.coefficient
                rest = form.scaled(1)
                rest.add(-k, term.factors)
                form = rest.scaled(by.const)
                form.add_scaled(k, self._proof.linear(node.a))
                form.const -= k * (by.const - 1) if k > 0 else 0
                changed = True
                break
            else:
                break
        return form if changed else None

    def _without_maximum(self, form: Linear) -> list[Linear] | None:
        """Forms that, if all are never negative, show that ``form`` is not: an operand in place of
        an added maximum (the literal 0 of ``max(x, 0)``, which the form always has), both operands
        in place of a subtracted one."""
        for term in form:
            node = term.factors[0]
            if len(term.factors) != 1 or not isinstance(node, Max):
                continue
            rest = form.scaled(1)
            rest.add(-term.coefficient, term.factors)
            sides = [rest.scaled(1), rest]
            for side, operand in zip(sides, (node.a, node.b), strict=True):
                side.add_scaled(term.coefficient, self._proof.linear(operand))
            if term.coefficient < 0:
                return sides
            for side in sides:
                if self._proof.interval(side).at_least(0) or self._follows(side):
                    return []
            return [sides[0]]
        return None


def _parts(node: PrimExpr, kind: type[And | Or]) -> list[PrimExpr]:
    """The operands of nested conjunctions (or disjunctions)."""
    pending, parts = [node], list[PrimExpr]()
    while pending:
        part = pending.pop()
        if isinstance(part, kind):
            pending += (part.b, part.a)
        else:
            parts.append(part)
    return parts


def _plus(form: Linear, constant: int) -> Linear:
    result = form.scaled(1)
    result.const += constant
    return result


def _as_dim(expr: PrimExpr) -> Dim:
    return expr.value if isinstance(expr, IntImm) and expr.dtype == "int64" else expr


def _simplify(expr: PrimExpr, text: TextForm, proof: ProofForm) -> PrimExpr:
    form = text.linear(expr)
    if len(form) > 1 and is_arithmetic(expr.dtype):
        # The text form does not multiply out, so it can miss that everything cancels.
        exact = proof.linear(expr)
        if exact.is_const:
            return IntImm(expr.dtype, exact.const)
    if len(form) == 1 and form.const == 0:
        # A lone -n is written as it came, n * -1 or 0 - n, as in TVM.
        (term,) = form
        if term.coefficient == -1 and isinstance(expr, BinaryExpr) and expr.b == -1:
            return text.expr(form.scaled(-1), expr.dtype) * -1
    return text.expr(form, expr.dtype)


def _equal(a: PrimExpr, b: PrimExpr, proof: ProofForm) -> bool:
    if a == b:
        return True
    if isinstance(a, IntImm) and isinstance(b, IntImm):  # a zero is a zero in every dtype
        return a.value == b.value
    if a.dtype != b.dtype or not (is_arithmetic(a.dtype) or a.dtype == "bool"):
        return False
    return proof.linear(a).equals(proof.linear(b))


_NO_BOUNDS: dict[Var, Interval] = {}


def simplify(expr: Dim) -> Dim:
    """The normal form of an expression, with nothing known but that a ``SizeVar`` is not negative.

    An int and a variable are returned as they are; an int64 literal comes back as an int.
    """
    if isinstance(expr, int | Var):
        return expr
    if expr.dtype == "bool":
        return Analyzer().simplify(expr)
    return _as_dim(_simplify(expr, TextForm(_NO_BOUNDS), ProofForm(_NO_BOUNDS)))


def can_prove_equal(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are equal for all values of their variables."""
    if a is b:
        return True
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if (isinstance(a, Var) and isinstance(b, int | Var)) or (
        isinstance(a, int) and isinstance(b, Var)
    ):
        return False
    return _equal(as_prim_expr(a), as_prim_expr(b), ProofForm(_NO_BOUNDS))
