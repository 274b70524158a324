"""Sums of products with integer coefficients: the normal form of integer expressions.

A ``Linear`` is ``const + sum(coefficient * product of factors)``. Factors are expressions that the
form does not look into (variables, quotients, remainders, extrema ...); a product is the same
product in any order of its factors. Terms keep the order in which they first appeared, which is
the order TVM prints them in among equal coefficients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator

from relax2xla.tir.binary import Mul
from relax2xla.tir.node import PrimExpr


class Term:
    """``coefficient * factors[0] * factors[1] * ...``"""

    __slots__ = ("coefficient", "factors")

    def __init__(self, coefficient: int, factors: tuple[PrimExpr, ...]) -> None:
        self.coefficient = coefficient
        self.factors = factors


def _key(factors: tuple[PrimExpr, ...]) -> Hashable:
    if len(factors) == 1:
        return factors[0]
    return frozenset(Counter(factors).items())


class Linear:
    """A constant and terms; ``add`` and ``add_scaled`` change it in place while it is built."""

    __slots__ = ("const", "terms")
    terms: dict[Hashable, Term]
    const: int

    def __init__(self, const: int = 0) -> None:
        self.const = const
        self.terms = {}

    @classmethod
    def of(cls, factor: PrimExpr) -> Linear:
        """The form of one opaque factor."""
        result = cls()
        result.terms[factor] = Term(1, (factor,))
        return result

    def add(self, coefficient: int, factors: tuple[PrimExpr, ...]) -> None:
        """Add one term, merged with the term of the same factors if there is one."""
        key = _key(factors)
        found = self.terms.get(key)
        total = coefficient if found is None else found.coefficient + coefficient
        if total == 0:
            self.terms.pop(key, None)
        else:
            self.terms[key] = Term(total, factors if found is None else found.factors)

    def add_scaled(self, scale: int, other: Linear) -> None:
        """Add ``scale * other``."""
        if scale == 0:
            return
        self.const += scale * other.const
        for term in other.terms.values():
            self.add(scale * term.coefficient, term.factors)

    def scaled(self, scale: int) -> Linear:
        """``scale * self`` as a new form."""
        result = Linear()
        result.add_scaled(scale, self)
        return result

    def __iter__(self) -> Iterator[Term]:
        return iter(self.terms.values())

    def __len__(self) -> int:
        return len(self.terms)

    @property
    def is_const(self) -> bool:
        """Whether there are no terms."""
        return not self.terms

    def equals(self, other: Linear) -> bool:
        """Whether both are the same sum, in whatever order."""
        return (
            self.const == other.const
            and len(self.terms) == len(other.terms)
            and all(
                (t := other.terms.get(key)) is not None and t.coefficient == mine.coefficient
                for key, mine in self.terms.items()
            )
        )

    def minus(self, other: Linear) -> Linear:
        """``self - other`` as a new form."""
        result = self.scaled(1)
        result.add_scaled(-1, other)
        return result

    def single(self) -> Term | None:
        """The only term of a form without constant, otherwise None."""
        if self.const or len(self.terms) != 1:
            return None
        return next(iter(self.terms.values()))


def product(factors: Iterable[PrimExpr]) -> PrimExpr:
    """The product of one or more factors, from the left."""
    result: PrimExpr | None = None
    for factor in factors:
        result = factor if result is None else Mul.make(result, factor)
    if result is None:
        raise ValueError("a term has at least one factor")
    return result
