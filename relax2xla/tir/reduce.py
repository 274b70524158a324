"""Reductions as expressions: what ``te.sum`` and friends are made of, before there are loops."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relax2xla.errors import OpError
from relax2xla.tir.convert import as_expr, as_prim_expr, const
from relax2xla.tir.functor import substitute
from relax2xla.tir.node import Node, PrimExpr, Var, set_field, writing
from relax2xla.tir.stmt import IterVar


class CommReducer(Node):
    """How two values, or two tuples of values, become one: associative and commutative.

    lhs, rhs: variables for both, one for each value. result: the combined values, over these.
    identity_element: what changes nothing.
    Raises OpError where their numbers differ.
    """

    __slots__ = ("identity_element", "lhs", "result", "rhs")

    def __init__(
        self,
        lhs: Sequence[Var],
        rhs: Sequence[Var],
        result: Sequence[Any],
        identity_element: Sequence[Any],
    ) -> None:
        self.lhs, self.rhs = tuple(lhs), tuple(rhs)
        counts = {len(self.lhs), len(self.rhs), len(result), len(identity_element)}
        if len(counts) != 1 or not self.lhs:
            raise OpError(
                f"a reducer of {len(self.lhs)} and {len(self.rhs)} variables gives {len(result)} "
                f"values from {len(identity_element)} identity elements; their numbers are equal"
            )
        dtypes = [v.dtype for v in self.lhs]
        self.result = tuple(map(as_prim_expr, result, dtypes))
        self.identity_element = tuple(map(as_prim_expr, identity_element, dtypes))

    def combine(self, lhs: Sequence[PrimExpr], rhs: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        """The result for other values than the variables."""
        values: Mapping[Var, Any] = dict(zip((*self.lhs, *self.rhs), (*lhs, *rhs), strict=True))
        return tuple(as_prim_expr(substitute(e, values), e.dtype) for e in self.result)

    def __call__(self, lhs: Any, rhs: Any) -> Any:
        """:meth:`combine` of values, or of tuples of them."""
        several = isinstance(lhs, tuple | list)
        sides = (lhs, rhs) if several else ((lhs,), (rhs,))
        given = [tuple(map(as_prim_expr, s, (v.dtype for v in self.lhs))) for s in sides]
        made = self.combine(*given)
        return made if several else made[0]


def comm_reducer(
    combiner: Callable[..., Any],
    identity: Sequence[Any],
    names: Sequence[str] | None = None,
    what: str = "T.comm_reducer",
) -> CommReducer:
    """A reducer of as many values as ``identity`` has; ``combiner`` takes those of both sides.

    Its result is the combined value, or a sequence of them. ``names`` of the variables are those of
    its parameters by default. OpError, which says for ``what``, where numbers differ.
    """
    begins = list(map(as_expr, identity))
    given = list(inspect.signature(combiner).parameters) if names is None else names
    if len(given) != 2 * len(begins):
        raise OpError(
            f"{what}: the combiner takes {len(given)} values; identity has {len(begins)}, "
            f"so it takes {2 * len(begins)}"
        )
    sides = [Var(n, e.dtype) for n, e in zip(given, begins * 2, strict=True)]
    with writing():
        made = combiner(*sides)
    results: Sequence[Any] = made if isinstance(made, tuple | list) else (made,)
    if len(results) != len(begins):
        raise OpError(
            f"{what}: the combiner gives {len(results)} values; identity has {len(begins)}"
        )
    return CommReducer(sides[: len(begins)], sides[len(begins) :], results, begins)


class Reduce(PrimExpr):
    """``source`` combined over ``axis`` where ``condition`` holds; stands alone in ``te.compute``.

    Of several values that are reduced together it is that at ``value_index``. ``init``: what each
    starts from; () is the reducer's identity. A ``combiner`` may be None until it is lowered.
    """

    __slots__ = ("axis", "combiner", "condition", "init", "source", "value_index")
    combiner: CommReducer | None
    source: tuple[PrimExpr, ...]
    axis: tuple[IterVar, ...]
    condition: PrimExpr
    value_index: int
    init: tuple[PrimExpr, ...]
    _fields = ("combiner", "source", "axis", "condition", "value_index", "init")

    def __init__(
        self,
        combiner: CommReducer | None,
        source: Sequence[Any],
        axis: Sequence[IterVar],
        condition: Any = None,
        value_index: int = 0,
        init: Sequence[Any] | None = None,
    ) -> None:
        values = tuple(as_prim_expr(e, "int32") for e in source)
        starts = tuple(
            as_prim_expr(s, v.dtype) for s, v in zip(init or (), values, strict=bool(init))
        )
        set_field(self, "combiner", combiner)
        set_field(self, "source", values)
        set_field(self, "axis", tuple(axis))
        set_field(self, "condition", const(True) if condition is None else as_prim_expr(condition))
        set_field(self, "value_index", value_index)
        set_field(self, "init", starts)
        set_field(self, "dtype", values[value_index].dtype)
        hashes = tuple(hash(c) for c in self.children())
        set_field(self, "_hash", hash(("Reduce", id(combiner), hashes, value_index)))

    def children(self) -> tuple[PrimExpr, ...]:
        return (*self.source, self.condition, *self.init)

    def payload(self) -> tuple[object, ...]:
        return (self.combiner, self.axis, self.value_index, len(self.init))

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        n = len(self.source)
        return Reduce(
            self.combiner,
            children[:n],
            self.axis,
            children[n],
            self.value_index,
            children[n + 1 :],
        )
