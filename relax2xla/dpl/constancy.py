"""What is computed from constants alone."""

from __future__ import annotations

from collections.abc import Mapping

from relax2xla.ir.expr import Expr
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import reads


class FromConstants:
    """Whether an expression is computed from constants alone, none of them behind a barrier.

    values: what variables are bound to, which may grow; one that is not there is no constant
    """

    def __init__(self, values: Mapping[Expr, Expr]) -> None:
        self._values = values
        self._known: dict[Expr, bool] = {}

    def __call__(self, root: Expr) -> bool:
        known = self._known
        todo = reads(root)
        while todo:
            var = todo[-1]
            if var in known:
                todo.pop()
                continue
            value = self._values.get(var)
            if value is None or is_op(value, "relax.stablehlo.optimization_barrier"):
                known[var] = False
                continue
            read = reads(value)
            unknown = [v for v in read if v not in known]
            if unknown:
                todo += unknown
            else:
                known[var] = all(known[v] for v in read)
        return all(known[v] for v in reads(root))
