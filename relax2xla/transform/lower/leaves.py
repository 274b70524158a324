"""Values of nested tuples as their leaves, which rows take and give, and back."""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla.ir import Expr, StructInfo, Tuple, TupleStructInfo


def unpack(value: Expr, info: StructInfo) -> list[Expr]:
    """The leaves of a nested tuple value, in order."""
    if not isinstance(info, TupleStructInfo):
        return [value]
    return [leaf for i, f in enumerate(info.fields) for leaf in unpack(value[i], f)]


def pack(leaves: Sequence[Expr], info: StructInfo) -> Expr:
    """The nested tuple of ``info`` from its leaves; inverse of :func:`unpack`."""
    rest = iter(leaves)

    def build(part: StructInfo) -> Expr:
        if not isinstance(part, TupleStructInfo):
            return next(rest)
        return Tuple([build(f) for f in part.fields])

    return build(info)
