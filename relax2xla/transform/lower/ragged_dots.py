"""Products of groups of unknown sizes, which XLA:CPU cannot compile, as products of what is known.

``chlo.ragged_dot`` multiplies rows that lie group by group, each group by a matrix of its own. JAX
writes it for processors that have it, as TPUs do; XLA:CPU refuses it ("HLO opcode `ragged-dot` is
not supported"). Each row is multiplied as if it were in every group, and what does not belong to it
is left out: as many multiplications as JAX's own form for CPUs has, but what is not finite stays in
its group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relax2xla.dpl.make import is_op
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.dtypes import dtype_info
from relax2xla.ir import Call, Expr, Function, IRModule
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    compare,
    convert,
    dot_general,
    dtype_of,
    full_like,
    hlo,
    iota,
    reduce,
    select,
    shape_of,
    transpose,
)
from relax2xla.transform.core import ROWS, FunctionPass, PassContext, register


@register(stage="static", requires=(ROWS,), ensures=(ROWS,), needed=True)
class ExpandRaggedDots(FunctionPass):
    """Write ``chlo.ragged_dot`` as ``stablehlo.dot_general`` of what belongs to each group."""

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        """Itself with products of known sizes."""
        return rewrite(func, [_expanded])[0]


@rule(is_op("relax.chlo.ragged_dot")(varg_default_wildcard=True))
def _expanded(m: Match) -> Expr:
    call = m.call
    left, right, sizes = call.args
    product = _Product(call.attrs["ragged_dot_dimension_numbers"], call)
    ragged = product.ragged
    if ragged in product.left.batch:
        return product.of(left, right)
    if ragged in product.left.contracted:
        return product.group_by_group(left, right, sizes)
    return product.one_of_all(left, right, sizes)


@dataclass(frozen=True)
class _Side:
    """The axes of an operand that are counted together with the other's, and those added up."""

    shape: tuple[int, ...]
    batch: tuple[int, ...]
    contracted: tuple[int, ...]

    @property
    def free(self) -> list[int]:
        """The other axes."""
        taken = {*self.batch, *self.contracted}
        return [a for a in range(len(self.shape)) if a not in taken]

    def before(self, ragged: int) -> list[int]:
        """The axes for whose places sizes of groups along ``ragged`` may differ."""
        beside = list(self.contracted) if ragged in self.contracted else self.free
        return [*self.batch, *beside[: beside.index(ragged)]]

    def behind_groups(self) -> _Side:
        """The same with an axis of groups before all others, which is counted together."""
        batch, contracted = ([a + 1 for a in axes] for axes in (self.batch, self.contracted))
        return _Side(self.shape, (0, *batch), tuple(contracted))


class _Product:
    """A product of two operands by its numbers of dimensions."""

    def __init__(self, dims: Mapping[str, Any], call: Call) -> None:
        def side(name: str, x: Expr) -> _Side:
            kinds = ("batching", "contracting")
            batch, contracted = (tuple(dims.get(f"{name}_{k}_dimensions", ())) for k in kinds)
            return _Side(shape_of(x), batch, contracted)

        self.left, self.right = side("lhs", call.args[0]), side("rhs", call.args[1])
        (self.ragged,) = dims["lhs_ragged_dimensions"]
        self.groups = tuple(dims.get("rhs_group_dimensions", ()))
        self.dtype = dtype_of(call)
        self.attrs = {n: v for n, v in call.attrs.items() if n == "precision_config"}

    def of(self, left: Expr, right: Expr) -> Expr:
        """All of it, of operands as they are."""
        return self._dot(left, right, self.left, self.right)

    def one_of_all(self, left: Expr, right: Expr, sizes: Expr) -> Expr:
        """Rows by the matrices of all groups, of which each row has one, or none."""
        ours, (group,) = self.left, self.groups
        made = self.of(left, right)
        places = [*ours.batch, *ours.free]  # of the axes of the result
        axis = len(places) + self.right.free.index(group)
        before = [places.index(a) for a in ours.before(self.ragged)]
        belongs = _belongs(sizes, shape_of(made), before, places.index(self.ragged), axis)
        return reduce(select(belongs, made, full_like(made, 0)), "add", [axis])

    def group_by_group(self, left: Expr, right: Expr, sizes: Expr) -> Expr:
        """A product for each group, of what it has of both operands."""
        ours, others = self.left, self.right
        ragged = others.contracted[ours.contracted.index(self.ragged)]
        own = _by_group(left, sizes, ours, self.ragged)
        other = _by_group(right, sizes, others, ragged)
        return self._dot(own, other, ours.behind_groups(), others.behind_groups())

    def _dot(self, left: Expr, right: Expr, ours: _Side, others: _Side) -> Expr:
        contracted, batch = (ours.contracted, others.contracted), (ours.batch, others.batch)
        return dot_general(left, right, contracted, batch, self.dtype, **self.attrs)


def _by_group(x: Expr, sizes: Expr, side: _Side, ragged: int) -> Expr:
    """``x`` once for each group, with zeros for what is not the group's."""
    shape = (shape_of(sizes)[-1], *side.shape)
    repeated = broadcast_in_dim(x, shape, range(1, len(shape)))
    before = [a + 1 for a in side.before(ragged)]
    belongs = _belongs(sizes, shape, before, ragged + 1, 0)
    return select(belongs, repeated, full_like(repeated, 0))


def _belongs(
    sizes: Expr, shape: Sequence[int], before: Sequence[int], ragged: int, group: int
) -> Expr:
    """Whether a place along the axis ``ragged`` of ``shape`` belongs to that along ``group``.

    ``before``: the axes for whose places ``sizes`` [before, groups] differ; without them, [groups].
    """
    if dtype_info(dtype_of(sizes)).bits < 32:
        sizes = convert(sizes, "int32")
    own, last = shape_of(sizes), len(shape_of(sizes)) - 1
    square = (*own, own[last])
    one, other = iota(square, last, "int32"), iota(square, last + 1, "int32")
    others = broadcast_in_dim(sizes, square, [*range(last), last + 1])
    not_behind = select(compare(other, one, "LE"), others, full_like(others, 0))
    ends = reduce(not_behind, "add", [last + 1])
    # Of the axes that matter alone; what follows repeats it along the others.
    small = (*own[:last], shape[ragged], own[last])
    begin, end = (
        broadcast_in_dim(x, small, [*range(last), last + 1])
        for x in (hlo("subtract", ends, sizes), ends)
    )
    place = iota(small, last, dtype_of(sizes))
    found = hlo("and", compare(begin, place, "LE"), compare(place, end, "LT"))
    axes = [*(before if last else ()), ragged, group]
    order = sorted(range(len(axes)), key=axes.__getitem__)
    return broadcast_in_dim(transpose(found, order), shape, [axes[a] for a in order])
