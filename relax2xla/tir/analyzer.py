"""The analyzer: simplification to the normal form, and proofs about it."""

from __future__ import annotations

from math import gcd

from .expr import Add, BinaryExpr, Dim, FloorDiv, FloorMod, IntImm, Max, Min, Mul, PrimExpr, Sub, is_int
from .functor import structural_equal
from .linear import Linear


class Simplifier:
    """One run of simplification: a memo of the normal form of each node."""

    def __init__(self, expand: bool) -> None:
        self.expand = expand
        self.memo: dict[int, tuple[PrimExpr, Linear]] = {}

    def linear(self, root: PrimExpr) -> Linear:
        """The normal form of ``root``."""
        stack = [root]
        while stack:
            node = stack[-1]
            if id(node) in self.memo:
                stack.pop()
                continue
            needs = [n for _, n in _summands(node)] if _is_sum(node) else node.children()
            missing = [n for n in needs if id(n) not in self.memo]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            self.memo[id(node)] = (node, self._reduce(node))
        return self.memo[id(root)][1]

    def simplify(self, root: PrimExpr) -> PrimExpr:
        return self.linear(root).to_expr(root.dtype)

    def _of(self, node: PrimExpr) -> Linear:
        return self.memo[id(node)][1]

    def _reduce(self, node: PrimExpr) -> Linear:
        if isinstance(node, IntImm):
            return Linear(node.value)
        if _is_sum(node):
            result = Linear()
            for scale, summand in _summands(node):
                result.add_scaled(scale, self._of(summand))
            return result
        if isinstance(node, BinaryExpr) and is_int(node.a.dtype):
            a, b = self._of(node.a), self._of(node.b)
            dtype = node.a.dtype
            if isinstance(node, Mul):
                return self._product(a, b, dtype)
            if isinstance(node, FloorDiv) and b.is_const and b.const:
                return self._floordiv(a, b.const, dtype)
            if isinstance(node, FloorMod) and b.is_const and b.const:
                return self._floormod(a, b.const, dtype)
            if isinstance(node, Min | Max):
                difference = a.scaled(1)
                difference.add_scaled(-1, b)
                if difference.is_const:
                    return a if (difference.const > 0) == isinstance(node, Max) else b
        children = node.children()
        if not children:
            return Linear.of(node)
        new = [self._of(c).to_expr(c.dtype) for c in children]
        result = node.rebuild(new)
        return Linear(result.value) if isinstance(result, IntImm) else Linear.of(result)

    def _product(self, a: Linear, b: Linear, dtype: str) -> Linear:
        if a.is_const:
            return b.scaled(a.const)
        if b.is_const:
            return a.scaled(b.const)
        result = Linear()
        if self.expand:
            for x in a:
                result.add_scaled(x.coefficient * b.const, _lin(x.factors))
                for y in b:
                    result.add(x.coefficient * y.coefficient, x.factors + y.factors)
            result.add_scaled(a.const, b)
            return result
        coefficient = 1
        factors: tuple[PrimExpr, ...] = ()
        for side in (a, b):
            term = side.single()
            if term is None:
                factors += (side.to_expr(dtype),)
            else:
                coefficient *= term.coefficient
                factors += term.factors
        result.add(coefficient, factors)
        return result

    def _floordiv(self, a: Linear, c: int, dtype: str) -> Linear:
        if c < 0:
            a, c = a.scaled(-1), -c
        quotient, rest = Linear(a.const // c), Linear(a.const % c)
        for t in a:
            if t.coefficient % c == 0:
                quotient.add(t.coefficient // c, t.factors)
            else:
                rest.add(t.coefficient, t.factors)
        if rest.is_const:
            return quotient
        g = gcd(c, *(t.coefficient for t in rest))
        small = Linear(rest.const // g)
        for t in rest:
            small.add(t.coefficient // g, t.factors)
        if c == g:
            quotient.add_scaled(1, small)
        else:
            quotient.add(1, (FloorDiv.make(small.to_expr(dtype), c // g),))
        return quotient

    def _floormod(self, a: Linear, c: int, dtype: str) -> Linear:
        quotient = self._floordiv(a, c, dtype)
        result = a.scaled(1)
        result.add_scaled(-c, quotient)
        if result.is_const:
            return result
        return Linear.of(FloorMod.make(a.to_expr(dtype), c))


def _lin(factors: tuple[PrimExpr, ...]) -> Linear:
    result = Linear()
    result.add(1, factors)
    return result


def _is_sum(node: PrimExpr) -> bool:
    if not is_int(node.dtype):
        return False
    if isinstance(node, Add | Sub):
        return True
    return isinstance(node, Mul) and (isinstance(node.a, IntImm) or isinstance(node.b, IntImm))


def _summands(root: PrimExpr) -> list[tuple[int, PrimExpr]]:
    """The summands of nested sums and literal multiples, left to right, with their factors."""
    out: list[tuple[int, PrimExpr]] = []
    stack = [(1, root)]
    while stack:
        scale, node = stack.pop()
        if not _is_sum(node):
            out.append((scale, node))
        elif isinstance(node, Add | Sub):
            stack.append((scale if isinstance(node, Add) else -scale, node.b))
            stack.append((scale, node.a))
        elif isinstance(node, Mul):
            a, b = node.a, node.b
            if isinstance(b, IntImm):
                stack.append((scale * b.value, a))
            elif isinstance(a, IntImm):
                stack.append((scale * a.value, b))
    return out


class Analyzer:
    """Simplification and proofs."""

    def simplify(self, expr: Dim) -> Dim:
        return simplify(expr)

    def can_prove_equal(self, a: Dim, b: Dim) -> bool:
        return can_prove_equal(a, b)


def simplify(expr: Dim) -> Dim:
    """The normal form of an expression; an int is returned as it is."""
    if isinstance(expr, int):
        return expr
    result = Simplifier(expand=False).simplify(expr)
    return result.value if isinstance(result, IntImm) and result.dtype == "int64" else result


def can_prove_equal(a: Dim, b: Dim) -> bool:
    """Whether the two are equal for all values of their variables; False when it is not known."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if a is b or structural_equal(a, b):
        return True
    difference = b - a if isinstance(a, int) else a - b
    if isinstance(difference, int):
        return difference == 0
    return (form := Simplifier(expand=True).linear(difference)).is_const and form.const == 0
