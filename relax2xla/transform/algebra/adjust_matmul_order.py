"""AdjustMatmulOrder: of products of three matrices, the two that make least work go first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from relax2xla import op, tir
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.pattern import DFPattern
from relax2xla.dpl.rules import Match, Rule, rule
from relax2xla.ir import Expr, Function, IRModule
from relax2xla.ir.lattice import free_symbolic_vars
from relax2xla.tir import Dim
from relax2xla.transform.algebra.common import Weights, one_dtype, permutation, replaced, shape
from relax2xla.transform.core import FunctionPass, PassContext, register


@register(opt_level=1)
class AdjustMatmulOrder(FunctionPass):
    """Write ``matmul(x, matmul(a, b))`` as ``matmul(matmul(x, a), b)``, or the other way round,
    whichever needs fewer operations.

    The inner product may be transposed (rank 2). Two of the three that are weights (constants, or
    parameters behind the first ``num_input``) are multiplied with each other, because that is done
    once. Otherwise operations are counted for one matrix of a batch; symbolic sizes are 1 or more,
    and less than what the function's attribute ``tir_var_upper_bound`` says of them by name. Where
    neither order is proven to be better nothing changes. Results change by rounding.

    Measured: ``x (a b)``, 64x1024 with rank 8, all arguments: 1.65, 0.13
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        weights, bounds = Weights(func), _Bounds(func)

        def ordered(left: bool, inner: DFPattern, turned: DFPattern | None) -> Rule:
            def action(m: Match) -> Expr | None:
                return _other_order(m, left, inner, turned, weights, bounds)

            first = turned or inner
            pair = (first, _c) if left else (_a, first)
            return rule(is_op("relax.matmul")(*pair))(action)

        rules: list[Rule] = []
        for left in (True, False):
            one, two = (_a, _b) if left else (_b, _c)
            rules.append(ordered(left, is_op("relax.matmul")(one, two), None))
            inner = is_op("relax.matmul")(two, one)
            rules.append(ordered(left, inner, is_op("relax.permute_dims")(inner)))
        return replaced(func, rules)


_a, _b, _c = wildcard(), wildcard(), wildcard()


def _other_order(
    m: Match,
    left: bool,
    inner: DFPattern,
    turned: DFPattern | None,
    weights: Weights,
    bounds: _Bounds,
) -> Expr | None:
    """``a b c`` in the other order than it has (``left``: the first two go first), if that is
    better.
    """
    a, b, c = (m[p] for p in (_a, _b, _c))
    shapes = [shape(v) for v in (a, b, c)]
    if any(s is None for s in shapes) or not one_dtype(a, b, c, m.called(inner), m.value):
        return None
    dims = [s for s in shapes if s is not None]
    swapped = ((0, 1) if left else (1, 2)) if turned is not None else ()
    if turned is not None and permutation(m.called(turned)) != (1, 0):
        return None
    dims = [tuple(reversed(d)) if i in swapped else d for i, d in enumerate(dims)]
    better = _left_is_better(m, (a, b, c), dims, weights, bounds)
    if better is None or better is left:
        return None
    a, b, c = (op.permute_dims(v) if i in swapped else v for i, v in enumerate((a, b, c)))
    if better:
        return op.matmul(op.matmul(a, b), c)
    return op.matmul(a, op.matmul(b, c))


def _left_is_better(
    m: Match,
    values: Sequence[Expr],
    dims: Sequence[tuple[Dim, ...]],
    weights: Weights,
    bounds: _Bounds,
) -> bool | None:
    """Whether ``(a b) c`` is better than ``a (b c)``; None where neither is."""
    ranks = [len(d) for d in dims]
    # Vectors at the ends are matrices of one row or column, which batches would take for theirs.
    if ranks[1] < 2 or min(ranks) < 1 or (min(ranks) == 1 and max(ranks) > 2):
        return None
    a, b, c = values
    if weights.hold(m, a, b, c):
        return None
    if weights.hold(m, a, b):
        return True
    if weights.hold(m, b, c):
        return False
    n, r = (1, dims[0][0]) if ranks[0] == 1 else dims[0][-2:]
    k, p = (dims[2][0], 1) if ranks[2] == 1 else dims[2][-2:]
    left_first, right_first = (r + p) * n * k, (n + k) * r * p
    if bounds.less(left_first, right_first, (n, r, k, p)):
        return True
    return False if bounds.less(right_first, left_first, (n, r, k, p)) else None


class _Bounds:
    """What is known of the symbolic sizes of a function."""

    def __init__(self, func: Function) -> None:
        named = dict(func.attrs.get("tir_var_upper_bound") or {})
        self._limits: dict[tir.Var, int] = {}
        for var in {v for p in func.params for v in free_symbolic_vars(p.struct_info)}:
            if var.name in named:
                self._limits[var] = int(named[var.name])

    def less(self, one: Dim, two: Dim, sizes: Sequence[Dim]) -> bool:
        """Whether ``one < two`` for all values of ``sizes``, which both are sums of products of.

        In a bounded size that occurs once both are linear, so that its two ends are looked at.
        """
        symbols = [v for s in sizes for v in tir.free_vars(s)]
        ends: list[Iterable[int]] = []
        linear = [v for v in dict.fromkeys(symbols) if v in self._limits and symbols.count(v) == 1]
        linear = [v for v in linear if any(s is v for s in sizes)]
        ends = [(1, max(1, self._limits[v] - 1)) for v in linear]
        analyzer = tir.Analyzer()
        for v in dict.fromkeys(symbols):
            if v not in linear:
                limit = self._limits.get(v, 1 << 62)
                analyzer.bind(v, tir.Range.from_min_extent(1, max(1, limit - 1) - 1))
        for values in product(*ends):
            at = dict(zip(linear, values, strict=True))
            if not analyzer.can_prove_less(tir.substitute(one, at), tir.substitute(two, at)):
                return False
        return True
