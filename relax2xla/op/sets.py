"""Operators whose result's size depends on data: unique, nonzero. They run on the host.

XLA has no such shapes, so the virtual machine computes them with numpy between compiled parts.
Sources: TVM Relax v0.20 for inference, numpy for values.
"""

from __future__ import annotations

from relax2xla.ir.expr import Expr, PrimValue
from relax2xla.ir.op import Given, op
from relax2xla.ir.op_param import PrimLike
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from relax2xla.ir.traits import Opaque
from relax2xla.op.shared.checks import norm_axis, tensor, want_tensor
from relax2xla.op.shared.scalars import integer, number


@op("relax.unique", Opaque())
def unique(
    x: Expr,
    sorted: PrimLike = True,
    return_index: PrimLike = False,
    return_inverse: PrimLike = False,
    return_counts: PrimLike = False,
    axis: PrimLike = None,
) -> StructInfo:
    """The different elements of ``x`` in ascending order, or its different slices along an axis.

    x: (*s), any real dtype; sorted, return_index, return_inverse, return_counts, axis: literals
    result: (k,), or (*s) with k at ``axis``; with flags a tuple of it and, each int64 of rank 1,
    where each was first, which of them each element is, and how often each occurs
    """
    info = want_tensor(x, "x")
    ndim = 1
    if axis is not None:
        ndim = info.ndim
        if ndim != -1:
            norm_axis(integer(axis, "axis"), ndim)
    # Of a scalar the one element is known to be different from all others.
    count = (1,) if info.ndim == 0 else None
    fields: list[StructInfo] = [tensor(count, info.dtype, ndim, info)]
    for name, flag in (
        ("return_index", return_index),
        ("return_inverse", return_inverse),
        ("return_counts", return_counts),
    ):
        if number(flag, name):
            fields.append(tensor(count, "int64", 1))
    return fields[0] if len(fields) == 1 else TupleStructInfo(fields)


@unique.shorthand
def _(given: Given) -> Given:
    flags = ("sorted", "return_index", "return_inverse", "return_counts")
    return {name: PrimValue(int(given[name])) for name in flags if isinstance(given[name], bool)}


@op("relax.nonzero", Opaque())
def nonzero(x: Expr) -> StructInfo:
    """The positions of the elements that are not 0, in row-major order.

    x: (*s) of rank r, any dtype
    result: (r, k), int64 (of a scalar (1, k))
    """
    want_tensor(x, "x")
    return TensorStructInfo(None, "int64", ndim=2)
