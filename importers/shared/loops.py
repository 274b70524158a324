"""Loops for importers: bodies of high-level operators in regions of ``stablehlo.while``.

A body sees the values around it; XLA passes them in as invariants of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from relax2xla import op as R
from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.ir import (
    Constant,
    Expr,
    Function,
    Op,
    SeqExpr,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    Var,
)
from relax2xla.tir import Dim

INDEX = TensorStructInfo((), "int64")


class NotInvariant(ValueError):
    """The body of a loop changes the shape or dtype of a value that it carries.

    ``before``, ``after``: the type that is carried, and the one that the body gives
    """

    def __init__(
        self, why: str, before: StructInfo | None = None, after: StructInfo | None = None
    ) -> None:
        super().__init__(why)
        self.before, self.after = before, after


@dataclass(frozen=True, slots=True)
class Stack:
    """How the rows that iterations make are stacked: along a new ``axis``, or last one first."""

    axis: int = 0
    reverse: bool = False


def while_loop(
    bb: BlockBuilder,
    cond: Callable[[Sequence[Expr]], Expr],
    body: Callable[[Sequence[Expr]], Sequence[Expr]],
    inits: Sequence[Expr],
) -> list[Expr]:
    """Values after ``while cond(values): values = body(values)``, from ``inits`` on.

    cond:  a scalar boolean from the values (called once, where ``bb`` stands in its region)
    body:  new values, of the same shapes and dtypes, else :class:`NotInvariant`
    """
    starts = [_bound(bb, x) for x in inits]
    params = [Var(f"carried_{i}", x.struct_info) for i, x in enumerate(starts)]
    bb.begin_scope(params)
    try:
        results = [_bound(bb, x) for x in body(params)]
    finally:
        blocks = bb.end_scope()
    _check(params, results)
    step = Function(params, SeqExpr(blocks, _packed(results)))
    return _emit_while(bb, starts, cond, step)


def scan(
    bb: BlockBuilder,
    length: Dim,
    body: Callable[[Expr, Sequence[Expr]], tuple[Sequence[Expr], Sequence[Expr]]],
    inits: Sequence[Expr],
    stacks: Sequence[Stack],
) -> tuple[list[Expr], list[Expr]]:
    """``length`` iterations: the last values, and the rows that each iteration made, stacked.

    body: from the number of the iteration (an int64 scalar) and the values: new values of the same
          shapes and dtypes (else :class:`NotInvariant`), and one row for each of ``stacks``
    """
    starts = [_bound(bb, x) for x in inits]
    at = Var("step", INDEX)
    values = [Var(f"carried_{i}", x.struct_info) for i, x in enumerate(starts)]
    size = number(length)
    bb.begin_scope([at, *values])
    try:
        new, rows = body(at, values)
        results = [_bound(bb, x) for x in new]
        outs: list[Var] = []
        for i, (row, stack) in enumerate(zip(rows, stacks, strict=True)):
            row = _bound(bb, row)
            info = row.struct_info
            if not isinstance(info, TensorStructInfo) or info.dims is None:
                raise NotInvariant("a row has no known shape")
            axis = stack.axis % (len(info.dims) + 1)
            dims = (*info.dims[:axis], length, *info.dims[axis:])
            out = Var(f"stack_{i}", TensorStructInfo(dims, info.dtype))
            outs.append(out)
            where: Expr = at
            if stack.reverse:
                where = R.subtract(R.subtract(size, number(1)), at)
            results.append(_bound(bb, put(out, row, _bound(bb, where), axis)))
        results.append(_bound(bb, R.add(at, number(1))))
    finally:
        blocks = bb.end_scope()
    params = [*values, *outs, at]
    _check(params, results)
    empty = [R.zeros(_shape(v), _tensor(v).dtype) for v in outs]
    if isinstance(length, int) and length == 0:
        # A slice of one row does not fit in a stack of none.
        return list(starts), [bb.emit(x) for x in empty]
    step = Function(params, SeqExpr(blocks, _packed(results)))
    begin = [*starts, *(bb.emit(x) for x in empty), bb.emit(number(0))]
    made = _emit_while(bb, begin, lambda xs: R.less(xs[-1], size), step)
    return made[: len(starts)], made[len(starts) : -1]


def element(x: Expr, at: Expr, axis: int) -> Expr:
    """``x[..., at, ...]`` for an int64 scalar ``at`` within range; the axis goes away."""
    dims = _tensor(x).dims
    if dims is None or not all(isinstance(d, int) for d in dims):
        return R.take(x, at, axis)
    sizes = [1 if i == axis else d for i, d in enumerate(dims)]
    starts = [at if i == axis else number(0) for i in range(len(dims))]
    part = Op.get("relax.stablehlo.dynamic_slice")(x, *starts, slice_sizes=sizes)
    return R.squeeze(part, [axis])


def put(x: Expr, value: Expr, at: Expr, axis: int) -> Expr:
    """``x`` with its element ``at`` (an int64 scalar within range) along ``axis`` replaced."""
    starts = [at if i == axis else number(0) for i in range(_tensor(x).ndim)]
    update = R.expand_dims(value, [axis])
    return Op.get("relax.stablehlo.dynamic_update_slice")(x, update, *starts)


def number(dim: Dim) -> Expr:
    """An integer or a dimension as an int64 scalar."""
    if isinstance(dim, int):
        return Constant(np.array(dim, np.int64))
    return R.reshape(R.shape_to_tensor(ShapeExpr((dim,))), ())


def _emit_while(
    bb: BlockBuilder,
    starts: Sequence[Expr],
    cond: Callable[[Sequence[Expr]], Expr],
    step: Function,
) -> list[Expr]:
    params = [Var(p.name_hint, p.struct_info) for p in step.params]
    bb.begin_scope(params)
    try:
        verdict = _bound(bb, cond(params))
    finally:
        blocks = bb.end_scope()
    test = Function(params, SeqExpr(blocks, verdict))
    made = bb.emit(Op.get("relax.stablehlo.while_")(*starts, test, step))
    return [made] if len(starts) == 1 else [bb.emit(made[i]) for i in range(len(starts))]


def _bound(bb: BlockBuilder, x: Expr) -> Var:
    return x if isinstance(x, Var) else bb.emit(x)


def _packed(values: Sequence[Expr]) -> Expr:
    return values[0] if len(values) == 1 else Tuple(values)


def _tensor(x: Expr) -> TensorStructInfo:
    info = x.struct_info
    assert isinstance(info, TensorStructInfo)
    return info


def _shape(x: Expr) -> ShapeExpr:
    dims = _tensor(x).dims
    assert dims is not None
    return ShapeExpr(dims)


def _check(before: Sequence[Expr], after: Sequence[Expr]) -> None:
    for at, (a, b) in enumerate(zip(before, after, strict=True)):
        if not same(a.struct_info, b.struct_info):
            raise NotInvariant(
                f"the loop carries {a.struct_info} as value {at}, and its body gives "
                f"{b.struct_info}",
                a.struct_info,
                b.struct_info,
            )


def same(a: StructInfo, b: StructInfo) -> bool:
    """Whether two tensors have one dtype and provably one known shape."""
    if not (isinstance(a, TensorStructInfo) and isinstance(b, TensorStructInfo)):
        return False
    if a.dims is None or b.dims is None or a.dtype != b.dtype or len(a.dims) != len(b.dims):
        return False
    return all(
        x == y if isinstance(x, int) and isinstance(y, int) else tir.can_prove_equal(x, y)
        for x, y in zip(a.dims, b.dims, strict=True)
    )
